//! What waits for the device in the place of those who do not want to: one thread for all of a file system, begun when
//! it is first needed.
//!
//! Invariants: what it is given holds nothing of the file system that would keep it from being closed, but until it has
//! been run; the thread ends, and has run everything, before the file system is closed, unless one that it tells has the
//! last handle: then it closes the file system itself, and what is behind finds everything durable.

use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

/// What is to be waited for.
pub(crate) type Wait = Box<dyn FnOnce() + Send>;

/// The thread.
#[derive(Debug)]
pub(crate) struct Waiting {
    calls: Option<Sender<Wait>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Begins the thread; without one, every call is waited for by its caller.
    pub(crate) fn begin() -> Waiting {
        let (calls, waits) = mpsc::channel::<Wait>();
        // A panic is one wait's, and those behind it are still to be waited for.
        let one = |wait: Wait| std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait));
        let run = move || {
            if waits.into_iter().map(one).filter(Result::is_err).count() > 0 {
                tracing::error!("a commit that was waited for has panicked");
            }
        };
        let thread = std::thread::Builder::new().name("narufs-waiting".into()).spawn(run).ok();
        Waiting { calls: thread.is_some().then_some(calls), thread }
    }

    /// Has it waited for. The first of many commits covers those behind it: their turn finds that done.
    pub(crate) fn add(&self, wait: Wait) {
        let unsent = match &self.calls {
            Some(calls) => calls.send(wait).err().map(|unsent| unsent.0),
            None => Some(wait),
        };
        if let Some(wait) = unsent {
            wait();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.calls = None;
        // Who is told may have the last handle of the file system; this thread then goes on to its end by itself.
        let is_this = |thread: &JoinHandle<()>| thread.thread().id() == std::thread::current().id();
        if let Some(thread) = self.thread.take()
            && !is_this(&thread)
            && thread.join().is_err()
        {
            tracing::error!("the thread that waits for commits has panicked");
        }
    }
}
