//! Reads: what is cached is copied, what is not is fetched, and sequential readers find it there already.

use super::path::{DataPath, PAGE, page_after, page_of};
use super::{DataInode, Home, Mapping};
use crate::Result;
use crate::cache::{FrameState, Slot, Use};
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Op, Request};
use crate::format::MAX_FILE_SIZE;
use crate::lock::FileLock;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use std::ops::Range;

/// Pages of one request.
pub(super) const REQUEST_PAGES: u64 = 64;
/// Pages of a step.
const STEP_PAGES: u64 = 256;
const MIN_WINDOW: u64 = 4;
const MAX_WINDOW: u64 = 128;

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
struct Fetch {
    page: u64,
    block: u64,
    len: u64,
    cause: Cause,
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
        // Relaxed, here and below: the guess of a stream needs no order.
        let sequential = data.stream.expected.load(Ordering::Relaxed) == pages.start;
        let by = if keep == Keep::Lent { Use::ByKernel } else { Use::Yes };
        // The rest of a page that the same reader has begun with is no other use of it.
        let goes_on = sequential && !offset.is_multiple_of(PAGE);
        let uses = [if goes_on { Use::No } else { by }, by];
        if self.read_at_a_glance(data, offset, buf, uses) {
            if sequential {
                data.stream.expected.store(page_of(end), Ordering::Relaxed);
            }
            return Ok(buf.len());
        }
        let absent = !data.index.get(pages.start).is_some_and(Slot::is_cached);
        let mut ahead = 0;
        let mut guard = None;
        if keep != Keep::No && absent {
            let most = MAX_WINDOW.min(self.pool.len() as u64 / 8);
            let window = data.stream.window.load(Ordering::Relaxed);
            ahead = if sequential { (window * 2).clamp(MIN_WINDOW, MAX_WINDOW).min(most) } else { 0 };
            data.stream.window.store(ahead, Ordering::Relaxed);
            if ahead > 0 {
                guard = data.range.try_read(pages.start * PAGE..(pages.end + ahead) * PAGE);
            }
        }
        if guard.is_none() {
            ahead = 0;
        }
        let _guard = guard.unwrap_or_else(|| data.range.read(pages.start * PAGE..pages.end * PAGE));
        data.check_usable()?;
        if sequential || absent {
            data.stream.expected.store(page_of(end), Ordering::Relaxed);
        }

