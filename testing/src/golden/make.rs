//! Makes golden images by the `narufs` command of any build: system calls on its mount, which is unmounted or whose
//! server is killed after a certain step.

use super::files::{big_directory, first_files, later_files, names_alone, overwrites};
use super::{pack, tree};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a set's image is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Unmounted.
    Clean,
    /// Killed: what is in the ring, or its staging, is left as well.
    Killed,
    /// The same without the staging.
    PowerLost,
}

/// What is done to an image, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// What the journal alone holds: nothing is synced, and no file has bytes.
    NamesAlone,
    /// Each feature once.
    FirstFiles,
    /// A directory that was larger.
    BigDirectory,
    /// The mount grows.
    Resize,
    /// `narufs sync`.
    Sync,
    /// Syncs of one file.
    Overwrites,
    /// Changes on top of all, and a file that is open without a name.
    LaterFiles,
    /// `narufs sync --power`.
    SyncPower,
}

/// What is there again when the server is killed after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// All names, and what a step has synced of single files; not the bytes of the others.
    Names,
    /// The whole tree.
    All,
    /// The whole tree, also without the memory in which a ring is staged.
    AllWithoutMemory,
}

impl Step {
    /// What holds once this step is over.
    pub fn promise(self) -> Promise {
        match self {
            Step::FirstFiles | Step::BigDirectory | Step::Resize => Promise::Names,
            Step::NamesAlone | Step::Sync | Step::Overwrites | Step::LaterFiles => Promise::All,
            Step::SyncPower => Promise::AllWithoutMemory,
        }
    }
}

use Step::*;

/// The sets of each kind of ring: how each is made, and how it is left.
const SETS: [(&str, &[Step], Left); 6] = [
    ("clean", &[FirstFiles, BigDirectory, Sync, Overwrites, LaterFiles], Left::Clean),
    ("resized", &[FirstFiles, BigDirectory, Resize, Sync, Overwrites, LaterFiles], Left::Clean),
    ("killed-unsynced", &[NamesAlone], Left::Killed),
    ("killed-early", &[FirstFiles, Sync], Left::Killed),
    ("killed", &[FirstFiles, BigDirectory, Sync, Overwrites, LaterFiles], Left::Killed),
    ("power-lost", &[FirstFiles, BigDirectory, Sync, Overwrites, LaterFiles, SyncPower], Left::PowerLost),
];

/// The steps of the sets.
pub fn ways() -> impl Iterator<Item = &'static [Step]> {
    SETS.iter().map(|(_, steps, _)| *steps)
}

/// Makes sets below `into`, which must not be there yet, by the command `narufs`: all, or those with one of these
/// names. It takes root.
///
/// # Errors
/// Those of the command and of system calls.
pub fn make(narufs: &Path, into: &Path, wanted: &[String]) -> io::Result<()> {
    fs::create_dir(into)?;
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    for (name, steps, left) in SETS {
        for emulated in [false, true] {
            let name = format!("{}-{name}", if emulated { "emulated" } else { "ssd" });
            // Where the ring is not staged, there is nothing else that a loss of power takes.
            if !is_wanted(&name) || emulated && left == Left::PowerLost {
                continue;
            }
            let set = into.join(name);
            fs::create_dir(&set)?;
            Maker::new(narufs, emulated)?.make(&set, steps, left)?;
        }
    }
    if is_wanted("scratch-spill") {
        let set = into.join("scratch-spill");
        fs::create_dir(&set)?;
        Maker::new(narufs, false)?.spill(&set)?;
    }
    Ok(())
}

/// Makes a set in an empty directory of what is left when the server is killed after these steps; without memory, the
/// staging of its ring is lost too.
///
/// # Errors
/// As [`make`].
pub fn killed_after(
    narufs: &Path,
    emulated: bool,
    steps: &[Step],
    without_memory: bool,
    set: &Path,
) -> io::Result<()> {
    let left = if without_memory { Left::PowerLost } else { Left::Killed };
    Maker::new(narufs, emulated)?.make(set, steps, left)
}

struct Maker<'n> {
    narufs: &'n Path,
    dir: tempfile::TempDir,
    /// Where the ring, or its staging, lies.
    ring: PathBuf,
    emulated: bool,
}

