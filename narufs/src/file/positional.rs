//! Reads and writes at an offset, and appends.
//!
//! Several buffers of one call go through one of its own, so that the call stays whole beside others.

use super::File;
use crate::engine::{WriteFlags, Written, told};
use crate::error::{Cause, Error, Result};
use std::io::{IoSlice, IoSliceMut};

/// Where an append has put its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Appended {
    /// The offset of the first byte.
    pub offset: u64,
    /// How many there are: fewer than given only where space has run out.
    pub len: usize,
}

impl File {
    /// Reads at an offset; gives the number of bytes, which is less than asked for only at the end of the file.
    ///
    /// # Errors
    /// EBADF if it is not open for reading; EISDIR.
    #[inline]
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        self.ask("read", |engine, handle| engine.read(handle, offset, into))
    }

    /// Fills a buffer from an offset on if memory has all of it, and nobody needs to be waited for: for those who must not
    /// sleep. False: it has not, the file ends before, or somebody writes there; then the buffer holds nothing. Beyond 28 KiB
    /// the read need not be whole beside writes. The access time stays.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_cached_at(&self, into: &mut [u8], offset: u64) -> Result<bool> {
        self.ask("read", |engine, handle| engine.read_cached(handle, offset, into))
    }

    /// Fills a buffer from an offset on.
    ///
    /// # Errors
    /// As [`File::read_at`]; [`Cause::EndOfFile`] if the file ends before.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        let asked = into.len();
        // As the standard library: nothing is asked of the file for nothing.
        if asked == 0 {
            return self.session.enter("read").map(drop);
        }
        let read = self.read_at(into, offset)?;
        if read < asked { Err(Error::new("read", Cause::EndOfFile)) } else { Ok(()) }
    }

    /// Writes at an offset, or to the end if the file is open for appending; gives the number of bytes, which is less
    /// than given only where space has run out.
    ///
    /// # Errors
    /// EBADF if it is not open for writing; ENOSPC if nothing could be written; EFBIG.
    #[inline]
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.ask("write", |engine, handle| {
            engine.write(&self.session.caller, handle, offset, bytes, WriteFlags::empty())
        })
    }

    /// Writes all of it at an offset, or to the end if the file is open for appending.
    ///
    /// # Errors
    /// As [`File::write_at`]; ENOSPC also if a part was written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if bytes.is_empty() {
            return self.session.enter("write").map(drop);
        }
        let written = self.write_at(bytes, offset)?;
        if written < bytes.len() { Err(Error::of_errno("write", libc::ENOSPC)) } else { Ok(()) }
    }

    /// Writes to the end, and tells where that was; nothing is written at the end too. Appends of many threads neither overlap nor leave gaps.
    ///
    /// # Errors
    /// As [`File::write_at`].
    #[inline]
    pub fn append(&self, bytes: &[u8]) -> Result<Appended> {
        self.write_located("append", bytes, 0, WriteFlags::APPEND)
            .map(|Written { offset, len }| Appended { offset, len })
    }

    /// Writes all of it to the end, and gives its offset.
    ///
    /// # Errors
    /// As [`File::append`]; ENOSPC also if a part was written.
    pub fn append_all(&self, bytes: &[u8]) -> Result<u64> {
        let Appended { offset, len } = self.append(bytes)?;
        if len < bytes.len() { Err(Error::of_errno("append", libc::ENOSPC)) } else { Ok(offset) }
    }

    /// As [`File::read_at`], into several buffers one after the other.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_vectored_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        if let [one] = into {
            return self.read_at(one, offset);
        }
        // Not much more than there is: memory is taken, and made zeros, for all of it.
        let asked = into.iter().fold(0_usize, |all, part| all.saturating_add(part.len()));
        let most = if asked > READ_UNASKED {
            let there = self.metadata()?.len().saturating_sub(offset);
            usize::try_from(there).unwrap_or(usize::MAX).max(READ_UNASKED)
        } else {
            asked
        };
        let (mut joined, len) = room("read", std::iter::once(asked.min(most)))?;
        joined.resize(len, 0);
        let read = self.read_at(&mut joined, offset)?;
        let mut rest = &joined[..read];
        for part in into {
            let (now, later) = rest.split_at(part.len().min(rest.len()));
            part[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(read)
    }

    /// As [`File::write_at`], of several buffers one after the other.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, bytes: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        match bytes {
            [one] => self.write_at(one, offset),
            _ => self.write_at(&joined(bytes)?, offset),
        }
    }

    /// As [`File::append`], of several buffers one after the other.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_vectored(&self, bytes: &[IoSlice<'_>]) -> Result<Appended> {
        match bytes {
            [one] => self.append(one),
            _ => self.append(&joined(bytes)?),
        }
    }

    pub(super) fn write_located(
        &self,
        operation: &'static str,
        bytes: &[u8],
        offset: u64,
        flags: WriteFlags,
    ) -> Result<Written> {
        let engine = self.session.enter(operation)?;
        let written = engine.write_located(&self.session.caller, self.handle(), offset, bytes, flags);
        written.map_err(|e| told(operation, e))
    }
}

pub(super) fn joined(parts: &[IoSlice<'_>]) -> Result<Vec<u8>> {
    let (mut all, _) = room("write", parts.iter().map(|part| part.len()))?;
    parts.iter().for_each(|part| all.extend_from_slice(part));
    Ok(all)
}

/// Bytes that are read into several buffers at the most before it is looked how many there are.
const READ_UNASKED: usize = 1 << 20;

/// Room for buffers of these lengths, and how long they are in all: they may lie in one another, and so be more than there is
/// memory.
fn room(operation: &'static str, lengths: impl Iterator<Item = usize>) -> Result<(Vec<u8>, usize)> {
    let mut all = Vec::new();
    let len = lengths.into_iter().try_fold(0_usize, usize::checked_add);
    let len = len.filter(|len| all.try_reserve_exact(*len).is_ok());
    len.map(|len| (all, len)).ok_or_else(|| Error::of_errno(operation, libc::ENOMEM))
}
