//! The range lock of one file: one word while nobody meets, then sharded lists of held ranges.
//!
//! What this leaves to others: which range an operation needs, and the order among files ([`Rank`]).
//!
//! # Protocol
//! 1. A file's lock starts as one word ([`OneWord`]): whoever enters holds the whole file, whatever range it
//!    asked for. That costs one compare-and-swap to acquire, one subtraction to release, and no memory.
//! 2. The first conflict makes the table of shards and opens the word; from then on ranges are exact. There is
//!    no way back: a file that two threads met at once is likely to be met at again.
//! 3. The file is cut into segments of 16 KiB, which a hash spreads over the shards. A request visits the
//!    shards of its segments in ascending order, and all of them when it has too many segments to count.
//! 4. A shard is a short list, in order of arrival, under a mutex that is held for the length of a scan. A
//!    request puts an entry with its exact range at the end, and counts the entries *ahead* of it that
//!    overlap and exclude it. At zero the entry is granted; otherwise the request sleeps until it is. Only
//!    then does it visit its next shard.
//! 5. A release takes the entry out of each shard and counts down every entry behind it that it excluded; who
//!    comes to zero is granted and woken. Equal granted entries are interchangeable, so an entry needs no name.
//!
//! Who may touch what: entries belong to the shard's mutex. A waiter owns nothing but its flag, which the
//! thread that grants it sets once.
//!
//! *Exclusion*: two requests that overlap share a segment, so a shard, where the second counted the first.
//!
//! *No deadlock*: a request waits for one ahead of it in the same shard, which holds its range, or waits for
//! one further ahead in that shard, or waits in a higher shard. Along such a chain the shard never goes down
//! and within a shard the place goes strictly forward, so it ends at a holder.
//!
//! *No starvation*: nobody overtakes an entry that overlaps and excludes it, so once in a shard a request
//! waits for finitely many others. Readers behind a waiting writer wait too.
//!
//! *Scaling*: in the table, requests to different segments touch different cache lines (the word is only
//! read). A list shared by the whole file, lock-free or not, has every request walk over lines that others
//! write; that is why the list is cut into shards rather than made lock-free.

use std::ops::Range;

use super::one_word::{OneWord, Way};
use super::{Access, FileLock, Held, LockClass, Rank};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, CachePadded, Mutex, OnceLock, WaitQueue, available_cores};

/// Bytes of a segment, as a power of two. Small, so that threads in neighbouring blocks of one file part
/// soon; large enough that a request of usual size is in few segments.
const SEGMENT_SHIFT: u32 = 14;

/// Bounds of the number of shards; two for each core in between.
const SHARDS: Range<usize> = if cfg!(any(loom, shuttle)) { 2..2 } else { 4..64 };

/// Entries whose memory an idle shard keeps.
const KEPT_ENTRIES: usize = 32;

/// The lock over the bytes of one file.
#[derive(Debug)]
pub struct RangeLock {
    nid: u64,
    word: OneWord,
    shards: OnceLock<Box<[CachePadded<Shard>]>>,
}

/// A held range; released when dropped.
#[derive(Debug)]
#[must_use = "the range is released when the guard is dropped"]
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    span: Span,
    way: Way,
    _held: Held,
}

/// A range and how it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
    access: Access,
}

#[derive(Debug, Default)]
struct Shard {
    entries: Mutex<Vec<Entry>>,
}

/// A request in a shard: granted when nothing is ahead of it.
#[derive(Debug)]
struct Entry {
    span: Span,
    ahead: usize,
    waiter: Option<Arc<Waiter>>,
}

#[derive(Debug, Default)]
struct Waiter {
    granted: AtomicBool,
    queue: WaitQueue,
}

impl Span {
    fn new(range: Range<u64>, access: Access) -> Self {
        // An empty range is taken as one byte; the last byte that can be locked is u64::MAX - 1.
        let start = range.start.min(u64::MAX - 1);
        Span { start, end: range.end.max(start + 1), access }
    }

