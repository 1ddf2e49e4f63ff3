//! Messages that the server starts: the kernel drops what it has cached.

use super::flags::EXPIRE_ONLY;
use super::replies::{DeleteOut, InvalEntryOut, InvalInodeOut, StoreOut};
use zerocopy::IntoBytes;

const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
const STORE: i32 = 4;
const DELETE: i32 = 6;
const RESEND: i32 = 7;

/// One message to the kernel.
///
/// It must not be sent from within an operation on the same inode or directory: the kernel holds locks then,
/// which the notification takes too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification<'a> {
    /// Attributes, and the pages from `offset` on (`len` 0: to the end; `offset` below 0: no pages).
    InvalInode {
        /// The inode.
        nodeid: u64,
        /// First byte.
        offset: i64,
        /// Bytes, 0 for all.
        len: i64,
    },
    /// A name in a directory.
    InvalEntry {
        /// The directory.
        parent: u64,
        /// The name.
        name: &'a [u8],
        /// Look it up again at the next use, but keep it while it is in use.
        expire_only: bool,
    },
    /// A name that is gone; whoever watches the directory is told.
    Delete {
        /// The directory.
        parent: u64,
        /// What the name led to.
        child: u64,
        /// The name.
        name: &'a [u8],
    },
    /// Bytes of a file, which the kernel takes as they are. It takes the file to be at least so long from then on.
    Store {
        /// The inode.
        nodeid: u64,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Every request that was read and not answered is to be read once more, before all others.
    Resend,
}

impl Notification<'_> {
    /// The code for the header and the bytes that follow it.
    pub fn encode(&self) -> (i32, Vec<u8>) {
        let named = |head: &[u8], name: &[u8]| [head, name, &[0]].concat();
        match *self {
            Notification::InvalInode { nodeid, offset, len } => {
                (INVAL_INODE, InvalInodeOut { ino: nodeid, off: offset, len }.as_bytes().to_vec())
            }
            Notification::InvalEntry { parent, name, expire_only } => {
                let flags = if expire_only { EXPIRE_ONLY } else { 0 };
                let head = InvalEntryOut { parent, namelen: name.len() as u32, flags };
                (INVAL_ENTRY, named(head.as_bytes(), name))
            }
            Notification::Delete { parent, child, name } => {
                let head = DeleteOut { parent, child, namelen: name.len() as u32, padding: 0 };
                (DELETE, named(head.as_bytes(), name))
            }
            Notification::Store { nodeid, offset, data } => {
                let head = StoreOut { nodeid, offset, size: data.len() as u32, padding: 0 };
                (STORE, [head.as_bytes(), data].concat())
            }
            Notification::Resend => (RESEND, Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_counted_without_its_zero() {
        let (code, bytes) = Notification::InvalEntry { parent: 1, name: b"ab", expire_only: true }.encode();
        assert_eq!((code, bytes.len()), (INVAL_ENTRY, 16 + 3));
        assert_eq!(bytes[8..16], [2, 0, 0, 0, 1, 0, 0, 0].map(|b: u8| b));
        assert_eq!(&bytes[16..], b"ab\0");
    }
}
