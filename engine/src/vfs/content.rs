//! Bytes of open files: read, written, allocated, sought and copied.
//!
//! Here is what the caller may do, which times move and what is durable on return; the bytes are the data path's.

use super::*;
use crate::blocking;
use crate::file::{At, Fit, Keep, SeekTo};
use crate::inode::tick;
use crate::planted::{self, Bug};
use crate::takeover::requests;

/// A day: relatime changes an access time that old.
const DAY: i64 = 86_400_000_000_000;
/// Bytes whose copying is as long as a sleep.
const LONG_COPY: u64 = 1 << 20;

impl Vfs {
    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    pub fn read(&self, handle: &FileHandle, offset: u64, into: &mut [u8]) -> Result<usize> {
        if handle.inode.is_dir() {
            return Err(Error::Errno(libc::EISDIR));
        }
        if !handle.flags.fills() {
            return Err(Error::Errno(libc::EBADF));
        }
        let keep = if handle.flags.contains(OpenFlags::DIRECT) {
            Keep::No
        } else if handle.flags.contains(OpenFlags::KERNEL_CACHES) {
            Keep::Lent
        } else {
            Keep::Yes
        };
        self.data.relieve_indexes();
        let read = self.data.read_keeping(&handle.inode, offset, into, keep)?;
        self.accessed(handle);
        Ok(read)
    }

    /// Fills a buffer from an offset on if memory has all of it and nobody is to be waited for; else false, and what the
    /// buffer holds is nothing. The access time stays.
    pub fn read_cached(&self, handle: &FileHandle, offset: u64, into: &mut [u8]) -> Result<bool> {
        if handle.inode.is_dir() {
            return Err(Error::Errno(libc::EISDIR));
        }
        if !handle.flags.fills() {
            return Err(Error::Errno(libc::EBADF));
        }
        Ok(!handle.flags.contains(OpenFlags::DIRECT) && self.data.read_cached(&handle.inode, offset, into))
    }

    /// Moves the access time on as the mount wants it.
    pub(super) fn accessed(&self, handle: &FileHandle) {
        if self.options.read_only || handle.flags.contains(OpenFlags::NO_ATIME) {
            return;
        }
        let [atime, mtime, ctime] = handle.inode.times();
        let moves = match self.options.atime {
            AtimePolicy::Never => false,
            AtimePolicy::Strict => true,
            AtimePolicy::Relative => atime <= mtime || atime <= ctime || tick().saturating_sub(atime) >= DAY,
        };
        if moves {
            handle.inode.touch_access();
        }
    }

    /// Writes at an offset, or to the end with APPEND; fewer bytes than given only where space ran out.
    pub fn write(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        self.write_located(ctx, handle, offset, data, flags).map(|written| written.len)
    }

