//! Attributes of files.

use crate::engine::{self, Attr, time};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileType(u32);

impl FileType {
    pub(crate) fn of_engine(file_type: engine::FileType) -> FileType {
        FileType(file_type.mode())
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0 == libc::S_IFDIR
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0 == libc::S_IFREG
    }

    /// Whether it is a symlink.
    pub fn is_symlink(&self) -> bool {
        self.0 == libc::S_IFLNK
    }

    /// Whether it is a named pipe.
    pub fn is_fifo(&self) -> bool {
        self.0 == libc::S_IFIFO
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.0 == libc::S_IFSOCK
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.0 == libc::S_IFBLK
    }

    /// Whether it is a character device.
    pub fn is_char_device(&self) -> bool {
        self.0 == libc::S_IFCHR
    }
}

/// The attributes of a file, as they were when they were asked for.
#[derive(Debug, Clone)]
pub struct Metadata(Attr);

impl Metadata {
    pub(crate) fn of_engine(attr: Attr) -> Metadata {
        Metadata(attr)
    }

    /// The type.
    pub fn file_type(&self) -> FileType {
        FileType::of_engine(self.0.file_type)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symlink.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Bytes of the content.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Type and permissions, as a mode.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode())
    }

    /// When the content was changed last.
    pub fn modified(&self) -> SystemTime {
        time(self.0.mtime)
    }

    /// When the content was read last, as far as that is kept ([`AccessTimes`](crate::AccessTimes)).
    pub fn accessed(&self) -> SystemTime {
        time(self.0.atime)
    }

    /// When the file was made.
    pub fn created(&self) -> SystemTime {
        time(self.0.btime)
    }

    /// When content, attributes or names were changed last: `st_ctime`.
    pub fn changed(&self) -> SystemTime {
        time(self.0.ctime)
    }

    /// The number of the inode; it is given out again when the file is gone.
    pub fn ino(&self) -> u64 {
        self.0.nid
    }

    /// With the number of the inode unique for ever.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Type and permissions, as `st_mode`.
    pub fn mode(&self) -> u32 {
        self.0.mode()
    }

    /// How many names the file has; of a directory 2, and one for each directory in it.
    pub fn nlink(&self) -> u64 {
        self.0.nlink.into()
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// The device that a device node stands for, as `st_rdev`.
    pub fn rdev(&self) -> u64 {
        self.0.rdev.into()
    }

    /// Space that belongs to the file, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }
}

/// Times to set; those that are not given stay. As [`std::fs::FileTimes`].
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct FileTimes {
    pub(crate) accessed: Option<Stamp>,
    pub(crate) modified: Option<Stamp>,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stamp {
    At(SystemTime),
    Now,
}

impl FileTimes {
    /// None.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// When the content was read last.
    pub fn set_accessed(mut self, at: SystemTime) -> FileTimes {
        self.accessed = Some(Stamp::At(at));
        self
    }

    /// When the content was changed last.
    pub fn set_modified(mut self, at: SystemTime) -> FileTimes {
        self.modified = Some(Stamp::At(at));
        self
    }

    /// The content was read last when this is set. With [`FileTimes::set_modified_now`] whoever may write may do so, as
    /// well as who owns the file.
    pub fn set_accessed_now(mut self) -> FileTimes {
        self.accessed = Some(Stamp::Now);
        self
    }

    /// The content was changed last when this is set.
    pub fn set_modified_now(mut self) -> FileTimes {
        self.modified = Some(Stamp::Now);
        self
    }
}

/// How an extended attribute is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// It is made, or replaced.
    #[default]
    Any,
    /// It must be new: EEXIST if it is not.
    Create,
    /// It must be there: ENODATA if it is not.
    Replace,
}

/// Names of extended attributes, of a list where each ends with a zero byte.
pub(crate) fn xattr_names(list: &[u8]) -> Vec<std::ffi::OsString> {
    use std::os::unix::ffi::OsStrExt;
    let names = list.split(|c| *c == 0).filter(|name| !name.is_empty());
    names.map(|name| std::ffi::OsStr::from_bytes(name).to_owned()).collect()
}
