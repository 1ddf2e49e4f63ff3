//! A slot of a file's table of held ranges: one word while at most one range is held in it, a list otherwise.
//!
//! # Protocol
//! The word is 0 (nothing is held), a *packed* span ([`Span::pack`]: that span is held, and nothing else), or has
//! LISTED, with the number of writers that hold a range in the bits above.
//! 1. While the word is 0, a span that can be packed is had by one compare-and-swap, and given back by one
//!    from its word to 0. No memory is needed.
//! 2. A thread that finds something else there takes the mutex of the list and *lists*: it changes the word to LISTED,
//!    and puts the span that it packed, if any, into the list as a granted entry in its holder's name. Its
//!    holder finds that its word has gone, and gives the entry back.
//! 3. LISTED is set and cleared, and the number changed, by the holder of the mutex alone. It is cleared when
//!    the list has become empty; so while anybody holds or waits by the list, nobody enters by the word.
//! 4. The list is in order of arrival; an entry is *granted* or waits. A waiting entry *insists* once
//!    [`OVERTAKERS`] that came later and that it excludes were granted before it, or it has waited for
//!    [`PATIENCE`]. A request is granted if it excludes no granted entry, and no insisting one ahead of it.
//! 5. A thread that is not granted spins for a moment, then sleeps until it is *called*. Called, it looks again, under
//!    the mutex, and sleeps again if somebody else was faster.
//! 6. A release takes the entry out and goes over those that wait, in order. What can be granted now and
//!    insists, is, and its owner called; of the others that could be granted each is called. So a thread that waits and
//!    could be granted has been called and not yet looked, always. Equal granted entries are interchangeable, so
//!    an entry needs no name.
//!
//! Why not in strict order of arrival: to hand a range to one that sleeps leaves it to nobody until that one
//! runs, some ten microseconds where a write into the cache takes a tenth of one, and from then on everybody
//! finds somebody waiting: threads that overwrite one page, or append to one log, would go at the pace of
//! wake-ups for ever. Those that run now use what is free; a thread that waits is overtaken for a bounded time.
//!
//! Ownership: entries belong to the mutex. A waiter owns nothing but its flag, which is changed
//! under the mutex alone.
//!
//! *Visibility*: from a release by the word to any thread that comes next, through the word (Release, Acquire), whether
//! it enters by the word or lists; among those in the list through the mutex; from the list to a thread that enters by
//! the word through the store of 0.

use super::span::{PACKED, Span};
use super::{Access, LockClass};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, WaitQueue, spin};
use std::time::{Duration, Instant};

const LISTED: u64 = 1;
/// One writer that holds a range by the list.
const WRITER: u64 = 2;

/// Requests that may be granted before one that waits, though they came later.
pub(super) const OVERTAKERS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 10_000 };
/// Time in which they may: as long as the kernel's own sleeping locks let others pass.
const PATIENCE: Duration = Duration::from_millis(4);

/// Entries whose memory an idle slot keeps.
const KEPT_ENTRIES: usize = 32;

/// What is held of the segments that fall here.
#[derive(Debug, Default)]
pub(super) struct Slot {
    word: AtomicU64,
    entries: Mutex<Vec<Entry>>,
}

/// A request in the list.
#[derive(Debug)]
struct Entry {
    span: Span,
    /// None: it is granted.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    waiter: Arc<Waiter>,
    overtakers: u32,
    since: Instant,
}

#[derive(Debug, Default)]
struct Waiter {
    called: AtomicBool,
    queue: WaitQueue,
}

impl Entry {
    fn granted(span: Span) -> Self {
        Entry { span, waiting: None }
    }

    fn insists(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| {
            // A model has no clock.
            let is_late = !cfg!(any(loom, shuttle)) && waiting.since.elapsed() >= PATIENCE;
            waiting.overtakers >= OVERTAKERS || is_late
        })
    }
}

