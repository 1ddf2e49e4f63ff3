//! The published range lock: an interval tree with reference counts.
//!
//! A request inserts its interval, counts the overlapping holders and waiters ahead of it, and waits until that is 0; on
//! unlock it removes itself and counts down those who wait for it. One mutex, which spins before it sleeps, guards the
//! tree: a treap keyed by start and number of arrival, each node with the furthest end below it, so that overlaps are
//! found without a walk over all. Nodes are kept for the next request, as the kernel's lie on stacks: no memory is
//! allocated while the mutex is held, but for more requests at a time than ever before.
//!
//! The published lock is that of writers alone. Here readers that find a page absent take it too, for narufs has promised
//! that nobody sees halves of writes; where nobody writes, others look at one word ([`FileLock::is_written`]).

use std::ops::Range;

use super::span::Span;
use super::{Access, FileLock, Held, LockClass, Rank};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, WaitQueue};

/// The lock over the bytes of one file.
#[derive(Debug)]
pub struct TreeLock {
    nid: u64,
    tree: Mutex<Tree>,
    /// Writers that have their range.
    writers: AtomicUsize,
}

/// A held range; released when dropped.
#[derive(Debug)]
#[must_use = "the range is released when the guard is dropped"]
pub struct TreeGuard<'a> {
    lock: &'a TreeLock,
    node: u32,
    _held: Held,
}

#[derive(Debug, Default)]
struct Waiter {
    is_granted: AtomicBool,
    queue: WaitQueue,
}

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node {
    span: Span,
    arrival: u64,
    priority: u64,
    /// The furthest end in this node and below it.
    furthest: u64,
    left: u32,
    right: u32,
    /// Those who came before, and are still to go.
    ahead: usize,
    waiter: Option<Arc<Waiter>>,
}

impl Node {
    fn key(&self) -> (u64, u64) {
        (self.span.bytes().start, self.arrival)
    }
}

#[derive(Debug)]
struct Tree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    arrivals: u64,
}

impl Tree {
    fn node(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn update(&mut self, at: u32) {
        let Node { left, right, span, .. } = *self.node(at);
        let below = [left, right].into_iter().filter(|below| *below != NONE);
        let furthest = below.map(|below| self.nodes[below as usize].furthest).max().unwrap_or(0);
        self.node(at).furthest = furthest.max(span.bytes().end);
    }

    /// What is below `key`, and the rest.
    fn split(&mut self, at: u32, key: (u64, u64)) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        let parts = if self.node(at).key() < key {
            let right = self.node(at).right;
            let (low, high) = self.split(right, key);
            self.node(at).right = low;
            (at, high)
        } else {
            let left = self.node(at).left;
            let (low, high) = self.split(left, key);
            self.node(at).left = high;
            (low, at)
        };
        self.update(at);
        parts
    }

    fn join(&mut self, low: u32, high: u32) -> u32 {
        if low == NONE || high == NONE {
            return if low == NONE { high } else { low };
        }
        let top = if self.node(low).priority > self.node(high).priority {
            let right = self.node(low).right;
            self.node(low).right = self.join(right, high);
            low
        } else {
            let left = self.node(high).left;
            self.node(high).left = self.join(low, left);
            high
        };
        self.update(top);
        top
    }

    /// Calls `f` with every node that excludes the span.
    fn each_excluding(&mut self, at: u32, span: &Span, f: &mut impl FnMut(&mut Node)) {
        if at == NONE || self.node(at).furthest <= span.bytes().start {
            return;
        }
        let Node { left, right, .. } = *self.node(at);
        self.each_excluding(left, span, f);
        let node = self.node(at);
        if node.span.excludes(span) {
            f(node);
        }
        if node.span.bytes().start < span.bytes().end {
            self.each_excluding(right, span, f);
        }
    }

    fn ahead(&mut self, span: &Span) -> usize {
        let mut ahead = 0;
        self.each_excluding(self.root, span, &mut |_| ahead += 1);
        ahead
    }

