//! Ranges of a file: allocated, cleared, moved, sought and copied.

use super::File;
use crate::engine::{FallocateMode, Whence, told};
use crate::error::{Error, Result};

impl File {
    fn fallocate(&self, operation: &'static str, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.ask(operation, |engine, handle| {
            engine.fallocate(&self.session.caller, handle, mode, offset, len)
        })
    }

    /// Gives `len` bytes from `offset` on their space, so that writes there need none; the file gets longer if it ends
    /// before.
    ///
    /// # Errors
    /// EBADF if it is not open for writing; EINVAL if `len` is 0; EFBIG, ENOSPC.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate("allocate", FallocateMode::Allocate { keep_size: false }, offset, len)
    }

    /// As [`File::allocate`], but the length of the file stays.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate("reserve", FallocateMode::Allocate { keep_size: true }, offset, len)
    }

    /// Makes a range a hole: it reads as zeros, and its whole blocks (4 KiB) are free. The length stays.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate("punch_hole", FallocateMode::PunchHole, offset, len)
    }

    /// Makes a range read as zeros, and gives it its space; the file gets longer if it ends before.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate("zero_range", FallocateMode::ZeroRange { keep_size: false }, offset, len)
    }

    /// Takes a range out: what follows moves down. Offset and length are multiples of 4 KiB.
    ///
    /// # Errors
    /// EINVAL if they are not, or the range is not followed by content; EOPNOTSUPP in scratch space; else as [`File::allocate`].
    pub fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate("collapse_range", FallocateMode::Collapse, offset, len)
    }

    /// Puts a hole before what is at `offset`, which moves up. Offset and length are multiples of 4 KiB.
    ///
    /// # Errors
    /// EINVAL if they are not, or the file ends before; EOPNOTSUPP in scratch space; else as [`File::allocate`].
    pub fn insert_range(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate("insert_range", FallocateMode::Insert, offset, len)
    }

    /// The first byte at or after an offset that is not in a hole; none if nothing but a hole follows, or the end. A
    /// directory has no holes.
    ///
    /// # Errors
    /// None of its own.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_to("seek_data", offset, Whence::Data)
    }

    /// The first byte at or after an offset that is in a hole, as which the end of the file counts; none beyond it.
    ///
    /// ```
    /// # use narufs::{Fs, ScratchOptions};
    /// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
    /// let file = fs.create("/f")?;
    /// file.write_all_at(b"x", 1 << 20)?;
    /// assert_eq!(file.seek_hole(0)?, Some(0));
    /// assert_eq!(file.seek_data(0)?, Some(1 << 20));
    /// assert_eq!(file.seek_data(2 << 20)?, None);
    /// # Ok::<(), narufs::Error>(())
    /// ```
    ///
    /// # Errors
    /// None of its own.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_to("seek_hole", offset, Whence::Hole)
    }

    fn seek_to(&self, operation: &'static str, offset: u64, whence: Whence) -> Result<Option<u64>> {
        let engine = self.session.enter(operation)?;
        match engine.lseek(self.handle(), offset, whence) {
            Err(e) if e.errno() == libc::ENXIO => Ok(None),
            sought => sought.map(Some).map_err(|e| told(operation, e)),
        }
    }

    /// Copies up to `len` bytes to another file of the same file system, or elsewhere in this; gives how many, which is
    /// less at the end of this file. As copy_file_range(2).
    ///
    /// # Errors
    /// EISDIR for a directory; EBADF if this is not open for reading or the other not for writing (or is for appending); EINVAL if the ranges
    /// overlap in one file; EXDEV for a file of another file system; EFBIG, ENOSPC.
    pub fn copy_range(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Result<u64> {
        if !self.session.is_same_volume(&to.session) {
            return Err(Error::of_errno("copy_range", libc::EXDEV));
        }
        self.ask("copy_range", |engine, handle| {
            engine.copy_file_range(&to.session.caller, handle, offset, to.handle(), to_offset, len)
        })
    }
}
