//! Reads: what is cached is copied, what is not is fetched, and sequential readers find it there already.

pub(in crate::file) mod fill;
mod optimistic;
pub(in crate::file) mod readahead;
#[cfg(feature = "baselines")]
mod swapped;

use crate::Result;
use crate::cache::{Slot, Use};
use crate::file::data_path::DataPath;
use crate::file::read::fill::Caching;
use crate::format::MAX_FILE_SIZE;
use crate::inode::InodeObj;
use crate::lock::FileLock;
use crate::pages::FileData;
use crate::pages::readahead::Announced;
use crate::pages::{PAGE, page_after, page_of};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use std::ops::Range;

/// Pages of a step.
const STEP_PAGES: u64 = 256;

/// What is to become of the pages of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// They are cached.
    Yes,
    /// They are cached, but the kernel keeps them too: they give way first.
    Lent,
    /// What is not cached is not kept either.
    No,
}

/// What a step of a read does with the pages it finds.
#[derive(Clone, Copy)]
struct Reading {
    keep: Keep,
    /// What it is to the first page, and to the others.
    uses: [Use; 2],
}

/// The bytes that a reader asked for, on their way into its buffer.
pub(in crate::file) struct Destination<'b> {
    offset: u64,
    buf: &'b mut [u8],
}

impl Destination<'_> {
    /// Takes what the reader wants of a page; no bytes: of a hole.
    pub fn give(&mut self, page: u64, bytes: Option<&[u8]>) {
        let (within, part) = overlap(page, self.offset, self.buf.len());
        match bytes {
            Some(bytes) => self.buf[part].copy_from_slice(&bytes[within]),
            None => self.buf[part].fill(0),
        }
    }
}

impl DataPath {
    /// Reads from `offset` on; the number of bytes is less than asked for only at the end of the file.
    pub fn read(&self, inode: &Arc<InodeObj>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_keeping(inode, offset, buf, Keep::Yes)
    }

