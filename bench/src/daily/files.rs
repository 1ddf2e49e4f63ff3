//! Many small files, each made durable, rewritten or replaced: what editors, queues and package managers do.

use crate::content::Content;
use crate::load::{Measured, histogram};
use crate::stop::Stop;
use crate::workload::Seen;
use crate::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{self as sys, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::time::Instant;

/// Bytes of a file that is made and synced.
const SYNCED: usize = 5 << 10;
/// Bytes of a file that is rewritten or replaced.
const REWRITTEN: usize = 4 << 10;

/// What is done with each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// It is made, written and synced.
    Sync,
    /// It is cut to nothing and written anew.
    Rewrite,
    /// Another is written beside it and renamed over it.
    Replace,
}

impl Act {
    /// The directory that its files are in.
    pub fn directory(self) -> &'static str {
        match self {
            Act::Sync => "synced",
            Act::Rewrite => "rewritten",
            Act::Replace => "replaced",
        }
    }
}

/// The files of one act.
#[derive(Debug)]
pub(super) struct Files<'a> {
    act: Act,
    count: u64,
    content: &'a Content,
    dir: OwnedFd,
}

fn name(number: u64) -> String {
    format!("f{number:05}")
}

impl<'a> Files<'a> {
    /// Opens their directory below `root`.
    pub fn open(act: Act, count: u64, content: &'a Content, root: &Path) -> Result<Files<'a>> {
        let path = root.join(act.directory());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = sys::openat(CWD, &path, flags, Mode::empty());
        let dir = dir.map_err(|e| Error::io("open", &path.display().to_string(), e))?;
        Ok(Files { act, count, content, dir })
    }

    /// Makes the directory, and what must be there before.
    pub fn prepare(act: Act, count: u64, content: &'a Content, root: &Path, stop: &Stop) -> Result<()> {
        let path = root.join(act.directory());
        std::fs::create_dir(&path).map_err(|e| Error::io("mkdir", &path.display().to_string(), e))?;
        let files = Files::open(act, count, content, root)?;
        let before = if act == Act::Sync { 0 } else { count };
        for number in 0..before {
            stop.check()?;
            files.write(&name(number), OFlags::EXCL, files.bytes(number, false))?;
        }
        Ok(())
    }

    /// A file's bytes: those that it has before, or after.
    fn bytes(&self, number: u64, after: bool) -> &[u8] {
        let len = if self.act == Act::Sync { SYNCED } else { REWRITTEN };
        self.content.bytes(self.version(number, after), 0, len)
    }

    fn version(&self, number: u64, after: bool) -> u64 {
        (self.act as u64) << 32 | number << 1 | u64::from(after)
    }

    fn write(&self, name: &str, how: OFlags, bytes: &[u8]) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | how;
        let file = sys::openat(&self.dir, name, flags, Mode::from_raw_mode(0o644));
        let file = file.map_err(|e| Error::io("open", name, e))?;
        let mut left = bytes;
        while !left.is_empty() {
            match rustix::io::write(&file, left) {
                Ok(0) => return Err(Error::io("write", name, Errno::NOSPC)),
                Ok(n) => left = &left[n..],
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::io("write", name, e)),
            }
        }
        if self.act == Act::Sync {
            sys::fsync(&file).map_err(|e| Error::io("fsync", name, e))?;
        }
        Ok(())
    }

    /// Does it with each of them.
    pub fn run(&self, stop: &Stop) -> Result<Measured> {
        let mut latency = histogram();
        let begin = Instant::now();
        let mut last = begin;
        for number in 0..self.count {
            stop.check()?;
            let (name, bytes) = (name(number), self.bytes(number, true));
            match self.act {
                Act::Sync => self.write(&name, OFlags::EXCL, bytes)?,
                Act::Rewrite => self.write(&name, OFlags::TRUNC, bytes)?,
                Act::Replace => {
                    self.write("new", OFlags::EXCL, bytes)?;
                    let renamed = sys::renameat(&self.dir, "new", &self.dir, &name);
                    renamed.map_err(|e| Error::io("rename", &name, e))?;
                }
            }
            let now = Instant::now();
            latency.saturating_record((now - last).as_nanos() as u64);
            last = now;
        }
        let bytes = self.count * self.bytes(0, true).len() as u64;
        Ok(Measured { time: last - begin, ops: self.count, bytes, latency, done: true })
    }

    /// Compares them with what they have to be afterwards.
    pub fn compare(&self, root: &Path) -> Result<Seen> {
        let dir = root.join(self.act.directory());
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |e| Error::io("read", &path, e)
        };
        let there = std::fs::read_dir(&dir).map_err(at(&dir))?.count() as u64;
        let shown = self.act.directory();
        if there != self.count {
            return Err(Error::Wrong(format!("{shown} has {there} files, not {}", self.count)));
        }
        let mut seen = Seen::default();
        for number in 0..self.count {
            let path = dir.join(name(number));
            let read = std::fs::read(&path).map_err(at(&path))?;
            let wanted = self.bytes(number, true);
            if read.len() != wanted.len() {
                let (len, wanted) = (read.len(), wanted.len());
                return Err(Error::Wrong(format!("{shown}/{}: {len} bytes, not {wanted}", name(number))));
            }
            self.content
                .check(self.version(number, true), 0, &read)
                .map_err(|e| Error::Wrong(format!("{shown}/{}: {e}", name(number))))?;
            seen.files += 1;
            seen.bytes += read.len() as u64;
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_there_and_a_planted_difference_is_found() {
        let at = tempfile::tempdir().expect("room");
        let (root, content, stop) = (at.path(), Content::new(1), Stop::default());
        for act in [Act::Sync, Act::Rewrite, Act::Replace] {
            Files::prepare(act, 9, &content, root, &stop).expect("room");
            let files = Files::open(act, 9, &content, root).expect("it is there");
            assert!(files.compare(root).is_err(), "{act:?}: nothing was done");
            assert_eq!(files.run(&stop).expect("room").ops, 9);
            assert_eq!(files.compare(root).expect("all is done").files, 9);
            let path = root.join(act.directory()).join(name(7));
            let mut bytes = std::fs::read(&path).expect("it is there");
            bytes[33] ^= 1;
            std::fs::write(&path, bytes).expect("room");
            assert!(files.compare(root).expect_err("planted").to_string().contains("byte 33 is not"));
            std::fs::remove_file(path).expect("it is there");
            assert!(files.compare(root).expect_err("planted").to_string().contains("8 files, not 9"));
        }
    }
}
