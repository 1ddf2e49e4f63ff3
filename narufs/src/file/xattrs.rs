//! Extended attributes of open files.

use super::File;
use crate::error::Result;
use crate::metadata::{XattrMode, xattr_names};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

impl File {
    /// The value of an extended attribute, such as `user.origin`.
    ///
    /// # Errors
    /// ENODATA if there is none of this name; EOPNOTSUPP for an unknown name space; EACCES.
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let name = name.as_ref().as_bytes();
        self.ask("xattr", |engine, handle| engine.getxattr(&self.session.caller, handle.nid(), name))
    }

    /// Sets an extended attribute: 255 bytes of name and 64 KiB of value at the most.
    ///
    /// # Errors
    /// EEXIST and ENODATA as the mode says; E2BIG, ERANGE; ENOSPC also where an inode would have more than 71 KiB of attributes
    /// or 64 KiB of names; EINVAL for a name with a zero byte; EOPNOTSUPP for an unknown name space; EPERM, EACCES.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8], mode: XattrMode) -> Result<()> {
        let (name, mode) = (name.as_ref().as_bytes(), mode.to_engine());
        self.ask("set_xattr", |engine, handle| {
            engine.setxattr(&self.session.caller, handle.nid(), name, value, mode)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// ENODATA if there is none of this name; EPERM, EACCES.
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.ask("remove_xattr", |engine, handle| {
            engine.removexattr(&self.session.caller, handle.nid(), name)
        })
    }

    /// The names of the extended attributes that the caller may see.
    ///
    /// # Errors
    /// None of its own.
    pub fn xattrs(&self) -> Result<Vec<OsString>> {
        let list =
            self.ask("xattrs", |engine, handle| engine.listxattr(&self.session.caller, handle.nid()))?;
        Ok(xattr_names(&list))
    }
}
