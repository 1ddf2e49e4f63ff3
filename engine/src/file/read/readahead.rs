//! Reading ahead: how far ahead of readers the device is asked, and what that may take.
//!
//! A window is asked for in requests of their own, so that a reader waits for the one with its page. What has come
//! stays in the buffers of the requests until a reader comes for it; then it is given and cached. So no thread is
//! needed to take in what completes, nothing is evicted for pages that nobody has come for, and who comes to the
//! first page of a request finds it absent, which is the mark at which the next is asked for.
//!
//! Invariant: the memory that is held for requests in flight and for what waits in buffers, of all files, is counted in
//! the [`Ledger`], and never more than its limit. A large buffer holds more than its request fills, so a small limit
//! means small requests. Who finds no room asks for less; what nobody has come for while a few times the limit was
//! asked for behind it is given up. The memory of what was cancelled is given back when the device is done with it, by
//! a thread of its own ([`DataPath::run_settling`]); without that thread, by who finds no room.

use crate::device::{BLOCK_SIZE, BlockDevice, Cause, Completion, IoBuf, Request, Ticket};
use crate::file::data_path::{DataPath, page_after};
use crate::file::read::REQUEST_PAGES;
use crate::file::read::streams::Missed;
use crate::file::{DataInode, Home};
use crate::sync::{Arc, Condvar, LaneCounter, Mutex};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Weak;

/// Pages of a request where there is no room for several large buffers: what it holds it fills.
const SMALL_REQUEST: u64 = (IoBuf::SMALL / BLOCK_SIZE) as u64;
/// Large buffers below which requests are small.
const FEW_BUFFERS: usize = 4;
/// Pages ahead of one reader at the most: 4 MiB.
const MAX_WINDOW: u64 = 1024;
/// Requests that are remembered, dead ones among them.
const MOST_FLIGHTS: usize = 8192;
/// A request that nobody has come for is given up when others have wanted so many times the limit since.
const PATIENCE: u64 = 4;
/// What a request reads, and what memory it holds until it is over and its bytes are taken or given up.
#[derive(Debug, Clone, Copy)]
pub(in crate::file) struct Size {
    pages: usize,
    /// In pages.
    held: usize,
}

impl Size {
    /// The size of a request for so many pages.
    pub fn of(pages: usize) -> Size {
        Size { pages, held: IoBuf::held(pages * BLOCK_SIZE).div_ceil(BLOCK_SIZE) }
    }
}

/// A request that reads ahead.
#[derive(Debug)]
pub(in crate::file) struct Flight {
    /// None: somebody waits for it, or it was given up.
    ticket: Mutex<Option<Ticket>>,
    size: Size,
    ledger: Arc<Ledger>,
}

impl Flight {
    /// The request, for one who waits for it; none if another does.
    pub(in crate::file) fn take(&self) -> Option<Ticket> {
        self.ticket.lock().take()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(ticket) = self.take() {
            self.ledger.inside.lock().orphans.push((ticket, self.size));
            self.ledger.orphaned.notify_one();
        }
    }
}

#[derive(Debug, Default)]
struct Inside {
    /// Pages of memory counted.
    held: usize,
    /// Pages that anybody has wanted to ask for, so far: the clock by which requests grow old.
    wanted: u64,
    /// Those asked for longest ago in front, with what was wanted until then.
    flights: VecDeque<(u64, Weak<Flight>)>,
    /// Requests that nobody will come for.
    orphans: Vec<(Ticket, Size)>,
    /// [`Ledger::settle`] is to end.
    ends: bool,
}

/// What [`Inside::room`] has found.
enum Room {
    /// The request is counted.
    Counted,
    /// None, and nothing that can be given up.
    None,
    /// Nobody will come for this.
    Orphan(Ticket, Size),
    /// Nobody has come for this for long.
    Old(Weak<Flight>),
}

impl Inside {
    /// Counts a request if what is held is no more than `limit` with it. No reference to a flight ends here: the last
    /// one would lock this.
    fn room(&mut self, size: Size, limit: usize) -> Room {
        if self.held + size.held <= limit {
            self.held += size.held;
            return Room::Counted;
        }
        if let Some((ticket, size)) = self.orphans.pop() {
            return Room::Orphan(ticket, size);
        }
        let is_old = |since: u64| self.wanted - since >= PATIENCE * limit as u64;
        match self.flights.front() {
            Some((since, flight)) if flight.strong_count() == 0 || is_old(*since) => {
                self.flights.pop_front().map_or(Room::None, |(_, flight)| Room::Old(flight))
            }
            _ => Room::None,
        }
    }
}

/// What is read ahead in all files. No lock is taken, and nothing waited for, while it is locked.
#[derive(Debug, Default)]
pub(in crate::file) struct Ledger {
    inside: Mutex<Inside>,
    /// Tells of what nobody will come for, and of the end.
    orphaned: Condvar,
    /// Pages asked for, come for, given up.
    pub asked: LaneCounter,
    pub used: LaneCounter,
    pub dropped: LaneCounter,
}

