//! Absorbed fsync (T9): a file's few dirty bytes go into the journal, and home later.

use super::growth::room_ahead;
use super::in_hands::Absorbing;
use super::path::{DataPath, PAGE, page_after, page_of};
use super::write_back::key_of;
use super::{Blocks, Change, DataInode, Home, Insert, MAX_RUNS, Mapping, Need};
use crate::Result;
use crate::cache::Use;
use crate::cache::{Found, FrameState};
use crate::device::BLOCK_SIZE;
use crate::format::{DataKey, Position};
use crate::planted::{self, Bug, Spot};
use crate::spare;
use crate::sync::Arc;

/// The grain at which unsynced writes may survive a crash.
const SECTOR: usize = 512;

/// Pages that one fsync absorbs at most; each costs a record's overhead.
const ABSORB_PAGES: usize = 64;

/// Most bytes of neighbouring pages that are logged as one.
const PIECE: usize = 8 * BLOCK_SIZE;

/// A page on its way into the journal.
struct Taken<'p> {
    page: u64,
    found: Found<'p>,
    new: Option<Blocks>,
    unwritten: bool,
}

impl<H: Home> DataPath<H> {
    /// Logs the dirty bytes of a file if they are few and there is a journal. None: write them home.
    pub(super) fn absorb(&self, inode: &Arc<H::Inode>) -> Result<Option<Position>> {
        let data = inode.data();
        // How many pages there are, if they are so few.
        let few = |most: usize| {
            let state = data.state.lock();
            let count = state.dirty.len();
            (!state.doomed && count > 0 && count <= most).then_some(count)
        };
        if self.options.absorb_limit == 0 || !self.home.absorbs() {
            return Ok(None);
        }
        let Some(count) = few(ABSORB_PAGES) else { return Ok(None) };
        let for_pages = |pages: usize| {
            let runs = pages.min(MAX_RUNS);
            (
                pages,
                Need {
                    runs,
                    data: (pages * BLOCK_SIZE).min(self.options.absorb_limit + BLOCK_SIZE),
                    ..Need::default()
                },
            )
        };
        // Others may make more of them dirty before the mutex is taken.
        let wants = [for_pages((count + 3).min(ABSORB_PAGES)), for_pages(count)];
        let fits = |(_, need): &(usize, Need)| self.home.fitting(inode, *need) == need.runs;
        let Some((most, need)) = wants.into_iter().find(fits) else { return Ok(None) };
        let credits = self.home.credits(inode, need)?;
        let _guard = data.write_back.lock();
        if few(most).is_none() {
            return Ok(None);
        }
        let size = data.size();
        let pages: Vec<u64> = {
            let mut state = data.state.lock();
            // Before the pages leave the set: an fsync that finds none there must wait. And before the record is
            // logged: a checkpoint that lets the head pass it must find the file, and wait.
            state.absorbing = true;
            // Pages beyond the size stay: their writer has not set it yet.
            let beyond = state.dirty.split_off(&page_after(size));
            std::mem::replace(&mut state.dirty, beyond).into_iter().collect()
        };
        let mut absorbing = Absorbing::new(self, inode, pages);
        self.absorbed.lock().insert(inode.nid(), Arc::clone(inode));
        let mut taken = Vec::new();
        let mut change = Change::default();
        let outcome = self.take_in(inode, &absorbing.pages, (size, need.runs), &mut taken, &mut change);
        planted::panic_at(Spot::Taken);
        let fits = matches!(outcome, Ok(true));
        let logged = if fits {
            let stale = !change.supersede.is_empty();
            // Every dirty page below the size is in this record, that of the recorded end among them.
            change.size = (size != data.logged_size()).then_some(size);
            let waits = stale && !planted::is(Bug::SupersedeBeforeFlush);
            let flushed = if waits { self.home.order_after(data.last_write()) } else { Ok(()) };
            flushed.and_then(|()| self.home.log(credits, inode, change)).map(|logged| Some(logged.end))
        } else {
            outcome.map(|_| None)
        };
        absorbing.logged = logged.as_ref().ok().copied().flatten();
        planted::panic_at(Spot::Absorbed);
        let Ok(Some(end)) = logged else {
            let mut state = data.state.lock();
            state.absorbing = false;
            state.dirty.extend(&absorbing.pages);
            drop(state);
            for page in taken {
                let latched = page.found.latch();
                page.found.mark_dirty(&latched, 0..BLOCK_SIZE);
                drop(latched);
                if let Some(blocks) = page.new {
                    self.home.release(blocks);
                }
            }
            return logged;
        };
        data.set_logged_size(size);
        self.counters.absorbed.add(taken.len() as u64);
        self.counters.syncs_absorbed.add(1);
        let mut unwanted = 0;
        let mut state = data.state.lock();
        state.absorbing = false;
        for page in taken {
            if page.new.is_some() {
                state.reserved = state.reserved.saturating_sub(1);
            } else if page.unwritten && page.found.flags().contains(FrameState::RESERVED) {
                state.reserved = state.reserved.saturating_sub(1);
                unwanted += 1;
            }
            page.found.set(FrameState::MAPPED);
            page.found.clear(FrameState::RESERVED);
            state.absorbed(page.page, end);
            state.stale.remove(&page.page);
            if page.found.flags().contains(FrameState::SYNCED) {
                state.synced.insert(page.page);
            }
        }
        drop(state);
        if unwanted > 0 {
            self.home.unreserve(unwanted);
        }
        self.list(inode);
        Ok(Some(end))
    }

