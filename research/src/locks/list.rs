//! The lock-free list of held ranges of Kogan, Dice and Issa ("Scalable Range Locks for Scalable Address Spaces
//! and Beyond", EuroSys'20), for readers and writers.
//!
//! Held ranges are a list sorted by start. A release marks the node's link (tag 1), whoever passes by takes the
//! node out. A request goes along the list, waits for what excludes it, and puts its node in its place by one
//! compare-and-swap. Two that came past each other find out afterwards: a reader waits for overlapping writers
//! behind it, a writer that finds something overlapping before it gives up and begins again. While the list is
//! empty one compare-and-swap of the head (tag 1 on it) is all.
//!
//! Waiters sleep in one queue for all. A writer may begin again for ever: the paper's remedy, a lock that the
//! impatient take, is left out, as it costs those who are not. Nodes are freed by epochs.

#![allow(unsafe_code, reason = "nodes that are freed by epochs")]

use super::Span;
use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned, Shared};
use narufs_engine::lock::{Access, FileLock};
use narufs_engine::sync::WaitQueue;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Of a node's link: the node is released. Of the head: the one node was put there with nothing else looked at.
const MARK: usize = 1;

/// See the module.
#[derive(Debug)]
pub struct ListLock {
    head: Atomic<Node>,
    released: WaitQueue,
}

/// A held range.
#[derive(Debug)]
pub struct ListGuard<'a> {
    lock: &'a ListLock,
    node: *const Node,
}

#[derive(Debug)]
struct Node {
    span: Span,
    next: Atomic<Node>,
}

/// What hinders a request.
enum Hindered {
    /// It must wait, and may not.
    Busy,
    /// It must begin again.
    Again,
}

impl Node {
    fn is_released(&self, guard: &Guard) -> bool {
        // Acquire: pairs with the Release of who gives it back.
        self.next.load(Acquire, guard).tag() == MARK
    }
}

/// SAFETY, for all uses: nodes in the list, or seen in it under this epoch, are freed after the epoch alone, and
/// links are null or lead to nodes. Guarded by the tests of [`super`].
fn node<'g>(at: Shared<'g, Node>) -> Option<&'g Node> {
    // SAFETY: as above.
    unsafe { at.as_ref() }
}

