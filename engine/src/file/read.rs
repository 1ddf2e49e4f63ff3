//! Reads: what is cached is copied, what is not is fetched, and sequential readers find it there already.

use super::fetching::{Announced, Landing};
use super::path::{DataPath, PAGE, page_after, page_of};
use super::{DataInode, FileData, Home, Mapping};
use crate::Result;
use crate::cache::{FrameState, Fresh, Slot, Use};
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::format::MAX_FILE_SIZE;
use crate::lock::FileLock;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use std::ops::Range;

/// Pages of one request.
pub(super) const REQUEST_PAGES: u64 = 64;
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

/// Consecutive pages that lie in consecutive blocks, to be read.
pub(super) struct Fetch {
    pub page: u64,
    pub block: u64,
    pub len: u64,
}

/// The bytes that a reader asked for, on their way into its buffer.
struct Wanted<'b> {
    offset: u64,
    buf: &'b mut [u8],
}

/// Where pages are cached that nobody waits for.
struct Caching<'r, I> {
    inode: &'r I,
    /// Those whose range the reader has.
    covered: &'r Range<u64>,
    /// Of the file.
    size: u64,
    is_lent: bool,
}

impl Wanted<'_> {
    /// Takes what the reader wants of a page; no bytes: of a hole.
    fn give(&mut self, page: u64, bytes: Option<&[u8]>) {
        let (within, part) = overlap(page, self.offset, self.buf.len());
        match bytes {
            Some(bytes) => self.buf[part].copy_from_slice(&bytes[within]),
            None => self.buf[part].fill(0),
        }
    }
}

impl<H: Home> DataPath<H> {
    /// Reads from `offset` on; the number of bytes is less than asked for only at the end of the file.
    pub fn read(&self, inode: &Arc<H::Inode>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_keeping(inode, offset, buf, Keep::Yes)
    }

