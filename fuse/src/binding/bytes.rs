//! Bytes of files: where a write goes and when it is done, what is data, and how much is copied at once.
//!
//! What this leaves to others: the file of a request ([`files`](super::files)), and pages that the kernel has of it
//! ([`recall`](super::recall)).

use super::Caching;
use super::convert::engine_write_flags;
use super::engine::EngineOperations;
use super::recall;
use crate::operations::Write;
use crate::session::RequestContext;
use crate::types::{Errno, Result};
use crate::wire::{CopyFileRangeIn, WriteFlags};
use narufs_engine::vfs::{self, Whence};

/// Bytes that one request copies at the most: whoever asks for more asks again, and can be ended between two. A device that
/// is slow has that much done in less time than the kernel may be told to wait.
const MOST_COPIED: u64 = 64 << 20;

impl EngineOperations {
    /// Whether what is written through a file opened so is to go to where the file ends, wherever the kernel says.
    ///
    /// Where the mount is the only way in, the kernel knows the end, and says where with the file locked. Of
    /// RWF_NOAPPEND, by which one write goes elsewhere, it says nothing else; and the parts of a long append, which it may
    /// send all at once, are in their order by their offsets alone.
    pub(super) fn finds_the_end(&self, open_flags: i32) -> bool {
        self.caching == Caching::Shared && open_flags & libc::O_APPEND != 0
    }

    /// Whether the kernel may have sent what is written so as a part of a direct write, all of which at once: it takes an
    /// answer of fewer bytes for EIO then, and takes back what has made the file longer.
    fn is_to_be_whole(&self, write: &Write) -> bool {
        self.caching == Caching::Exclusive
            && write.open_flags & libc::O_DIRECT != 0
            && recall::is_past_the_cache(write)
    }

    pub(super) fn write_bytes(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        write: &Write,
        data: &[u8],
    ) -> Result<usize> {
        let cached = write.flags.contains(WriteFlags::CACHE);
        let direct = self.goes_past_cache(write) && !cached;
        let mut flags = engine_write_flags(write, direct);
        flags.set(vfs::WriteFlags::APPEND, direct && self.finds_the_end(write.open_flags));
        flags.set(vfs::WriteFlags::KEEP_TIMES, cached && self.kernel_keeps_writes());
        let whole = self.is_to_be_whole(write);
        flags.set(vfs::WriteFlags::WHOLE, whole);
        let (file, caller) = (self.file(nodeid, write.fh)?, self.caller(ctx, 0));
        recall::before_write(&file, write);
        let mut written = self.fs.write(&caller, &file, write.offset, data, flags)?;
        // The kernel takes pages of its cache for written, however few bytes the answer says, unless that is an error: the
        // rest says which.
        while (cached || whole) && written < data.len() {
            let offset = write.offset.saturating_add(written as u64);
            match self.fs.write(&caller, &file, offset, &data[written..], flags)? {
                0 => return Err(Errno(libc::EIO)),
                more => written += more,
            }
        }
        Ok(written)
    }

    /// The next data or hole.
    pub(super) fn seek(&self, nodeid: u64, fh: u64, offset: u64, whence: i32) -> Result<u64> {
        // What was written may be the kernel's alone to know. It then takes all that a file has for data.
        if self.kernel_keeps_writes() {
            return Err(Errno(libc::ENOSYS));
        }
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return Err(Errno(libc::EINVAL)),
        };
        Ok(self.fs.lseek(&*self.file(nodeid, fh)?, offset, whence)?)
    }

    pub(super) fn copy(&self, ctx: &RequestContext<'_>, nodeid: u64, copy: &CopyFileRangeIn) -> Result<u64> {
        if copy.flags != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let (from, to) = (self.file(nodeid, copy.fh_in)?, self.file(copy.nodeid_out, copy.fh_out)?);
        let (caller, len) = (self.caller(ctx, 0), copy.len.min(MOST_COPIED));
        Ok(self.fs.copy_file_range(&caller, &from, copy.off_in, &to, copy.off_out, len)?)
    }
}
