//! The streams that readers of a file follow, guessed from the pages that they find absent, and the window of each: the
//! pages to be asked for ahead of its reader.
//!
//! What this leaves to others: asking for them, and what memory that may take (`budget`, `file`).

use super::REQUEST_PAGES;
use std::ops::Range;

/// Pages ahead of a reader at the least, once it is known to be sequential.
const MIN_WINDOW: u64 = 4;
/// Streams of one file that are remembered.
const STREAMS: usize = 8;
/// Cached pages that a reader may have passed by unseen since it was last met.
const GAP: u64 = 32;

/// A reader's way through a file, guessed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    /// The page that it would ask for next.
    next: u64,
    /// The page up to which it has been read or asked for.
    ahead: u64,
    /// Pages to be ahead; 0: not yet known to be sequential.
    window: u64,
    /// It has gone on once: a random page follows one of those remembered now and then, but not twice.
    has_gone_on: bool,
}

/// A read that found pages absent.
#[derive(Debug)]
pub(crate) struct Missed {
    pub pages: Range<u64>,
    /// The page where a sequential reader goes on.
    pub next: u64,
    /// The first absent page is in no span.
    pub is_free: bool,
    /// Pages of the file.
    pub end: u64,
    /// Pages that a window may have.
    pub most: u64,
}

/// The streams of a file, the one met last in front.
#[derive(Debug, Default)]
pub(crate) struct Streams(Vec<Stream>);

impl Streams {
    /// Notes a read, and gives the pages to be asked for ahead of its reader.
    pub fn advance(&mut self, missed: &Missed, is_cached: impl Fn(Range<u64>) -> bool) -> Option<Range<u64>> {
        let Range { start, end } = missed.pages;
        let follows = |stream: &Stream| {
            let reach = stream.next.max(stream.ahead);
            (stream.next..=reach).contains(&start)
                || stream.window > 0
                    && (reach..=stream.next + GAP).contains(&start)
                    && is_cached(reach..start)
        };
        let mut stream = match self.0.iter().position(follows) {
            Some(known) => self.0.remove(known),
            // A file is read from its beginning, more often than not to its end.
            None if start == 0 && self.0.is_empty() => {
                Stream { next: 0, ahead: 0, window: 0, has_gone_on: true }
            }
            None => {
                self.0.truncate(STREAMS - 1);
                let new = Stream { next: missed.next, ahead: end, window: 0, has_gone_on: false };
                self.0.insert(0, new);
                return None;
            }
        };
        if !std::mem::replace(&mut stream.has_gone_on, true) {
            (stream.next, stream.ahead) = (missed.next, stream.ahead.max(end));
            self.0.insert(0, stream);
            return None;
        }
        let count = end - start;
        stream.window = match stream.window {
            0 if start == 0 => MIN_WINDOW.max(count),
            0 => MIN_WINDOW.max(2 * count),
            // What was asked for has gone again before it was read: memory is short.
            window if missed.is_free && start < stream.ahead => (window / 4).max(MIN_WINDOW),
            window => 2 * window,
        }
        .min(missed.most);
        if missed.is_free && start < stream.ahead {
            stream.ahead = end;
        }
        stream.next = missed.next;
        stream.ahead = stream.ahead.max(end);
        let from = stream.ahead;
        let to = (end + stream.window).min(missed.end);
        let enough = (stream.window / 2).clamp(1, REQUEST_PAGES);
        let asks = to >= from + enough || (to > from && to == missed.end);
        if asks {
            stream.ahead = to;
        }
        self.0.insert(0, stream);
        asks.then_some(from..to)
    }

    /// The pages of a window from `at` on were not asked for after all.
    pub fn retract(&mut self, window: &Range<u64>, at: u64) {
        if let Some(stream) = self.0.iter_mut().find(|stream| stream.ahead == window.end) {
            stream.ahead = at;
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn missed(pages: Range<u64>, is_free: bool) -> Missed {
        Missed { next: pages.end, pages, is_free, end: 10_000, most: 64 }
    }

    #[test]
    fn a_window_grows_with_each_request_that_follows() {
        let mut streams = Streams::default();
        assert_eq!(streams.advance(&missed(0..1, true), |_| false), Some(1..5));
        assert_eq!(streams.advance(&missed(1..2, false), |_| false), Some(5..10));
        assert_eq!(streams.advance(&missed(5..6, false), |_| false), Some(10..22));
        assert_eq!(streams.advance(&missed(10..11, false), |_| false), Some(22..43));
        // What was asked for is gone.
        assert_eq!(streams.advance(&missed(22..23, true), |_| false), Some(23..31));
        // The end of the file.
        let last = Missed { end: 40, ..missed(31..32, false) };
        assert_eq!(streams.advance(&last, |_| false), Some(32..40));
    }

    #[test]
    fn several_readers_are_told_apart_and_random_ones_get_nothing() {
        let mut streams = Streams::default();
        let mut asked = [0; 5];
        for at in 0..20 {
            for reader in 0..5 {
                let first = (reader + 1) * 1000 + at * 10;
                let window = streams.advance(&missed(first..first + 10, false), |_| false);
                asked[reader as usize] += window.map_or(0, |window| window.end - window.start);
            }
        }
        assert!(asked.iter().all(|pages| (180..=250).contains(pages)), "{asked:?}");
        let mut streams = Streams::default();
        // 501 and 701 follow, by chance.
        for at in [500, 7, 9000, 400, 501, 9, 3, 700, 6000, 30, 701, 90] {
            assert_eq!(streams.advance(&missed(at..at + 1, true), |_| false), None, "{at}");
        }
        assert!(streams.0.len() <= STREAMS);
    }

    #[test]
    fn cached_pages_between_do_not_end_a_stream() {
        let mut streams = Streams::default();
        assert_eq!(streams.advance(&missed(100..101, true), |_| false), None);
        assert_eq!(streams.advance(&missed(101..102, true), |_| false), None);
        assert_eq!(streams.advance(&missed(102..103, true), |_| false), Some(103..107));
        assert_eq!(streams.advance(&missed(120..121, true), |pages| pages == (107..120)), Some(121..129));
        assert_eq!(streams.advance(&missed(140..141, true), |_| false), None);
    }
}
