//! The end before time: Ctrl-C sets a flag that every loop looks at, so that what was made is removed.

use crate::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Signals closer together are one request.
const AGAIN: Duration = Duration::from_millis(500);

/// Whether the user wants the run to end. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that SIGINT, SIGTERM and SIGHUP set. A later signal ends the process at once, without cleaning up.
    pub fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        let failed = |e| Error::io("catch signals", "", e);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
        let flag = stop.clone();
        let thread = std::thread::Builder::new().name("signals".into());
        let spawned = thread.spawn(move || {
            let mut first = None;
            for signal in signals.forever() {
                flag.set();
                // timeout(1) and terminals may send the same request to process and group: that is one request.
                if first.get_or_insert_with(Instant::now).elapsed() > AGAIN {
                    std::process::exit(128 + signal);
                }
            }
        });
        spawned.map(|_| stop).map_err(failed)
    }

    /// Ends the run.
    pub fn set(&self) {
        // Relaxed: the flag alone counts, nothing is handed over with it.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is to end.
    pub fn is_set(&self) -> bool {
        // Relaxed: see `set`.
        self.0.load(Ordering::Relaxed)
    }

    /// An error if it is to end.
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
