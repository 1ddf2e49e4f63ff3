//! The threads of one core.
//!
//! Exactly one thread of a lane is its *reader*: it waits for a request and serves it itself, so a request that
//! does not sleep never changes threads or cores. All threads of a lane are pinned to its core.
//!
//! **Handover.** An operation that is about to sleep calls [`narufs_engine::blocking::about_to_block`] first. The hook
//! that the lane sets there gives the reader's role to a spare thread of the same lane (started when there is
//! none); the sleeping thread later finishes its request, replies, and becomes a spare, or takes the role back
//! if it is free. The alternative, restarting the request on a worker once it would sleep, does work twice and
//! asks every operation to be restartable; handover asks nothing of the operations. A port over io_uring hands
//! its ring over in the same way: the role is the ring's ownership.
//!
//! Invariants: at most one thread holds the role; if it is free, then a thread that will look for it is either
//! being woken or started, or serves a request; an idle lane has one thread waiting in the port and at most
//! [`IDLE_SPARES`] asleep beside those that the port keeps, and uses no CPU.

use super::awake::{Awake, Pace};
use super::beside;
use super::focus::{Focus, Seen, Turn};
use super::{Channel, Port, Reply, Service};
use narufs_engine::blocking;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::thread::CpuSet;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Spares that are kept asleep; further ones end, where the port lets them.
pub const IDLE_SPARES: usize = 3;

/// Threads of one lane at most. If all of them sleep in operations the lane waits for the first to finish.
const MOST_THREADS: usize = 512;

/// Stack of a lane's thread, in bytes.
const STACK: usize = 1 << 20;

/// How a lane is run.
#[derive(Clone, Default)]
pub struct LaneConfig {
    /// The core that its threads are pinned to.
    pub core: Option<usize>,
    /// Called by each of its threads when it starts (to give up capabilities, for example).
    pub on_thread_start: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Where lanes share a queue: what decides which of them read, and this lane's number there.
    pub focus: Option<(Arc<Focus>, usize)>,
    /// What keeps idle cores from halting.
    pub awake: Option<Arc<Awake>>,
    /// Dropped by the last of its threads, before [`Lane::wait`] returns.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

/// One core's threads, running until the port says that the mount is gone.
pub struct Lane<P: Port> {
    shared: Arc<Shared<P>>,
}

struct Shared<P: Port> {
    config: LaneConfig,
    port: Arc<P>,
    service: Arc<dyn Service>,
    state: Mutex<State>,
    /// Threads that have given the role away and have not finished their request. Relaxed is enough: it says how much memory
    /// is to be saved, and nothing more.
    asleep: AtomicUsize,
    /// The role is free, or all is over.
    wake: Condvar,
    /// The last thread has ended.
    ended: Condvar,
}

struct State {
    role_free: bool,
    over: bool,
    idle: usize,
    threads: usize,
    held: Option<Arc<dyn Any + Send + Sync>>,
}

impl<P: Port + Send + Sync> Lane<P> {
    /// Starts the lane with one thread.
    pub fn start(port: Arc<P>, service: Arc<dyn Service>, mut config: LaneConfig) -> std::io::Result<Self> {
        let held = config.held.take();
        let state = Mutex::new(State { role_free: true, over: false, idle: 0, threads: 1, held });
        let (asleep, wake, ended) = (AtomicUsize::new(0), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { config, port, service, state, asleep, wake, ended });
        Shared::spawn(&shared)?;
        Ok(Lane { shared })
    }

    /// Waits until the mount is gone and every request in flight has been finished.
    pub fn wait(&self) {
        let mut state = self.shared.state.lock();
        while state.threads > 0 {
            self.shared.ended.wait(&mut state);
        }
    }

    /// Whether the port has said that the mount is gone.
    pub fn is_over(&self) -> bool {
        self.shared.state.lock().over
    }

    /// Threads that the lane has now.
    pub fn threads(&self) -> usize {
        self.shared.state.lock().threads
    }
}

impl<P: Port + Send + Sync> Shared<P> {
    /// Starts a thread that `state.threads` counts already.
    fn spawn(shared: &Arc<Self>) -> std::io::Result<()> {
        let name = match shared.config.core {
            Some(core) => format!("naru-fuse-{core}"),
            None => "naru-fuse".to_owned(),
        };
        let mine = Counted(Arc::clone(shared));
        std::thread::Builder::new().name(name).stack_size(STACK).spawn(move || Shared::run(&mine.0))?;
        Ok(())
    }