impl ListLock {
    fn acquire(&self, range: Range<u64>, access: Access, wait: bool) -> Option<ListGuard<'_>> {
        let guard = epoch::pin();
        let mut new = Owned::new(Node { span: Span::new(range, access), next: Atomic::null() });
        // Relaxed on failure here and below: looked at again.
        match self.head.compare_exchange(Shared::null(), new.with_tag(MARK), AcqRel, Relaxed, &guard) {
            Ok(own) => return Some(ListGuard { lock: self, node: own.with_tag(0).as_raw() }),
            Err(failed) => new = failed.new.with_tag(0),
        }
        loop {
            let own = match self.insert(new, wait, &guard) {
                Ok(own) => own,
                Err(None) => return None,
                Err(Some(back)) => {
                    new = back;
                    continue;
                }
            };
            let held = ListGuard { lock: self, node: own.as_raw() };
            let span = node(own).expect("just inserted").span;
            let checked = match access {
                Access::Read => self.check_behind(own, &span, wait, &guard),
                Access::Write => self.check_before(own, &span, &guard),
            };
            match checked {
                Ok(()) => return Some(held),
                Err(Hindered::Busy) => return None,
                Err(Hindered::Again) => {
                    drop(held);
                    if !wait {
                        return None;
                    }
                    new = Owned::new(Node { span, next: Atomic::null() });
                }
            }
        }
    }

    /// Puts a node in its place; gives it back to begin again, or nothing if it may not wait.
    fn insert<'g>(
        &'g self,
        mut new: Owned<Node>,
        wait: bool,
        guard: &'g Guard,
    ) -> Result<Shared<'g, Node>, Option<Owned<Node>>> {
        let span = new.span;
        let mut link = &self.head;
        loop {
            let at = link.load(Acquire, guard);
            if at.tag() == MARK {
                if !std::ptr::eq(link, &self.head) {
                    // The node before was released and may be out of the list: from the beginning.
                    return Err(Some(new));
                }
                let _ = self.head.compare_exchange(at, at.with_tag(0), AcqRel, Relaxed, guard);
                continue;
            }
            if let Some(here) = node(at) {
                let next = here.next.load(Acquire, guard);
                if next.tag() == MARK {
                    if !self.unlink(link, at, next, guard) {
                        return Err(Some(new));
                    }
                    continue;
                }
                if here.span.excludes(&span) {
                    if !wait {
                        return Err(None);
                    }
                    self.released.wait_until(|| here.is_released(guard));
                    continue;
                }
                if here.span.end <= span.start || here.span.overlaps(&span) && here.span.start <= span.start {
                    link = &here.next;
                    continue;
                }
            }
            new.next = Atomic::from(at);
            match link.compare_exchange(at, new, AcqRel, Relaxed, guard) {
                Ok(own) => return Ok(own),
                Err(failed) => new = failed.new,
            }
        }
    }

    fn unlink<'g>(
        &self,
        link: &Atomic<Node>,
        at: Shared<'g, Node>,
        next: Shared<'g, Node>,
        guard: &'g Guard,
    ) -> bool {
        let out = link.compare_exchange(at, next.with_tag(0), AcqRel, Relaxed, guard).is_ok();
        if out {
            // SAFETY: it has left the list, by this thread alone.
            unsafe { guard.defer_destroy(at) };
        }
        out
    }

    /// A reader waits for writers behind it that overlap.
    fn check_behind(
        &self,
        own: Shared<'_, Node>,
        span: &Span,
        wait: bool,
        guard: &Guard,
    ) -> Result<(), Hindered> {
        let mut at = node(own).expect("inserted").next.load(Acquire, guard).with_tag(0);
        while let Some(here) = node(at) {
            if here.span.start >= span.end {
                break;
            }
            if here.span.excludes(span) && !here.is_released(guard) {
                if !wait {
                    return Err(Hindered::Busy);
                }
                self.released.wait_until(|| here.is_released(guard));
            }
            at = here.next.load(Acquire, guard).with_tag(0);
        }
        Ok(())
    }

    /// A writer gives up if something before it overlaps.
    fn check_before(&self, own: Shared<'_, Node>, span: &Span, guard: &Guard) -> Result<(), Hindered> {
        let mut at = self.head.load(Acquire, guard).with_tag(0);
        while let Some(here) = node(at) {
            if at == own {
                return Ok(());
            }
            if !here.is_released(guard) && here.span.overlaps(span) {
                return Err(Hindered::Again);
            }
            at = here.next.load(Acquire, guard).with_tag(0);
        }
        // The way led over nodes that had left the list.
        Err(Hindered::Again)
    }

    fn release(&self, own: *const Node) {
        let guard = epoch::pin();
        let shared = Shared::from(own);
        // Release: what was done under the range comes before. Relaxed: nothing is read through it.
        let fast =
            self.head.compare_exchange(shared.with_tag(MARK), Shared::null(), Release, Relaxed, &guard);
        match fast {
            // SAFETY: it has left the list, by this thread alone.
            Ok(_) => unsafe { guard.defer_destroy(shared) },
            Err(_) => {
                let own = node(shared).expect("it was inserted");
                own.next.fetch_or(MARK, Release, &guard);
                self.released.wake_all();
            }
        }
    }
}

impl Drop for ListGuard<'_> {
    fn drop(&mut self) {
        self.lock.release(self.node);
    }
}

impl Drop for ListLock {
    fn drop(&mut self) {
        // SAFETY: nobody else is left, and what the list still has was released.
        let guard = unsafe { epoch::unprotected() };
        let mut at = self.head.load(Relaxed, guard).with_tag(0);
        while let Some(here) = node(at) {
            let next = here.next.load(Relaxed, guard).with_tag(0);
            // SAFETY: as above.
            drop(unsafe { at.into_owned() });
            at = next;
        }
    }
}

impl FileLock for ListLock {
    type Guard<'a> = ListGuard<'a>;

    fn for_file(_: u64) -> Self {
        ListLock { head: Atomic::null(), released: WaitQueue::new() }
    }

    fn read(&self, range: Range<u64>) -> ListGuard<'_> {
        self.acquire(range, Access::Read, true).expect("it may wait")
    }

    fn write(&self, range: Range<u64>) -> ListGuard<'_> {
        self.acquire(range, Access::Write, true).expect("it may wait")
    }

    fn try_read(&self, range: Range<u64>) -> Option<ListGuard<'_>> {
        self.acquire(range, Access::Read, false)
    }

    fn try_write(&self, range: Range<u64>) -> Option<ListGuard<'_>> {
        self.acquire(range, Access::Write, false)
    }
}
