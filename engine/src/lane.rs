//! Lanes: a core's own share of what would otherwise be shared (ids, node blocks, groups, counters).
//!
//! A lane is the core that a thread runs on now, modulo the number of lanes. It is a hint for spreading work,
//! never a right: a thread may move to another core at any moment, so whatever belongs to a lane still
//! carries its own lock or atomics. Their number follows the machine, not the image.
//!
//! What this leaves to others: what they keep per lane.

use std::cell::Cell;

use crate::sync::OnceLock;

/// Most lanes; more cores than this share them.
pub const MAX_LANES: usize = 128;

thread_local! {
    static PINNED: Cell<Option<usize>> = const { Cell::new(None) };
    #[cfg(test)]
    static PRETENDED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Has this thread see so many lanes, as on a machine with as many cores; with `None` as many as there are.
#[cfg(test)]
pub(crate) fn pretend(lanes: Option<usize>) {
    PRETENDED.set(lanes);
}

/// Number of lanes in this process: that of its cores, at least 2.
pub fn count() -> usize {
    #[cfg(test)]
    if let Some(lanes) = PRETENDED.get() {
        return lanes;
    }
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        std::thread::available_parallelism().map_or(2, |cores| cores.get()).clamp(2, MAX_LANES)
    })
}

/// The lane of the core that this thread runs on.
pub fn current() -> usize {
    match PINNED.get() {
        Some(lane) => lane % count(),
        None => rustix::thread::sched_getcpu() % count(),
    }
}

/// Gives this thread a lane whatever core it runs on, or with `None` ends that; for tests that need two
/// threads in one lane, or one in each.
pub fn pin(lane: Option<usize>) {
    PINNED.set(lane);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_in_its_lane() {
        assert!(count() >= 2 && count() <= MAX_LANES);
        assert!(current() < count());
        for lane in 0..count() {
            pin(Some(lane));
            assert_eq!(current(), lane);
        }
        pin(Some(count()));
        assert_eq!(current(), 0);
        pin(None);
    }
}