impl Ledger {
    /// Counts a request, giving up such as nobody will come for if `limit` would be exceeded. False: no room.
    pub(in crate::file) fn admit(&self, device: &dyn BlockDevice, size: Size, limit: usize) -> bool {
        self.inside.lock().wanted += size.pages as u64;
        loop {
            // A statement of its own: what follows locks again.
            let room = self.inside.lock().room(size, limit);
            let given_up = match room {
                Room::Counted => return true,
                Room::None => return false,
                Room::Orphan(ticket, size) => Some((ticket, size)),
                Room::Old(flight) => flight.upgrade().and_then(|flight| Some((flight.take()?, flight.size))),
            };
            if let Some((ticket, size)) = given_up {
                self.give_up(device, ticket, size);
            }
        }
    }

    /// Waits for a request that nobody will come for, and gives back what it holds.
    fn give_up(&self, device: &dyn BlockDevice, ticket: Ticket, size: Size) {
        drop(device.wait(ticket));
        self.inside.lock().held -= size.held;
        self.dropped.add(size.pages as u64);
    }

    /// Gives back what requests hold that nobody will come for, each as it ends, until [`Ledger::end`] and none is
    /// left.
    pub(in crate::file) fn settle(&self, device: &dyn BlockDevice) {
        let mut inside = self.inside.lock();
        loop {
            if let Some((ticket, size)) = inside.orphans.pop() {
                drop(inside);
                self.give_up(device, ticket, size);
                inside = self.inside.lock();
            } else if inside.ends {
                return;
            } else {
                self.orphaned.wait(&mut inside);
            }
        }
    }

    /// Ends [`Ledger::settle`].
    pub(in crate::file) fn end(&self) {
        self.inside.lock().ends = true;
        self.orphaned.notify_all();
    }

    /// Pages of memory counted.
    #[cfg(all(test, not(shuttle)))]
    pub(in crate::file) fn held(&self) -> usize {
        self.inside.lock().held
    }

    /// A request that was admitted and submitted.
    pub(in crate::file) fn flight(self: &Arc<Self>, ticket: Ticket, size: Size) -> Arc<Flight> {
        self.asked.add(size.pages as u64);
        let flight = Arc::new(Flight { ticket: Mutex::new(Some(ticket)), size, ledger: Arc::clone(self) });
        let mut inside = self.inside.lock();
        while inside.flights.front().is_some_and(|(_, oldest)| oldest.strong_count() == 0) {
            inside.flights.pop_front();
        }
        if inside.flights.len() > MOST_FLIGHTS {
            inside.flights.retain(|(_, flight)| flight.strong_count() > 0);
        }
        let since = inside.wanted;
        inside.flights.push_back((since, Arc::downgrade(&flight)));
        flight
    }

    /// Waits for a request that somebody has come for; none if it was given up.
    pub fn land(&self, device: &dyn BlockDevice, flight: &Flight) -> Option<Completion> {
        let done = device.wait(flight.take()?).pop();
        // The buffer is the caller's from here on.
        self.inside.lock().held -= flight.size.held;
        self.used.add(flight.size.pages as u64);
        done
    }
}

impl<H: Home> DataPath<H> {
    /// Notes a read that finds pages absent, and gives the pages to be asked for ahead of its reader.
    pub(in crate::file) fn advance(
        &self,
        inode: &H::Inode,
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
    pub(in crate::file) fn read_ahead(&self, inode: &H::Inode, window: Option<Range<u64>>, size: u64) {
        let Some(window) = window else { return };
        let data = inode.data();
        let device = self.home.device();
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
            if !self.ledger.admit(device, size, self.options.ahead) {
                return data.streams.lock().retract(&window, pages.start);
            }
            let buf = IoBuf::unwiped(size.pages * BLOCK_SIZE);
            let ticket = device.submit(vec![Request::read(block, buf, Cause::ReadAhead)]);
            underway.leave(self.ledger.flight(ticket, size));
        }
    }

    /// Gives back the memory of what was read ahead and cancelled, as soon as the device is done with it, until
    /// [`DataPath::stop`]; to be run by a thread of its own. It sleeps while there is none.
    pub fn run_settling(&self) {
        self.ledger.settle(self.home.device());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    #[test]
    fn what_a_buffer_holds_is_counted_and_given_back() {
        assert_eq!([1, 16, 17, 64].map(|pages| Size::of(pages).held), [1, 16, 64, 64]);
        let (ledger, device) = (Arc::new(Ledger::default()), MemoryDevice::new(1));
        let admit = |pages| {
            let size = Size::of(pages);
            ledger.admit(&device, size, 130).then(|| ledger.flight(device.submit(Vec::new()), size))
        };
        let (first, _second) = (admit(17).expect("room"), admit(40).expect("room"));
        assert!(admit(17).is_none() && admit(2).is_some());
        drop(first);
        let third = admit(17).expect("the first is given up");
        assert!(ledger.land(&device, &third).is_none(), "a batch without requests");
        assert_eq!((ledger.held(), ledger.used.get()), (66, 17));
        ledger.end();
        ledger.settle(&device);
        assert_eq!((ledger.held(), ledger.dropped.get()), (64, 19));
    }
}
