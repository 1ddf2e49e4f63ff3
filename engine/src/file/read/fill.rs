//! What a read does not find cached: where it lies, how it comes from the device, and how it is cached.
//!
//! What this leaves to others: what is read, in which steps, and under which range (`read`); who brings what others
//! want too (`pages::readahead`); what is read ahead (`readahead`).

use crate::Result;
use crate::cache::{FrameState, Fresh};
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::file::data_path::{DataPath, page_id};
use crate::file::read::{Destination, Keep, is_absent};
use crate::inode::InodeObj;
use crate::meta::{Mapping, Meta};
use crate::pages::PAGE;
use crate::pages::readahead::HandOff;
use crate::pages::readahead::REQUEST_PAGES;
use crate::planted::{self, Spot};
use crate::sync::Arc;
use std::ops::Range;

/// Consecutive pages that lie in consecutive blocks, to be read.
pub(in crate::file) struct Fetch {
    pub page: u64,
    pub block: u64,
    pub len: u64,
}

/// Where pages are cached that nobody waits for.
pub(in crate::file) struct Caching<'r> {
    pub inode: &'r InodeObj,
    /// Those whose range the reader has.
    pub covered: &'r Range<u64>,
    /// Of the file.
    pub size: u64,
    pub is_lent: bool,
}

/// Where pages lie that are to be read, in order; those of holes are given to `hole`.
pub(in crate::file) fn places(
    meta: &Meta,
    inode: &InodeObj,
    pages: &[u64],
    hole: &mut dyn FnMut(u64),
) -> Result<Vec<Fetch>> {
    let mut fetches: Vec<Fetch> = Vec::new();
    let mut known: Option<(u64, Mapping)> = None;
    for &page in pages {
        let (at, mapping) = match known {
            Some((at, mapping)) if page < at + mapping.len() => (at, mapping),
            _ => (page, meta.map(inode, page)?),
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

impl DataPath {
    /// Reads a page that is not cached, and with which nothing else is asked for: straight into the frame that will
    /// have it, if there is one. The caller has its range.
    fn fetch_one(
        &self,
        inode: &InodeObj,
        page: u64,
        size: u64,
        keep: Keep,
        wanted: &mut Destination<'_>,
    ) -> Result<()> {
        let Mapping::Mapped { block, unwritten: false, .. } = self.meta.map(inode, page)? else {
            wanted.give(page, None);
            return Ok(());
        };
        let device = self.meta.store().device();
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
        self.publish_clean(inode, page, fresh, FrameState::MAPPED, keep == Keep::Lent);
        Ok(())
    }

    /// Reads pages that are not cached, all of them wanted. The caller has the range of them and of what is ahead,
    /// which is asked for behind them.
    pub(in crate::file) fn fetch(
        &self,
        inode: &InodeObj,
        pages: &[u64],
        size: u64,
        keep: Keep,
        ahead: Option<Range<u64>>,
        wanted: &mut Destination<'_>,
    ) -> Result<()> {
        if let ([page], None) = (pages, &ahead) {
            return self.fetch_one(inode, *page, size, keep, wanted);
        }
        let fetches = places(&self.meta, inode, pages, &mut |page| wanted.give(page, None))?;
        let batch: Vec<_> = fetches
            .iter()
            .map(|fetch| {
                let buf = IoBuf::unwiped(fetch.len as usize * BLOCK_SIZE);
                Request::read(fetch.block, buf, Cause::ReadMiss)
            })
            .collect();
        let device = self.meta.store().device();
        let ticket = (!batch.is_empty()).then(|| device.submit(batch));
        self.readahead.ask(inode, ahead, size);
        planted::panic_at(Spot::Fetching);
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
    pub(in crate::file) fn take_over(
        &self,
        to: &Caching<'_>,
        hand_off: HandOff<'_>,
        missing: &mut Vec<u64>,
        wanted: &mut Destination<'_>,
    ) {
        let Some(done) = self.readahead.take(&hand_off) else { return };
        if done.result.is_err() {
            return;
        }
        let (pages, mut buf) = (hand_off.underway.pages(), done.buf);
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
    pub(in crate::file) fn keep_clean(
        &self,
        inode: &InodeObj,
        page: u64,
        bytes: &[u8],
        is_lent: bool,
        is_ahead: bool,
    ) -> bool {
        if !is_absent(inode.data(), page) {
            return true;
        }
        let Some(mut fresh) = self.pool.take() else { return false };
        fresh.bytes().copy_from_slice(bytes);
        let flags = if is_ahead { FrameState::MAPPED | FrameState::AHEAD } else { FrameState::MAPPED };
        self.publish_clean(inode, page, fresh, flags, is_lent && !is_ahead);
        true
    }

    /// Caches a frame that holds a page as it was read.
    fn publish_clean(&self, inode: &InodeObj, page: u64, fresh: Fresh<'_>, flags: FrameState, is_lent: bool) {
        let data = inode.data();
        data.pool.get_or_init(|| Arc::clone(&self.pool));
        let slot = data.index.slot(page, &self.pool);
        // Or it was taken by another reader meanwhile: the same bytes.
        if let Ok(found) = fresh.publish(slot, page_id(inode, page), flags, 0..0)
            && is_lent
        {
            found.lend();
        }
    }

    /// One page from the device, zero beyond `size`.
    pub(in crate::file) fn fetch_page(&self, page: u64, block: u64, size: u64) -> Result<IoBuf> {
        self.misses.add(1);
        let mut buf = IoBuf::unwiped(BLOCK_SIZE);
        self.meta.store().device().read_into(block, &mut buf, Cause::ReadMiss)?;
        zero_beyond(page, size, &mut buf);
        Ok(buf)
    }
}

/// Zeroes what lies beyond the file's end in a page.
pub(in crate::file) fn zero_beyond(page: u64, size: u64, bytes: &mut [u8]) {
    let valid = size.saturating_sub(page * PAGE).min(PAGE) as usize;
    bytes[valid..].fill(0);
}
