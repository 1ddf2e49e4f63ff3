//! Makes golden images by the `narufs` command of any build: system calls on its mount, which is unmounted or whose
//! server is killed after a certain step.

use super::{pack, tree};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FallocateFlags, FileType, Mode, XattrFlags, fallocate, makedev, mknodat, setxattr};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a set's image is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Unmounted.
    Clean,
    /// Grown while it was used, then unmounted.
    Resized,
    /// Killed after the first files: all is in the journal.
    KilledEarly,
    /// Killed at the end, with a file open that has no name.
    Killed,
    /// The same after a sync against a loss of power, without the staging.
    PowerLost,
}

/// The sets of each kind of ring, and how each is left.
const SETS: [(&str, Left); 5] = [
    ("clean", Left::Clean),
    ("resized", Left::Resized),
    ("killed-early", Left::KilledEarly),
    ("killed", Left::Killed),
    ("power-lost", Left::PowerLost),
];

/// Makes all sets below `into`, which must not be there yet, by the command `narufs`. It takes root.
///
/// # Errors
/// Those of the command and of system calls.
pub fn make(narufs: &Path, into: &Path) -> io::Result<()> {
    fs::create_dir(into)?;
    for (name, left) in SETS {
        for emulated in [false, true] {
            // Where the ring is not staged, there is nothing else that a loss of power takes.
            if emulated && left == Left::PowerLost {
                continue;
            }
            let set = into.join(format!("{}-{name}", if emulated { "emulated" } else { "ssd" }));
            fs::create_dir(&set)?;
            Maker::new(narufs, emulated)?.make(&set, left)?;
        }
    }
    let set = into.join("scratch-spill");
    fs::create_dir(&set)?;
    Maker::new(narufs, false)?.spill(&set)
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

    fn make(mut self, set: &Path, left: Left) -> io::Result<()> {
        let (image, point) = (self.image().display().to_string(), self.point().display().to_string());
        let size = if left == Left::Resized { "24M" } else { "32M" };
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
        self.run(&["mount", &image, &point, "-o", "supervise=no"])?;
        first_files(&self.point())?;
        let mut open = None;
        if left != Left::KilledEarly {
            big_directory(&self.point())?;
            if left == Left::Resized {
                self.run(&["resize", &point, "32M", "--sparse"])?;
            }
            self.run(&["sync", &point])?;
            open = Some(later_files(&self.point())?);
        } else {
            // What nobody synced is not promised when a server is killed.
            self.run(&["sync", &point])?;
        }
        match left {
            Left::Clean | Left::Resized => open = None,
            Left::PowerLost => drop(self.run(&["sync", "--power", &point])?),
            Left::KilledEarly | Left::Killed => {}
        }
        let lines = tree::mounted(&self.point())?;
        super::write_manifest(set, &lines)?;
        match left {
            Left::Clean | Left::Resized => drop(self.run(&["umount", &point])?),
            _ => self.kill()?,
        }
        drop(open);
        pack(&self.image(), &set.join("image.gz"), u64::MAX)?;
        if left != Left::PowerLost && self.ring.exists() {
            pack(&self.ring, &set.join("ring.gz"), u64::MAX)?;
        }
        Ok(())
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

/// Bytes that compress well, and differ from file to file.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at / 4096 + 1) * (seed + 3) + at % 7) as u8).collect()
}

/// An access list: owner, a user, a group, the mask, others.
fn access_list() -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 6] =
        [(1, 7, NONE), (2, 6, 1234), (4, 5, NONE), (8, 4, 4321), (16, 7, NONE), (32, 1, NONE)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Each feature once.
fn first_files(root: &Path) -> io::Result<()> {
    let dir = root.join("a directory");
    fs::create_dir_all(dir.join("below/it"))?;
    fs::set_permissions(&dir, Permissions::from_mode(0o2750))?;
    for n in 0..24 {
        fs::write(dir.join(format!("small-{n:02}")), pattern(n, n * 700))?;
    }
    chown(dir.join("small-03"), Some(1000), Some(1001))?;
    fs::set_permissions(dir.join("small-04"), Permissions::from_mode(0o4711))?;
    for n in 0..3 {
        fs::hard_link(dir.join("small-05"), root.join(format!("link-{n}")))?;
    }
    symlink("a directory/small-06", root.join("short symlink"))?;
    symlink("x/".repeat(700), root.join("long symlink"))?;
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("device", FileType::CharacterDevice, makedev(1, 3)),
        ("socket", FileType::Socket, 0),
    ] {
        mknodat(rustix::fs::CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device)?;
    }
    let holes = File::create(root.join("holes"))?;
    holes.write_all_at(&pattern(30, 9000), 0)?;
    holes.write_all_at(&pattern(31, 300_000), 1 << 20)?;
    fallocate(&holes, FallocateFlags::empty(), 2 << 20, 256 << 10)?;
    holes.write_all_at(b"in what is unwritten", (2 << 20) + 70_000)?;
    fallocate(&holes, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, (1 << 20) + 8192, 65_536)?;
    for n in 0..40u64 {
        // Many extents.
        holes.write_all_at(b"apart", (4 << 20) + n * 40_960)?;
    }
    let attributes = root.join("attributes");
    fs::write(&attributes, "with attributes")?;
    setxattr(&attributes, "user.small", b"a value", XattrFlags::empty())?;
    setxattr(&attributes, "user.large", &pattern(40, 9000), XattrFlags::empty())?;
    setxattr(&attributes, "system.posix_acl_access", &access_list(), XattrFlags::empty())?;
    setxattr(dir.join("below"), "system.posix_acl_default", &access_list(), XattrFlags::empty())?;
    fs::write(dir.join("below/inherits"), "an access list")?;
    fs::write(root.join("large"), pattern(50, 3 << 20))?;
    let synced = File::create(root.join("synced"))?;
    synced.write_all_at(&pattern(60, 500), 0)?;
    synced.sync_all()
}

