//! What the data path asks of the model: blocks, credits and records.

use super::{ModelHome, ModelInode, Record, lookup};
use crate::device::BlockDevice;
use crate::file::{Blocks, Change, Home, Logged, Mapping, Need, ROOM_CHANGED};
use crate::format::Position;
use crate::store::Profile;
use crate::sync::atomic::Ordering::SeqCst;
use crate::{Error, Result};
use std::ops::Range;

impl Home for ModelHome {
    fn profile(&self) -> Profile {
        Profile::Durable
    }

    type Inode = ModelInode;
    type Credits<'a> = bool;

    fn device(&self) -> &dyn BlockDevice {
        &self.device
    }
    fn map(&self, inode: &ModelInode, page: u64) -> Result<Mapping> {
        Ok(lookup(&self.metas.lock()[&inode.nid], page))
    }
    fn reserve(&self, blocks: u64) -> Result<()> {
        let mut space = self.space.lock();
        if space.reserved + blocks > space.free.len() as u64 {
            return Err(Error::Errno(libc::ENOSPC));
        }
        space.reserved += blocks;
        Ok(())
    }
    fn make_room_for(&self, _: u64) -> Result<()> {
        Ok(())
    }
    fn reserve_for_record(&self, blocks: u64) -> Result<()> {
        self.reserve(blocks)
    }
    fn unreserve(&self, blocks: u64) {
        let mut space = self.space.lock();
        space.reserved = space.reserved.checked_sub(blocks).expect("no more than was set aside");
    }
    fn allocate(&self, want: u32, _ahead: u32, goal: Option<u64>) -> Result<Blocks> {
        let hook = self.when_allocated.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        let mut space = self.space.lock();
        let start = goal
            .filter(|goal| space.free.contains(goal))
            .or_else(|| space.free.first().copied())
            .ok_or(Error::Errno(libc::ENOSPC))?;
        let mut len = 0;
        while len < want && space.free.remove(&(start + u64::from(len))) {
            space.volatile.insert(start + u64::from(len));
            len += 1;
        }
        space.reserved = space.reserved.saturating_sub(u64::from(len));
        Ok(Blocks { start, len })
    }
    fn release(&self, blocks: Blocks) {
        let mut space = self.space.lock();
        for block in blocks.start..blocks.start + u64::from(blocks.len) {
            assert!(space.volatile.remove(&block), "released what was not allocated");
            space.free.insert(block);
            space.reserved += 1;
        }
    }
    fn allocate_spare(&self, want: u32) -> Result<Blocks> {
        let mut space = self.space.lock();
        if space.free.len() as u64 <= space.reserved {
            return Err(Error::Errno(libc::ENOSPC));
        }
        let reserved = std::mem::take(&mut space.reserved);
        drop(space);
        let blocks = self.allocate(want, 0, None);
        self.space.lock().reserved += reserved;
        blocks
    }
    fn release_spare(&self, blocks: Blocks) {
        self.release(blocks);
        self.unreserve(u64::from(blocks.len));
    }
    fn fitting(&self, _: &ModelInode, need: Need) -> usize {
        need.runs
    }
    fn credits(&self, _: &ModelInode, need: Need) -> Result<bool> {
        Ok(need.again)
    }
    fn try_credits(&self, _: &ModelInode, need: Need) -> Result<Option<bool>> {
        let (scarce, asked) = (self.scarce.load(SeqCst), self.asked.fetch_add(1, SeqCst));
        let there_are = scarce == 0 || asked % scarce != scarce - 1;
        Ok(there_are.then_some(need.again))
    }
    fn ample_credits(&self, inode: &ModelInode, need: Need) -> Result<Option<bool>> {
        if self.ample.load(SeqCst) { self.try_credits(inode, need) } else { Ok(None) }
    }
    fn finish_removal(&self, _: &ModelInode, _: Range<u64>) -> Result<()> {
        unreachable!("a record of the model leaves nothing")
    }
    fn log(&self, again: bool, inode: &ModelInode, change: Change) -> Result<Logged> {
        let takes_one = |left: u64| left.checked_sub(1);
        if again && self.rooms_changed.fetch_update(SeqCst, SeqCst, takes_one).is_ok() {
            return Err(ROOM_CHANGED);
        }
        if change.data.is_empty() {
            let down = self.device.all_down(&self.reachable_by(inode.nid, &change));
            assert!(down, "reachable before it is down");
        }
        let after = self.change(inode.nid, |meta| {
            let mut freed = Vec::new();
            if let Some(range) = &change.remove {
                let pages: Vec<u64> = meta.map.range(range.clone()).map(|(page, _)| *page).collect();
                freed.extend(pages.iter().filter_map(|page| meta.map.remove(page)).map(|(b, _)| b));
            }
            let mut space = self.space.lock();
            for insert in &change.insert {
                for i in 0..u64::from(insert.blocks.len) {
                    assert!(space.volatile.remove(&(insert.blocks.start + i)), "mapped without a block");
                    let old = meta.map.insert(insert.page + i, (insert.blocks.start + i, insert.unwritten));
                    assert!(old.is_none(), "mapped twice");
                }
            }
            for page in change.mark_written.iter().flat_map(Range::clone) {
                let entry = meta.map.get_mut(&page).expect("an unwritten page");
                assert!(std::mem::replace(&mut entry.1, false), "written already");
            }
            meta.size = change.size.unwrap_or(meta.size);
            freed
        });
        inode.dirty_times.store(false, SeqCst);
        let end = self.tail.load(SeqCst);
        let (nid, data, supersede) = (inode.nid, change.data, change.supersede);
        let absorbed = !data.is_empty();
        self.records.lock().push(Record { end, nid, after, data, supersede });
        let hook = self.when_absorbed.lock().take().filter(|_| absorbed);
        if let Some(hook) = hook {
            hook();
        }
        Ok(Logged { end, left: None })
    }
    fn collapse(&self, inode: &ModelInode, range: Range<u64>, size: u64) -> Result<()> {
        let by = range.end - range.start;
        let after = self.change(inode.nid, |meta| {
            let old = std::mem::take(&mut meta.map);
            let mut freed = Vec::new();
            for (page, place) in old {
                if range.contains(&page) {
                    freed.push(place.0);
                } else {
                    meta.map.insert(if page < range.start { page } else { page - by }, place);
                }
            }
            meta.size = size;
            freed
        });
        let end = self.tail.load(SeqCst);
        let (data, supersede) = (Vec::new(), Vec::new());
        self.records.lock().push(Record { end, nid: inode.nid, after, data, supersede });
        Ok(())
    }
    fn insert_hole(&self, inode: &ModelInode, at: u64, by: u64, size: u64) -> Result<()> {
        let after = self.change(inode.nid, |meta| {
            let old = std::mem::take(&mut meta.map);
            meta.map = old.into_iter().map(|(p, b)| (if p < at { p } else { p + by }, b)).collect();
            meta.size = size;
            Vec::new()
        });
        let end = self.tail.load(SeqCst);
        let (data, supersede) = (Vec::new(), Vec::new());
        self.records.lock().push(Record { end, nid: inode.nid, after, data, supersede });
        Ok(())
    }
    fn tail(&self) -> Position {
        self.tail.load(SeqCst)
    }
    fn settle_upto(&self, upto: Position) -> Result<()> {
        self.commit_upto(upto)
    }
    fn commit_upto(&self, upto: Position) -> Result<()> {
        self.committed.fetch_max(upto, SeqCst);
        let committed = self.committed.load(SeqCst);
        let mut space = self.space.lock();
        let (free, kept) = space.quarantine.drain(..).partition::<Vec<_>, _>(|(end, _)| *end <= committed);
        space.quarantine = kept;
        space.free.extend(free.into_iter().map(|(_, block)| block));
        Ok(())
    }
    fn commit_power(&self, upto: Position) -> Result<()> {
        self.commit_upto(upto)
    }
    fn may_lag(&self) -> bool {
        false
    }
    fn order_after(&self, writes: u64) -> Result<()> {
        self.device.flush_upto(writes)
    }
    fn keep_promises(&self) -> Result<()> {
        Ok(())
    }
    fn head(&self) -> Position {
        self.head.load(SeqCst)
    }
    fn absorbs(&self) -> bool {
        self.absorbs.load(SeqCst)
    }
}
