//! The published range lock: an interval tree with reference counts.
//!
//! A request inserts its interval, counts the overlapping holders and waiters ahead of it, and waits until that
//! is 0; on unlock it removes itself and counts down those who waited for it. One mutex guards the tree (a
//! spin lock in the kernel). The tree is a treap keyed by start and number of arrival, each node with the
//! furthest end below it, so that overlaps are found without a walk over all.

use super::Span;
use narufs_engine::lock::{Access, FileLock};
use narufs_engine::sync::atomic::{AtomicUsize, Ordering};
use narufs_engine::sync::{Arc, Mutex, WaitQueue};
use std::ops::Range;

/// See the module.
#[derive(Debug)]
pub struct TreeLock {
    tree: Mutex<Tree>,
}

/// A held range.
#[derive(Debug)]
pub struct TreeGuard<'a> {
    lock: &'a TreeLock,
    request: Arc<Request>,
}

#[derive(Debug)]
struct Request {
    span: Span,
    arrival: u64,
    ahead: AtomicUsize,
    queue: WaitQueue,
}

#[derive(Debug, Default)]
struct Tree {
    root: Link,
    arrivals: u64,
}

type Link = Option<Box<Node>>;

#[derive(Debug)]
struct Node {
    request: Arc<Request>,
    priority: u64,
    furthest: u64,
    left: Link,
    right: Link,
}

impl Node {
    fn key(&self) -> (u64, u64) {
        (self.request.span.start, self.request.arrival)
    }

    fn update(&mut self) {
        let below = [&self.left, &self.right].into_iter().flatten().map(|node| node.furthest).max();
        self.furthest = self.request.span.end.max(below.unwrap_or(0));
    }
}

/// Below `key` and the rest.
fn split(link: Link, key: (u64, u64)) -> (Link, Link) {
    let Some(mut node) = link else { return (None, None) };
    if node.key() < key {
        let (low, high) = split(node.right.take(), key);
        node.right = low;
        node.update();
        (Some(node), high)
    } else {
        let (low, high) = split(node.left.take(), key);
        node.left = high;
        node.update();
        (low, Some(node))
    }
}

fn join(low: Link, high: Link) -> Link {
    match (low, high) {
        (None, one) | (one, None) => one,
        (Some(mut low), Some(mut high)) => {
            if low.priority > high.priority {
                low.right = join(low.right.take(), Some(high));
                low.update();
                Some(low)
            } else {
                high.left = join(Some(low), high.left.take());
                high.update();
                Some(high)
            }
        }
    }
}

fn each_overlapping(link: &Link, span: &Span, f: &mut dyn FnMut(&Arc<Request>)) {
    let Some(node) = link else { return };
    if node.furthest <= span.start {
        return;
    }
    each_overlapping(&node.left, span, f);
    if node.request.span.excludes(span) {
        f(&node.request);
    }
    if node.request.span.start < span.end {
        each_overlapping(&node.right, span, f);
    }
}

impl TreeLock {
    /// Inserts a request; with `only_free`, only if nothing is ahead of it.
    fn insert(&self, span: Span, only_free: bool) -> Option<Arc<Request>> {
        let mut tree = self.tree.lock();
        let mut ahead = 0;
        each_overlapping(&tree.root, &span, &mut |_| ahead += 1);
        if only_free && ahead > 0 {
            return None;
        }
        tree.arrivals += 1;
        let arrival = tree.arrivals;
        let request =
            Arc::new(Request { span, arrival, ahead: AtomicUsize::new(ahead), queue: WaitQueue::new() });
        let priority = arrival.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let node =
            Node { request: Arc::clone(&request), priority, furthest: span.end, left: None, right: None };
        let (low, high) = split(tree.root.take(), (span.start, arrival));
        tree.root = join(join(low, Some(Box::new(node))), high);
        Some(request)
    }

    fn acquire(&self, range: Range<u64>, access: Access) -> TreeGuard<'_> {
        let request = self.insert(Span::new(range, access), false).expect("it may wait");
        // Acquire: pairs with the Release of the last who was ahead.
        request.queue.wait_until(|| request.ahead.load(Ordering::Acquire) == 0);
        TreeGuard { lock: self, request }
    }

    fn try_acquire(&self, range: Range<u64>, access: Access) -> Option<TreeGuard<'_>> {
        let request = self.insert(Span::new(range, access), true)?;
        Some(TreeGuard { lock: self, request })
    }
}

impl Drop for TreeGuard<'_> {
    fn drop(&mut self) {
        let (span, arrival) = (self.request.span, self.request.arrival);
        let mut granted = Vec::new();
        {
            let mut tree = self.lock.tree.lock();
            let (low, rest) = split(tree.root.take(), (span.start, arrival));
            let (_own, high) = split(rest, (span.start, arrival + 1));
            tree.root = join(low, high);
            each_overlapping(&tree.root, &span, &mut |request| {
                // Release: pairs with the Acquire of who waits. Who came before this one did not count it.
                if request.arrival > arrival && request.ahead.fetch_sub(1, Ordering::Release) == 1 {
                    granted.push(Arc::clone(request));
                }
            });
        }
        granted.iter().for_each(|request| request.queue.wake_all());
    }
}

impl FileLock for TreeLock {
    type Guard<'a> = TreeGuard<'a>;

    fn for_file(_: u64) -> Self {
        TreeLock { tree: Mutex::default() }
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
}