    fn excludes(&self, other: &Span) -> bool {
        let writes = self.access == Access::Write || other.access == Access::Write;
        writes && self.start < other.end && other.start < self.end
    }

    /// The set of shards, of `count` (a power of two), that its segments fall into.
    fn shards(&self, count: usize) -> u64 {
        let all = u64::MAX >> (64 - count);
        let (first, last) = (self.start >> SEGMENT_SHIFT, (self.end - 1) >> SEGMENT_SHIFT);
        if last - first >= count as u64 {
            return all;
        }
        (first..=last).fold(0, |set, segment| {
            // Fibonacci hashing: neighbours go apart, and so do equal offsets in regions of round sizes.
            let hash = segment.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            set | 1 << (hash as usize & (count - 1))
        })
    }
}

/// The members of a set of shards, ascending.
fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(next)
    })
}

impl Shard {
    /// Waits until the span is granted here.
    fn acquire(&self, span: Span) {
        let waiter = {
            let mut entries = self.entries.lock();
            let ahead = entries.iter().filter(|e| e.span.excludes(&span)).count();
            let waiter = (ahead > 0).then(Arc::<Waiter>::default);
            entries.push(Entry { span, ahead, waiter: waiter.clone() });
            waiter
        };
        if let Some(waiter) = waiter {
            // Acquire: pairs with the Release in `release`, for what the holders before have written.
            LockClass::Range.wait(|| waiter.queue.wait_until(|| waiter.granted.load(Ordering::Acquire)));
        }
    }

    /// Takes the span unless something excludes it.
    fn try_acquire(&self, span: Span) -> bool {
        let mut entries = self.entries.lock();
        let free = !entries.iter().any(|e| e.span.excludes(&span));
        if free {
            entries.push(Entry { span, ahead: 0, waiter: None });
        }
        free
    }

    /// Gives a granted span back and grants who waited for it alone.
    fn release(&self, span: Span) {
        let mut granted = Vec::new();
        {
            let mut entries = self.entries.lock();
            let at = entries
                .iter()
                .position(|e| e.ahead == 0 && e.span == span)
                .expect("a guard has a granted entry in each of its shards");
            entries.remove(at);
            if entries.is_empty() && entries.capacity() > KEPT_ENTRIES {
                *entries = Vec::new();
            }
            for entry in entries.iter_mut().skip(at) {
                if entry.span.excludes(&span) {
                    entry.ahead -= 1;
                    if entry.ahead == 0 {
                        granted.extend(entry.waiter.take());
                    }
                }
            }
        }
        for waiter in granted {
            // Release: pairs with the Acquire in `acquire`.
            waiter.granted.store(true, Ordering::Release);
            waiter.queue.wake_all();
        }
    }
}

impl RangeLock {
    fn make_shards(&self) {
        self.shards.get_or_init(|| {
            let count = (2 * available_cores()).next_power_of_two().clamp(SHARDS.start, SHARDS.end);
            (0..count).map(|_| CachePadded::default()).collect()
        });
    }

    fn shards(&self) -> &[CachePadded<Shard>] {
        self.shards.get().expect("the table is made before the word is opened")
    }

    #[inline]
    fn acquire(&self, range: Range<u64>, access: Access) -> RangeGuard<'_> {
        let held = Rank::new(LockClass::Range, self.nid).waiting();
        let span = Span::new(range, access);
        let way = match self.word.try_enter(access, || self.make_shards()) {
            Some(Way::Word) => Way::Word,
            entered => {
                if entered.is_none() {
                    LockClass::Range.wait(|| self.word.wait_until_left());
                }
                self.acquire_in_table(span);
                Way::Table
            }
        };
        RangeGuard { lock: self, span, way, _held: held }
    }

    fn acquire_in_table(&self, span: Span) {
        let shards = self.shards();
        for shard in members(span.shards(shards.len())) {
            shards[shard].acquire(span);
        }
    }

    fn try_acquire(&self, range: Range<u64>, access: Access) -> Option<RangeGuard<'_>> {
        let span = Span::new(range, access);
        let way = self.word.try_enter(access, || self.make_shards())?;
        if way == Way::Table {
            let shards = self.shards();
            let set = span.shards(shards.len());
            for shard in members(set) {
                if !shards[shard].try_acquire(span) {
                    members(set).take_while(|s| *s < shard).for_each(|s| shards[s].release(span));
                    return None;
                }
            }
        }
        let held = Rank::new(LockClass::Range, self.nid).tried();
        Some(RangeGuard { lock: self, span, way, _held: held })
    }
}

