//! Ends the process when a round does not come to its end, and says what each thread was at.

use super::Call;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a round may take: thousands of times as long as it does.
const PATIENCE: Duration = Duration::from_secs(600);

/// Watches until it is dropped.
pub(super) struct Watchdog {
    watched: Arc<Watched>,
    /// Dropped first, which ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Watched {
    /// What each thread has not returned from.
    calls: Vec<Mutex<Option<Call>>>,
    rounds: AtomicU64,
}

impl Watchdog {
    /// Watches so many threads.
    pub fn new(threads: usize, seed: u64) -> Watchdog {
        let calls = (0..threads).map(|_| Mutex::new(None)).collect();
        let watched = Arc::new(Watched { calls, rounds: AtomicU64::new(0) });
        let (end, ended) = channel();
        let own = Arc::clone(&watched);
        let thread = std::thread::spawn(move || {
            let mut before = 0;
            while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // Relaxed: a number that only has to move.
                let now = own.rounds.load(Ordering::Relaxed);
                if now == before {
                    own.give_up(seed, now);
                }
                before = now;
            }
        });
        Watchdog { watched, end: Some(end), thread: Some(thread) }
    }

    /// A thread is in a call, or in none.
    pub fn is_at(&self, thread: usize, call: Option<Call>) {
        *self.watched.calls[thread].lock() = call;
    }

    /// A round is over.
    pub fn round(&self) {
        // Relaxed: as where it is read.
        self.watched.rounds.fetch_add(1, Ordering::Relaxed);
    }
}

impl Watched {
    fn give_up(&self, seed: u64, round: u64) -> ! {
        eprintln!("NARUFS_SEED={seed}: round {round} does not end");
        for (thread, call) in self.calls.iter().enumerate() {
            eprintln!("thread {thread} is at {:x?}", *call.lock());
        }
        std::process::abort();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say but by ending the process.
            let _ = thread.join();
        }
    }
}
