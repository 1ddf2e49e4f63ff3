//! The range lock of one file: one word while nobody meets, then a table of slots that hold ranges.
//!
//! What this leaves to others: which range an operation needs, the order among files ([`Rank`]), and what one
//! slot holds ([`super::slot`]).
//!
//! # Protocol
//! 1. A file's lock starts as one word ([`OneWord`]): a thread that enters holds the whole file, whatever range it
//!    asked for. That costs one compare-and-swap to acquire, one subtraction to release, and no memory.
//! 2. The first conflict makes the table of slots and opens the word; from then on ranges are exact. There is
//!    no way back: a file that two threads met at once is likely to be met at again.
//! 3. The file is cut into segments of 16 KiB, which a hash spreads over the slots. A request visits the
//!    slots of its segments in ascending order, and all of them when it has too many segments to count. In
//!    each it waits until its exact range is granted; only then does it visit the next.
//!
//! *Exclusion*: two requests that overlap share a segment, so a slot, where the second met the first.
//!
//! *No deadlock*: a request waits, in a slot, for one that was granted there, or for one ahead of it in that
//! slot that insists and waits itself. A thread that was granted holds its range, or waits in a higher slot. Along such
//! a chain the slot never goes down, and within a slot the place goes strictly forward until one that was
//! granted, so it ends at a holder.
//!
//! *No starvation*: in each slot only so many are granted before a request that came earlier and excludes them,
//! so it waits for finitely many others; readers and writers alike.
//!
//! *Scaling*: in the table, a request to one segment writes one cache line, that of its slot, twice; requests to
//! different slots share no line that is written. A list or tree shared by the whole file, lock-free or not, has
//! every request walk over lines that others write. Experiment 1 (docs/perf) has figures of the alternatives.
//!
//! *Reading without holding*: [`FileLock::is_written`] writes nothing at all. While the word is closed it looks
//! at the word, then at the slots of the range, one after the other. What a reader makes of it is the
//! business of [`crate::file`].

use std::ops::Range;

use super::one_word::{OneWord, Way};
use super::slot::Slot;
use super::span::{Span, members};
use super::{Access, FileLock, Held, LockClass, Rank};
use crate::sync::{CachePadded, OnceLock, available_cores};

/// Bounds of the number of slots; eight for each core in between, so that threads in different segments seldom
/// meet in one.
const SLOTS: Range<usize> = if cfg!(any(loom, shuttle)) { 2..2 } else { 16..64 };

/// The lock over the bytes of one file.
#[derive(Debug)]
pub struct RangeLock {
    nid: u64,
    word: OneWord,
    slots: OnceLock<Box<[CachePadded<Slot>]>>,
}

/// A held range; released when dropped.
#[derive(Debug)]
#[must_use = "the range is released when the guard is dropped"]
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    span: Span,
    by: By<'a>,
    _held: Held,
}

/// By what a range is held.
#[derive(Debug)]
enum By<'a> {
    Word,
    /// The slot of its one segment, by its packed span.
    Slot(&'a Slot, u64),
    /// Every slot that its segments fall into.
    Slots,
}

impl RangeLock {
    fn make_slots(&self) {
        self.slots.get_or_init(|| {
            let count = (8 * available_cores()).next_power_of_two().clamp(SLOTS.start, SLOTS.end);
            (0..count).map(|_| CachePadded::default()).collect()
        });
    }

    #[inline]
    fn slots(&self) -> &[CachePadded<Slot>] {
        self.slots.get().expect("the table is made before the word is opened")
    }

    #[inline]
    fn acquire(&self, range: Range<u64>, access: Access) -> RangeGuard<'_> {
        let held = Rank::new(LockClass::Range, self.nid).waiting();
        let span = Span::new(range, access);
        let by = match self.word.try_enter(access, || self.make_slots()) {
            Some(Way::Word) => By::Word,
            entered => {
                if entered.is_none() {
                    LockClass::Range.wait(|| self.word.wait_until_left());
                }
                self.acquire_in_table(span)
            }
        };
        RangeGuard { lock: self, span, by, _held: held }
    }

    #[inline]
    fn acquire_in_table(&self, span: Span) -> By<'_> {
        let (slots, packed) = (self.slots(), span.pack());
        if let (Some(own), Some(slot)) = (packed, span.only_slot(slots.len())) {
            // What most requests are: nothing of this is to be found out again for the release.
            slots[slot].acquire(span, packed);
            return By::Slot(&slots[slot], own);
        }
        for slot in members(span.slots(slots.len())) {
            slots[slot].acquire(span, packed);
        }
        By::Slots
    }

    fn try_acquire(&self, range: Range<u64>, access: Access) -> Option<RangeGuard<'_>> {
        let span = Span::new(range, access);
        let by = match self.word.try_enter(access, || self.make_slots())? {
            Way::Word => By::Word,
            Way::Table => {
                let (slots, packed) = (self.slots(), span.pack());
                let set = span.slots(slots.len());
                for slot in members(set) {
                    if !slots[slot].try_acquire(span, packed) {
                        members(set).take_while(|s| *s < slot).for_each(|s| slots[s].release(span, packed));
                        return None;
                    }
                }
                By::Slots
            }
        };
        let held = Rank::new(LockClass::Range, self.nid).tried();
        Some(RangeGuard { lock: self, span, by, _held: held })
    }
}

