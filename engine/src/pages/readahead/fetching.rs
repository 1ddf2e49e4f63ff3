//! Pages on their way from the device, so that no two readers bring the same.
//!
//! # States of a page that is not cached
//! - *Free*: in no span.
//! - *Claimed*: a reader is bringing it, or is taking over what was read ahead. It holds the range of the pages that
//!   it will cache; others who want them wait for it.
//! - *Ahead*: the device is reading it, or has, for nobody yet. No thread holds its range.
//!
//! | from | to | by | while it holds the range |
//! | --- | --- | --- | --- |
//! | free | claimed | [`Fetching::announce`], [`Fetching::claim`] | shared |
//! | claimed | ahead | [`Underway::leave`] | shared |
//! | ahead | claimed | [`Fetching::announce`] | shared |
//! | ahead | free | [`Fetching::cancel`] | exclusively |
//! | claimed | free, cached or not | drop of [`Underway`], [`HandOff`] | shared |
//!
//! Invariants: no page is in two spans. What is ahead is what the file holds there: a span is left ahead by who shares
//! its range, and whoever takes the range of some of it exclusively cancels it before changing anything. So who finds
//! a span ahead with the range shared may cache those of its pages whose range it holds, and no others.
//! Who waits brings nothing itself: nobody waits for somebody who waits here.

use super::budget::ReadaheadRequest;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex};
use std::ops::Range;

/// The spans of one file.
#[derive(Debug)]
pub(crate) struct Fetching {
    spans: Mutex<Vec<Span>>,
    done: Condvar,
    /// Spans that are ahead.
    // Relaxed, and written with the spans locked: who takes a range exclusively comes after all who shared it, and
    // what they left ahead is counted until it is cancelled or taken over by one who shares the range again.
    ahead: AtomicUsize,
}

#[derive(Debug)]
struct Span {
    pages: Range<u64>,
    /// What is being read ahead; none: it is claimed.
    request: Option<Arc<ReadaheadRequest>>,
}

/// A span claimed by the caller until this is dropped.
#[derive(Debug)]
pub(crate) struct Underway<'a> {
    of: &'a Fetching,
    span: Range<u64>,
}

/// What was read ahead, handed to the reader that has come for it.
#[derive(Debug)]
pub(crate) struct HandOff<'a> {
    pub underway: Underway<'a>,
    pub request: Arc<ReadaheadRequest>,
}

