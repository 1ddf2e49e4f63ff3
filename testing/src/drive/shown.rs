//! A drive as a file: DIR/disk is it, by FUSE. Who mounts that needs root.

use super::faults::{Faults, Kind, Outcome};
use super::{Access, Drive, SECTOR};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    Session, WriteFlags,
};
use narufs_fuse::mount::{IfBusy, unmount};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

const DISK: INodeNo = INodeNo(2);
/// Nobody else changes it.
const VALID: Duration = Duration::from_secs(3600);

/// A drive, what goes wrong with its requests, and what a flush begins with.
pub struct Shown {
    drive: Arc<Mutex<Drive>>,
    faults: Arc<Faults>,
    size: u64,
    before_flush: Arc<dyn Fn(&mut Drive) + Send + Sync>,
}

/// Mounts it at a directory; what comes back serves it.
///
/// # Errors
/// Those of mount(2).
pub fn show(
    drive: &Arc<Mutex<Drive>>,
    faults: &Arc<Faults>,
    dir: &Path,
    name: &str,
    before_flush: impl Fn(&mut Drive) + Send + Sync + 'static,
) -> io::Result<Session<Shown>> {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName(name.to_owned()), MountOption::Subtype("narufs-drive".to_owned())];
    let size = drive.lock().size();
    let (drive, faults) = (Arc::clone(drive), Arc::clone(faults));
    Session::new(Shown { drive, faults, size, before_flush: Arc::new(before_flush) }, dir, &config)
}

impl Shown {
    fn attributes(&self, ino: INodeNo) -> FileAttr {
        let is_disk = ino == DISK;
        FileAttr {
            ino,
            size: if is_disk { self.size } else { 0 },
            blocks: if is_disk { self.size / SECTOR as u64 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_disk { FileType::RegularFile } else { FileType::Directory },
            perm: if is_disk { 0o600 } else { 0o700 },
            nlink: if is_disk { 1 } else { 2 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

/// The bytes of a request that are to be done.
fn part(outcome: Outcome, whole: usize) -> Result<usize, Errno> {
    match outcome {
        Outcome::Whole => Ok(whole),
        Outcome::Short(bytes) => Ok(bytes.min(whole)),
        Outcome::Failed(errno) => Err(Errno::from_i32(errno)),
    }
}

impl Filesystem for Shown {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == "disk" {
            reply.entry(&VALID, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &self.attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel's cache would stand before the drive's.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let drive = Arc::clone(&self.drive);
        self.faults.meet(Kind::Read, move |outcome| {
            match part(outcome, size as usize).map(|size| drive.lock().read(offset, size)) {
                Ok(Ok(bytes)) => reply.data(&bytes),
                Ok(Err(_)) => reply.error(Errno::EIO),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Past its cache the kernel leaves O_DSYNC and RWF_DSYNC to us.
        let access = if flags.0 & libc::O_DSYNC == 0 { Access::Cached } else { Access::Forced };
        let (drive, data) = (Arc::clone(&self.drive), data.to_vec());
        self.faults.meet(Kind::Write, move |outcome| {
            match part(outcome, data.len()).map(|len| drive.lock().write(offset, &data[..len], access)) {
                Ok(Ok(0)) if !data.is_empty() => reply.error(Errno::ENOSPC),
                Ok(Ok(written)) => reply.written(written as u32),
                Ok(Err(_)) => reply.error(Errno::EIO),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // That is close(2).
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let (drive, before_flush) = (Arc::clone(&self.drive), Arc::clone(&self.before_flush));
        self.faults.meet(Kind::Flush, move |outcome| {
            if let Err(errno) = part(outcome, 0) {
                return reply.error(errno);
            }
            let mut drive = drive.lock();
            before_flush(&mut drive);
            match drive.flush() {
                Ok(()) => reply.ok(),
                Err(_) => reply.error(Errno::EIO),
            }
        });
    }
}

/// A drive that this process shows until this goes.
pub struct ShownHere {
    /// The drive.
    pub drive: Arc<Mutex<Drive>>,
    /// What goes wrong with it.
    pub faults: Arc<Faults>,
    dir: TempDir,
}

impl ShownHere {
    /// Over a file that holds what was flushed, at a directory of its own below `parent`.
    ///
    /// # Errors
    /// Those of the file and of mount(2).
    pub fn new(parent: &Path, flushed: &Path) -> io::Result<ShownHere> {
        let dir = TempDir::new_in(parent)?;
        let file = File::options().read(true).write(true).open(flushed)?;
        let drive = Arc::new(Mutex::new(Drive::new(file)?));
        let faults = Arc::new(Faults::default());
        let session = show(&drive, &faults, dir.path(), "drive", |_| ())?;
        let shown = ShownHere { drive, faults, dir };
        // It ends with the mount.
        std::thread::Builder::new().name("drive".into()).spawn(move || session.run())?;
        Ok(shown)
    }

    /// The file that is the drive.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }
}

impl Drop for ShownHere {
    fn drop(&mut self) {
        // Whoever waits for an answer gets one.
        self.faults.mend();
        if let Err(e) = unmount(self.dir.path(), IfBusy::Abort) {
            eprintln!("{} stays mounted: {e}", self.dir.path().display());
        }
    }
}