impl Drop for RangeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.by {
            By::Word => self.lock.word.leave(self.span.access()),
            By::Slot(slot, own) => slot.release(self.span, Some(own)),
            By::Slots => {
                let (slots, packed) = (self.lock.slots(), self.span.pack());
                for slot in members(self.span.slots(slots.len())) {
                    slots[slot].release(self.span, packed);
                }
            }
        }
    }
}

impl FileLock for RangeLock {
    type Guard<'a> = RangeGuard<'a>;

    fn for_file(nid: u64) -> Self {
        let lock = RangeLock { nid, word: OneWord::default(), slots: OnceLock::new() };
        if cfg!(loom) {
            // To loom, which does not know of the order that `OnceLock` makes, it must be there before.
            lock.make_slots();
        }
        lock
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

    #[inline]
    fn is_written(&self, range: Range<u64>) -> bool {
        match self.word.is_written() {
            Some(written) => written,
            None => {
                let (slots, span) = (self.slots(), Span::new(range, Access::Read));
                members(span.slots(slots.len())).any(|slot| slots[slot].is_written(&span))
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::slot::OVERTAKERS;
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

    /// The promise behind "nobody starves".
    #[test]
    fn a_waiting_writer_is_overtaken_by_so_many_and_no_more() {
        let lock = RangeLock::for_file(1);
        let held = lock.read(0..1);
        assert!(lock.try_write(0..1).is_none());
        drop(held);
        assert!(lock.word.is_open());
        let reader = lock.read(0..10);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| drop(lock.write(5..20)));
            let first = members(Span::new(5..20, Access::Write).slots(lock.slots().len()))
                .next()
                .expect("every span has a slot");
            while lock.slots()[first].listed() < 2 {
                std::thread::yield_now();
            }
            let overtakers =
                std::iter::from_fn(|| lock.try_read(0..10)).take(OVERTAKERS as usize + 1).count();
            assert!(overtakers <= OVERTAKERS as usize, "readers came before the writer for ever");
            assert!(lock.try_read(0..5).is_some(), "the writer does not want this");
            drop(reader);
            writer.join().expect("the writer came through");
        });
        assert!(listed(&lock) == 0);
    }

    /// Ranges of whole pages go by the word of a slot, others by its list; both say what is written.
    #[test]
    fn who_looks_sees_writers_and_not_readers() {
        let lock = RangeLock::for_file(1);
        let (page, other) = (0..4096, 4096..8192);
        {
            let _held = lock.write(page.clone());
            assert!(lock.is_written(other.clone()), "the word is the whole file's");
        }
        assert!(!lock.is_written(page.clone()));
        open(&lock);
        for range in [page.clone(), 1..4096, 0..u64::MAX] {
            let _held = lock.write(range);
            assert!(lock.is_written(page.clone()));
        }
        let first = lock.write(page.clone());
        assert!(!lock.is_written(other.clone()), "the word of the slot is exact");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let second = lock.write(other.clone());
                assert!(lock.is_written(page.clone()) && lock.is_written(other.clone()));
                drop(second);
            });
        });
        assert!(lock.is_written(page.clone()), "listed by another, it is held still");
        drop(first);
        let _readers = (lock.read(page.clone()), lock.try_read(1..2).expect("readers share"));
        assert!(!lock.is_written(page) && !lock.is_written(0..u64::MAX));
    }

    /// What was listed goes back to the word when nobody is left.
    #[test]
    fn an_empty_list_is_left_again() {
        let lock = RangeLock::for_file(1);
        open(&lock);
        for _ in 0..2 {
            let one = lock.read(0..4096);
            assert_eq!(listed(&lock), 0);
            let two = lock.try_read(0..4096).expect("readers share");
            assert_eq!(listed(&lock), 2);
            drop((one, two));
            assert_eq!(listed(&lock), 0);
        }
        assert!(lock.try_write(0..u64::MAX).is_some());
    }

    fn open(lock: &RangeLock) {
        let held = lock.write(0..1);
        assert!(lock.try_write(0..1).is_none());
        drop(held);
        assert!(lock.word.is_open());
    }

    fn listed(lock: &RangeLock) -> usize {
        lock.slots().iter().map(|slot| slot.listed()).sum()
    }
}
