//! Where the steps of a row are done: a directory of its own on the mount, and one that is elsewhere.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, Mode, OFlags, XattrFlags};
use rustix::io::{self, Result};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use std::path::Path;

/// Something done to the names of a number.
pub type Step = fn(&Scene, usize) -> Result<()>;

/// A directory on the mount. Names are looked up from it: the way to it costs nothing.
pub struct Scene {
    /// The directory.
    pub dir: OwnedFd,
    /// Of another file system: the one in which the mount point lies.
    pub elsewhere: OwnedFd,
}

/// A file as mail, sources and configuration are.
pub const FILE_BYTES: usize = 3000;
/// Writes of a longer file by tar, from its buffer of 10 KiB, in which a file begins and ends anywhere.
pub const PIECES: [usize; 3] = [3584, 10_240, 6176];
/// Files in a directory that is listed.
const LISTED: usize = 10;
/// A page.
pub const PAGE: usize = 4096;

/// The first of a number's names.
pub fn name(n: usize) -> String {
    format!("name{n}")
}

/// The second.
pub fn other(n: usize) -> String {
    format!("other{n}")
}

impl Scene {
    /// Makes the directory.
    pub fn make(point: &Path, nth: usize) -> Result<Scene> {
        fs::mkdir(point.join(name(nth)), Mode::from(0o755))?;
        Scene::open(point, nth)
    }

    /// One that was made before.
    pub fn open(point: &Path, nth: usize) -> Result<Scene> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::open(point.join(name(nth)), flags, Mode::empty())?;
        let elsewhere = fs::open(point.join(".."), flags, Mode::empty());
        Ok(Scene { dir, elsewhere: elsewhere? })
    }

    /// For each number up to this one.
    pub fn each(&self, last: usize, step: Step) -> Result<()> {
        (0..=last).try_for_each(|n| step(self, n))
    }

    /// Opens a name.
    pub fn opened(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        self.created(name, flags, 0)
    }

    /// Makes and opens a name; the flags say so.
    pub fn created(&self, name: &str, flags: OFlags, mode: u32) -> Result<OwnedFd> {
        fs::openat(&self.dir, name, flags | OFlags::CLOEXEC, Mode::from(mode))
    }

    /// A path by which the calls find a name that take no directory.
    pub fn path(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd())
    }

    /// Makes and opens a file for writing alone; the name must be free.
    pub fn new_file(&self, name: &str) -> Result<OwnedFd> {
        self.created(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o644)
    }

    /// A new file of so many bytes.
    pub fn file(&self, name: &str, bytes: usize) -> Result<()> {
        write(&self.new_file(name)?, bytes)
    }

    /// lstat(2).
    pub fn stat(&self, name: &str) -> Result<()> {
        fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).map(drop)
    }

    /// The same of a name that is not there.
    pub fn stat_missing(&self, name: &str) -> Result<()> {
        missing(self.stat(name), io::Errno::NOENT)
    }

    /// Reads a file to its end.
    pub fn read(&self, name: &str) -> Result<()> {
        let file = self.opened(name, OFlags::RDONLY)?;
        let mut buffer = vec![0; 1 << 17];
        while io::read(&file, &mut buffer)? > 0 {}
        Ok(())
    }

    /// The names in a directory; with `look` each is looked at, as by `ls -l`.
    pub fn list(&self, name: &str, look: bool) -> Result<Vec<String>> {
        let dir = self.opened(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let entry = entry?.file_name().to_string_lossy().into_owned();
            if entry != "." && entry != ".." {
                names.push(entry);
            }
        }
        if look {
            names.iter().try_for_each(|entry| self.stat(&format!("{name}/{entry}")))?;
        }
        Ok(names)
    }
}

/// A file of [`FILE_BYTES`].
pub fn file(s: &Scene, n: usize) -> Result<()> {
    s.file(&name(n), FILE_BYTES)
}

/// A directory of [`LISTED`] such files.
pub fn directory(s: &Scene, n: usize) -> Result<()> {
    fs::mkdirat(&s.dir, name(n), Mode::from(0o755))?;
    (0..LISTED).try_for_each(|file| s.file(&format!("{}/file{file}", name(n)), FILE_BYTES))
}

/// Looks at it.
pub fn stat(s: &Scene, n: usize) -> Result<()> {
    s.stat(&name(n))
}

/// Finds that it is not there.
pub fn stat_missing(s: &Scene, n: usize) -> Result<()> {
    s.stat_missing(&name(n))
}

/// Gives a file an extended attribute.
pub fn setxattr(s: &Scene, n: usize) -> Result<()> {
    fs::fsetxattr(s.opened(&name(n), OFlags::RDONLY)?, "user.x", b"value", XattrFlags::empty())
}

/// What is looked for must be missing, and the kernel say so by this error.
pub fn missing<T>(outcome: Result<T>, error: io::Errno) -> Result<()> {
    match outcome {
        Err(e) if e == error => Ok(()),
        Ok(_) => Err(io::Errno::EXIST),
        Err(e) => Err(e),
    }
}

/// A user who is not root, and the group that they act for.
pub fn user() -> (Uid, Gid) {
    (Uid::from_raw(1000), Gid::from_raw(1000))
}

/// What this thread does until it is dropped it does as [`user`].
pub struct AsUser;

impl AsUser {
    /// From now on.
    pub fn begin() -> Result<AsUser> {
        let back = AsUser;
        let (uid, gid) = user();
        set_thread_res_gid(Gid::ROOT, gid, Gid::ROOT)?;
        set_thread_res_uid(Uid::ROOT, uid, Uid::ROOT)?;
        Ok(back)
    }
}

impl Drop for AsUser {
    fn drop(&mut self) {
        // What cannot be taken back shows in the next step, which root's rights are needed for.
        let _ = set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT);
        let _ = set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT);
    }
}

/// One write(2).
pub fn write(file: &OwnedFd, bytes: usize) -> Result<()> {
    whole(io::write(file, &vec![7; bytes])?, bytes)
}

/// One write(2) from memory that begins so many bytes behind a page's beginning.
pub fn write_from(file: &OwnedFd, bytes: usize, behind: usize) -> Result<()> {
    let memory = vec![7; bytes + 2 * PAGE];
    let first = memory.as_ptr().align_offset(PAGE) + behind;
    whole(io::write(file, &memory[first..first + bytes])?, bytes)
}

/// One pwrite(2) at the beginning.
pub fn overwrite(file: &OwnedFd, bytes: usize) -> Result<()> {
    whole(io::pwrite(file, &vec![8; bytes], 0)?, bytes)
}

/// All of them must have been written.
fn whole(written: usize, bytes: usize) -> Result<()> {
    if written == bytes { Ok(()) } else { Err(io::Errno::NOSPC) }
}