/// Whether `span` may be granted, coming after those `ahead` and before those `behind`.
fn admits(ahead: &[Entry], behind: &[Entry], span: &Span) -> bool {
    let granted = |entry: &Entry| entry.waiting.is_none();
    !ahead.iter().any(|entry| entry.span.excludes(span) && (granted(entry) || entry.insists()))
        && !behind.iter().any(|entry| granted(entry) && entry.span.excludes(span))
}

/// Those that `span` is granted before.
fn overtake(ahead: &mut [Entry], span: &Span) {
    for entry in ahead.iter_mut().filter(|entry| entry.span.excludes(span)) {
        if let Some(waiting) = &mut entry.waiting {
            waiting.overtakers += 1;
        }
    }
}

fn is_writer(span: &Span) -> u64 {
    if span.access() == Access::Write { WRITER } else { 0 }
}

impl Slot {
    /// Waits until the span is granted here.
    #[inline]
    pub(super) fn acquire(&self, span: Span, packed: Option<u64>) {
        if !self.enter(packed) {
            self.acquire_slowly(span, packed);
        }
    }

    /// Takes the span unless something excludes it.
    #[inline]
    pub(super) fn try_acquire(&self, span: Span, packed: Option<u64>) -> bool {
        if self.enter(packed) {
            return true;
        }
        let Some(mut entries) = self.list(packed) else { return true };
        self.try_grant(&mut entries, span)
    }

