//! Calls in which the kernel waits for a device, made by threads to which no place belongs.
//!
//! The kernel delivers a request in the thread that committed its place last, when that thread runs or sleeps where it can
//! be interrupted. In fdatasync, or in pread and pwrite of a device, it cannot: what arrives for a place of its own waits
//! for the device then, and the kernel takes that thread's places first. So a thread that owns places has such a call made
//! by a *diver* (`narufs_engine::blocking::deeply`), and sleeps on a condition variable meanwhile.
//!
//! # Protocol
//! 1. Under the mutex a caller counts: if more divers are idle than calls wait, it leaves its call in the queue and wakes
//!    one; else it starts a diver with it. Where there is none to be had it makes the call itself.
//! 2. A diver makes the call, and tells the caller of its end last of all; then it takes the next call that waits. It sleeps
//!    when there is none, or ends if [`MOST_IDLE`] sleep already.
//! 3. A caller returns, and lets go of what the call borrows, when its end was told: a call that panics has ended too, and
//!    its panic goes on in the caller.
//! 4. [`Divers::end`] is called when nobody calls any more: all divers sleep, or are about to, and end.
//!
//! Invariants: there are at least as many idle divers as calls wait, so that no call waits for another's device; a diver
//! runs on the core of the caller that started it.

#![allow(unsafe_code, reason = "a leaf module: calls that borrow from the thread that waits for them")]

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, Builder};

/// Divers that are kept asleep.
const MOST_IDLE: usize = 2;
/// Stack of a diver, in bytes.
const STACK: usize = 256 << 10;

/// A call, for as long as its caller waits.
type Call<'a> = &'a mut (dyn FnMut() + Send);

/// The threads that make calls for one lane.
#[derive(Default)]
pub(super) struct Divers {
    state: Mutex<State>,
    /// A call waits, or all is over.
    work: Condvar,
    /// The last diver has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Divers that sleep, or have been woken and have not run yet.
    idle: usize,
    threads: usize,
    over: bool,
}

struct Job {
    call: Call<'static>,
    end: Arc<End>,
}

/// Where the end of a call is told, and how it ended.
#[derive(Default)]
struct End {
    told: Mutex<Option<thread::Result<()>>>,
    now: Condvar,
}

impl Divers {
    /// Makes a call in another thread, and waits for its end where signals reach this one.
    pub fn make(self: &Arc<Self>, call: Call<'_>) {
        let end = Arc::<End>::default();
        let job = |call: Call<'_>| {
            // SAFETY: but for its lifetime it is the same type. What it borrows lives until this function returns, which
            // is when `end` has been told, behind the call's end: a job that is given away is made by a diver, whatever
            // else happens, and nothing here panics in between. A job that no diver was started for has been dropped.
            // Guarded by `a_call_has_ended_when_it_returns` and the others below.
            let call = unsafe { transmute::<Call<'_>, Call<'static>>(call) };
            Job { call, end: Arc::clone(&end) }
        };
        let mut state = self.state.lock();
        if state.idle > state.waiting.len() {
            state.waiting.push_back(job(call));
            drop(state);
            self.work.notify_one();
        } else {
            state.threads += 1;
            drop(state);
            if let Err(e) = self.start(job(&mut *call)) {
                tracing::debug!("a thread that owns places waits for the device itself: {e}");
                self.left();
                return call();
            }
        }
        if let Err(panic) = end.wait() {
            resume_unwind(panic);
        }
    }

    fn start(self: &Arc<Self>, first: Job) -> io::Result<()> {
        let divers = Arc::clone(self);
        Builder::new().name("naru-fuse-deep".to_owned()).stack_size(STACK).spawn(move || {
            let mut next = Some(first);
            while let Some(Job { call, end }) = next {
                end.tell(catch_unwind(AssertUnwindSafe(call)));
                next = divers.next();
            }
            divers.left();
        })?;
        Ok(())
    }

    /// The next call; `None`: the diver is to end.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        let may_stay = state.idle < MOST_IDLE;
        state.idle += 1;
        while may_stay && !state.over && state.waiting.is_empty() {
            self.work.wait(&mut state);
        }
        state.idle -= 1;
        state.waiting.pop_front()
    }

    fn left(&self) {
        let mut state = self.state.lock();
        state.threads -= 1;
        if state.threads == 0 {
            self.ended.notify_all();
        }
    }

    /// Has all divers end, and waits for them.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.over = true;
        self.work.notify_all();
        while state.threads > 0 {
            self.ended.wait(&mut state);
        }
    }
}

impl End {
    fn tell(&self, how: thread::Result<()>) {
        *self.told.lock() = Some(how);
        self.now.notify_one();
    }

    fn wait(&self) -> thread::Result<()> {
        let mut told = self.told.lock();
        loop {
            match told.take() {
                Some(how) => return how,
                None => self.now.wait(&mut told),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    #[test]
    fn a_call_has_ended_when_it_returns() {
        let divers = Arc::<Divers>::default();
        let here = thread::current().id();
        for round in 0..100u64 {
            let (mut there, mut sum) = (here, 0);
            divers.make(&mut || {
                there = thread::current().id();
                sum += round;
            });
            assert!(there != here && sum == round);
        }
        divers.end();
        assert_eq!(divers.state.lock().threads, 0);
    }

    #[test]
    fn no_call_waits_for_another() {
        const CALLS: usize = 9;
        let (divers, all) = (Arc::<Divers>::default(), Barrier::new(CALLS));
        for _ in 0..50 {
            thread::scope(|scope| {
                for _ in 0..CALLS {
                    scope.spawn(|| {
                        divers.make(&mut || {
                            all.wait();
                        });
                    });
                }
            });
        }
        divers.end();
        assert_eq!(divers.state.lock().idle, 0);
    }

    #[test]
    fn a_call_that_panics_does_so_in_its_caller_and_ends_no_diver() {
        let divers = Arc::<Divers>::default();
        let panic = catch_unwind(AssertUnwindSafe(|| divers.make(&mut || panic!("the call")))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"the call"));
        let (tell, told) = channel();
        divers.make(&mut || tell.send(5).expect("the test listens"));
        assert_eq!(told.recv(), Ok(5));
        divers.end();
    }
}
