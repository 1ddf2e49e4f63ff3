//! fallocate in all its modes.

use crate::cache::{FrameState, Use};
use crate::file::data_path::{DataPath, check_size};
use crate::file::write::Outcome;
use crate::file::write::reservation::FrameReservation;
use crate::file::writeback::key_of;
use crate::file::writeback::preallocation::block_behind;
use crate::format::MAX_FILE_SIZE;
use crate::inode::InodeObj;
use crate::lock::BytesGuard;
use crate::meta::{Change, Insert, MAX_RUNS, Mapping, Need};
use crate::pages::FileData;
use crate::pages::{PAGE, PAGES_END, page_after, page_of, whole_pages};
use crate::sync::Arc;
use crate::{Error, Result};
use std::ops::Range;

/// What [`DataPath::fallocate`] does with its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallocateMode {
    /// Gives it blocks.
    Allocate {
        /// Leave the size, even where the range goes beyond it.
        keep_size: bool,
    },
    /// Makes it a hole; the size stays.
    PunchHole,
    /// Makes it read as zeros, with blocks.
    ZeroRange {
        /// Leave the size, even where the range goes beyond it.
        keep_size: bool,
    },
    /// Takes it out: what follows moves down. Whole blocks, within the file.
    Collapse,
    /// Puts a hole before what is there, which moves up. Whole blocks, within the file.
    Insert,
}

impl FallocateMode {
    /// The mode of the kernel's `FALLOC_FL_*` bits.
    ///
    /// # Errors
    /// EOPNOTSUPP for combinations that have no meaning here.
    pub fn from_kernel(mode: u32) -> Result<FallocateMode> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP;
        match mode as i32 {
            0 => Ok(FallocateMode::Allocate { keep_size: false }),
            KEEP => Ok(FallocateMode::Allocate { keep_size: true }),
            PUNCH => Ok(FallocateMode::PunchHole),
            libc::FALLOC_FL_ZERO_RANGE => Ok(FallocateMode::ZeroRange { keep_size: false }),
            ZERO_KEEP => Ok(FallocateMode::ZeroRange { keep_size: true }),
            libc::FALLOC_FL_COLLAPSE_RANGE => Ok(FallocateMode::Collapse),
            libc::FALLOC_FL_INSERT_RANGE => Ok(FallocateMode::Insert),
            _ => Err(Error::Errno(libc::EOPNOTSUPP)),
        }
    }
}

/// What follows when pages are cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Hole,
    Blocks,
    BlocksAndSize,
}

/// Most pages of a hole that get blocks in one go.
const FILLED_PAGES: u64 = 1 << 15;

fn invalid() -> Error {
    Error::Errno(libc::EINVAL)
}

/// Of `bytes`, what lies below the file's end and outside the whole `pages`: to be zeroed. If the file grows, what its
/// last page has beyond the end as well, for whatever was there must not show.
fn partial_pages(bytes: &Range<u64>, pages: &Range<u64>, size: u64, grows: bool) -> Vec<Range<u64>> {
    let (head, tail) = if pages.is_empty() {
        (bytes.clone(), 0..0)
    } else {
        (bytes.start..pages.start * PAGE, pages.end * PAGE..bytes.end)
    };
    let below = |part: Range<u64>| part.start..part.end.min(size);
    let mut parts: Vec<_> = [head, tail].map(below).into_iter().filter(|part| !part.is_empty()).collect();
    let last = page_of(size);
    if grows && !size.is_multiple_of(PAGE) && !pages.contains(&last) {
        let end = (last + 1) * PAGE;
        match parts.iter_mut().find(|part| part.end > last * PAGE && part.start < end) {
            Some(part) => part.end = end,
            None => parts.push(size..end),
        }
        parts.sort_by_key(|part| part.start);
    }
    parts
}

