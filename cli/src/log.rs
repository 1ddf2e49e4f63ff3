//! Where log lines go: to standard error, or, where that is the journal of systemd, there with their fields, so that
//! `journalctl NID=7` finds what was said of an inode.
//!
//! A line is said [`MOST`] times within a minute at the most, by the place in the program that says it; the next one after
//! that says how many were left out. What `NARUFS_LOG` asks for beyond information is not held back.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Lines of one place in the program within [`WINDOW`].
const MOST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Begins to log.
pub fn start() {
    let filter = EnvFilter::try_from_env("NARUFS_LOG").unwrap_or_else(|_| "warn".into());
    let all = tracing_subscriber::registry().with(filter);
    if is_journal()
        && let Ok(journal) = tracing_journald::layer()
    {
        // As other programs name their fields.
        let journal = journal.with_field_prefix(None).with_syslog_identifier("narufs".to_owned());
        return all.with(Limited::new(journal)).init();
    }
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    all.with(Limited::new(lines.with_target(false).without_time())).init();
}

/// Whether standard error is the journal of systemd.
pub fn is_journal() -> bool {
    let said = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let numbers = said.split_once(':').map(|(device, inode)| (device.parse().ok(), inode.parse().ok()));
    let Some((Some(device), Some(inode))) = numbers else { return false };
    let is = std::fs::metadata("/proc/self/fd/2");
    is.is_ok_and(|is| (is.dev(), is.ino()) == (device, inode))
}

/// What a place in the program has said.
struct Said {
    since: Instant,
    count: u32,
    left_out: u64,
}

/// How often each place has said something lately.
struct Places<K>(Mutex<HashMap<K, Said>>);

impl<K: std::hash::Hash + Eq> Places<K> {
    /// Whether this place may say something at this time, and how many lines of it were left out before.
    fn may(&self, place: K, now: Instant) -> Option<u64> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = places.entry(place).or_insert(Said { since: now, count: 0, left_out: 0 });
        if now.duration_since(said.since) >= WINDOW {
            (said.since, said.count) = (now, 0);
        }
        if said.count == MOST {
            said.left_out += 1;
            return None;
        }
        said.count += 1;
        Some(std::mem::take(&mut said.left_out))
    }
}

/// Passes events on, not too often. No spans: nothing here makes any.
struct Limited<L> {
    inner: L,
    places: Places<Identifier>,
}

impl<L> Limited<L> {
    fn new(inner: L) -> Limited<L> {
        Limited { inner, places: Places(Mutex::default()) }
    }
}

impl<S: Subscriber, L: Layer<S>> Layer<S> for Limited<L> {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() <= Level::INFO {
            match self.places.may(metadata.callsite(), Instant::now()) {
                None => return,
                Some(0) => {}
                Some(left_out) => tracing::warn!(left_out, "lines like the next were left out"),
            }
        }
        self.inner.on_event(event, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Lines as they are passed on.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            struct Words(String);
            impl tracing::field::Visit for Words {
                fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                    self.0 += &format!("{}={value:?} ", field.name());
                }
            }
            let mut words = Words(String::new());
            event.record(&mut words);
            self.0.lock().expect("nobody panics").push(words.0);
        }
    }

    #[test]
    fn a_line_is_not_said_without_end_and_others_are_said_beside_it() {
        let kept = Kept::default();
        let all = tracing_subscriber::registry().with(Limited::new(kept.clone()));
        tracing::subscriber::with_default(all, || {
            for nid in 0..1000 {
                tracing::warn!(nid, "again and again");
            }
            tracing::error!("another");
            (0..100).for_each(|_| tracing::debug!("asked for"));
        });
        let kept = kept.0.lock().expect("nobody panics");
        let count = |what: &str| kept.iter().filter(|line| line.contains(what)).count();
        assert_eq!(count("again and again"), MOST as usize);
        assert_eq!((count("another"), count("asked for")), (1, 100));
    }

    #[test]
    fn what_was_left_out_is_said_when_time_has_passed() {
        let (places, now) = (Places(Mutex::default()), Instant::now());
        let said = (0..25).filter(|_| places.may("here", now).is_some()).count();
        assert_eq!(said, MOST as usize);
        assert_eq!(places.may("there", now), Some(0));
        assert_eq!(places.may("here", now + WINDOW), Some(15));
        assert_eq!(places.may("here", now + WINDOW), Some(0));
    }
}