    /// The same, and what is to become of the pages. With the range of all that is asked for in hand from the first
    /// step to the last: another's write is seen whole.
    pub fn read_keeping(
        &self,
        inode: &Arc<H::Inode>,
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
        if self.read_at_a_glance(data, offset, buf, uses) {
            if goes_on {
                data.expected.store(page_of(end), Ordering::Relaxed);
            }
            return Ok(buf.len());
        }
        let absent = pages.clone().find(|page| keep != Keep::No && self.is_absent(data, *page));
        if goes_on || absent.is_some() {
            data.expected.store(page_of(end), Ordering::Relaxed);
        }
        let mut window = absent.and_then(|absent| self.advance(inode, pages.clone(), page_of(end), absent));
        // A thread holds one range of a file: it covers all that may be cached for this read, if that can be had.
        let mut covered = pages.clone();
        if absent.is_some() {
            covered = data.fetching.around(&pages);
            covered.end = window.as_ref().map_or(0, |window| window.end).max(covered.end);
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
                absent.map(|_| {
                    page_after(next)..page_after(offset + len as u64).min(page_of(next) + STEP_PAGES)
                })
            };
            let wanted = Wanted { offset: at, buf: &mut buf[done..done + step] };
            let uses = if done == 0 { uses } else { [by, by] };
            self.read_step(inode, wanted, size, &covered, then, Reading { keep, uses })?;
            done += step;
        }
        Ok(len)
    }

    /// A step of a read below `size`, and the pages of the file that are asked for behind it. The caller has the
    /// range of what is covered, which all of them are.
    fn read_step(
        &self,
        inode: &H::Inode,
        mut wanted: Wanted<'_>,
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
                self.read_ahead(inode, ahead, size);
                return Ok(());
            };
            if !counted {
                self.counters.misses.add(missing.len() as u64);
                counted = true;
            }
            if keep == Keep::No {
                // What is not kept is of no use to another reader.
                return self.fetch(inode, &missing, size, keep, None, &mut wanted);
            }
            match data.fetching.announce(&(*first..last + 1)) {
                Announced::Again => {}
                Announced::Landing(landing) => {
                    self.read_ahead(inode, ahead.take(), size);
                    let cache = Caching { inode, covered, size, is_lent: keep == Keep::Lent };
                    self.land(&cache, landing, &mut missing, &mut wanted);
                }
                Announced::Mine(_underway) => {
                    // Another reader has brought some since they were looked for.
                    if missing.iter().any(|page| !self.is_absent(data, *page)) {
                        continue;
                    }
                    return self.fetch(inode, &missing, size, keep, ahead, &mut wanted);
                }
            }
        }
    }

    /// Whether a page is not cached, as of some recent moment.
    pub(super) fn is_absent(&self, data: &FileData, page: u64) -> bool {
        // A hint; publishing decides.
        !data.index.get(page).is_some_and(Slot::is_cached)
    }

    /// Where pages lie that are to be read, in order; those of holes are given to `hole`.
    pub(super) fn places(
        &self,
        inode: &H::Inode,
        pages: &[u64],
        hole: &mut dyn FnMut(u64),
    ) -> Result<Vec<Fetch>> {
        let mut fetches: Vec<Fetch> = Vec::new();
        let mut known: Option<(u64, Mapping)> = None;
        for &page in pages {
            let (at, mapping) = match known {
                Some((at, mapping)) if page < at + mapping.len() => (at, mapping),
                _ => (page, self.map(inode, page)?),
            };
            known = Some((at, mapping));
            let Mapping::Mapped { block, unwritten: false, .. } = mapping else {
                hole(page);
                continue;
            };
            let block = block + (page - at);
            match fetches.last_mut() {
                Some(last)
                    if last.page + last.len == page
                        && last.block + last.len == block
                        && last.len < REQUEST_PAGES =>
                {
                    last.len += 1;
                }
                _ => fetches.push(Fetch { page, block, len: 1 }),
            }
        }
        Ok(fetches)
    }

    /// Reads a page that is not cached, and with which nothing else is asked for: straight into the frame that will
    /// have it, if there is one. The caller has its range.
    fn fetch_one(
        &self,
        inode: &H::Inode,
        page: u64,
        size: u64,
        keep: Keep,
        wanted: &mut Wanted<'_>,
    ) -> Result<()> {
        let Mapping::Mapped { block, unwritten: false, .. } = self.map(inode, page)? else {
            wanted.give(page, None);
            return Ok(());
        };
        let device = self.home.device();
        let fresh = if keep == Keep::No { None } else { self.pool.take() };
        let Some(mut fresh) = fresh else {
            let mut buf = IoBuf::unwiped(BLOCK_SIZE);
            device.read_into(block, &mut buf, Cause::ReadMiss)?;
            zero_beyond(page, size, &mut buf);
            wanted.give(page, Some(&buf));
            return Ok(());
        };
        device.read_into(block, fresh.bytes(), Cause::ReadMiss)?;
        zero_beyond(page, size, fresh.bytes());
        wanted.give(page, Some(fresh.bytes()));
        self.publish_clean(inode.data(), page, fresh, FrameState::MAPPED, keep == Keep::Lent);
        Ok(())
    }

    /// Reads pages that are not cached, all of them wanted. The caller has the range of them and of what is ahead,
    /// which is asked for behind them.
    fn fetch(
        &self,
        inode: &H::Inode,
        pages: &[u64],
        size: u64,
        keep: Keep,
        ahead: Option<Range<u64>>,
        wanted: &mut Wanted<'_>,
    ) -> Result<()> {
        if let ([page], None) = (pages, &ahead) {
            return self.fetch_one(inode, *page, size, keep, wanted);
        }
        let fetches = self.places(inode, pages, &mut |page| wanted.give(page, None))?;
        let batch: Vec<_> = fetches
            .iter()
            .map(|fetch| {
                let buf = IoBuf::unwiped(fetch.len as usize * BLOCK_SIZE);
                Request::read(fetch.block, buf, Cause::ReadMiss)
            })
            .collect();
        let device = self.home.device();
        let ticket = (!batch.is_empty()).then(|| device.submit(batch));
        self.read_ahead(inode, ahead, size);
        let done = ticket.map_or_else(Vec::new, |ticket| device.wait(ticket));
        let mut result = Ok(());
        for (fetch, done) in fetches.iter().zip(done) {
            if let Err(e) = done.result {
                result = result.and(Err(e));
                continue;
            }
            let mut buf = done.buf;
            for (page, bytes) in (fetch.page..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
                zero_beyond(page, size, bytes);
                wanted.give(page, Some(bytes));
                if keep != Keep::No {
                    self.keep_clean(inode, page, bytes, keep == Keep::Lent, false);
                }
            }
        }
        result
    }

    /// Takes over what was read ahead: gives what is missing, and caches what is covered by the caller's range. If
    /// it could not be read, or was given up, nothing happens: the caller reads what it needs.
    fn land(
        &self,
        to: &Caching<'_, H::Inode>,
        landing: Landing<'_>,
        missing: &mut Vec<u64>,
        wanted: &mut Wanted<'_>,
    ) {
        let Some(done) = self.ledger.land(self.home.device(), &landing.flight) else { return };
        if done.result.is_err() {
            return;
        }
        let (pages, mut buf) = (landing.underway.pages(), done.buf);
        let mut has_room = true;
        for (page, bytes) in pages.clone().zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
            if !to.covered.contains(&page) {
                continue;
            }
            zero_beyond(page, to.size, bytes);
            let is_wanted = missing.binary_search(&page).is_ok();
            if is_wanted {
                wanted.give(page, Some(bytes));
            }
            has_room = has_room && self.keep_clean(to.inode, page, bytes, to.is_lent, !is_wanted);
        }
        missing.retain(|page| !pages.contains(page));
    }

    /// Caches a page as it was read; false if there is no frame to spare.
    fn keep_clean(&self, inode: &H::Inode, page: u64, bytes: &[u8], is_lent: bool, is_ahead: bool) -> bool {
        if !self.is_absent(inode.data(), page) {
            return true;
        }
        let Some(mut fresh) = self.pool.take() else { return false };
        fresh.bytes().copy_from_slice(bytes);
        let flags = if is_ahead { FrameState::MAPPED | FrameState::AHEAD } else { FrameState::MAPPED };
        self.publish_clean(inode.data(), page, fresh, flags, is_lent && !is_ahead);
        true
    }

    /// Caches a frame that holds a page as it was read.
    fn publish_clean(&self, data: &FileData, page: u64, fresh: Fresh<'_>, flags: FrameState, is_lent: bool) {
        data.pool.get_or_init(|| Arc::clone(&self.pool));
        let slot = data.index.slot(page, &self.pool);
        // Or it was taken by another reader meanwhile: the same bytes.
        if let Ok(found) = fresh.publish(slot, flags, 0..0)
            && is_lent
        {
            found.lend();
        }
    }

    /// One page from the device, zero beyond `size`.
    pub(super) fn fetch_page(&self, page: u64, block: u64, size: u64) -> Result<IoBuf> {
        self.counters.misses.add(1);
        let mut buf = IoBuf::unwiped(BLOCK_SIZE);
        self.home.device().read_into(block, &mut buf, Cause::ReadMiss)?;
        zero_beyond(page, size, &mut buf);
        Ok(buf)
    }
}

/// The bytes of a page, and of a buffer of `len` bytes that begins at `offset`, that are the same bytes of the
/// file.
pub(super) fn overlap(page: u64, offset: u64, len: usize) -> (Range<usize>, Range<usize>) {
    let base = page * PAGE;
    let start = base.max(offset);
    let end = (base + PAGE).min(offset + len as u64).max(start);
    ((start - base) as usize..(end - base) as usize, (start - offset) as usize..(end - offset) as usize)
}

/// Zeroes what lies beyond the file's end in a page.
fn zero_beyond(page: u64, size: u64, bytes: &mut [u8]) {
    let valid = size.saturating_sub(page * PAGE).min(PAGE) as usize;
    bytes[valid..].fill(0);
}
