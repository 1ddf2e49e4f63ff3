//! The record of what a write-back has written, once that is flushed, and the end of the write-back.

use super::place::{Place, WriteExtent, change_of};
use super::select::recorded_end;
use super::{PreparedWrite, WriteBack, key_of};
use crate::cache::FrameState;
use crate::format::Position;
use crate::inode::InodeObj;
use crate::meta::{Blocks, ROOM_CHANGED};
use crate::pages::{FileData, Marks, PAGE, PAGES_END, UnderWriteBack, WriteBackEnd, page_after, page_of};
use crate::planted::{self, Bug, Spot};
use crate::takeover::NewerHome;
use crate::{Error, Result};
use std::collections::BTreeSet;

impl WriteBack {
    /// Records what was written, once it is flushed, and lets go of the pages. `completed` is the device's count of
    /// writes after the last of them. Gives the page from which to go on.
    pub fn record(&self, prepared: PreparedWrite<'_>, completed: u64) -> Result<Option<u64>> {
        let PreparedWrite {
            inode,
            order,
            room,
            size,
            truncates,
            selected,
            left,
            tail_waits,
            mut extents,
            whole,
            mut next,
            mut result,
        } = prepared;
        let data = inode.data();
        let logged = if truncates { 0 } else { data.logged_size() };
        data.wrote(completed);
        whole.fail_as_one(&mut extents);

        let bad: BTreeSet<u64> = extents
            .iter()
            .filter(|extent| extent.result.is_err())
            .flat_map(|extent| extent.page..extent.page + extent.frames.len() as u64)
            .collect();
        for extent in &extents {
            if let Err(e) = &extent.result
                && result.is_ok()
            {
                result = Err(e.clone());
            }
        }
        let tail = page_of(logged);
        let tail_is_down = logged % PAGE == 0
            || if selected.contains(&tail) {
                !bad.contains(&tail) && !left.contains(&tail)
            } else {
                !tail_waits
            };
        if !tail_is_down && let Err(e) = &result {
            // Nothing may be mapped as written beyond the recorded size, which cannot grow.
            for extent in extents.iter_mut().filter(|extent| extent.place != Place::Mapped) {
                extent.result = Err(e.clone());
            }
        }
        let mut change = change_of(&extents);
        let mut down = if tail_is_down { size.max(logged) } else { logged };
        if truncates && let Some(first) = left.first() {
            // More extents than one record has room for: the file grows by what follows.
            down = down.min(first * PAGE);
        }
        let is_down = |extent: &&WriteExtent<'_>| extent.result.is_ok();
        let end = extents.iter().filter(is_down).map(|extent| extent.page + extent.frames.len() as u64).max();
        let stays = !bad.is_empty() || data.pages.has_dirty(page_of(logged)..page_after(size));
        if !truncates && stays {
            // Dirty pages stay behind: the size goes no further than what is down, lest zeros stand for them.
            down = down.min(logged.max(end.map_or(0, |end| end * PAGE)));
        }
        let wide = if data.marks() == Marks::Runs { PAGES_END } else { page_after(down.max(logged)) };
        whole.widen(&mut change, wide);
        change.size = (down != data.logged_size()).then_some(down);
        if truncates {
            change.remove = Some(0..PAGES_END);
            change.supersede.push(key_of(inode.as_ref(), 0, u64::MAX));
        }
        let outgrown = self.outgrown_end(data, &extents).filter(|_| !truncates && down > logged);
        if let Some(page) = outgrown {
            change.supersede.push(key_of(inode.as_ref(), page * PAGE, PAGE));
        }
        let wants_times = order.attributes && inode.has_lazy_times() && result.is_ok();
        if truncates && let Err(e) = &result {
            // The old content stays until all of the new is down.
            for extent in &mut extents {
                extent.result = Err(e.clone());
            }
        } else if (!change.is_empty() || wants_times)
            && let Some(room) = room
        {
            // An emptied file of which nothing was written shows nothing that might not be down.
            // Zeros that are not down are what others have left there.
            let early = truncates && extents.is_empty() || !data.is_ordered() && whole.is_empty();
            let early = early || planted::is(Bug::MappedBeforeFlush);
            let flushed = if early { Ok(()) } else { self.meta.order_after(completed) };
            let is_lost = flushed.is_err();
            // An fsync has come between, whose record there is no room to name.
            let fits = outgrown.is_none() || room.need.superseded > 0;
            let fitting = if fits { flushed } else { Err(ROOM_CHANGED) };
            let marks = !change.mark_written.is_empty();
            let recorded = fitting.and_then(|()| self.meta.log(room.room, inode, change));
            match recorded {
                Ok(_) => {
                    if left.is_empty() {
                        data.set_marks(Marks::Parts);
                    }
                    data.set_logged_size(down);
                    data.pages.forget_records_of(outgrown.as_slice());
                    if truncates {
                        data.pages.truncate_recorded();
                        self.pending.remove(inode);
                    }
                    inode.settle_kept();
                }
                Err(e) => {
                    for extent in &mut extents {
                        // What was overwritten in place is not there either, if its flush has failed.
                        if (is_lost || extent.place != Place::Mapped) && extent.result.is_ok() {
                            extent.result = Err(e.clone());
                        }
                    }
                    if e == ROOM_CHANGED {
                        next = selected.first().copied();
                    } else if e == Error::Errno(libc::ENOSPC)
                        && marks
                        && let Some(wider) = data.marks().wider()
                    {
                        // There is no block for what its extents become.
                        data.set_marks(wider);
                        next = selected.first().copied();
                    } else {
                        result = Err(e);
                    }
                }
            }
        }
        planted::panic_at(Spot::Recorded);
        self.finish(inode, selected, extents, completed);
        result.map(|()| next)
    }

