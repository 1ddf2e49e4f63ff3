//! A place at which a test stops a thread: its slots are reserved and nothing is in them yet. The place exists with
//! the feature `sim` alone.

#[cfg(feature = "sim")]
mod place {
    use crate::format::Position;
    use std::cell::Cell;

    thread_local! {
        static NEXT: Cell<Option<Box<dyn FnOnce(Position)>>> = const { Cell::new(None) };
    }

    /// Has this thread call `stop`, with the first position, when it has reserved its next record and not yet copied
    /// anything. `stop` may sleep for as long as the test likes.
    pub fn stop_next_record(stop: impl FnOnce(Position) + 'static) {
        NEXT.set(Some(Box::new(stop)));
    }

    pub(in crate::journal) fn reserved(first: Position) {
        // A thread that is ending, whose variables are gone, is not stopped.
        if let Ok(Some(stop)) = NEXT.try_with(Cell::take) {
            stop(first);
        }
    }
}

#[cfg(feature = "sim")]
pub(super) use place::reserved;
#[cfg(feature = "sim")]
pub use place::stop_next_record;

/// Nothing stops here, in this build.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(super) fn reserved(_first: crate::format::Position) {}
