//! The threads that work on a store by themselves: one that runs rounds when they are needed and commits now and then
//! while something is uncommitted; with `durability=window` one that commits before the oldest promise is as old as
//! the window.

use std::time::Duration;

use super::Checkpointer;
use crate::journal::Durability;
use crate::planted::{self, Spot};
use crate::store::{BrokenOff, Store, Woken};
use crate::sync::{Arc, thread};

/// A thread, which sleeps while it has nothing to do; it ends when this is dropped.
#[must_use = "dropping it ends the thread"]
pub struct Background {
    /// Has the thread end.
    end: Box<dyn Fn() + Send + Sync>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Background {
    /// Starts the thread for rounds and commits. `interval` is how long a record may stay uncommitted.
    pub fn checkpoints(checkpointer: Arc<Checkpointer>, interval: Duration) -> crate::Result<Background> {
        let store = Arc::clone(checkpointer.store());
        let run = move || run_rounds(&checkpointer, interval);
        Background::start("narufs-checkpoint", run, move || store.signal().stop())
    }

    /// Starts the thread that keeps promises. The store has its journal.
    pub fn streaming(store: Arc<Store>, window: Duration) -> crate::Result<Background> {
        let worker = Arc::clone(&store);
        Background::start(
            "narufs-stream",
            move || keep_promises(&worker, window),
            move || {
                store.journal().into_iter().for_each(|journal| journal.end_streaming());
            },
        )
    }

    pub(super) fn start(
        name: &'static str,
        run: impl FnOnce() + Send + 'static,
        end: impl Fn() + Send + Sync + 'static,
    ) -> crate::Result<Background> {
        let thread =
            thread::Builder::new().name(name.into()).spawn(run).map_err(|e| crate::Error::Device {
                context: "start a background thread",
                errno: e.raw_os_error().unwrap_or(libc::EAGAIN),
            })?;
        Ok(Background { end: Box::new(end), thread: Some(thread) })
    }
}

fn run_rounds(checkpointer: &Checkpointer, interval: Duration) {
    let store = checkpointer.store();
    let _broken_off = BrokenOff::watch(store, "the thread that runs checkpoints broke off");
    loop {
        let outcome = match store.signal().wait(interval) {
            Woken::Stop => return,
            Woken::Round => {
                planted::panic_at(Spot::RoundDue);
                checkpointer.checkpoint_in_background()
            }
            Woken::Commit => store.commit_upto(store.tail(), Durability::Power),
        };
        if let Err(e) = outcome
            // Else whoever needs what did not succeed is told, and has it tried again.
            && store.profile().keeps()
        {
            // The store is read-only by now and says why; nothing is left to do but to wait for the end.
            store.fail(format!("background work failed: {e}"));
        }
    }
}

fn keep_promises(store: &Store, window: Duration) {
    let Some(journal) = store.journal() else { return };
    let _broken_off =
        BrokenOff::watch(store, "the thread that keeps what fsyncs were answered for broke off");
    while journal.wait_due(window) {
        if let Err(e) = store.keep_promises() {
            // As above.
            store.fail(format!("what fsyncs were answered for could not be kept: {e}"));
        }
    }
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").finish_non_exhaustive()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        (self.end)();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}
