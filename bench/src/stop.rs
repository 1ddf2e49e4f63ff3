//! The end before time: Ctrl-C sets a flag that every loop looks at, so that what was made is removed.

use crate::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user wants the run to end. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that SIGINT, SIGTERM and SIGHUP set. A second signal ends the process at once.
    pub fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag unset and only sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop.0))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop.0)))
                .map_err(|e| Error::io("catch signals", "", e))?;
        }
        Ok(stop)
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
