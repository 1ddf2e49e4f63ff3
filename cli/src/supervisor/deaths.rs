//! When a supervisor gives up: its servers die one after the other.
//!
//! Who kills servers from outside may do so as often as he likes, as long as each begins to serve. Those that do not come
//! so far, and those that die of themselves, would go on doing so.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Servers in a row that did not begin to serve.
const MOST_UNREADY: u32 = 10;
/// Servers that died of themselves within [`WINDOW`].
const MOST_FAULTS: usize = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// The deaths of the servers of a mount.
#[derive(Debug, Default)]
pub struct Deaths {
    unready: u32,
    faults: VecDeque<Instant>,
}

impl Deaths {
    /// A server serves.
    pub fn ready(&mut self) {
        self.unready = 0;
    }

    /// A server is gone; `of_itself`: by its own fault. Why no other is to be started, if so.
    pub fn note(&mut self, was_ready: bool, of_itself: bool, now: Instant) -> Option<String> {
        if !was_ready {
            self.unready += 1;
        }
        if of_itself {
            self.faults.push_back(now);
        }
        while self.faults.front().is_some_and(|first| now.duration_since(*first) > WINDOW) {
            self.faults.pop_front();
        }
        if self.unready >= MOST_UNREADY {
            return Some(format!("{} servers in a row ended before they served", self.unready));
        }
        let faults = self.faults.len();
        (faults >= MOST_FAULTS)
            .then(|| format!("{faults} servers ended by faults of their own within {} s", WINDOW.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_never_count_where_servers_begin_to_serve() {
        let (mut deaths, now) = (Deaths::default(), Instant::now());
        for _ in 0..1000 {
            deaths.ready();
            assert_eq!(deaths.note(true, false, now), None);
            assert!((1..MOST_UNREADY).all(|_| deaths.note(false, false, now).is_none()));
        }
        assert!(deaths.note(false, false, now).is_some_and(|why| why.contains("10 servers in a row")));
    }

    #[test]
    fn faults_count_for_a_minute() {
        let (mut deaths, begin) = (Deaths::default(), Instant::now());
        for second in 0..1000 {
            // One in four seconds.
            assert_eq!(deaths.note(true, true, begin + Duration::from_secs(4 * second)), None);
        }
        let now = begin + Duration::from_secs(4000);
        let said = (0..MOST_FAULTS).find_map(|_| deaths.note(true, true, now));
        assert!(said.is_some_and(|why| why.contains("faults of their own")));
    }
}
