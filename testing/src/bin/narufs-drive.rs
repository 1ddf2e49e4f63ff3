//! A drive with a volatile write cache, as a file: `narufs-drive FLUSHED DIR [SEED]` shows at DIR/disk the bytes of
//! the file FLUSHED, and puts there what was written when it is flushed; see `narufs_testing::drive`. SIGTERM is
//! the loss of power, at the worst moment: when the next flush is asked for, or after two seconds without one. It says
//! how many sectors were not flushed and how many of them are there nevertheless (with SEED; without one none is),
//! and ends. Unmounted, it flushes and ends. It mounts, which takes root.

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};
use narufs_testing::drive::{Access, Drive, SECTOR};
use parking_lot::Mutex;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

const DISK: INodeNo = INodeNo(2);
/// Nobody else changes it.
const VALID: Duration = Duration::from_secs(3600);

/// So long a loss of power waits for a flush.
const PATIENCE: Duration = Duration::from_secs(2);

struct Shown {
    drive: Arc<Mutex<Drive>>,
    size: u64,
    /// Whether the power is to go.
    to_be_cut: Arc<AtomicBool>,
    seed: Option<u64>,
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
        match self.drive.lock().read(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
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
        match self.drive.lock().write(offset, data, access) {
            Ok(0) if !data.is_empty() => reply.error(Errno::ENOSPC),
            Ok(written) => reply.written(written as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // That is close(2).
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut drive = self.drive.lock();
        if self.to_be_cut.load(Relaxed) && drive.pending() > 0 {
            end(&mut drive, self.seed);
        }
        match drive.flush() {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }
}

/// Takes the power away. The end of the process ends the mount: the medium is gone for whoever has it open.
fn end(drive: &mut Drive, seed: Option<u64>) -> ! {
    let written = drive.written();
    let said = drive.cut(seed).and_then(|lost| {
        let (pending, kept) = (lost.pending, lost.kept);
        let (forced, flushed) = (written.forced, written.flushed);
        writeln!(
            io::stdout(),
            "sectors forced {forced}, flushed {flushed}, not flushed {pending}, {kept} of them there"
        )
    });
    match said {
        Ok(()) => std::process::exit(0),
        Err(e) => {
            eprintln!("narufs-drive: {e}");
            std::process::exit(1)
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (flushed, dir, seed) = match &words[..] {
        [flushed, dir] => (flushed, dir, None),
        [flushed, dir, seed] => (flushed, dir, Some(seed.parse()?)),
        _ => return Err("narufs-drive FLUSHED DIR [SEED]".into()),
    };
    let drive = Drive::new(OpenOptions::new().read(true).write(true).open(flushed)?)?;
    let size = drive.size();
    let drive = Arc::new(Mutex::new(drive));
    let mut signals = Signals::new([SIGTERM])?;
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName(flushed.clone()), MountOption::Subtype("narufs-drive".to_owned())];
    let to_be_cut = Arc::new(AtomicBool::new(false));
    let shown = Shown { drive: Arc::clone(&drive), size, to_be_cut: Arc::clone(&to_be_cut), seed };
    let session = fuser::Session::new(shown, dir, &config)?;
    std::thread::spawn({
        let drive = Arc::clone(&drive);
        move || {
            if signals.forever().next().is_some() {
                to_be_cut.store(true, Relaxed);
                std::thread::sleep(PATIENCE);
                end(&mut drive.lock(), seed);
            }
        }
    });
    session.run()?;
    drive.lock().flush()?;
    Ok(())
}
