//! A slot of a file's table of held ranges: one word while at most one range is held in it, a list otherwise.
//!
//! # Protocol
//! The word is 0 (nothing is held), a *packed* span ([`Span::pack`]: that span is held, and nothing else), or has
//! LISTED, with the number of writers that hold a range in the bits above.
//! 1. While the word is 0, a span that can be packed is had by one compare-and-swap, and given back by one
//!    from its word to 0. No memory is needed.
//! 2. Whoever finds something else there takes the mutex of the list and *lists*: it changes the word to LISTED,
//!    and puts the span that it packed, if any, into the list as a granted entry in its holder's name. Its
//!    holder finds that its word has gone, and gives the entry back.
//! 3. LISTED is set and cleared, and the number changed, by the holder of the mutex alone. It is cleared when
//!    the list has become empty; so while anybody holds or waits by the list, nobody enters by the word.
//! 4. The list is in order of arrival. A request counts the entries *ahead* of it that overlap and exclude it. At
//!    zero the entry is granted; otherwise the request sleeps until it is.
//! 5. A release takes the entry out and counts down every entry behind it that it excluded; who comes to zero
//!    is granted and woken. Equal granted entries are interchangeable, so an entry needs no name.
//!
//! Who may touch what: entries belong to the mutex. A waiter owns nothing but its flag, which the thread that
//! grants it sets once.
//!
//! *Visibility*: from a release by the word to whoever comes next, through the word (Release, Acquire), whether
//! it enters by the word or lists; among those in the list through the mutex and the flags; from the list to
//! who enters by the word through the store of 0.

use super::span::{PACKED, Span};
use super::{Access, LockClass};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, WaitQueue};

const LISTED: u64 = 1;
/// One writer that holds a range by the list.
const WRITER: u64 = 2;

/// Entries whose memory an idle slot keeps.
const KEPT_ENTRIES: usize = 32;

/// What is held of the segments that fall here.
#[derive(Debug, Default)]
pub(super) struct Slot {
    word: AtomicU64,
    entries: Mutex<Vec<Entry>>,
}

/// A request in the list: granted when nothing is ahead of it.
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
        let free = !entries.iter().any(|e| e.span.excludes(&span));
        if free {
            self.push(&mut entries, Entry { span, ahead: 0, waiter: None });
        }
        free
    }

    /// Gives a granted span back.
    #[inline]
    pub(super) fn release(&self, span: Span, packed: Option<u64>) {
        if let Some(own) = packed {
            // Release: pairs with the Acquire of who enters or lists next. Relaxed on failure: it was listed,
            // and the mutex does the rest.
            if self.word.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        self.release_slowly(span);
    }

    /// Whether a writer may hold something of the span just now. False: none did at some moment of the call.
    #[inline]
    pub(super) fn is_written(&self, span: &Span) -> bool {
        // Acquire: what the caller reads next is read after this. Pairs with the Release of who left.
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
        // Acquire: pairs with the Release of who left by the word, or emptied the list. Relaxed on failure:
        // nothing is read through it.
        self.word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn acquire_slowly(&self, span: Span, packed: Option<u64>) {
        let waiter = {
            let Some(mut entries) = self.list(packed) else { return };
            let ahead = entries.iter().filter(|e| e.span.excludes(&span)).count();
            let waiter = (ahead > 0).then(Arc::<Waiter>::default);
            self.push(&mut entries, Entry { span, ahead, waiter: waiter.clone() });
            waiter
        };
        if let Some(waiter) = waiter {
            // Acquire: pairs with the Release in `release_slowly`, for what the holders before have written.
            LockClass::Range.wait(|| waiter.queue.wait_until(|| waiter.granted.load(Ordering::Acquire)));
        }
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
            // Acquire: pairs with the Release of who left by the word. Relaxed on failure: tried again.
            match self.word.compare_exchange(word, listed, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if listed & LISTED == 0 => return None,
                Ok(_) => {
                    if word & PACKED != 0 {
                        entries.push(Entry { span: Span::unpack(word), ahead: 0, waiter: None });
                    }
                    break;
                }
                Err(now) => word = now,
            }
        }
        Some(entries)
    }

    fn push(&self, entries: &mut Vec<Entry>, entry: Entry) {
        if entry.ahead == 0 {
            self.count(is_writer(&entry.span), 0);
        }
        entries.push(entry);
    }

    /// Changes the number of writers that hold something. The caller has the mutex, and LISTED is set.
    fn count(&self, more: u64, less: u64) {
        if more != less {
            // Relaxed: only the holder of the mutex changes the word now.
            let word = self.word.load(Ordering::Relaxed);
            // Release: pairs with the Acquire in `is_written`: who sees a writer gone sees what it wrote.
            self.word.store(word + more - less, Ordering::Release);
        }
    }

    #[cold]
    fn release_slowly(&self, span: Span) {
        let mut granted = Vec::new();
        {
            let mut entries = self.entries.lock();
            let at = entries
                .iter()
                .position(|e| e.ahead == 0 && e.span == span)
                .expect("a guard has a granted entry in each of its slots");
            entries.remove(at);
            let mut writers = 0;
            for entry in entries.iter_mut().skip(at) {
                if entry.span.excludes(&span) {
                    entry.ahead -= 1;
                    if entry.ahead == 0 {
                        writers += is_writer(&entry.span);
                        granted.extend(entry.waiter.take());
                    }
                }
            }
            if entries.is_empty() {
                if entries.capacity() > KEPT_ENTRIES {
                    *entries = Vec::new();
                }
                // Release: pairs with the Acquire of who enters by the word.
                self.word.store(0, Ordering::Release);
            } else {
                self.count(writers, is_writer(&span));
            }
        }
        for waiter in granted {
            // Release: pairs with the Acquire in `acquire_slowly`.
            waiter.granted.store(true, Ordering::Release);
            waiter.queue.wake_all();
        }
    }

    /// Requests in the list, granted or not.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn listed(&self) -> usize {
        self.entries.lock().len()
    }
}