impl Drop for Maker<'_> {
    fn drop(&mut self) {
        // It may be gone already; the temporary directory is removed only if nothing is mounted in it.
        let _ = unmount(self.point(), UnmountFlags::DETACH);
        let _ = fs::remove_file(&self.ring);
    }
}

impl Maker<'_> {
    fn new(narufs: &Path, emulated: bool) -> io::Result<Maker<'_>> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("mnt"))?;
        let name = dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ring = Path::new("/dev/shm").join(format!("narufs-golden-{name}"));
        Ok(Maker { narufs, dir, ring, emulated })
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn run(&self, words: &[&str]) -> io::Result<String> {
        let output = Command::new(self.narufs).args(words).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(io::Error::other(format!("narufs {words:?}: {}", String::from_utf8_lossy(&output.stderr))))
    }

    /// A number or word of what a command prints as JSON.
    fn json(&self, words: &[&str], key: &str) -> io::Result<serde_json::Value> {
        let json: serde_json::Value = serde_json::from_str(&self.run(words)?)?;
        Ok(json[key].clone())
    }

    fn make(mut self, set: &Path, steps: &[Step], left: Left) -> io::Result<()> {
        let (image, point) = (self.image().display().to_string(), self.point().display().to_string());
        let size = if steps.contains(&Resize) { "24M" } else { "32M" };
        let mut words =
            vec!["mkfs", &image, "--size", size, "--journal-size", "1M", "--sparse", "--label", "golden"];
        let ring = self.ring.display().to_string();
        if self.emulated {
            words.extend(["--journal-emulated", &ring]);
        }
        self.run(&words)?;
        if !self.emulated {
            let uuid = self.json(&["info", &image, "--json"], "uuid")?;
            self.ring = Path::new("/dev/shm").join(format!("narufs-{}", uuid.as_str().unwrap_or_default()));
        }
        // Nothing is committed but by these steps.
        self.run(&["mount", &image, &point, "-o", "commit=3600,supervise=no"])?;
        let mut open = None;
        for step in steps {
            open = self.step(*step)?.or(open);
        }
        if left == Left::Clean {
            open = None;
        }
        super::write_manifest(set, &tree::mounted(&self.point())?)?;
        match left {
            Left::Clean => drop(self.run(&["umount", &point])?),
            Left::Killed | Left::PowerLost => self.kill()?,
        }
        drop(open);
        pack(&self.image(), &set.join("image.gz"), u64::MAX)?;
        if left != Left::PowerLost && self.ring.exists() {
            pack(&self.ring, &set.join("ring.gz"), u64::MAX)?;
        }
        Ok(())
    }

    /// Gives a file that is to stay open, if there is one.
    fn step(&self, step: Step) -> io::Result<Option<File>> {
        let point = self.point().display().to_string();
        match step {
            NamesAlone => names_alone(&self.point())?,
            FirstFiles => first_files(&self.point())?,
            BigDirectory => big_directory(&self.point())?,
            Resize => drop(self.run(&["resize", &point, "32M", "--sparse"])?),
            Sync => drop(self.run(&["sync", &point])?),
            Overwrites => overwrites(&self.point())?,
            LaterFiles => return later_files(&self.point()).map(Some),
            SyncPower => drop(self.run(&["sync", "--power", &point])?),
        }
        Ok(None)
    }

    /// Ends the server at once, and waits until it has ended.
    fn kill(&self) -> io::Result<()> {
        let point = self.point().display().to_string();
        let pid = self.json(&["stats", &point, "--json"], "server_pid")?;
        let pid = pid.as_i64().and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| io::Error::other("the mount names no process"))?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        kill_process(pid, Signal::KILL)?;
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None)?;
        Ok(unmount(self.point(), UnmountFlags::DETACH)?)
    }

    /// What a killed server leaves of spill space.
    fn spill(self, set: &Path) -> io::Result<()> {
        let (image, point) = (self.image().display().to_string(), self.point().display().to_string());
        File::create(self.image())?.set_len(64 << 20)?;
        self.run(&["mount", "--scratch", "--memory", "64M", "--spill", &image, &point])?;
        first_files(&self.point())?;
        self.kill()?;
        pack(&self.image(), &set.join("image.gz"), 64)
    }
}