    /// As [`Vfs::write`], and tells where the bytes are.
    pub fn write_located(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        if !handle.flags.writes() && !flags.contains(WriteFlags::FROM_CACHE) {
            return Err(Error::Errno(libc::EBADF));
        }
        self.writable()?;
        let from_cache = flags.contains(WriteFlags::FROM_CACHE);
        let append =
            flags.contains(WriteFlags::APPEND) || handle.flags.contains(OpenFlags::APPEND) && !from_cache;
        if data.is_empty() {
            let offset = if append { handle.inode.size() } else { offset };
            return Ok(Written { offset, len: 0 });
        }
        let (from, upto) = if append { (handle.inode.size(), u64::MAX) } else { (offset, data.len() as u64) };
        // Where it fails, some of it may have been written.
        let mut changing = self.changing(ctx, &handle.inode, from, upto);
        let kills = flags.contains(WriteFlags::KILL_SUIDGID);
        // The kernel has dropped what it had to when its cache was written.
        if kills || !from_cache {
            self.strip(ctx, &handle.inode, kills)?;
        }
        let at = if append { At::Append } else { At::Offset(offset) };
        self.data.relieve_indexes();
        let direct = flags.contains(WriteFlags::DIRECT) || handle.flags.contains(OpenFlags::DIRECT);
        let fit = if flags.contains(WriteFlags::WHOLE) { Fit::Whole } else { Fit::Part };
        let written = if direct && !from_cache {
            self.data.write_direct(&handle.inode, at, data, fit)?
        } else if flags.contains(WriteFlags::KEEP_TIMES) {
            self.data.write_keeping_times(&handle.inode, at, data)?
        } else {
            self.data.write_fit(&handle.inode, at, data, fit)?
        };
        kill::step(Step::Unlocked);
        if planted::is(Bug::NotedAfterUnlock) {
            requests::wrote(written.len);
        }
        let sync = flags.contains(WriteFlags::SYNC) || handle.flags.is_sync() || self.options.sync;
        if (sync || flags.contains(WriteFlags::DSYNC) || handle.flags.is_dsync())
            && !planted::is(Bug::DsyncIgnored)
        {
            self.fsync(handle, !sync)?;
        }
        (changing.offset, changing.len) = (written.offset, written.len as u64);
        Ok(written)
    }

    /// Allocates, punches, zeroes or moves a range.
    pub fn fallocate(
        &self,
        ctx: &Context,
        handle: &FileHandle,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        if !handle.flags.writes() {
            return Err(Error::Errno(libc::EBADF));
        }
        self.writable()?;
        let _changing = self.changing(ctx, &handle.inode, offset, u64::MAX);
        self.strip(ctx, &handle.inode, false)?;
        let change = || self.data.fallocate(&handle.inode, mode, offset, len);
        match mode {
            // It sets nothing aside before, and divides extents.
            FallocateMode::PunchHole => self.alloc_room(change)?,
            _ => change()?,
        }
        kill::step(Step::Unlocked);
        if handle.flags.is_dsync() || self.options.sync {
            self.fsync(handle, false)?;
        }
        Ok(())
    }

    /// The next data or hole at or after an offset. ENXIO: none. A directory is data as far as its size says, as the
    /// kernel answers for the directories of a mount.
    pub fn lseek(&self, handle: &FileHandle, offset: u64, whence: Whence) -> Result<u64> {
        if handle.inode.is_dir() {
            let size = handle.inode.size();
            return match whence {
                _ if offset >= size => Err(Error::Errno(libc::ENXIO)),
                Whence::Data => Ok(offset),
                Whence::Hole => Ok(size),
            };
        }
        let to = match whence {
            Whence::Data => SeekTo::Data,
            Whence::Hole => SeekTo::Hole,
        };
        self.data.seek(&handle.inode, to, offset)
    }

    /// Copies within the file system; returns how many bytes. EISDIR for a directory, whatever it is open for.
    pub fn copy_file_range(
        &self,
        ctx: &Context,
        from: &FileHandle,
        from_offset: u64,
        to: &FileHandle,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        if from.inode.is_dir() || to.inode.is_dir() {
            return Err(Error::Errno(libc::EISDIR));
        }
        if !from.flags.reads() || !to.flags.writes() || to.flags.contains(OpenFlags::APPEND) {
            return Err(Error::Errno(libc::EBADF));
        }
        self.writable()?;
        let _changing = self.changing(ctx, &to.inode, to_offset, len);
        self.strip(ctx, &to.inode, false)?;
        // It may find all that it needs in memory, and sleep nowhere.
        if len.min(from.inode.size().saturating_sub(from_offset)) > LONG_COPY {
            blocking::about_to_block();
        }
        self.data.relieve_indexes();
        let copied = self.data.copy_range(&from.inode, from_offset, &to.inode, to_offset, len)?;
        kill::step(Step::Unlocked);
        self.accessed(from);
        if to.flags.is_dsync() || self.options.sync {
            self.fsync(to, false)?;
        }
        Ok(copied)
    }
}