    fn insert(&mut self, span: Span, ahead: usize, waiter: Option<Arc<Waiter>>) -> u32 {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let node = Node {
            span,
            arrival,
            priority: arrival.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            furthest: span.bytes().end,
            left: NONE,
            right: NONE,
            ahead,
            waiter,
        };
        let key = node.key();
        let at = match self.free.pop() {
            Some(at) => {
                *self.node(at) = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        let (low, high) = self.split(self.root, key);
        let low = self.join(low, at);
        self.root = self.join(low, high);
        at
    }

    /// Takes a node out; what it held, and its number.
    fn remove(&mut self, at: u32) -> (Span, u64) {
        let Node { span, arrival, .. } = *self.node(at);
        let (low, rest) = self.split(self.root, (span.bytes().start, arrival));
        let (_own, high) = self.split(rest, (span.bytes().start, arrival + 1));
        self.root = self.join(low, high);
        self.free.push(at);
        (span, arrival)
    }
}

impl TreeLock {
    /// Notes that a range is held from now on. With the tree locked.
    fn grant(&self, span: &Span) {
        if span.access() == Access::Write {
            // Relaxed: who has seen a change that the holder goes on to make sees this before it.
            self.writers.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn acquire(&self, range: Range<u64>, access: Access) -> TreeGuard<'_> {
        let held = Rank::new(LockClass::Range, self.nid).waiting();
        let span = Span::new(range, access);
        let (node, waiter) = {
            let mut tree = self.tree.lock();
            let ahead = tree.ahead(&span);
            let waiter = (ahead > 0).then(Arc::<Waiter>::default);
            if waiter.is_none() {
                self.grant(&span);
            }
            (tree.insert(span, ahead, waiter.clone()), waiter)
        };
        if let Some(waiter) = waiter {
            // Acquire: pairs with the Release of the last who was ahead.
            let is_granted = || waiter.is_granted.load(Ordering::Acquire);
            LockClass::Range.wait(|| waiter.queue.wait_until(is_granted));
        }
        TreeGuard { lock: self, node, _held: held }
    }

    fn try_acquire(&self, range: Range<u64>, access: Access) -> Option<TreeGuard<'_>> {
        let span = Span::new(range, access);
        let node = {
            let mut tree = self.tree.lock();
            if tree.ahead(&span) > 0 {
                return None;
            }
            self.grant(&span);
            tree.insert(span, 0, None)
        };
        Some(TreeGuard { lock: self, node, _held: Rank::new(LockClass::Range, self.nid).tried() })
    }
}

impl Drop for TreeGuard<'_> {
    fn drop(&mut self) {
        let mut granted = Vec::new();
        {
            let mut tree = self.lock.tree.lock();
            let (span, arrival) = tree.remove(self.node);
            let root = tree.root;
            tree.each_excluding(root, &span, &mut |node| {
                // Who came before this one did not count it.
                if node.arrival > arrival {
                    node.ahead -= 1;
                    if node.ahead == 0 {
                        self.lock.grant(&node.span);
                        granted.extend(node.waiter.take());
                    }
                }
            });
            if span.access() == Access::Write {
                // Release: pairs with the Acquire in `is_written`.
                self.lock.writers.fetch_sub(1, Ordering::Release);
            }
        }
        for waiter in granted {
            // Release: pairs with the Acquire of who waits.
            waiter.is_granted.store(true, Ordering::Release);
            waiter.queue.wake_all();
        }
    }
}

impl FileLock for TreeLock {
    type Guard<'a> = TreeGuard<'a>;

    fn for_file(nid: u64) -> Self {
        let tree = Tree { nodes: Vec::new(), free: Vec::new(), root: NONE, arrivals: 0 };
        TreeLock { nid, tree: Mutex::new(tree), writers: AtomicUsize::new(0) }
    }

    fn read(&self, range: Range<u64>) -> TreeGuard<'_> {
        self.acquire(range, Access::Read)
    }

    fn write(&self, range: Range<u64>) -> TreeGuard<'_> {
        self.acquire(range, Access::Write)
    }

    fn try_read(&self, range: Range<u64>) -> Option<TreeGuard<'_>> {
        self.try_acquire(range, Access::Read)
    }

    fn try_write(&self, range: Range<u64>) -> Option<TreeGuard<'_>> {
        self.try_acquire(range, Access::Write)
    }

    fn is_written(&self, range: Range<u64>) -> bool {
        // Acquire: pairs with the Release of the last writer.
        if self.writers.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut is_written = false;
        let mut tree = self.tree.lock();
        let root = tree.root;
        // What excludes a reader is a writer.
        tree.each_excluding(root, &Span::new(range, Access::Read), &mut |node| is_written |= node.ahead == 0);
        is_written
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn it_conforms() {
        crate::conformance::file_lock::check::<TreeLock>();
    }

    #[test]
    fn ranges_are_exact_and_nodes_are_used_again() {
        let lock = TreeLock::for_file(1);
        for _ in 0..100 {
            let first = lock.write(0..10);
            let second = lock.try_write(10..20).expect("does not overlap");
            assert!(lock.try_read(9..11).is_none());
            assert!(lock.is_written(0..1) && !lock.is_written(20..30));
            drop(first);
            assert!(!lock.is_written(0..10) && lock.is_written(0..11));
            drop(second);
            let readers =
                [0..10, 5..15, 0..u64::MAX].map(|range| lock.try_read(range).expect("readers share"));
            assert!(lock.try_write(7..8).is_none() && !lock.is_written(7..8));
            drop(readers);
        }
        let tree = lock.tree.lock();
        assert!(tree.root == NONE && tree.nodes.len() == 3 && tree.free.len() == 3);
    }
}
