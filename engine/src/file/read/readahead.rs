//! Reading ahead: how far ahead of readers the device is asked, and what that may take.
//!
//! A window is asked for in requests of their own, so that a reader waits for the one with its page. What has come
//! stays in the buffers of the requests until a reader comes for it; then it is given and cached. So no thread is
//! needed to take in what completes, nothing is evicted for pages that nobody has come for, and who comes to the
//! first page of a request finds it absent, which is the mark at which the next is asked for.
//!
//! What memory that may take is counted in the [`ReadaheadBudget`]: a small limit means small requests, and a reader that
//! finds no room asks for less.

use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::file::data_path::DataPath;
use crate::inode::InodeObj;
use crate::pages::page_after;
use crate::pages::readahead::{Missed, REQUEST_PAGES, Size};
use std::ops::Range;

/// Pages of a request where there is no room for several large buffers: what it holds it fills.
const SMALL_REQUEST: u64 = (IoBuf::SMALL / BLOCK_SIZE) as u64;
/// Large buffers below which requests are small.
const FEW_BUFFERS: usize = 4;
/// Pages ahead of one reader at the most: 4 MiB.
const MAX_WINDOW: u64 = 1024;

impl DataPath {
    /// Notes a read that finds pages absent, and gives the pages to be asked for ahead of its reader.
    pub(in crate::file) fn advance(
        &self,
        inode: &InodeObj,
        pages: Range<u64>,
        next: u64,
        absent: u64,
    ) -> Option<Range<u64>> {
        let data = inode.data();
        let missed = Missed {
            is_free: !data.fetching.has(absent),
            end: page_after(data.size()),
            // A reader has a request in hand beside its window.
            most: MAX_WINDOW.min(self.options.ahead as u64 / 2),
            pages,
            next,
        };
        data.streams.lock().advance(&missed, |mut pages| !pages.any(|page| self.is_absent(data, page)))
    }

    /// Asks the device for pages of a file of `size` bytes that nobody waits for. The caller shares their range.
    /// Nothing here is an error: who needs a page reads it.
    pub(in crate::file) fn read_ahead(&self, inode: &InodeObj, window: Option<Range<u64>>, size: u64) {
        let Some(window) = window else { return };
        let data = inode.data();
        let device = self.meta.device();
        let mut pages: Vec<u64> = (window.start..window.end.min(page_after(size)))
            .filter(|page| self.is_absent(data, *page))
            .collect();
        data.fetching.retain_free(&mut pages);
        let Ok(fetches) = self.places(inode, &pages, &mut |_| {}) else { return };
        let has_few = self.options.ahead < FEW_BUFFERS * REQUEST_PAGES as usize;
        let most = if has_few { SMALL_REQUEST } else { REQUEST_PAGES };
        let requests = fetches.iter().flat_map(|fetch| {
            let starts = (0..fetch.len).step_by(most as usize);
            starts.map(|at| (fetch.page + at, fetch.block + at, most.min(fetch.len - at)))
        });
        for (page, block, count) in requests {
            let pages = page..page + count;
            let size = Size::of(count as usize);
            let Some(underway) = data.fetching.claim(&pages) else { continue };
            if !self.budget.admit(device, size, self.options.ahead) {
                return data.streams.lock().retract(&window, pages.start);
            }
            let buf = IoBuf::unwiped(size.pages() * BLOCK_SIZE);
            let ticket = device.submit(vec![Request::read(block, buf, Cause::ReadAhead)]);
            underway.leave(self.budget.request(ticket, size));
        }
    }

    /// Gives back the memory of what was read ahead and cancelled, as soon as the device is done with it, until
    /// [`DataPath::stop`]; to be run by a thread of its own. It sleeps while there is none.
    pub fn run_settling(&self) {
        self.budget.settle(self.meta.device());
    }
}
