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
            let mapping = self.meta.map(inode, page)?;
            let next = (page + mapping.len()).min(end);
            let is_data = matches!(mapping, Mapping::Mapped { unwritten: false, .. });
            let first_dirty = if is_data { None } else { self.first_dirty(inode, page..next) };
            let hole = || (page..next).find(|page| self.first_dirty(inode, *page..page + 1).is_none());
            let first_hole = if is_data || to == SeekTo::Data { None } else { hole() };
            // What was dirty when it was mapped may have been recorded, and have left, before it was looked for.
            if !is_data && self.meta.map(inode, page)? != mapping {
                continue;
            }
            match to {
                SeekTo::Data if is_data => return Ok((page * PAGE).max(offset)),
                SeekTo::Data => {
                    if let Some(dirty) = first_dirty {
                        return Ok((dirty * PAGE).max(offset));
                    }
                }
                SeekTo::Hole => {
                    if let Some(hole) = first_hole {
                        return Ok((hole * PAGE).max(offset));
                    }
                }
            }
            page = next;
        }
        match to {
            SeekTo::Data => Err(Error::Errno(libc::ENXIO)),
            SeekTo::Hole => Ok(size),
        }
    }

    /// The first page of a range that is cached though nothing written lies on the device: it is dirty, or
    /// under write-back. It may be recorded and leave at any moment.
    fn first_dirty(&self, inode: &InodeObj, pages: Range<u64>) -> Option<u64> {
        let mut first = None;
        inode.data().index.each(pages, &mut |page, slot| {
            if first.is_none() && slot.is_cached() {
                first = Some(page);
            }
        });
        first
    }
}
