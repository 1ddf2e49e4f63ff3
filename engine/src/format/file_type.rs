//! The type of an inode, as its mode says it.

/// The type of an inode; the discriminants are the kernel's `DT_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileType {
    /// A named pipe.
    Fifo = libc::DT_FIFO,
    /// A character device.
    CharDevice = libc::DT_CHR,
    /// A directory.
    Directory = libc::DT_DIR,
    /// A block device.
    BlockDevice = libc::DT_BLK,
    /// A regular file.
    Regular = libc::DT_REG,
    /// A symbolic link.
    Symlink = libc::DT_LNK,
    /// A socket.
    Socket = libc::DT_SOCK,
}

impl FileType {
    /// The type in the `S_IFMT` bits of a mode; `None` if there is no such type.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        FileType::from_dt(((mode & libc::S_IFMT) >> 12) as u8)
    }

    /// The type of a `DT_*` value.
    pub fn from_dt(dt: u8) -> Option<FileType> {
        use FileType::*;
        [Fifo, CharDevice, Directory, BlockDevice, Regular, Symlink, Socket]
            .into_iter()
            .find(|t| *t as u8 == dt)
    }

    /// The `S_IFMT` bits.
    pub fn mode(self) -> u32 {
        (self as u32) << 12
    }
}