    /// The page of the recorded end, if what the journal holds of it is older than what lies in place.
    fn outgrown_end(&self, data: &FileData, extents: &[WriteExtent<'_>]) -> Option<u64> {
        let page = recorded_end(data)?;
        let is_newer = |extent: &WriteExtent<'_>| {
            let at = page.checked_sub(extent.page).map(|at| at as usize);
            extent.result.is_ok() && at.is_some_and(|at| extent.unsynced.get(at) == Some(&true))
        };
        let is_outgrown = data.pages.is_stale(page) || extents.iter().any(is_newer);
        (is_outgrown && !planted::is(Bug::EndNotSuperseded)).then_some(page)
    }

    /// Lets go of the pages, as clean or as dirty again.
    fn finish(
        &self,
        inode: &InodeObj,
        selected: UnderWriteBack<'_>,
        extents: Vec<WriteExtent<'_>>,
        completed: u64,
    ) {
        let nodes = selected.finish(self.meta.store().device().writes_flushed(), |end| {
            for extent in extents {
                self.finish_extent(end, inode, extent, completed);
            }
        });
        self.meta.need_fewer_nodes(nodes);
    }

    /// Whether what lies in place may not be there, for a flush has failed: no page leaves the cache by being written there
    /// that the journal has in another form.
    pub fn is_place_in_doubt(&self) -> bool {
        self.takeover.as_ref().is_some_and(|memory| memory.is_place_in_doubt())
    }

    /// Tells a successor that the page lies in place in a newer form than records up to there hold; false: there is no
    /// room to say so.
    fn leaves_newer(&self, inode: &InodeObj, page: u64, upto: Position) -> bool {
        let Some(memory) = self.takeover.as_ref().filter(|_| !planted::is(Bug::NewerHomeRedone)) else {
            return true;
        };
        if memory.is_place_in_doubt() {
            return false;
        }
        let Some(journal) = self.meta.store().journal() else { return true };
        let home = NewerHome { upto, nid: inode.nid(), generation: inode.generation(), page };
        memory.homes().note(home, journal.epoch(), journal.head())
    }

    fn finish_extent(
        &self,
        end: &mut WriteBackEnd<'_>,
        inode: &InodeObj,
        extent: WriteExtent<'_>,
        completed: u64,
    ) {
        let pages = extent.page..extent.page + extent.frames.len() as u64;
        let count = pages.end - pages.start;
        if extent.result.is_err() {
            for (page, found) in pages.zip(&extent.frames) {
                found.fail_write_back();
                end.failed(page);
            }
            if extent.place == Place::New {
                self.meta.release(Blocks { start: extent.block, len: count as u32 });
            }
            return;
        }
        let (mut unwanted, mut clean) = (0, 0);
        for ((page, found), unsynced) in pages.zip(&extent.frames).zip(&extent.unsynced) {
            if extent.place != Place::New && found.flags().contains(FrameState::RESERVED) {
                unwanted += 1;
            }
            let overwritten = (extent.place == Place::Mapped).then_some(completed);
            let stale_upto = end.written(page, *unsynced, overwritten);
            if stale_upto.is_some_and(|upto| !self.leaves_newer(inode, page, upto)) {
                end.stays_dirty(page);
                found.set(FrameState::MAPPED);
                found.clear(FrameState::RESERVED);
                found.fail_write_back();
                continue;
            }
            found.end_write_back();
            clean += 1;
        }
        self.written.add(clean);
        match extent.place {
            Place::New => end.unreserve(count),
            Place::Unwritten | Place::Mapped if unwanted > 0 => {
                end.unreserve(unwanted);
                self.meta.unreserve(unwanted, 0);
            }
            _ => {}
        }
    }
}
