//! A directory of any mounted file system, through the kernel.
//!
//! Each session has the work directory open and calls relative to it, so that no path outside of the run takes
//! part in the time. What this leaves to others: mounting.

use super::place::Place;
use super::{Description, How, Kind, Reopened, Session, Space, Survives, Target};
use crate::meter::Counters;
use crate::{Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

/// What brings a directory's file system back from its media: by unmounting and mounting it, say.
pub type Remount = Box<dyn FnMut() -> Result<Reopened>>;

/// A directory.
pub struct Directory {
    path: PathBuf,
    name: String,
    place: Place,
    work: Option<(String, OwnedFd)>,
    remount: Option<Remount>,
    survives: Option<Survives>,
    log: Option<PathBuf>,
}

impl Directory {
    /// A directory that is there. Device reads and writes are those of the device that it lies on, or of
    /// `counted`.
    ///
    /// # Errors
    /// In words, if there is none.
    pub fn new(path: &Path, counted: Option<&Path>) -> Result<Directory> {
        let shown = path.display();
        match std::fs::metadata(path) {
            Ok(m) if m.is_dir() => {}
            Ok(_) => return Err(Error::Refused(format!("{shown}: not a directory"))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::Refused(format!(
                    "{shown}: no such directory: make it first (mkdir {shown})"
                )));
            }
            Err(e) => return Err(Error::Refused(format!("{shown}: {e}"))),
        }
        let place = Place::of(path, counted)?;
        let name = shown.to_string();
        Ok(Directory {
            path: path.to_owned(),
            name,
            place,
            work: None,
            remount: None,
            survives: None,
            log: None,
        })
    }

    /// Gives it another name in records, and says what its files live through where that cannot be seen.
    pub fn called(mut self, name: &str, survives: Survives) -> Directory {
        self.name = name.to_owned();
        self.survives = Some(survives);
        self
    }

    /// Counts the device of its journal or log, which lies elsewhere, by itself.
    pub fn with_log_on(mut self, device: Option<&Path>) -> Directory {
        self.log = device.map(Path::to_owned);
        self.place = self.place.with_log(device);
        self
    }

    /// What the check calls to bring the file system back from its media.
    pub fn remounted_by(mut self, remount: Remount) -> Directory {
        self.remount = Some(remount);
        self
    }

    fn open_work(&self, name: &str) -> Result<OwnedFd> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        sys::open(&path, flags, Mode::empty()).map_err(|e| Error::io("open", &path.display().to_string(), e))
    }

    fn work(&self) -> Result<&(String, OwnedFd)> {
        self.work.as_ref().ok_or_else(|| Error::Refused(format!("{}: no run is at work here", self.name)))
    }
}

impl Target for Directory {
    type Session = DirectorySession;

    fn describe(&self) -> Description {
        Description {
            name: self.name.clone(),
            filesystem: self.place.filesystem().to_owned(),
            survives: self.survives.unwrap_or_else(|| self.place.survives()),
            note: None,
        }
    }

    fn enter(&mut self, name: &str) -> Result<()> {
        std::fs::create_dir(self.path.join(name))
            .map_err(|e| Error::Refused(format!("{}: cannot write here: {e}", self.path.display())))?;
        self.work = Some((name.to_owned(), self.open_work(name)?));
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        let Some((name, _)) = self.work.take() else { return Ok(()) };
        let path = self.path.join(name);
        std::fs::remove_dir_all(&path).map_err(|e| Error::io("remove", &path.display().to_string(), e))
    }

    fn session(&self) -> Result<DirectorySession> {
        let dir = self.work()?.1.try_clone().map_err(|e| Error::io("open", "", e))?;
        Ok(DirectorySession { dir, entries: Vec::with_capacity(32 << 10) })
    }

    fn sync_all(&self) -> Result<()> {
        self.place.sync(&self.path)
    }

    fn space(&self) -> Result<Space> {
        let at = |e: Errno| Error::io("statfs", &self.path.display().to_string(), e);
        let found = sys::statvfs(&self.path).map_err(at)?;
        let files = (found.f_files > 0).then_some(found.f_favail);
        Ok(Space { bytes: found.f_bavail.saturating_mul(found.f_frsize), files })
    }

    fn counters(&self) -> Result<Counters> {
        self.place.counters(&self.path)
    }

    fn directory(&self) -> Option<PathBuf> {
        self.work.as_ref().map(|(name, _)| self.path.join(name))
    }

