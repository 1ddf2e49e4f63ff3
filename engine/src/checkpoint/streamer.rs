//! The streaming thread of `durability=window`: commits before the oldest promise is as old as the window.

use std::time::Duration;

use crate::store::Store;
use crate::sync::{Arc, thread};

/// The thread; it ends when this is dropped. It sleeps while nothing is promised.
#[must_use = "dropping it ends the thread"]
pub struct Streamer {
    store: Arc<Store>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Streamer {
    /// Starts the thread. The store has its journal.
    pub fn start(store: Arc<Store>, window: Duration) -> crate::Result<Streamer> {
        let worker = Arc::clone(&store);
        let thread = thread::Builder::new()
            .name("narufs-stream".into())
            .spawn(move || run(&worker, window))
            .map_err(|e| crate::Error::Device {
                context: "start the streaming thread",
                errno: e.raw_os_error().unwrap_or(libc::EAGAIN),
            })?;
        Ok(Streamer { store, thread: Some(thread) })
    }
}

fn run(store: &Store, window: Duration) {
    let Some(journal) = store.journal() else { return };
    while journal.wait_due(window) {
        if let Err(e) = store.keep_promises() {
            // The store is read-only by now; nothing is left to do but to wait for the end.
            store.fail(format!("what fsyncs were answered for could not be kept: {e}"));
        }
    }
}

impl std::fmt::Debug for Streamer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streamer").finish_non_exhaustive()
    }
}

impl Drop for Streamer {
    fn drop(&mut self) {
        if let Some(journal) = self.store.journal() {
            journal.end_streaming();
        }
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}