    fn run(shared: &Arc<Self>) {
        if let Some(core) = shared.config.core {
            let mut cores = CpuSet::new();
            cores.set(core);
            if let Err(e) = rustix::thread::sched_setaffinity(None, &cores) {
                tracing::debug!(core, "not pinned: {e}");
            }
        }
        if let Some(init) = &shared.config.on_thread_start {
            init();
        }
        let holds_role = Rc::new(Cell::new(false));
        let hook = {
            let (shared, holds_role) = (Arc::clone(shared), Rc::clone(&holds_role));
            move || {
                if holds_role.replace(false) {
                    Shared::hand_over(&shared);
                }
            }
        };
        blocking::set_hook(Some(Box::new(hook)));
        let channel: Arc<dyn Channel> = shared.port.clone();
        let mut slot = shared.port.slot();
        blocking::set_deep(shared.port.deep(&slot));
        let mut notes = Notes::default();
        while shared.take_role(&slot) {
            holds_role.set(true);
            while holds_role.get() {
                match shared.receive(&mut slot, &mut notes) {
                    Ok(true) => shared.serve(&channel, &mut slot, &mut notes),
                    Ok(false) => return shared.end(),
                    Err(e) => {
                        tracing::error!("no more requests can be received: {e}");
                        return shared.end();
                    }
                }
            }
            shared.port.rest(&mut slot);
            shared.asleep.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits for the next request when it is this lane's turn.
    fn receive(&self, slot: &mut P::Slot, notes: &mut Notes) -> std::io::Result<bool> {
        notes.aside = 0;
        if let Some((focus, lane)) = &self.config.focus
            && focus.rest(*lane) == Turn::Watch
            && self.port.can_look()
        {
            let watched = beside::watch(&*self.port, slot)?;
            notes.aside = watched.aside;
            if let Some(received) = watched.received {
                return Ok(received);
            }
        }
        self.port.receive(slot)
    }

    fn serve(&self, channel: &Arc<dyn Channel>, slot: &mut P::Slot, notes: &mut Notes) {
        self.port.settle(slot, self.asleep.load(Ordering::Relaxed));
        let (request, buffer) = self.port.open(slot);
        let Some((request, header)) = request.and_then(|r| Some((r, r.header()?))) else {
            tracing::error!("a request is shorter than it says; it is dropped");
            return;
        };
        if let Some(awake) = &self.config.awake {
            awake.note(&mut notes.pace);
        }
        if let Some((focus, _)) = &self.config.focus {
            focus.note(&mut notes.seen, &header, &request, notes.aside);
        }
        let reply = Reply::new(header.unique, Arc::clone(channel), buffer).timed(&header);
        // One request's panic must not take the mount away from everybody; the reply answers EIO when it drops.
        if catch_unwind(AssertUnwindSafe(|| self.service.serve(request, reply))).is_err() {
            tracing::error!(
                opcode = header.opcode,
                "an operation panicked and was answered with EIO: report it"
            );
        }
    }

    /// Waits for the role as a spare. False: the thread is to end.
    fn take_role(&self, slot: &P::Slot) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.over {
                return false;
            }
            if state.role_free {
                state.role_free = false;
                return true;
            }
            if state.idle >= IDLE_SPARES && !self.port.keeps(slot) {
                return false;
            }
            state.idle += 1;
            self.wake.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Gives the role away, since this thread is about to sleep.
    fn hand_over(shared: &Arc<Self>) {
        shared.asleep.fetch_add(1, Ordering::Relaxed);
        let mut state = shared.state.lock();
        state.role_free = true;
        // A spare that was woken but has not run yet still counts as idle; it will see that the role is free.
        if state.idle > 0 {
            shared.wake.notify_one();
        } else if state.threads < MOST_THREADS && !state.over {
            state.threads += 1;
            drop(state);
            // If it fails, the count is already taken back; the next thread to finish takes the role.
            if let Err(e) = Shared::spawn(shared) {
                tracing::warn!("no thread to take over while an operation waits: {e}");
                shared.release_focus();
            }
        } else {
            drop(state);
            shared.release_focus();
        }
    }

    /// This lane cannot go on reading.
    fn release_focus(&self) {
        if let Some((focus, _)) = &self.config.focus {
            focus.release();
        }
    }

    fn end(&self) {
        self.state.lock().over = true;
        self.wake.notify_all();
        if let Some((focus, _)) = &self.config.focus {
            focus.end();
        }
        if let Some(awake) = &self.config.awake {
            awake.end();
        }
    }
}

/// What a thread has seen of the requests that it serves.
#[derive(Default)]
struct Notes {
    seen: Seen,
    pace: Pace,
    /// How often it was set aside while it watched for the last one.
    aside: u32,
}

/// One of `State::threads`, whichever way its thread ends.
struct Counted<P: Port>(Arc<Shared<P>>);

impl<P: Port> Drop for Counted<P> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        // The last starts no other any more.
        if state.threads == 1 {
            // What is waited for now is waited for here: nothing arrives any more.
            blocking::set_deep(None);
            let held = state.held.take();
            MutexGuard::unlocked(&mut state, || {
                self.0.port.end();
                drop(held);
            });
        }
        state.threads -= 1;
        if state.threads == 0 {
            self.0.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