        let size = data.size();
        if offset >= size {
            return Ok(0);
        }
        let len = buf.len().min((size - offset) as usize);
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let step = (STEP_PAGES * PAGE - at % PAGE).min((len - done) as u64) as usize;
            let ahead = if done + step == len { ahead } else { 0 };
            let uses = if done == 0 { uses } else { [by, by] };
            self.read_step(inode, at, &mut buf[done..done + step], size, ahead, Reading { keep, uses })?;
            done += step;
        }
        Ok(len)
    }

    /// A step of a read below `size`; of the `ahead` pages behind it, those that are there are cached. The caller has
    /// the range of all of them.
    fn read_step(
        &self,
        inode: &H::Inode,
        offset: u64,
        buf: &mut [u8],
        size: u64,
        ahead: u64,
        Reading { keep, uses }: Reading,
    ) -> Result<()> {
        let data = inode.data();
        let len = buf.len();
        let pages = page_of(offset)..page_after(offset + len as u64);
        let wanted_end = pages.end;
        loop {
            let mut missing = Vec::new();
            for page in pages.clone() {
                let by = uses[usize::from(page > pages.start)];
                match data.index.get(page).and_then(|slot| self.pool.find(slot, by)) {
                    Some(found) => {
                        if keep == Keep::Lent {
                            found.lend();
                        }
                        let (within, part) = overlap(page, offset, len);
                        found.read(within.start, &mut buf[part]);
                    }
                    None => missing.push(page),
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            let misses = missing.len() as u64;
            for page in wanted_end..(wanted_end + ahead).min(page_after(size)) {
                // A hint; publishing decides.
                if !data.index.get(page).is_some_and(Slot::is_cached) {
                    missing.push(page);
                }
            }
            let fetched = self.fetch(inode, &missing, wanted_end, size, keep, &mut |page, bytes| {
                let (within, part) = overlap(page, offset, len);
                match bytes {
                    Some(bytes) => buf[part].copy_from_slice(&bytes[within]),
                    None => buf[part].fill(0),
                }
            })?;
            if fetched {
                self.counters.misses.add(misses);
                return Ok(());
            }
        }
    }

    /// Reads pages that are not cached; those from `wanted_end` on are only kept. `give` gets each wanted
    /// page's bytes, or none where there is a hole. The caller has the range of all of them. False if another
    /// reader was bringing some of them: it has, and they are to be looked for again.
    fn fetch(
        &self,
        inode: &H::Inode,
        pages: &[u64],
        wanted_end: u64,
        size: u64,
        keep: Keep,
        give: &mut dyn FnMut(u64, Option<&[u8]>),
    ) -> Result<bool> {
        let mut fetches: Vec<Fetch> = Vec::new();
        let mut known: Option<(u64, Mapping)> = None;
        for &page in pages {
            let wanted = page < wanted_end;
            let (at, mapping) = match known {
                Some((at, mapping)) if page < at + mapping.len() => (at, mapping),
                _ => (page, self.map(inode, page)?),
            };
            known = Some((at, mapping));
            let Mapping::Mapped { block, unwritten: false, .. } = mapping else {
                if wanted {
                    give(page, None);
                }
                continue;
            };
            let block = block + (page - at);
            let cause = if wanted { Cause::ReadMiss } else { Cause::ReadAhead };
            match fetches.last_mut() {
                Some(last)
                    if last.page + last.len == page
                        && last.block + last.len == block
                        && last.cause == cause
                        && last.len < REQUEST_PAGES =>
                {
                    last.len += 1;
                }
                _ => fetches.push(Fetch { page, block, len: 1, cause }),
            }
        }
        // What is not kept is of no use to another reader.
        let underway = match fetches.first().zip(fetches.last()).filter(|_| keep != Keep::No) {
            None => None,
            Some((first, last)) => {
                let wanted = fetches.iter().rfind(|fetch| fetch.cause == Cause::ReadMiss);
                let wanted = first.page..wanted.map_or(first.page, |fetch| fetch.page + fetch.len);
                let data = inode.data();
                let Some(underway) = data.fetching.announce(wanted, last.page + last.len) else {
                    return Ok(false);
                };
                // A hint; the mutex of the announcement is what orders it behind another reader's.
                let has = |page: &u64| data.index.get(*page).is_some_and(Slot::is_cached);
                if pages.iter().any(has) {
                    return Ok(false);
                }
                Some(underway)
            }
        };
        if let Some(underway) = &underway {
            fetches.retain(|fetch| fetch.page < underway.end());
            if let Some(last) = fetches.last_mut() {
                last.len = last.len.min(underway.end() - last.page);
            }
        }
        if fetches.is_empty() {
            return Ok(true);
        }
        let batch = fetches
            .iter()
            .map(|fetch| Request {
                op: Op::Read,
                block: fetch.block,
                buf: IoBuf::unwiped(fetch.len as usize * BLOCK_SIZE),
                cause: fetch.cause,
            })
            .collect();
        let device = self.home.device();
        let ticket = device.submit(batch);
        let mut result = Ok(true);
        for (fetch, done) in fetches.iter().zip(device.wait(ticket)) {
            if let Err(e) = done.result {
                if fetch.cause == Cause::ReadMiss && result.is_ok() {
                    result = Err(e);
                }
                continue;
            }
            let mut buf = done.buf;
            for (i, bytes) in buf.chunks_exact_mut(BLOCK_SIZE).enumerate() {
                let page = fetch.page + i as u64;
                zero_beyond(page, size, bytes);
                if page < wanted_end {
                    give(page, Some(bytes));
                }
                let is_ahead = page >= wanted_end;
                if keep != Keep::No {
                    self.keep_clean(inode, page, bytes, keep == Keep::Lent, is_ahead);
                }
            }
        }
        result
    }

    /// Caches a page as it was read, if there is a frame to spare.
    fn keep_clean(&self, inode: &H::Inode, page: u64, bytes: &[u8], is_lent: bool, is_ahead: bool) {
        let data = inode.data();
        data.pool.get_or_init(|| Arc::clone(&self.pool));
        let slot = data.index.slot(page, &self.pool);
        // A hint; publishing decides.
        if !slot.is_cached()
            && let Some(mut fresh) = self.pool.take()
        {
            fresh.bytes().copy_from_slice(bytes);
            let flags = if is_ahead { FrameState::MAPPED | FrameState::AHEAD } else { FrameState::MAPPED };
            // Or it was taken by another reader meanwhile: the same bytes.
            if let Ok(found) = fresh.publish(slot, flags, 0..0)
                && is_lent
                && !is_ahead
            {
                found.lend();
            }
        }
    }

    /// One page from the device, zero beyond `size`.
    pub(super) fn fetch_page(&self, page: u64, block: u64, size: u64) -> Result<IoBuf> {
        self.counters.misses.add(1);
        let buf = IoBuf::zeroed(BLOCK_SIZE);
        let request = Request { op: Op::Read, block, buf, cause: Cause::ReadMiss };
        let mut bufs = self.home.device().run(vec![request])?;
        let mut buf = bufs.pop().expect("one completion a request");
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