    /// Gives a granted span back.
    #[inline]
    pub(super) fn release(&self, span: Span, packed: Option<u64>) {
        if let Some(own) = packed {
            // Release: pairs with the Acquire of the thread that enters or lists next. Relaxed on failure: it was
            // listed, and the mutex does the rest.
            if self.word.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        self.release_slowly(span);
    }

    /// Whether a writer may hold something of the span just now. False: none did at some moment of the call.
    #[inline]
    pub(super) fn is_written(&self, span: &Span) -> bool {
        // Acquire: what the caller reads next is read after this. Pairs with the Release of the thread that left.
        let word = self.word.load(Ordering::Acquire);
        match word {
            0 => false,
            _ if word & LISTED != 0 => word != LISTED,
            _ => {
                let held = Span::unpack(word);
                held.access() == Access::Write && held.overlaps(span)
            }
        }
    }

    /// Rule 1.
    #[inline]
    fn enter(&self, packed: Option<u64>) -> bool {
        let Some(own) = packed else { return false };
        // Acquire: pairs with the Release of the thread that left by the word, or emptied the list. Relaxed on failure:
        // nothing is read through it.
        self.word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn acquire_slowly(&self, span: Span, packed: Option<u64>) {
        LockClass::Range.wait(|| {
            if packed.is_some() && self.enter_soon(packed) {
                return;
            }
            let waiter = {
                let Some(mut entries) = self.list(packed) else { return };
                if self.try_grant(&mut entries, span) {
                    return;
                }
                let waiter = Arc::<Waiter>::default();
                let waiting = Waiting { waiter: waiter.clone(), overtakers: 0, since: Instant::now() };
                entries.push(Entry { span, waiting: Some(waiting) });
                waiter
            };
            loop {
                // Relaxed: the mutex, taken next, brings what the holders before have written.
                waiter.queue.wait_until(|| waiter.called.load(Ordering::Relaxed));
                if self.look_again(&waiter) {
                    return;
                }
            }
        });
    }

    /// Spins for as long as somebody else has the word, which is seldom long.
    fn enter_soon(&self, packed: Option<u64>) -> bool {
        let mut entered = false;
        spin(|| {
            // Relaxed: the exchange decides.
            let word = self.word.load(Ordering::Relaxed);
            entered = word == 0 && self.enter(packed);
            entered || word & LISTED != 0
        });
        entered
    }

    /// Rule 5: whether the one that was called has its entry granted, perhaps just now.
    fn look_again(&self, waiter: &Arc<Waiter>) -> bool {
        let mut entries = self.entries.lock();
        // Relaxed: under the mutex.
        waiter.called.store(false, Ordering::Relaxed);
        let own = |entry: &Entry| entry.waiting.as_ref().is_some_and(|w| Arc::ptr_eq(&w.waiter, waiter));
        let Some(at) = entries.iter().position(own) else { return true };
        let span = entries[at].span;
        let (ahead, rest) = entries.split_at_mut(at);
        let admitted = admits(ahead, &rest[1..], &span);
        if admitted {
            overtake(ahead, &span);
            rest[0].waiting = None;
            self.count(is_writer(&span), 0);
        }
        admitted
    }

    /// Grants what comes last, if it may be.
    fn try_grant(&self, entries: &mut Vec<Entry>, span: Span) -> bool {
        let admitted = admits(entries, &[], &span);
        if admitted {
            overtake(entries, &span);
            entries.push(Entry::granted(span));
            self.count(is_writer(&span), 0);
        }
        admitted
    }

    /// The list, with LISTED set (rule 2); none if the word came free and `packed` got it.
    fn list(&self, packed: Option<u64>) -> Option<MutexGuard<'_, Vec<Entry>>> {
        let mut entries = self.entries.lock();
        // Relaxed: the exchange decides, and LISTED was set under the mutex.
        let mut word = self.word.load(Ordering::Relaxed);
        while word & LISTED == 0 {
            let listed = match (word, packed) {
                (0, Some(own)) => own,
                (0, None) => LISTED,
                _ => LISTED + is_writer(&Span::unpack(word)),
            };
            // Acquire: pairs with the Release of the thread that left by the word. Relaxed on failure: tried again.
            match self.word.compare_exchange(word, listed, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if listed & LISTED == 0 => return None,
                Ok(_) => {
                    if word & PACKED != 0 {
                        entries.push(Entry::granted(Span::unpack(word)));
                    }
                    break;
                }
                Err(now) => word = now,
            }
        }
        Some(entries)
    }

    /// Changes the number of writers that hold something. The caller has the mutex, and LISTED is set.
    fn count(&self, more: u64, less: u64) {
        if more != less {
            // Relaxed: only the holder of the mutex changes the word now.
            let word = self.word.load(Ordering::Relaxed);
            // Release: pairs with the Acquire in `is_written`: a thread that sees a writer gone sees what it wrote.
            self.word.store(word + more - less, Ordering::Release);
        }
    }

    #[cold]
    fn release_slowly(&self, span: Span) {
        let mut called = Vec::new();
        {
            let mut entries = self.entries.lock();
            let at = entries
                .iter()
                .position(|entry| entry.waiting.is_none() && entry.span == span)
                .expect("a guard has a granted entry in each of its slots");
            entries.remove(at);
            if entries.is_empty() {
                if entries.capacity() > KEPT_ENTRIES {
                    *entries = Vec::new();
                }
                // Release: pairs with the Acquire of the thread that enters by the word.
                self.word.store(0, Ordering::Release);
            } else {
                let writers = self.call(&mut entries, &span, &mut called);
                self.count(writers, is_writer(&span));
            }
        }
        for waiter in called {
            waiter.queue.wake_all();
        }
    }

    /// Rule 6, after `released` was taken out: a thread that is to be woken, and the writers granted.
    fn call(&self, entries: &mut [Entry], released: &Span, called: &mut Vec<Arc<Waiter>>) -> u64 {
        let mut writers = 0;
        for at in 0..entries.len() {
            let (ahead, rest) = entries.split_at_mut(at);
            let Some((entry, behind)) = rest.split_first_mut() else { break };
            let Some(waiting) = &entry.waiting else { continue };
            if !entry.span.excludes(released) || !admits(ahead, behind, &entry.span) {
                continue;
            }
            // Relaxed: the flag is changed under the mutex alone.
            if !waiting.waiter.called.swap(true, Ordering::Relaxed) {
                called.push(waiting.waiter.clone());
            }
            if entry.insists() {
                overtake(ahead, &entry.span);
                entry.waiting = None;
                writers += is_writer(&entry.span);
            }
        }
        writers
    }

    /// Requests in the list, granted or not.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn listed(&self) -> usize {
        self.entries.lock().len()
    }
}
