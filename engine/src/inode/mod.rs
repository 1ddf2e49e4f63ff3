//! Inodes in memory: the table, attributes, and the life of an inode between its names and its users.
//!
//! This module knows the 256 bytes of an inode and what holds it. It leaves to others: which operation changes
//! what (`vfs`), entries (`dir`), bytes (`file`), where an inode's slot comes from (`nat`).
//!
//! Life: an inode is freed when it has no name, no open file and no kernel lookup. A thread that brings the last of
//! the three to zero calls [`Holds::retire`], which succeeds once, and frees it. Until then an inode without
//! names is an orphan: the orphan table names it, and recovery frees it.

mod holds;
mod kept;
mod lent;
mod nid_set;
mod object;
mod table;
mod tick;
mod times;

pub use crate::format::FileType;
pub use holds::Holds;
pub use lent::{Lent, Recall};
pub use nid_set::NidSet;
pub use object::{Draft, InodeLocation, InodeObj, fresh_image, image_bytes, location_of, verify};
pub use table::{Forgotten, InodeTable};
#[cfg(any(test, feature = "sim"))]
pub use tick::hold;
pub use tick::{Time, now, tick};
