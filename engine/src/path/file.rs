//! An open file.

use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::vfs::{self, Attr, Context, FallocateMode, FileHandle, OpenFlags, SetAttr, WriteFlags};

/// How to open a file.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Each write goes to the end; implies `write`.
    pub append: bool,
    /// Empty it.
    pub truncate: bool,
    /// Make it if it is not there.
    pub create: bool,
    /// Make it; it must not be there.
    pub create_new: bool,
    /// Permissions of a file that is made.
    pub mode: u32,
    /// O_DIRECT, O_SYNC and their like.
    pub custom: OpenFlags,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o644,
            custom: OpenFlags::empty(),
        }
    }
}

impl OpenOptions {
    pub(super) fn flags(&self) -> OpenFlags {
        let mut flags = self.custom;
        let writes = self.write || self.append;
        flags.set(OpenFlags::READ_WRITE, writes && self.read);
        flags.set(OpenFlags::WRITE_ONLY, writes && !self.read);
        flags.set(OpenFlags::APPEND, self.append);
        flags.set(OpenFlags::TRUNCATE, self.truncate);
        flags.set(OpenFlags::EXCLUSIVE, self.create_new);
        flags
    }
}

/// An open file; closed when dropped. Whatever is done with it is done by the caller who opened it.
pub struct File {
    fs: Arc<vfs::Vfs>,
    caller: Context,
    handle: Option<FileHandle>,
}

impl File {
    pub(super) fn new(fs: Arc<vfs::Vfs>, caller: Context, handle: FileHandle) -> File {
        File { fs, caller, handle: Some(handle) }
    }

    fn handle(&self) -> &FileHandle {
        self.handle.as_ref().expect("only drop takes the handle")
    }

    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        self.fs.read(self.handle(), offset, into)
    }

    /// Writes at an offset (to the end, if opened for appending); fewer bytes only where space ran out.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.fs.write(&self.caller, self.handle(), offset, bytes, WriteFlags::empty())
    }

    /// Writes to the end.
    pub fn append(&self, bytes: &[u8]) -> Result<usize> {
        self.fs.write(&self.caller, self.handle(), 0, bytes, WriteFlags::APPEND)
    }

    /// Returns when data and attributes are durable.
    pub fn sync_all(&self) -> Result<()> {
        self.fs.fsync(self.handle(), false)
    }

    /// Returns when the data can be read after a crash.
    pub fn sync_data(&self) -> Result<()> {
        self.fs.fsync(self.handle(), true)
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// EINVAL if it is not open for writing.
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.handle().flags().writes() {
            return Err(Error::Errno(libc::EINVAL));
        }
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr_open(&self.caller, self.handle(), &set).map(drop)
    }

    /// Allocates, punches, zeroes or moves a range.
    pub fn allocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.fs.fallocate(&self.caller, self.handle(), mode, offset, len)
    }

    /// Attributes.
    pub fn metadata(&self) -> Result<Attr> {
        Ok(self.fs.getattr_open(self.handle()))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.fs.release(handle, None);
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("handle", &self.handle).finish_non_exhaustive()
    }
}
