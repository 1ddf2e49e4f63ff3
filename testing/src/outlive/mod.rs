//! Programs at work on a mount whose servers are killed under them: none sees an error, and each comes to the right result.
//!
//! [`campaign`] mounts, starts the loads, kills servers and says what was hit; [`loads`] and [`held`] are loads of its own,
//! [`programs`] are others' programs; [`leaks`] looks for what a thousand restarts leave; [`pause`] measures what a client
//! waits. [`mounted`] has the mount and the kills, [`settings`] what is asked for on the command line.
//!
//! What this leaves to others: what a mount promises (docs/CONSISTENCY.md), and who takes away a run that hangs.
//!
//! Invariants: only servers of the run's own mounts are killed, by their numbers; what is mounted and started goes with the
//! run, however it ends.

pub mod campaign;
pub mod held;
pub mod leaks;
pub mod loads;
pub mod mounted;
pub mod pause;
pub mod programs;
pub mod settings;
pub mod sit;
pub mod sys;

use rand::rngs::StdRng;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// What went wrong, in words.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Ends with an error in words unless a condition holds.
#[macro_export]
macro_rules! demand {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+).into());
        }
    };
}

/// What a load works with.
#[derive(Debug)]
pub struct Work<'w> {
    /// Its own directory on the mount.
    pub dir: PathBuf,
    /// Its own directory elsewhere.
    pub aside: PathBuf,
    /// Where its choices come from.
    pub random: StdRng,
    /// How often it was done.
    pub rounds: u64,
    /// The kills so far.
    pub kills: &'w Kills,
}

/// How many servers were killed, for those who wait for the next kill.
#[derive(Debug, Default)]
pub struct Kills {
    count: Mutex<u64>,
    changed: Condvar,
    over: AtomicBool,
    /// Rounds of all loads.
    pub rounds: AtomicU64,
}

impl Kills {
    /// One more.
    pub fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// How many.
    pub fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There will be no more: loads end with the round that they are in.
    pub fn end(&self) {
        // Under the lock, or one who is about to wait would not hear of it.
        let _count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        self.over.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Whether there will be no more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Waits for a kill after the first so many, or for the end; how many there are.
    pub fn wait_beyond(&self, seen: u64) -> u64 {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count <= seen && !self.is_over() {
            count = self.changed.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        *count
    }
}
