//! fallocate in all its modes, SEEK_DATA and SEEK_HOLE, and copies between files.

use super::path::{DataPath, PAGE, PAGES_END, check_size, page_after, page_of};
use super::write::At;
use super::write_back::{key_of, whole_pages};
use super::{Change, DataInode, FileData, Home, Insert, MAX_RUNS, Mapping, Need};
use crate::cache::FrameState;
use crate::lock::FileLock;
use crate::sync::Arc;
use crate::{Error, Result};
use std::ops::Range;

/// What fallocate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallocateMode {
    /// Give holes blocks; grow the file unless `keep_size`.
    Allocate {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// FALLOC_FL_PUNCH_HOLE (with KEEP_SIZE).
    PunchHole,
    /// FALLOC_FL_ZERO_RANGE.
    ZeroRange {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// FALLOC_FL_COLLAPSE_RANGE.
    Collapse,
    /// FALLOC_FL_INSERT_RANGE.
    Insert,
}

/// What `seek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE; the end of the file counts as one.
    Hole,
}

fn invalid() -> Error {
    Error::Errno(libc::EINVAL)
}

impl<H: Home> DataPath<H> {
    /// fallocate(2).
    pub fn fallocate(&self, inode: &Arc<H::Inode>, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Error::Errno(libc::EFBIG))?;
        if len == 0 {
            return Err(invalid());
        }
        if !self.keeps() && matches!(mode, FallocateMode::Collapse | FallocateMode::Insert) {
            // What moves must be home first; where everything may stay in memory it never is.
            return Err(Error::Errno(libc::EOPNOTSUPP));
        }
        self.settle(inode)?;
        match mode {
            FallocateMode::Allocate { keep_size } => {
                check_size(end)?;
                self.preallocate(inode, page_of(offset)..page_after(end))?;
                if !keep_size {
                    self.grow(inode, end)?;
                }
            }
            FallocateMode::PunchHole => self.punch(inode, offset..end)?,
            FallocateMode::ZeroRange { keep_size } => {
                check_size(end)?;
                self.punch(inode, offset..end)?;
                self.preallocate(inode, page_of(offset)..page_after(end))?;
                if !keep_size {
                    self.grow(inode, end)?;
                }
            }
            FallocateMode::Collapse => {
                let size = inode.data().size();
                if !offset.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) || end >= size {
                    return Err(invalid());
                }
                self.shift(inode, |size| {
                    let size = (end < size).then(|| size - len).ok_or_else(invalid)?;
                    self.home.collapse(inode, page_of(offset)..page_of(end), size)?;
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
                    self.home.insert_hole(inode, page_of(offset), page_of(len), longer)?;
                    Ok(longer)
                })?;
            }
        }
        inode.touch();
        Ok(())
    }

    /// Gives the holes of a range of pages blocks that read as zeros.
    fn preallocate(&self, inode: &Arc<H::Inode>, pages: Range<u64>) -> Result<()> {
        let data = inode.data();
        let mut page = pages.start;
        while page < pages.end {
            let len = match self.map(inode, page)? {
                Mapping::Hole { len } => len.min(pages.end - page).min(1 << 15),
                mapped => {
                    page += mapped.len();
                    continue;
                }
            };
            self.reserve(len)?;
            let done = (|| {
                let _range = data.range.write(page * PAGE..(page + len) * PAGE);
                data.check_usable()?;
                let need = Need { runs: MAX_RUNS, ..Need::default() };
                let runs = self.home.fitting(inode, need).max(1);
                let credits = self.home.credits(inode, Need { runs, ..need })?;
                let _guard = data.write_back.lock();
                let Mapping::Hole { len: now } = self.map(inode, page)? else { return Ok((0, 0)) };
                let mut change = Change::default();
                let mut got = 0;
                while got < len.min(now) && change.insert.len() < runs {
                    let goal = change.insert.last().map(|i| i.blocks.start + u64::from(i.blocks.len));
                    match self.home.allocate((len.min(now) - got) as u32, goal) {
                        Ok(blocks) => {
                            change.insert.push(Insert { page: page + got, blocks, unwritten: true });
                            got += u64::from(blocks.len);
                        }
                        Err(e) if change.insert.is_empty() => return Err(e),
                        Err(_) => break,
                    }
                }
                let blocks: Vec<_> = change.insert.iter().map(|insert| insert.blocks).collect();
                if let Err(e) = self.home.log(credits, inode, change) {
                    for blocks in blocks {
                        self.home.release(blocks);
                    }
                    return Err(e);
                }
                self.give_up_reserved(data, page..page + got);
                Ok((got, got))
            })();
            let (got, used) = match done {
                Ok(done) => done,
                Err(e) => {
                    self.home.unreserve(len);
                    return Err(e);
                }
            };
            self.home.unreserve(len - used);
            page += got;
        }
        Ok(())
    }

    /// Dirty pages that have got blocks need none of those set aside. The caller has their range and the write-back
    /// mutex.
    fn give_up_reserved(&self, data: &FileData, pages: Range<u64>) {
        let mut unwanted = 0;
        data.index.each(pages, &mut |_, slot| {
            if let Some(found) = self.pool.find(slot)
                && found.flags().contains(FrameState::RESERVED)
            {
                found.clear(FrameState::RESERVED);
                unwanted += 1;
            }
        });
        if unwanted > 0 {
            let mut state = data.state.lock();
            state.reserved = state.reserved.saturating_sub(unwanted);
            drop(state);
            self.home.unreserve(unwanted);
        }
    }

    /// Frees whole pages, zeroes the bytes of partial ones.
    fn punch(&self, inode: &Arc<H::Inode>, bytes: Range<u64>) -> Result<()> {
        let data = inode.data();
        let pages = whole_pages(bytes.clone());
        if pages.is_empty() {
            return self.zero(inode, bytes);
        }
        self.zero(inode, bytes.start..pages.start * PAGE)?;
        self.zero(inode, pages.end * PAGE..bytes.end)?;
        let pages = pages.start.min(PAGES_END)..pages.end.min(PAGES_END);
        let _range = data.range.write(pages.start * PAGE..pages.end * PAGE);
        data.check_usable()?;
        let _removing = data.removing.lock();
        let credits = self.home.credits(inode, Need { runs: 1, ..Need::default() })?;
        let write_back = data.write_back.lock();
        self.drop_pages(data, pages.clone());
        let mut change = Change { remove: Some(pages.clone()), ..Change::default() };
        let live = data.state.lock().live.range(pages.clone()).next().is_some();
        if live {
            let (at, len) = (pages.start * PAGE, (pages.end - pages.start) * PAGE);
            change.supersede.push(key_of(inode.as_ref(), at, len));
        }
        let left = self.home.log(credits, inode, change)?.left;
        let mut state = data.state.lock();
        state.live.retain(|page, _| !pages.contains(page));
        state.stale.retain(|page| !pages.contains(page));
        drop((state, write_back));
        left.map_or(Ok(()), |left| self.home.finish_removal(inode, left))
    }

    /// Runs `move_extents` on a file that is wholly home and not cached.
    fn shift(&self, inode: &Arc<H::Inode>, move_extents: impl FnOnce(u64) -> Result<u64>) -> Result<()> {
        let data = inode.data();
        loop {
            self.write_home(inode)?;
            self.flush_data(inode)?;
            let range = data.range.write(0..u64::MAX);
            data.check_usable()?;
            let removing = data.removing.lock();
            let credits = self.home.credits(inode, Need { runs: 1, ..Need::default() })?;
            let write_back = data.write_back.lock();
            let clean = {
                let state = data.state.lock();
                state.dirty.is_empty() && state.synced.is_empty() && !state.doomed
            };
            if !clean || data.size() != data.logged_size() {
                drop((write_back, credits, removing, range));
                continue;
            }
            // What live records hold would be redone at the old places.
            let supersede = vec![key_of(inode.as_ref(), 0, u64::MAX)];
            self.home.log(credits, inode, Change { supersede, ..Change::default() })?;
            {
                let mut state = data.state.lock();
                state.live.clear();
                state.stale.clear();
            }
            self.drop_pages(data, 0..PAGES_END);
            // The range keeps everybody from the file; the moves take credits.
            drop(write_back);
            let size = move_extents(data.size())?;
            data.set_size(size);
            data.set_logged_size(size);
            // Writes in place come next: a crash must not show them where the blocks were before.
            return self.home.commit_upto(self.home.tail());
        }
    }

    /// The next byte from `offset` on that is data, or in a hole; ENXIO beyond the end.
    pub fn seek(&self, inode: &Arc<H::Inode>, to: SeekTo, offset: u64) -> Result<u64> {
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
    fn first_dirty(&self, inode: &H::Inode, pages: Range<u64>) -> Option<u64> {
        let mut first = None;
        inode.data().index.each(pages, &mut |page, slot| {
            // Acquire: pairs with the publication of the page. It stays: the range is shared.
            if first.is_none() && slot.load(crate::sync::atomic::Ordering::Acquire) != 0 {
                first = Some(page);
            }
        });
        first
    }

    /// Copies up to `len` bytes between files, or within one where the bytes there are to copy and their new place
    /// do not overlap (EINVAL). Less only at the end of the source.
    pub fn copy_range(
        &self,
        source: &Arc<H::Inode>,
        from: u64,
        target: &Arc<H::Inode>,
        to: u64,
        len: u64,
    ) -> Result<u64> {
        let len = len.min(source.data().size().saturating_sub(from));
        let overlaps = from < to.saturating_add(len) && to < from.saturating_add(len);
        if Arc::ptr_eq(source, target) && overlaps {
            return Err(invalid());
        }
        let mut buf = vec![0; len.min(128 << 10) as usize];
        let mut done = 0;
        while done < len {
            let step = buf.len().min((len - done) as usize);
            let got = self.read(source, from + done, &mut buf[..step])?;
            if got == 0 {
                break;
            }
            let written = self.write(target, At::Offset(to + done), &buf[..got]);
            match written {
                Ok(written) => done += written.len as u64,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
            if got < step {
                break;
            }
        }
        Ok(done)
    }
}