    fn reopen(&mut self) -> Result<Reopened> {
        let Some(remount) = &mut self.remount else {
            self.sync_all()?;
            return Ok(Reopened::Synced);
        };
        let Some((name, _)) = self.work.take() else {
            return remount();
        };
        let how = remount()?;
        self.place = Place::of(&self.path, self.place.counted())?.with_log(self.log.as_deref());
        self.work = Some((name.clone(), self.open_work(&name)?));
        Ok(how)
    }
}

/// One thread's calls on a directory.
pub struct DirectorySession {
    dir: OwnedFd,
    entries: Vec<u8>,
}

fn flags(how: How) -> OFlags {
    OFlags::CLOEXEC
        | match how {
            How::Read => OFlags::RDONLY,
            How::Write => OFlags::RDWR,
            How::Append => OFlags::RDWR | OFlags::APPEND,
        }
}

/// Calls until every byte is written; a signal may end a call before.
fn all(
    op: &'static str,
    bytes: &[u8],
    mut call: impl FnMut(usize, &[u8]) -> rustix::io::Result<usize>,
) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match call(done, &bytes[done..]) {
            Ok(0) => return Err(Error::io(op, "", Errno::NOSPC)),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::io(op, "", e)),
        }
    }
    Ok(())
}

impl Session for DirectorySession {
    type File = OwnedFd;

    fn mkdir(&mut self, path: &str) -> Result<bool> {
        match sys::mkdirat(&self.dir, path, Mode::from_raw_mode(0o755)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(e) => Err(Error::io("mkdir", path, e)),
        }
    }

    fn create(&mut self, path: &str, how: How) -> Result<OwnedFd> {
        let flags = flags(how) | OFlags::CREATE | OFlags::EXCL;
        sys::openat(&self.dir, path, flags, Mode::from_raw_mode(0o644))
            .map_err(|e| Error::io("create", path, e))
    }

    fn open(&mut self, path: &str, how: How) -> Result<OwnedFd> {
        sys::openat(&self.dir, path, flags(how), Mode::empty()).map_err(|e| Error::io("open", path, e))
    }

    fn close(&mut self, file: OwnedFd) -> Result<()> {
        drop(file);
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> Result<()> {
        sys::unlinkat(&self.dir, path, AtFlags::empty()).map_err(|e| Error::io("unlink", path, e))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        sys::renameat(&self.dir, from, &self.dir, to).map_err(|e| Error::io("rename", from, e))
    }

    fn read_at(&mut self, file: &OwnedFd, offset: u64, into: &mut [u8]) -> Result<usize> {
        loop {
            match rustix::io::pread(file, &mut *into, offset) {
                Ok(n) => return Ok(n),
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::io("read", "", e)),
            }
        }
    }

    fn write_at(&mut self, file: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<()> {
        all("write", bytes, |at, rest| rustix::io::pwrite(file, rest, offset + at as u64))
    }

    fn append(&mut self, file: &OwnedFd, bytes: &[u8]) -> Result<()> {
        all("append", bytes, |_, rest| rustix::io::write(file, rest))
    }

    fn truncate(&mut self, file: &OwnedFd, size: u64) -> Result<()> {
        sys::ftruncate(file, size).map_err(|e| Error::io("truncate", "", e))
    }

    fn fsync(&mut self, file: &OwnedFd) -> Result<()> {
        sys::fsync(file).map_err(|e| Error::io("fsync", "", e))
    }

    fn fdatasync(&mut self, file: &OwnedFd) -> Result<()> {
        sys::fdatasync(file).map_err(|e| Error::io("fdatasync", "", e))
    }

    fn size(&mut self, path: &str) -> Result<u64> {
        let found = sys::statat(&self.dir, path, AtFlags::empty()).map_err(|e| Error::io("stat", path, e))?;
        Ok(found.st_size as u64)
    }

    fn list(&mut self, path: &str, each: &mut dyn FnMut(&str, Kind)) -> Result<u64> {
        let at = |e: Errno| Error::io("list", path, e);
        let opened = if path.is_empty() { "." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = sys::openat(&self.dir, opened, flags, Mode::empty()).map_err(at)?;
        let buffer: &mut [MaybeUninit<u8>] = self.entries.spare_capacity_mut();
        let mut entries = RawDir::new(dir.as_fd(), buffer);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(at)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind =
                    if entry.file_type() == FileType::Directory { Kind::Directory } else { Kind::File };
                each(&String::from_utf8_lossy(name), kind);
                count += 1;
            }
        }
        Ok(count)
    }
}
