//! Extended attributes of what paths lead to.

use super::Dir;
use crate::error::Result;
use crate::metadata::{XattrMode, xattr_names};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Dir {
    /// The value of an extended attribute, such as `user.origin`; of a symlink that of what it leads to.
    ///
    /// # Errors
    /// ENODATA if there is none of this name; EOPNOTSUPP for an unknown name space; EACCES; those of the path.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), name.as_ref().as_bytes());
        let engine = self.session.enter("xattr").map_err(|e| e.at(path))?;
        self.ask("xattr", path, |files, path| {
            files.with_inode(path, true, |nid| engine.getxattr(files.caller(), nid, name))
        })
    }

    /// Sets an extended attribute: 255 bytes of name and 64 KiB of value at the most.
    ///
    /// ```
    /// # use narufs::{Fs, ScratchOptions, XattrMode};
    /// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
    /// fs.write("/f", "")?;
    /// fs.set_xattr("/f", "user.origin", b"here", XattrMode::Any)?;
    /// assert_eq!(fs.xattr("/f", "user.origin")?, b"here");
    /// assert_eq!(fs.xattrs("/f")?, ["user.origin"]);
    /// # Ok::<(), narufs::Error>(())
    /// ```
    ///
    /// # Errors
    /// EEXIST and ENODATA as the mode says; E2BIG, ERANGE; ENOSPC also where an inode would have more than 71 KiB of attributes
    /// or 64 KiB of names; EINVAL for a name with a zero byte; EOPNOTSUPP for an unknown name space; EPERM, EACCES; those of the
    /// path.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let (path, name) = (path.as_ref(), name.as_ref().as_bytes());
        let engine = self.session.enter("set_xattr").map_err(|e| e.at(path))?;
        self.ask("set_xattr", path, |files, path| {
            let caller = files.caller();
            files.with_inode(path, true, |nid| engine.setxattr(caller, nid, name, value, mode.to_engine()))
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// ENODATA if there is none of this name; EPERM, EACCES; those of the path.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let (path, name) = (path.as_ref(), name.as_ref().as_bytes());
        let engine = self.session.enter("remove_xattr").map_err(|e| e.at(path))?;
        self.ask("remove_xattr", path, |files, path| {
            files.with_inode(path, true, |nid| engine.removexattr(files.caller(), nid, name))
        })
    }

    /// The names of the extended attributes that the caller may see.
    ///
    /// # Errors
    /// Those of the path.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        let engine = self.session.enter("xattrs").map_err(|e| e.at(path))?;
        let list = self.ask("xattrs", path, |files, path| {
            files.with_inode(path, true, |nid| engine.listxattr(files.caller(), nid))
        })?;
        Ok(xattr_names(&list))
    }
}