impl Drop for RangeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.way {
            Way::Word => self.lock.word.leave(self.span.access),
            Way::Table => {
                let shards = self.lock.shards();
                for shard in members(self.span.shards(shards.len())) {
                    shards[shard].release(self.span);
                }
            }
        }
    }
}

impl FileLock for RangeLock {
    type Guard<'a> = RangeGuard<'a>;

    fn for_file(nid: u64) -> Self {
        RangeLock { nid, word: OneWord::default(), shards: OnceLock::new() }
    }

    #[inline]
    fn read(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.acquire(range, Access::Read)
    }

    #[inline]
    fn write(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.acquire(range, Access::Write)
    }

    fn try_read(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        self.try_acquire(range, Access::Read)
    }

    fn try_write(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        self.try_acquire(range, Access::Write)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_first_conflict_opens_the_word_and_ranges_become_exact() {
        let lock = RangeLock::for_file(1);
        drop(lock.write(0..10));
        drop(lock.read(5..u64::MAX));
        assert!(!lock.word.is_open());
        let first = lock.write(0..10);
        assert!(lock.try_write(1 << 30..u64::MAX).is_none());
        assert!(lock.word.is_open());
        drop(first);
        let low = lock.try_write(0..10).expect("free");
        let high = lock.try_write(10..u64::MAX).expect("does not overlap");
        assert!(lock.try_read(9..11).is_none());
        drop((low, high));
        let one = lock.try_read(0..u64::MAX).expect("free");
        let two = lock.try_read(9..11).expect("readers share");
        assert!(lock.try_write(10..11).is_none());
        drop((one, two));
        assert!(lock.try_write(10..11).is_some());
    }

    /// The promise behind "nobody starves": who comes later does not overtake who waits.
    #[test]
    fn a_reader_does_not_overtake_a_waiting_writer() {
        let lock = RangeLock::for_file(1);
        let held = lock.read(0..1);
        assert!(lock.try_write(0..1).is_none());
        drop(held);
        assert!(lock.word.is_open());
        let reader = lock.read(0..10);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| drop(lock.write(5..20)));
            let first = members(Span::new(5..20, Access::Write).shards(lock.shards().len()))
                .next()
                .expect("every span has a shard");
            while lock.shards()[first].entries.lock().len() < 2 {
                std::thread::yield_now();
            }
            assert!(lock.try_read(0..10).is_none(), "it would overtake the writer");
            assert!(lock.try_read(0..5).is_some(), "the writer does not want this");
            drop(reader);
            writer.join().expect("the writer came through");
        });
        assert!(lock.shards().iter().all(|shard| shard.entries.lock().is_empty()));
    }

    #[test]
    fn spans_that_overlap_share_a_shard() {
        for count in [2, 4, 64] {
            let all = Span::new(0..u64::MAX, Access::Read).shards(count);
            assert_eq!(all.count_ones() as usize, count);
            for start in (0..1 << 20).step_by(5000) {
                let long = Span::new(start..start + 300_000, Access::Read).shards(count);
                let short = Span::new(start + 200_000..start + 200_001, Access::Read).shards(count);
                assert_eq!(short.count_ones(), 1);
                assert_eq!(long & short, short);
                assert_eq!(all & long, long);
            }
        }
    }
}