impl DataPath {
    /// fallocate(2).
    pub fn fallocate(&self, inode: &Arc<InodeObj>, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Error::Errno(libc::EFBIG))?;
        if len == 0 {
            return Err(invalid());
        }
        if !self.write_back.keeps() && matches!(mode, FallocateMode::Collapse | FallocateMode::Insert) {
            // What moves must be home first; where everything may stay in memory it never is.
            return Err(Error::Errno(libc::EOPNOTSUPP));
        }
        match mode {
            FallocateMode::Allocate { keep_size } => {
                check_size(end)?;
                self.preallocate(inode, page_of(offset)..page_after(end))?;
                if !keep_size {
                    self.grow(inode, end)?;
                }
            }
            FallocateMode::PunchHole => {
                let bytes = offset.min(MAX_FILE_SIZE)..end.min(MAX_FILE_SIZE);
                if !bytes.is_empty() {
                    self.clear(inode, bytes, After::Hole)?;
                }
            }
            FallocateMode::ZeroRange { keep_size } => {
                check_size(end)?;
                let after = if keep_size { After::Blocks } else { After::BlocksAndSize };
                self.clear(inode, offset..end, after)?;
            }
            FallocateMode::Collapse => {
                let size = inode.data().size();
                if !offset.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) || end >= size {
                    return Err(invalid());
                }
                self.shift(inode, |size| {
                    let size = (end < size).then(|| size - len).ok_or_else(invalid)?;
                    self.meta.collapse(inode, page_of(offset)..page_of(end), size)?;
                    Ok(size)
                })?;
            }
            FallocateMode::Insert => {
                if !offset.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) || offset >= inode.data().size()
                {
                    return Err(invalid());
                }
                self.shift(inode, |size| {
                    let longer = size.checked_add(len).ok_or(Error::Errno(libc::EFBIG))?;
                    check_size(longer)?;
                    if offset >= size {
                        return Err(invalid());
                    }
                    self.meta.insert_hole(inode, page_of(offset), page_of(len), longer)?;
                    Ok(longer)
                })?;
            }
        }
        inode.touch_content();
        self.keep(inode);
        Ok(())
    }

    /// Some bytes of a file whose tree of extents is what the file is: as long as the record of a truncation to nothing
    /// waits, it holds what is to go. Nobody empties the file while any of its bytes are in hand.
    fn settled_range<'a>(&self, inode: &'a Arc<InodeObj>, bytes: Range<u64>) -> Result<BytesGuard<'a>> {
        let data = inode.data();
        loop {
            self.settle(inode)?;
            let guard = data.write_range(bytes.clone());
            data.check_usable()?;
            if !data.pages.is_truncate_pending() {
                return Ok(guard);
            }
        }
    }

    /// Gives the holes of a range of pages blocks that read as zeros.
    fn preallocate(&self, inode: &Arc<InodeObj>, pages: Range<u64>) -> Result<()> {
        self.meta.alloc.make_room_for(pages.end - pages.start)?;
        let mut page = pages.start;
        while page < pages.end {
            page += match self.meta.map(inode, page)? {
                Mapping::Hole { len } => {
                    let hole = page..(page + len.min(FILLED_PAGES)).min(pages.end);
                    let _range = self.settled_range(inode, hole.start * PAGE..hole.end * PAGE)?;
                    self.fill(inode, hole)?
                }
                mapped => mapped.len(),
            };
        }
        Ok(())
    }

    /// The same by a caller who has their range.
    fn fill_all(&self, inode: &Arc<InodeObj>, pages: Range<u64>) -> Result<()> {
        let mut page = pages.start;
        while page < pages.end {
            page += match self.meta.map(inode, page)? {
                Mapping::Hole { len } => {
                    self.fill(inode, page..(page + len.min(FILLED_PAGES)).min(pages.end))?
                }
                mapped => mapped.len(),
            };
        }
        Ok(())
    }

    /// Gives the first pages of a hole, or of what was one, blocks that read as zeros; how many. The caller has their
    /// range.
    fn fill(&self, inode: &Arc<InodeObj>, hole: Range<u64>) -> Result<u64> {
        let len = hole.end - hole.start;
        self.reserve_for_record(len)?;
        let filled = self.fill_reserved(inode, hole);
        self.meta.unreserve_record(len - filled.as_ref().copied().unwrap_or(0));
        filled
    }

    fn fill_reserved(&self, inode: &Arc<InodeObj>, hole: Range<u64>) -> Result<u64> {
        let data = inode.data();
        let need = Need { runs: MAX_RUNS, ..Need::default() };
        let runs = self.meta.fitting(inode, need).max(1);
        let credits = self.meta.credits(inode, Need { runs, ..need })?;
        let _guard = data.write_back.lock();
        // It may have got blocks by a write-back since.
        let Mapping::Hole { len } = self.meta.map(inode, hole.start)? else { return Ok(0) };
        let len = len.min(hole.end - hole.start);
        let mut change = Change::default();
        let mut got = 0;
        while got < len && change.insert.len() < runs {
            let behind = change.insert.last().map(|i| i.blocks.start + u64::from(i.blocks.len));
            let goal = behind.or_else(|| block_behind(&self.meta, inode, hole.start));
            match self.meta.allocate((len - got) as u32, 0, goal) {
                Ok(blocks) => {
                    change.insert.push(Insert { page: hole.start + got, blocks, unwritten: true });
                    got += u64::from(blocks.len);
                }
                Err(e) if change.insert.is_empty() => return Err(e),
                Err(_) => break,
            }
        }
        let blocks: Vec<_> = change.insert.iter().map(|insert| insert.blocks).collect();
        if let Err(e) = self.meta.log(credits, inode, change) {
            for blocks in blocks {
                self.meta.release(blocks);
            }
            return Err(e);
        }
        self.give_up_reserved(data, hole.start..hole.start + got);
        Ok(got)
    }

    /// Dirty pages that have got blocks need none of those set aside. The caller has their range and the write-back
    /// mutex.
    fn give_up_reserved(&self, data: &FileData, pages: Range<u64>) {
        let mut unwanted = 0;
        data.index.each(pages, &mut |_, slot| {
            if let Some(found) = self.pool.find(slot, Use::No)
                && found.flags().contains(FrameState::RESERVED)
            {
                found.clear(FrameState::RESERVED);
                unwanted += 1;
            }
        });
        if unwanted > 0 {
            let nodes = data.pages.unreserve(unwanted);
            self.meta.unreserve(unwanted, nodes);
        }
    }

    /// Frees whole pages, zeroes the bytes of partial ones, and does what is to follow; with the range in hand from
    /// the first to the last, so that reads see all of it or nothing.
    fn clear(&self, inode: &Arc<InodeObj>, bytes: Range<u64>, after: After) -> Result<()> {
        let data = inode.data();
        let pages = whole_pages(bytes.clone());
        let mut frames = FrameReservation::default();
        let (_range, grows) = loop {
            let size = data.size();
            let grows = after == After::BlocksAndSize && bytes.end > size;
            let range = if grows {
                page_of(bytes.start.min(size)) * PAGE..u64::MAX
            } else {
                page_of(bytes.start) * PAGE..page_after(bytes.end) * PAGE
            };
            let guard = self.settled_range(inode, range)?;
            if data.size() != size {
                continue;
            }
            match self.zero_parts(inode, &partial_pages(&bytes, &pages, size, grows), size, &mut frames)? {
                Outcome::Done => break (guard, grows),
                Outcome::Frames(count) => {
                    drop(guard);
                    frames = self.reserve_frames(frames, count)?;
                }
            }
        };
        if !pages.is_empty() {
            self.remove_pages(inode, pages)?;
        }
        if after != After::Hole {
            self.fill_all(inode, page_of(bytes.start)..page_after(bytes.end))?;
        }
        if grows {
            data.set_size(bytes.end);
            self.keep(inode);
            self.write_back.queue().add(inode);
        }
        Ok(())
    }

    /// Frees pages. The caller has their range.
    fn remove_pages(&self, inode: &Arc<InodeObj>, pages: Range<u64>) -> Result<()> {
        let data = inode.data();
        let _removing = data.removing.lock();
        let credits = self.meta.credits(inode, Need { runs: 1, ..Need::default() })?;
        let write_back = data.write_back.lock();
        let mut change = Change { remove: Some(pages.clone()), ..Change::default() };
        if data.pages.has_records(pages.clone()) {
            let (at, len) = (pages.start * PAGE, (pages.end - pages.start) * PAGE);
            change.supersede.push(key_of(inode.as_ref(), at, len));
        }
        let mut are_gone = false;
        let drop_pages = || {
            are_gone = true;
            self.drop_pages(data, pages.clone());
        };
        let left = match self.meta.log_after(credits, inode, change, drop_pages) {
            Ok(logged) => logged.left,
            Err(e) => {
                if are_gone {
                    self.give_up(data, &pages);
                }
                return Err(e);
            }
        };
        data.pages.forget_records(&pages);
        drop(write_back);
        left.map_or(Ok(()), |left| self.meta.free_rest(inode, left))
    }

    /// Runs `move_extents` on a file that is wholly home and not cached.
    fn shift(&self, inode: &Arc<InodeObj>, move_extents: impl FnOnce(u64) -> Result<u64>) -> Result<()> {
        let data = inode.data();
        loop {
            self.write_back.write_home(inode)?;
            self.flush_data(inode)?;
            let range = data.write_range(0..u64::MAX);
            data.check_usable()?;
            let removing = data.removing.lock();
            let credits = self.meta.credits(inode, Need { runs: 1, ..Need::default() })?;
            let write_back = data.write_back.lock();
            let clean = data.pages.summary().is_clean();
            // Others may have written it home since it was flushed: the supersede is for what is in place.
            if !clean || !self.is_flushed(data) || data.size() != data.logged_size() {
                drop((write_back, credits, removing, range));
                continue;
            }
            // What live records hold would be redone at the old places.
            let supersede = vec![key_of(inode.as_ref(), 0, u64::MAX)];
            self.meta.log(credits, inode, Change { supersede, ..Change::default() })?;
            data.pages.forget_records(&(0..PAGES_END));
            self.drop_pages(data, 0..PAGES_END);
            // The range keeps everybody from the file; the moves take credits.
            drop(write_back);
            let size = move_extents(data.size())?;
            // A record of somebody else's has one size or the other, and not the old one behind this.
            let write_back = data.write_back.lock();
            data.set_size(size);
            data.set_logged_size(size);
            inode.settle_kept();
            drop(write_back);
            // Writes in place come next: a crash must not show them where the blocks were before.
            let store = self.meta.store();
            return store.commit_upto(store.tail(), self.meta.durability());
        }
    }
}