/// A directory that was larger.
fn big_directory(root: &Path) -> io::Result<()> {
    let dir = root.join("many");
    fs::create_dir(&dir)?;
    let name = |n: u32| dir.join(format!("a name of some length, and its number: {n:04}"));
    for n in 0..300 {
        File::create(name(n))?;
    }
    (0..300).filter(|n| n % 3 == 0).try_for_each(|n| fs::remove_file(name(n)))
}

/// Changes on top of what was synced; gives back a file that has no name any more.
fn later_files(root: &Path) -> io::Result<File> {
    let dir = root.join("a directory");
    let synced = OpenOptions::new().write(true).open(root.join("synced"))?;
    for n in 0..20 {
        // What an fsync of few bytes leaves in the journal.
        synced.write_all_at(&pattern(n, 300), n as u64 * 1000)?;
        synced.sync_data()?;
    }
    OpenOptions::new().append(true).open(dir.join("small-10"))?.write_all(&pattern(70, 5000))?;
    OpenOptions::new().write(true).open(dir.join("small-20"))?.set_len(3000)?;
    fs::rename(dir.join("small-11"), root.join("renamed"))?;
    fs::rename(dir.join("small-12"), dir.join("small-13"))?;
    fs::rename(dir.join("below"), root.join("moved"))?;
    fs::remove_file(dir.join("small-14"))?;
    fs::remove_file(root.join("link-1"))?;
    setxattr(root.join("attributes"), "user.small", b"another value", XattrFlags::empty())?;
    fs::write(root.join("unsynced"), pattern(80, 20_000))?;
    let gone = File::create_new(root.join("without a name"))?;
    gone.write_all_at(&pattern(90, 600_000), 0)?;
    fs::remove_file(root.join("without a name"))?;
    // What nobody synced is not promised when the server is killed.
    for name in ["unsynced", "a directory/small-10"] {
        File::open(root.join(name))?.sync_all()?;
    }
    Ok(gone)
}
