//! The background thread: rounds when they are needed, a commit now and then while something is uncommitted.

use std::time::Duration;

use super::signal::Woken;
use crate::journal::Wanted;
use crate::store::Store;
use crate::sync::{Arc, thread};

/// The thread; it ends when this is dropped.
#[must_use = "dropping it ends the thread"]
pub struct Background {
    store: Arc<Store>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Background {
    /// Starts the thread. `interval` is how long a record may stay uncommitted.
    pub fn start(store: Arc<Store>, interval: Duration) -> crate::Result<Background> {
        let worker = Arc::clone(&store);
        let thread = thread::Builder::new()
            .name("narufs-checkpoint".into())
            .spawn(move || run(&worker, interval))
            .map_err(|e| crate::Error::Device {
                context: "start the checkpoint thread",
                errno: e.raw_os_error().unwrap_or(libc::EAGAIN),
            })?;
        Ok(Background { store, thread: Some(thread) })
    }
}

fn run(store: &Store, interval: Duration) {
    loop {
        let outcome = match store.signal().wait(interval) {
            Woken::Stop => return,
            Woken::Round => store.checkpoint(),
            Woken::Commit => store.commit_upto(store.tail(), Wanted::Power),
        };
        if let Err(e) = outcome {
            // The store is read-only by now and says why; nothing is left to do but to wait for the end.
            store.fail(format!("background work failed: {e}"));
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.store.signal().stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}
