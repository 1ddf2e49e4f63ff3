//! SEEK_DATA and SEEK_HOLE.

use crate::file::data_path::DataPath;
use crate::inode::InodeObj;
use crate::lock::FileLock;
use crate::meta::Mapping;
use crate::pages::{PAGE, page_after, page_of};
use crate::sync::Arc;
use crate::{Error, Result};
use std::ops::Range;

/// What `seek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE; the end of the file counts as one.
    Hole,
}

impl DataPath {
    /// The next byte from `offset` on that is data, or in a hole; ENXIO beyond the end.
    pub fn seek(&self, inode: &Arc<InodeObj>, to: SeekTo, offset: u64) -> Result<u64> {
        let data = inode.data();
        let _range = data.range.read(page_of(offset) * PAGE..u64::MAX);
        data.check_usable()?;
        let size = data.size();
        if offset >= size {
            return Err(Error::Errno(libc::ENXIO));
        }
        let end = page_after(size);
        let mut page = page_of(offset);
        while page < end {
            let mapping = self.map(inode, page)?;
            let next = (page + mapping.len()).min(end);
            let is_data = matches!(mapping, Mapping::Mapped { unwritten: false, .. });
            let first_dirty = if is_data { None } else { self.first_dirty(inode, page..next) };
            match to {
                SeekTo::Data if is_data => return Ok((page * PAGE).max(offset)),
                SeekTo::Data => {
                    if let Some(dirty) = first_dirty {
                        return Ok((dirty * PAGE).max(offset));
                    }
                }
                SeekTo::Hole if !is_data => {
                    let mut hole = page;
                    while hole < next && self.first_dirty(inode, hole..hole + 1).is_some() {
                        hole += 1;
                    }
                    if hole < next {
                        return Ok((hole * PAGE).max(offset));
                    }
                }
                SeekTo::Hole => {}
            }
            page = next;
        }
        match to {
            SeekTo::Data => Err(Error::Errno(libc::ENXIO)),
            SeekTo::Hole => Ok(size),
        }
    }

    /// The first page of a range that is cached though nothing written lies on the device: it is dirty, or
    /// under write-back.
    fn first_dirty(&self, inode: &InodeObj, pages: Range<u64>) -> Option<u64> {
        let mut first = None;
        inode.data().index.each(pages, &mut |page, slot| {
            // It stays: the range is shared.
            if first.is_none() && slot.is_cached() {
                first = Some(page);
            }
        });
        first
    }
}
