//! When a supervisor gives up: its servers die one after the other.
//!
//! Who kills servers from outside may do so as often as he likes, as long as each begins to serve. Those that do not come
//! so far, and those that die of themselves, would go on doing so. What may pass (no memory, no process to be had, a device
//! that fails for a moment) is given some seconds: from the third in a row on each begins later than the one before.

use super::NANOSECONDS;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// Servers in a row that did not begin to serve.
const MOST_UNREADY: u32 = 10;
/// Of these, those that are followed at once.
const AT_ONCE: u32 = 3;
/// What the next waits, in milliseconds: twice as long each time.
const FIRST_PAUSE: u64 = 50;
/// Servers that died of themselves within [`WINDOW_SECONDS`].
const MOST_FAULTS: usize = 20;
const WINDOW_SECONDS: u64 = 60;

/// The deaths of the servers of a mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deaths {
    unready: u32,
    /// When, by the monotonic clock.
    faults: VecDeque<u64>,
}

/// Takes from a list of times, oldest first, what lies more than [`WINDOW_SECONDS`] before `now`.
pub fn forget_old(times: &mut VecDeque<u64>, now: u64) {
    while times.front().is_some_and(|first| now.saturating_sub(*first) > WINDOW_SECONDS * NANOSECONDS) {
        times.pop_front();
    }
}

impl Deaths {
    /// A server serves.
    pub fn ready(&mut self) {
        self.unready = 0;
    }

    /// How long to wait before the next server is started.
    pub fn pause(&self) -> Duration {
        match self.unready.checked_sub(AT_ONCE) {
            Some(doublings) => Duration::from_millis(FIRST_PAUSE << doublings.min(MOST_UNREADY)),
            None => Duration::ZERO,
        }
    }

    /// A server is gone; `of_itself`: by its own fault. Why no other is to be started, if so.
    pub fn note(&mut self, was_ready: bool, of_itself: bool, now: u64) -> Option<String> {
        if !was_ready {
            self.unready += 1;
        }
        if of_itself {
            self.faults.push_back(now);
        }
        forget_old(&mut self.faults, now);
        if self.unready >= MOST_UNREADY {
            return Some(format!("{} servers in a row ended before they served", self.unready));
        }
        let faults = self.faults.len();
        (faults >= MOST_FAULTS)
            .then(|| format!("{faults} servers ended by faults of their own within {} s", WINDOW_SECONDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_never_count_where_servers_begin_to_serve() {
        let (mut deaths, now) = (Deaths::default(), 5);
        for _ in 0..1000 {
            deaths.ready();
            assert_eq!(deaths.note(true, false, now), None);
            assert!((1..MOST_UNREADY).all(|_| deaths.note(false, false, now).is_none()));
        }
        assert!(deaths.note(false, false, now).is_some_and(|why| why.contains("10 servers in a row")));
    }

    #[test]
    fn what_may_pass_is_given_some_seconds() {
        let (mut deaths, mut waited) = (Deaths::default(), Duration::ZERO);
        for number in 1..MOST_UNREADY {
            assert_eq!(deaths.note(false, false, 5), None);
            assert_eq!(deaths.pause().is_zero(), number < AT_ONCE);
            waited += deaths.pause();
        }
        assert!((5..15).contains(&waited.as_secs()), "{waited:?}");
        deaths.ready();
        assert_eq!(deaths.pause(), Duration::ZERO);
    }

    #[test]
    fn faults_count_for_a_minute() {
        let mut deaths = Deaths::default();
        for second in 0..1000 {
            // One in four seconds.
            assert_eq!(deaths.note(true, true, 4 * second * NANOSECONDS), None);
        }
        let now = 4000 * NANOSECONDS;
        // Also those that an earlier supervisor has counted.
        let told = serde_json::to_string(&deaths).expect("words");
        let mut deaths: Deaths = serde_json::from_str(&told).expect("the same words");
        let said = (0..MOST_FAULTS).find_map(|_| deaths.note(true, true, now));
        assert!(said.is_some_and(|why| why.contains("faults of their own")));
    }
}
