//! A mount that outlives its servers, and the kills of these.

use super::Outcome;
use crate::demand;
use crate::lab::Ring;
use crate::place::Place;
use crate::supervised::Supervisor;
use narufs_fuse::control;
use narufs_fuse::mount::mountinfo;
use rand::Rng;
use rand::rngs::StdRng;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The mount; what is left of it goes with this, its supervisor too.
#[derive(Debug)]
pub struct Mounted {
    /// Who starts its servers. The first: its processes go before the place.
    pub supervisor: Supervisor,
    narufs: PathBuf,
    place: Place,
    /// What the place lies in.
    outer: TempDir,
    log: PathBuf,
}

/// Lines of what servers have said that are shown.
const SHOWN: usize = 60;

/// Opens a file, one without a name: the kernel learns by that whether opens and closes are to be told.
fn open_once(dir: &Path) -> Outcome {
    let made = openat(CWD, dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR)?;
    File::open(format!("/proc/self/fd/{}", made.as_raw_fd()))?;
    Ok(())
}

impl Mounted {
    /// Makes and mounts an image of so many bytes below `under`.
    ///
    /// # Errors
    /// What the mount says.
    pub fn new(narufs: &Path, under: &Path, bytes: u64, slots: u64, options: &str) -> Outcome<Mounted> {
        let outer = tempfile::Builder::new().prefix("narufs-outlive.").tempdir_in(under)?;
        let place = Place::make(outer.path(), Ring::Ssd, bytes, slots).map_err(|e| format!("mkfs: {e}"))?;
        // Programs of other users work there.
        for dir in [Some(outer.path()), place.point().parent()].into_iter().flatten() {
            fs::set_permissions(dir, Permissions::from_mode(0o755))?;
        }
        let log = place.point().with_file_name("log");
        // As `narufs mount` starts it, but for where it says what goes wrong.
        let mut server = Command::new(narufs)
            .args(["mount", "--announce"])
            .args([place.image(), place.point()])
            .args(["-o", "supervise=yes", "-o", options])
            .env("NARUFS_LOG", std::env::var_os("NARUFS_LOG").unwrap_or_else(|| "info".into()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()?;
        let mut said = String::new();
        server.stdout.take().ok_or("no way out")?.read_to_string(&mut said)?;
        demand!(mountinfo::find(&place.point())?.is_some(), "mount: {said}");
        open_once(&place.point())?;
        let supervisor = Supervisor::of(&place.point())?;
        Ok(Mounted { supervisor, narufs: narufs.to_owned(), place, outer, log })
    }

    /// What its servers and their supervisor have said last.
    pub fn said(&self) -> String {
        let said = fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }

    /// Where it is mounted.
    pub fn point(&self) -> PathBuf {
        self.place.point()
    }

    /// A directory beside it, which goes with it.
    pub fn aside(&self) -> &Path {
        self.outer.path()
    }

    /// Files in shared memory that the image has.
    pub fn staging_files(&self) -> usize {
        self.place.shared_files()
    }

    /// Kills the server that there is now, whatever it is doing; false: there is none.
    pub fn kill(&self) -> bool {
        self.supervisor.signal_server(Signal::KILL)
    }

    /// Counters, as soon as a server serves.
    ///
    /// # Errors
    /// There is no mount any more.
    pub fn stats(&self) -> Outcome<Value> {
        Ok(serde_json::from_str(&control::stats(&self.point())?)?)
    }

    /// Kills the server, and waits for the next.
    ///
    /// # Errors
    /// There is none.
    pub fn restart(&self) -> Outcome<Value> {
        let before = self.stats()?;
        demand!(self.kill(), "no server is there to be killed");
        let after = self.stats()?;
        demand!(before["incarnation"].as_u64() < after["incarnation"].as_u64(), "the same server answers");
        Ok(after)
    }

    /// Unmounts, and has the image checked.
    ///
    /// # Errors
    /// What is wrong.
    pub fn end(self) -> Outcome {
        let out = Command::new(&self.narufs).arg("umount").arg(self.point()).stdin(Stdio::null()).output()?;
        demand!(out.status.success(), "umount: {}", String::from_utf8_lossy(&out.stderr));
        Ok(self.place.check()?)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever waits for an answer gets an error; then its processes go.
        let _ = self.place.detach();
    }
}

/// When the next kill comes.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Milliseconds between most of them, at least and at the most: each doubling of the time is as likely.
    pub between: (f64, f64),
    /// One of so many comes within [`Pace::SOON`] of the one before, so that it hits the successor before it serves.
    pub soon: u32,
}

impl Pace {
    /// Milliseconds within which a successor begins to serve.
    pub const SOON: f64 = 150.0;
    /// So many come soon, one after the other: fewer than make a supervisor give up.
    const MOST_SOON: u32 = 3;

    /// How long after the last one; `in_a_row` counts those that came soon.
    pub fn next(&self, random: &mut StdRng, in_a_row: &mut u32) -> Duration {
        let is_soon = *in_a_row < Pace::MOST_SOON && random.random_ratio(1, self.soon);
        let ms = if is_soon {
            *in_a_row += 1;
            random.random_range(0.0..Pace::SOON)
        } else {
            *in_a_row = 0;
            let (least, most) = self.between;
            least * (most / least).powf(random.random_range(0.0..1.0))
        };
        Duration::from_secs_f64(ms / 1000.0)
    }
}