    /// The same, and what is to become of the pages. With the range of all that is asked for in hand from the first
    /// step to the last: another's write is seen whole.
    pub fn read_keeping(
        &self,
        inode: &Arc<InodeObj>,
        offset: u64,
        buf: &mut [u8],
        keep: Keep,
    ) -> Result<usize> {
        let data = inode.data();
        let Some(end) = offset.checked_add(buf.len() as u64).filter(|_| offset < MAX_FILE_SIZE) else {
            return Ok(0);
        };
        let pages = page_of(offset)..page_after(end);
        // Relaxed, here and below: a guess, which needs no order.
        let goes_on = data.expected.load(Ordering::Relaxed) == pages.start;
        let by = if keep == Keep::Lent { Use::ByKernel } else { Use::Yes };
        // The rest of a page that the same reader has begun with is no other use of it.
        let uses = [if goes_on && !offset.is_multiple_of(PAGE) { Use::No } else { by }, by];
        #[cfg(feature = "baselines")]
        let swap = self.swap();
        #[cfg(feature = "baselines")]
        let may_hold_nothing = !swap.clean_lost;
        #[cfg(not(feature = "baselines"))]
        let may_hold_nothing = true;
        if may_hold_nothing && self.read_optimistic(data, offset, buf, uses) {
            if goes_on {
                data.expected.store(page_of(end), Ordering::Relaxed);
            }
            return Ok(buf.len());
        }
        let absent = pages.clone().find(|page| keep != Keep::No && is_absent(data, *page));
        if goes_on || absent.is_some() {
            data.expected.store(page_of(end), Ordering::Relaxed);
        }
        #[cfg(feature = "baselines")]
        if swap.clean_lost && absent.is_some() {
            self.make_room_to_swap_in(inode, &pages);
        }
        let looks_ahead = absent;
        #[cfg(feature = "baselines")]
        let looks_ahead = looks_ahead.filter(|_| !swap.blind_readahead);
        let mut window =
            looks_ahead.and_then(|absent| self.readahead.advance(inode, pages.clone(), page_of(end), absent));
        // A thread holds one range of a file: it covers all that may be cached for this read, if that can be had.
        let mut covered = pages.clone();
        if absent.is_some() {
            covered = data.fetching.around(&pages);
            covered.end = window.as_ref().map_or(0, |window| window.end).max(covered.end);
        }
        #[cfg(feature = "baselines")]
        if swap.blind_readahead && absent.is_some() {
            covered = swapped::clusters(&pages);
        }
        let in_bytes = |pages: &Range<u64>| pages.start * PAGE..pages.end * PAGE;
        let guard = (covered != pages).then(|| data.range.try_read(in_bytes(&covered))).flatten();
        if guard.is_none() {
            covered = pages.clone();
            if let Some(window) = window.take() {
                data.streams.lock().retract(&window, window.start);
            }
        }
        let _guard = guard.unwrap_or_else(|| data.range.read(in_bytes(&pages)));
        data.check_usable()?;

        let size = data.size();
        if offset >= size {
            return Ok(0);
        }
        let len = buf.len().min((size - offset) as usize);
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let step = (STEP_PAGES * PAGE - at % PAGE).min((len - done) as u64) as usize;
            let next = at + step as u64;
            // The device is asked for the next step, or what is ahead of the last, before this one is waited for.
            let then = if done + step == len {
                window.take()
            } else {
                looks_ahead.map(|_| {
                    page_after(next)..page_after(offset + len as u64).min(page_of(next) + STEP_PAGES)
                })
            };
            let wanted = Destination { offset: at, buf: &mut buf[done..done + step] };
            let uses = if done == 0 { uses } else { [by, by] };
            self.read_step(inode, wanted, size, &covered, then, Reading { keep, uses })?;
            done += step;
        }
        #[cfg(feature = "baselines")]
        if swap.clean_lost && keep != Keep::No {
            self.lose_copies(inode, page_of(offset)..page_after(offset + len as u64));
        }
        Ok(len)
    }

    /// A step of a read below `size`, and the pages of the file that are asked for behind it. The caller has the
    /// range of what is covered, which all of them are.
    fn read_step(
        &self,
        inode: &InodeObj,
        mut wanted: Destination<'_>,
        size: u64,
        covered: &Range<u64>,
        mut ahead: Option<Range<u64>>,
        Reading { keep, uses }: Reading,
    ) -> Result<()> {
        let data = inode.data();
        let (offset, len) = (wanted.offset, wanted.buf.len());
        let mut missing: Vec<u64> = (page_of(offset)..page_after(offset + len as u64)).collect();
        let mut counted = false;
        let by = |page| uses[usize::from(page > page_of(offset))];
        let found = |page| data.index.get(page).and_then(|slot| self.pool.find(slot, by(page)));
        loop {
            missing.retain(|page| match found(*page) {
                Some(found) => {
                    if keep == Keep::Lent {
                        found.lend();
                    }
                    let (within, part) = overlap(*page, offset, len);
                    found.read(within.start, &mut wanted.buf[part]);
                    false
                }
                None => true,
            });
            let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
                self.readahead.ask(inode, ahead, size);
                return Ok(());
            };
            if !counted {
                self.misses.add(missing.len() as u64);
                counted = true;
            }
            if keep == Keep::No {
                // What is not kept is of no use to another reader.
                return self.fetch(inode, &missing, size, keep, None, &mut wanted);
            }
            match data.fetching.announce(&(*first..last + 1)) {
                Announced::Again => {}
                Announced::HandOff(hand_off) => {
                    self.readahead.ask(inode, ahead.take(), size);
                    let cache = Caching { inode, covered, size, is_lent: keep == Keep::Lent };
                    self.take_over(&cache, hand_off, &mut missing, &mut wanted);
                }
                Announced::Mine(_underway) => {
                    // Another reader has brought some since they were looked for.
                    if missing.iter().any(|page| !is_absent(data, *page)) {
                        continue;
                    }
                    #[cfg(feature = "baselines")]
                    if self.swap().blind_readahead {
                        let (missing, is_lent) = (missing.as_slice(), keep == Keep::Lent);
                        let swap_in = swapped::SwapIn { missing, covered, size, is_lent };
                        return self.swap_in(inode, &swap_in, Some(&mut wanted));
                    }
                    return self.fetch(inode, &missing, size, keep, ahead, &mut wanted);
                }
            }
        }
    }
}

/// Whether a page is not cached, as of some recent moment.
pub(in crate::file) fn is_absent(data: &FileData, page: u64) -> bool {
    // A hint; publishing decides.
    !data.index.get(page).is_some_and(Slot::is_cached)
}

/// The bytes of a page, and of a buffer of `len` bytes that begins at `offset`, that are the same bytes of the
/// file.
pub(in crate::file) fn overlap(page: u64, offset: u64, len: usize) -> (Range<usize>, Range<usize>) {
    let base = page * PAGE;
    let start = base.max(offset);
    let end = (base + PAGE).min(offset + len as u64).max(start);
    ((start - base) as usize..(end - base) as usize, (start - offset) as usize..(end - offset) as usize)
}