/// Who brings the wanted pages.
#[derive(Debug)]
pub(crate) enum Announced<'a> {
    /// Another reader has: the caller looks again.
    Again,
    /// Some of them were read ahead: the caller takes these over.
    HandOff(HandOff<'a>),
    /// The caller.
    Mine(Underway<'a>),
}

impl Fetching {
    /// Nobody reads.
    pub fn new() -> Fetching {
        Fetching { spans: Mutex::new(Vec::new()), done: Condvar::new(), ahead: AtomicUsize::new(0) }
    }

    /// Announces that pages are wanted, whose range the caller shares. If some are claimed by another, waits
    /// until they have come.
    pub fn announce(&self, wanted: &Range<u64>) -> Announced<'_> {
        let mut spans = self.spans.lock();
        let claimed = |span: &&Span| span.request.is_none() && overlap(&span.pages, wanted);
        if let Some(first) = spans.iter().find(claimed).map(|span| span.pages.clone()) {
            while spans.iter().any(|span| span.request.is_none() && span.pages == first) {
                self.done.wait(&mut spans);
            }
            return Announced::Again;
        }
        let ahead = spans.iter_mut().filter(|span| overlap(&span.pages, wanted));
        let Some(first) = ahead.min_by_key(|span| span.pages.start) else {
            spans.push(Span { pages: wanted.clone(), request: None });
            return Announced::Mine(Underway { of: self, span: wanted.clone() });
        };
        let Some(request) = first.request.take() else { unreachable!("none that is wanted is claimed") };
        let underway = Underway { of: self, span: first.pages.clone() };
        self.count(&spans);
        Announced::HandOff(HandOff { underway, request })
    }

    /// Takes pages in hand that are to be read ahead, whose range the caller shares; none if some are in a span.
    pub fn claim(&self, pages: &Range<u64>) -> Option<Underway<'_>> {
        let mut spans = self.spans.lock();
        if spans.iter().any(|span| overlap(&span.pages, pages)) {
            return None;
        }
        spans.push(Span { pages: pages.clone(), request: None });
        Some(Underway { of: self, span: pages.clone() })
    }

    /// The pages of the spans ahead that have some of these, and these.
    pub fn around(&self, pages: &Range<u64>) -> Range<u64> {
        // Relaxed: a hint.
        if self.ahead.load(Ordering::Relaxed) == 0 {
            return pages.clone();
        }
        let spans = self.spans.lock();
        let ahead = spans.iter().filter(|span| span.request.is_some() && overlap(&span.pages, pages));
        ahead.fold(pages.clone(), |all, span| all.start.min(span.pages.start)..all.end.max(span.pages.end))
    }

    /// Leaves of these pages those that are in no span.
    pub fn retain_free(&self, pages: &mut Vec<u64>) {
        let spans = self.spans.lock();
        pages.retain(|page| !spans.iter().any(|span| span.pages.contains(page)));
    }

    /// Whether a page is in some span.
    pub fn has(&self, page: u64) -> bool {
        self.spans.lock().iter().any(|span| span.pages.contains(&page))
    }

    /// Gives up what is ahead of these pages. The caller has their range exclusively.
    pub fn cancel(&self, pages: &Range<u64>) {
        // Relaxed: as said with it.
        if self.ahead.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut spans = self.spans.lock();
        let cancelled: Vec<_> =
            spans.extract_if(.., |span| span.request.is_some() && overlap(&span.pages, pages)).collect();
        self.count(&spans);
        drop(spans);
        drop(cancelled);
    }

    fn count(&self, spans: &[Span]) {
        let ahead = spans.iter().filter(|span| span.request.is_some()).count();
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Underway<'_> {
    /// The pages.
    pub fn pages(&self) -> Range<u64> {
        self.span.clone()
    }

    /// Leaves them to the device, for whoever comes for them.
    pub fn leave(self, request: Arc<ReadaheadRequest>) {
        let mut spans = self.of.spans.lock();
        if let Some(own) = spans.iter_mut().find(|span| span.pages == self.span) {
            own.request = Some(request);
        }
        self.of.count(&spans);
        drop(spans);
        self.of.done.notify_all();
        std::mem::forget(self);
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let mut spans = self.of.spans.lock();
        if let Some(own) = spans.iter().position(|span| span.pages == self.span) {
            spans.swap_remove(own);
        }
        drop(spans);
        self.of.done.notify_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::blocking;
    use crate::device::Ticket;
    use crate::pages::readahead::{ReadaheadBudget, Size};
    use crate::sync::thread;

    fn leave(fetching: &Fetching, pages: Range<u64>) {
        let request = Arc::new(ReadaheadBudget::default()).request(Ticket(pages.start), Size::of(0));
        fetching.claim(&pages).expect("free").leave(request);
    }

    #[test]
    fn who_wants_what_is_ahead_takes_it_over_the_first_first() {
        let fetching = Fetching::new();
        leave(&fetching, 8..16);
        leave(&fetching, 0..8);
        assert!(fetching.claim(&(15..20)).is_none());
        assert_eq!(fetching.around(&(10..11)), 8..16);
        for expected in [0..8, 8..16] {
            let Announced::HandOff(hand_off) = fetching.announce(&(4..20)) else { panic!("it is ahead") };
            assert_eq!(hand_off.underway.pages(), expected);
            assert_eq!(hand_off.request.take().map(|ticket| ticket.0), Some(expected.start));
        }
        assert!(matches!(fetching.announce(&(4..20)), Announced::Mine(_)));
    }

    #[test]
    fn who_has_the_range_alone_cancels_what_is_ahead() {
        let fetching = Fetching::new();
        leave(&fetching, 0..8);
        leave(&fetching, 8..16);
        fetching.cancel(&(9..10));
        assert!(fetching.has(7) && !fetching.has(8));
    }

    #[test]
    fn who_wants_what_is_claimed_waits_for_it() {
        let fetching = Arc::new(Fetching::new());
        let Announced::Mine(first) = fetching.announce(&(0..16)) else { panic!("nobody else") };
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = thread::spawn({
            let fetching = Arc::clone(&fetching);
            move || {
                blocking::set_hook(Some(Box::new(move || tell.send(()).expect("somebody listens"))));
                matches!(fetching.announce(&(10..12)), Announced::Again)
            }
        });
        told.recv().expect("it waits");
        drop(first);
        assert!(waiter.join().expect("no panic"), "it must look again");
        assert!(matches!(fetching.announce(&(10..12)), Announced::Mine(_)));
    }
}
