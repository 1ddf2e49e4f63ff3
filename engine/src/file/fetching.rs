//! Pages on their way from the device, so that no two readers bring the same.
//!
//! A kernel that reads ahead asks for the pages behind those of a request that is still under way; this engine reads
//! ahead behind the same request. Without a word between the two, sequential readers would have the device read
//! many pages twice.
//!
//! Invariants: spans that are under way at the same time share no page. Who waits holds the range of the pages
//! shared, as does who brings them, and brings nothing itself: nobody waits for somebody who waits here.

use crate::sync::{Condvar, Mutex};
use std::ops::Range;

/// The spans of one file.
#[derive(Debug)]
pub(super) struct Fetching {
    spans: Mutex<Vec<Range<u64>>>,
    done: Condvar,
}

/// A span under way until this is dropped.
#[derive(Debug)]
pub(super) struct Underway<'a> {
    of: &'a Fetching,
    span: Range<u64>,
}

impl Fetching {
    /// Nobody reads.
    pub fn new() -> Fetching {
        Fetching { spans: Mutex::new(Vec::new()), done: Condvar::new() }
    }

    /// Announces that the pages of `wanted`, and those from there to `end` ahead of any reader, are being fetched.
    /// Fewer are ahead where another span begins. If a page of `wanted` is under way already, waits until it has
    /// come and gives none: the caller looks again.
    pub fn announce(&self, wanted: Range<u64>, end: u64) -> Option<Underway<'_>> {
        let mut spans = self.spans.lock();
        let is_wanted = |span: &Range<u64>| span.start < wanted.end && wanted.start < span.end;
        if let Some(first) = spans.iter().find(|span| is_wanted(span)).cloned() {
            while spans.contains(&first) {
                self.done.wait(&mut spans);
            }
            return None;
        }
        let others = spans.iter().map(|span| span.start).filter(|start| *start >= wanted.end);
        let end = others.fold(end, u64::min).max(wanted.end);
        let span = wanted.start..end;
        spans.push(span.clone());
        Some(Underway { of: self, span })
    }
}

impl Underway<'_> {
    /// The page after the last one.
    pub fn end(&self) -> u64 {
        self.span.end
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let mut spans = self.of.spans.lock();
        if let Some(own) = spans.iter().position(|span| *span == self.span) {
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
    use crate::sync::{Arc, thread};

    #[test]
    fn what_is_ahead_ends_where_another_span_begins() {
        let fetching = Fetching::new();
        let far = fetching.announce(20..24, 40).expect("nobody else");
        assert_eq!(far.end(), 40);
        let near = fetching.announce(8..12, 60).expect("nobody has them");
        assert_eq!(near.end(), 20);
        drop(far);
        assert_eq!(fetching.announce(20..21, 30).expect("free again").end(), 30);
    }

    #[test]
    fn who_wants_what_is_ahead_of_another_waits_for_it() {
        let fetching = Arc::new(Fetching::new());
        let first = fetching.announce(0..4, 16).expect("nobody else");
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = thread::spawn({
            let fetching = Arc::clone(&fetching);
            move || {
                blocking::set_hook(Some(Box::new(move || tell.send(()).expect("somebody listens"))));
                fetching.announce(10..12, 12).is_none()
            }
        });
        told.recv().expect("it waits");
        drop(first);
        assert!(waiter.join().expect("no panic"), "it must look again");
        assert!(fetching.announce(10..12, 12).is_some());
    }
}
