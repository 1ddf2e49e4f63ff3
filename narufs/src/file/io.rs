//! The cursor, and the traits of [`std::io`] that use it.

use super::File;
use crate::engine::WriteFlags;
use crate::error::Error;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::sync::{MutexGuard, PoisonError};

impl File {
    /// The cursor. It is moved in one step at the end of a call: a panic in between has left it as it was.
    ///
    /// # Errors
    /// In a forked child, where a thread of the parent may have held it for ever.
    fn cursor(&self) -> io::Result<MutexGuard<'_, u64>> {
        self.session.enter("use")?;
        Ok(self.cursor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write_at_cursor(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        let joined;
        let bytes = match bytes {
            [] => return Ok(0),
            [one] => &**one,
            many => {
                joined = super::positional::joined(many)?;
                &joined
            }
        };
        let mut cursor = self.cursor()?;
        let written = self.write_located("write", bytes, *cursor, WriteFlags::empty())?;
        if written.len > 0 {
            *cursor = written.offset + written.len as u64;
        }
        Ok(written.len)
    }
}

impl Read for &File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut cursor = self.cursor()?;
        let read = self.read_at(into, *cursor)?;
        *cursor += read as u64;
        Ok(read)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut cursor = self.cursor()?;
        let read = self.read_vectored_at(into, *cursor)?;
        *cursor += read as u64;
        Ok(read)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_at_cursor(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_at_cursor(bytes)
    }

    /// Does nothing: nothing is kept back. [`File::sync_all`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut cursor = self.cursor()?;
        let (from, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(by) => (*cursor, by),
            SeekFrom::End(by) => (self.metadata()?.len(), by),
        };
        let at = from.checked_add_signed(by).filter(|at| i64::try_from(*at).is_ok());
        *cursor = at.ok_or_else(|| Error::of_errno("seek", libc::EINVAL))?;
        Ok(*cursor)
    }
}

impl Read for File {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(into)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bytes)
    }

    /// Does nothing: nothing is kept back. [`File::sync_all`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