    /// Copies dirty bytes into a record and gives new pages their blocks; false if they are too many.
    fn take_in<'p>(
        &'p self,
        inode: &Arc<H::Inode>,
        pages: &[u64],
        (size, most_runs): (u64, usize),
        taken: &mut Vec<Taken<'p>>,
        change: &mut Change,
    ) -> Result<bool> {
        let data = inode.data();
        let mut sum = 0;
        let mut behind: Option<(u64, u64)> = None;
        for &page in pages {
            let Some(found) = data.index.get(page).and_then(|slot| self.pool.find(slot, Use::No)) else {
                continue;
            };
            if !found.flags().contains(FrameState::DIRTY) {
                continue;
            }
            let stale = !planted::is(Bug::AbsorbedOverStale) && data.state.lock().stale.contains(&page);
            let mut new = None;
            let mut unwritten = false;
            if !found.flags().contains(FrameState::MAPPED) {
                match self.map(inode, page)? {
                    Mapping::Hole { .. } => {
                        let near = behind.map(|(_, block)| block);
                        let goal = match behind {
                            Some((before, _)) if before + 1 == page => near,
                            _ => self.block_behind(inode, page).or(near),
                        };
                        let blocks = self.home.allocate(1, room_ahead(page), goal)?;
                        behind = Some((page, blocks.start + 1));
                        new = Some(blocks);
                    }
                    Mapping::Mapped { unwritten: u, .. } => unwritten = u,
                }
            }
            let whole = new.is_some() || unwritten || stale;
            let latched = found.latch();
            let dirty = latched.dirty_bytes();
            // Behind the recorded end the home copy may hold what was cut off.
            let recorded = (data.logged_size() % PAGE) as usize;
            let is_last = page == page_of(data.logged_size());
            let start = if is_last { dirty.start.min(recorded) } else { dirty.start };
            // A writer may have come further than the size, which it sets afterwards: the page counts as absorbed
            // with those bytes too.
            let valid = (size.saturating_sub(page * PAGE).min(PAGE) as usize).max(dirty.end);
            // Whole sectors: redo may meet a home copy that is newer, and must not mix the two within one.
            let sectors = start / SECTOR * SECTOR..dirty.end.next_multiple_of(SECTOR).min(valid);
            let range = if whole { 0..BLOCK_SIZE } else { sectors };
            sum += range.len();
            if !range.is_empty() {
                let at = page * PAGE + range.start as u64;
                let goes_on = |(key, bytes): &(DataKey, Vec<u8>)| {
                    key.offset.get() + bytes.len() as u64 == at && bytes.len() + range.len() <= PIECE
                };
                if !change.data.last().is_some_and(goes_on) {
                    let room = (pages.len() * BLOCK_SIZE).min(PIECE);
                    change.data.push((key_of(inode.as_ref(), at, 0), spare::take(room)));
                }
                if let Some((key, bytes)) = change.data.last_mut() {
                    latched.append(range, bytes);
                    key.len.set(bytes.len() as u64);
                }
            }
            found.set(FrameState::SYNCED);
            drop(latched);
            if let Some(blocks) = new {
                change.insert.push(Insert { page, blocks, unwritten: false });
            }
            if unwritten {
                match change.mark_written.last_mut() {
                    Some(last) if last.end == page => last.end += 1,
                    _ => change.mark_written.push(page..page + 1),
                }
            }
            if stale {
                change.supersede.push(key_of(inode.as_ref(), page * PAGE, PAGE));
            }
            taken.push(Taken { page, found, new, unwritten });
            let runs = change.insert.len() + change.mark_written.len() + change.supersede.len();
            if sum > self.options.absorb_limit || runs > most_runs {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
