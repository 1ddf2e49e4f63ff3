//! What memory reading ahead may take, of all files: requests under way and what waits in their buffers.
//!
//! Invariant: it is counted in the [`ReadaheadBudget`], and never more than the limit that is asked with. A large buffer
//! holds more than its request fills. What nobody has come for while a few times the limit was asked for behind it is
//! given up. The memory of what was cancelled is given back when the device is done with it, by a thread of its own
//! ([`ReadaheadBudget::settle`]); without that thread, by a reader that finds no room.

use crate::device::{BLOCK_SIZE, BlockDevice, Completion, IoBuf, Ticket};
use crate::sync::{Arc, Condvar, LaneCounter, Mutex};
use std::collections::VecDeque;
use std::sync::Weak;

/// Requests that are remembered, dead ones among them.
const MOST_REQUESTS: usize = 8192;
/// A request that nobody has come for is given up when others have wanted so many times the limit since.
const PATIENCE: u64 = 4;

/// What a request reads, and what memory it holds until it is over and its bytes are taken or given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pages: usize,
    /// In pages.
    held: usize,
}

impl Size {
    /// Pages that it reads.
    pub fn pages(self) -> usize {
        self.pages
    }

    /// The size of a request for so many pages.
    pub fn of(pages: usize) -> Size {
        Size { pages, held: IoBuf::held(pages * BLOCK_SIZE).div_ceil(BLOCK_SIZE) }
    }
}

/// A request that reads ahead.
#[derive(Debug)]
pub(crate) struct ReadaheadRequest {
    /// None: somebody waits for it, or it was given up.
    ticket: Mutex<Option<Ticket>>,
    size: Size,
    budget: Arc<ReadaheadBudget>,
}

impl ReadaheadRequest {
    /// The request, for one who waits for it; none if another does.
    pub(crate) fn take(&self) -> Option<Ticket> {
        self.ticket.lock().take()
    }
}

impl Drop for ReadaheadRequest {
    fn drop(&mut self) {
        if let Some(ticket) = self.take() {
            self.budget.inside.lock().orphans.push((ticket, self.size));
            self.budget.orphaned.notify_one();
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
    requests: VecDeque<(u64, Weak<ReadaheadRequest>)>,
    /// Requests that nobody will come for.
    orphans: Vec<(Ticket, Size)>,
    /// [`ReadaheadBudget::settle`] is to end.
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
    Old(Weak<ReadaheadRequest>),
}

impl Inside {
    /// Counts a request if what is held is no more than `limit` with it. No reference to a request ends here: the last
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
        match self.requests.front() {
            Some((since, request)) if request.strong_count() == 0 || is_old(*since) => {
                self.requests.pop_front().map_or(Room::None, |(_, request)| Room::Old(request))
            }
            _ => Room::None,
        }
    }
}

/// What is read ahead in all files. No lock is taken, and nothing waited for, while it is locked.
#[derive(Debug, Default)]
pub(crate) struct ReadaheadBudget {
    inside: Mutex<Inside>,
    /// Tells of what nobody will come for, and of the end.
    orphaned: Condvar,
    /// Pages asked for, come for, given up.
    pub asked: LaneCounter,
    pub used: LaneCounter,
    pub dropped: LaneCounter,
}

impl ReadaheadBudget {
    /// Counts a request, giving up such as nobody will come for if `limit` would be exceeded. False: no room.
    pub(crate) fn admit(&self, device: &dyn BlockDevice, size: Size, limit: usize) -> bool {
        self.inside.lock().wanted += size.pages as u64;
        loop {
            // A statement of its own: what follows locks again.
            let room = self.inside.lock().room(size, limit);
            let given_up = match room {
                Room::Counted => return true,
                Room::None => return false,
                Room::Orphan(ticket, size) => Some((ticket, size)),
                Room::Old(request) => {
                    request.upgrade().and_then(|request| Some((request.take()?, request.size)))
                }
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

    /// Gives back what requests hold that nobody will come for, each as it ends, until [`ReadaheadBudget::end`] and none is
    /// left.
    pub(crate) fn settle(&self, device: &dyn BlockDevice) {
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

    /// Ends [`ReadaheadBudget::settle`].
    pub(crate) fn end(&self) {
        self.inside.lock().ends = true;
        self.orphaned.notify_all();
    }

    /// Pages of memory counted.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn held(&self) -> usize {
        self.inside.lock().held
    }

    /// A request that was admitted and submitted.
    pub(crate) fn request(self: &Arc<Self>, ticket: Ticket, size: Size) -> Arc<ReadaheadRequest> {
        self.asked.add(size.pages as u64);
        let request =
            Arc::new(ReadaheadRequest { ticket: Mutex::new(Some(ticket)), size, budget: Arc::clone(self) });
        let mut inside = self.inside.lock();
        while inside.requests.front().is_some_and(|(_, oldest)| oldest.strong_count() == 0) {
            inside.requests.pop_front();
        }
        if inside.requests.len() > MOST_REQUESTS {
            inside.requests.retain(|(_, request)| request.strong_count() > 0);
        }
        let since = inside.wanted;
        inside.requests.push_back((since, Arc::downgrade(&request)));
        request
    }

    /// Waits for a request that somebody has come for; none if it was given up.
    pub fn land(&self, device: &dyn BlockDevice, request: &ReadaheadRequest) -> Option<Completion> {
        let done = device.wait(request.take()?).pop();
        // The buffer is the caller's from here on.
        self.inside.lock().held -= request.size.held;
        self.used.add(request.size.pages as u64);
        done
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    #[test]
    fn what_a_buffer_holds_is_counted_and_given_back() {
        assert_eq!([1, 16, 17, 64].map(|pages| Size::of(pages).held), [1, 16, 64, 64]);
        let (budget, device) = (Arc::new(ReadaheadBudget::default()), MemoryDevice::new(1));
        let admit = |pages| {
            let size = Size::of(pages);
            budget.admit(&device, size, 130).then(|| budget.request(device.submit(Vec::new()), size))
        };
        let (first, _second) = (admit(17).expect("room"), admit(40).expect("room"));
        assert!(admit(17).is_none() && admit(2).is_some());
        drop(first);
        let third = admit(17).expect("the first is given up");
        assert!(budget.land(&device, &third).is_none(), "a batch without requests");
        assert_eq!((budget.held(), budget.used.get()), (66, 17));
        budget.end();
        budget.settle(&device);
        assert_eq!((budget.held(), budget.dropped.get()), (64, 19));
    }
}
