//! Group flush: one flush of the device serves all that wait for it.
//!
//! The rules, which every device shares:
//! 1. A flush covers the writes that had completed when it *began*; a write that completes while it runs
//!    needs the next one.
//! 2. A thread that finds no flush under way runs one; the others sleep until it is over and look again.
//! 3. A failed flush covers nothing, and no later flush may cover it up: the kernel reports a lost write
//!    once and then forgets it. So the failure stays: every call that waits for a write not yet covered
//!    fails from then on. What earlier flushes covered stays covered.
//! 4. Opening a device counts as one completed write: what an earlier process wrote may still lie in a
//!    volatile cache, so the first flush after opening is never skipped.

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::{Error, Result, blocking};

/// Counts of completed and of flushed writes, and whether a flush runs between them.
#[derive(Debug)]
pub(crate) struct GroupFlush {
    completed: CachePadded<AtomicU64>,
    flushed: CachePadded<AtomicU64>,
    state: Mutex<State>,
    over: Condvar,
    tell: Mutex<Option<Tell>>,
}

/// Called when a flush fails.
struct Tell(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Tell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tell")
    }
}

#[derive(Debug)]
struct State {
    running: bool,
    failed: Option<Error>,
    flushes: u64,
}

impl Default for GroupFlush {
    fn default() -> Self {
        Self {
            completed: CachePadded::new(AtomicU64::new(1)),
            flushed: CachePadded::new(AtomicU64::new(0)),
            state: Mutex::new(State { running: false, failed: None, flushes: 0 }),
            over: Condvar::new(),
            tell: Mutex::new(None),
        }
    }
}

impl GroupFlush {
    /// Counts one completed write. Called after the device has completed it and before its waiter learns.
    pub fn write_completed(&self) {
        // Release: pairs with the Acquire in `flush_upto`, so that a flush which counts this write begins
        // after its completion.
        self.completed.fetch_add(1, Ordering::Release);
    }

    /// A write that was to reach media by itself has failed: as a flush that has, it may have used up the one report of what
    /// was lost before it.
    pub fn write_through_failed(&self, error: Error) {
        self.tell();
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
    }

    /// Has this called before anybody learns of a flush that has failed.
    pub fn when_it_fails(&self, tell: Box<dyn Fn() + Send + Sync>) {
        *self.tell.lock() = Some(Tell(tell));
    }

    fn tell(&self) {
        if let Some(Tell(tell)) = &*self.tell.lock() {
            tell();
        }
    }

    /// Why nothing that is written counts as durable any more, if a flush has failed.
    pub fn check(&self) -> Result<()> {
        self.state.lock().failed.clone().map_or(Ok(()), Err)
    }

    /// Writes that have been completed.
    pub fn completed(&self) -> u64 {
        // Acquire: pairs with the Release in `write_completed`; what is counted has completed.
        self.completed.load(Ordering::Acquire)
    }

    /// Of these, those that a flush has covered.
    pub fn flushed(&self) -> u64 {
        // Acquire: pairs with the Release in `flush_upto`; what is counted is on media.
        self.flushed.load(Ordering::Acquire)
    }

    /// Flushes of the device so far, failed ones included.
    pub fn flushes(&self) -> u64 {
        self.state.lock().flushes
    }

    /// Returns once `upto` completed writes are covered; `device_flush` is run by at most one caller at a
    /// time, with no lock held.
    pub fn flush_upto(&self, upto: u64, device_flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let upto = upto.min(self.completed());
        if self.flushed() >= upto {
            return Ok(());
        }
        blocking::about_to_block();
        let mut state = self.state.lock();
        while state.running && self.flushed() < upto {
            self.over.wait(&mut state);
        }
        if self.flushed() >= upto {
            return Ok(());
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.running = true;
        state.flushes += 1;
        drop(state);

        let outcome = Err(Error::Device { context: "flush", errno: libc::EIO });
        let turn = Turn { group: self, outcome, is_over: false };
        let covers = self.completed();
        turn.end(covers, device_flush())
    }
}

/// The right to flush; a panic inside the flush counts as its failure, so that nobody waits for ever.
struct Turn<'a> {
    group: &'a GroupFlush,
    outcome: Result<u64>,
    is_over: bool,
}

impl Turn<'_> {
    fn end(mut self, covers: u64, result: Result<()>) -> Result<()> {
        self.outcome = result.map(|()| covers);
        self.close().map(drop)
    }

    /// What came of it: what was lost before this may have been told to somebody else while it ran.
    fn close(&mut self) -> Result<u64> {
        if self.outcome.is_err() {
            self.group.tell();
        }
        let mut state = self.group.state.lock();
        let told = state.failed.clone().map_or(Ok(()), Err);
        let outcome = told.and_then(|()| self.outcome.clone());
        match &outcome {
            // Release: pairs with the Acquire in `flushed`. Only the one flush under way stores here, and it
            // began after the one before it had ended, so the count never falls.
            Ok(covers) => self.group.flushed.store(*covers, Ordering::Release),
            Err(error) => state.failed = Some(error.clone()),
        }
        self.is_over = true;
        state.running = false;
        drop(state);
        self.group.over.notify_all();
        outcome
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // It is the failure that whoever looks next is told of.
            let _ = self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_first_flush_after_opening_is_real() {
        let group = GroupFlush::default();
        let mut ran = 0;
        group
            .flush_upto(group.completed(), || {
                ran += 1;
                Ok(())
            })
            .expect("flush");
        group
            .flush_upto(group.completed(), || {
                ran += 1;
                Ok(())
            })
            .expect("flush");
        assert_eq!(ran, 1);
    }

    #[test]
    fn a_write_that_completes_during_a_flush_needs_another() {
        let group = GroupFlush::default();
        group.write_completed();
        let before = group.completed();
        group
            .flush_upto(before, || {
                group.write_completed();
                Ok(())
            })
            .expect("flush");
        assert_eq!(group.flushed(), before);
        let mut ran = false;
        group
            .flush_upto(group.completed(), || {
                ran = true;
                Ok(())
            })
            .expect("flush");
        assert!(ran);
        assert_eq!(group.flushed(), group.completed());
    }

    #[test]
    fn a_failure_is_told_before_anybody_learns_of_it() {
        let (group, told) = (GroupFlush::default(), crate::sync::Arc::new(AtomicU64::new(0)));
        let count = crate::sync::Arc::clone(&told);
        group.when_it_fails(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let eio = Error::Device { context: "flush", errno: libc::EIO };
        group.flush_upto(1, || Ok(())).expect("flush");
        assert_eq!(told.load(Ordering::Relaxed), 0);
        group.write_completed();
        assert!(group.flush_upto(2, || Err(eio.clone())).is_err());
        assert_eq!(told.load(Ordering::Relaxed), 1);
        group.write_through_failed(eio);
        assert_eq!(told.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_failed_flush_stays_failed() {
        let group = GroupFlush::default();
        group.flush_upto(1, || Ok(())).expect("flush");
        group.write_completed();
        let eio = Error::Device { context: "flush", errno: libc::EIO };
        assert_eq!(group.flush_upto(2, || Err(eio.clone())), Err(eio.clone()));
        assert_eq!(group.flush_upto(2, || Ok(())), Err(eio));
        assert_eq!(group.flush_upto(1, || Ok(())), Ok(()), "what was covered stays covered");
    }

    #[test]
    fn a_write_through_that_fails_is_a_flush_that_fails() {
        let group = GroupFlush::default();
        group.flush_upto(1, || Ok(())).expect("flush");
        group.write_completed();
        let eio = Error::Device { context: "write", errno: libc::EIO };
        group.write_through_failed(eio.clone());
        assert_eq!(group.flush_upto(2, || Ok(())), Err(eio.clone()));
        assert_eq!((group.check(), group.flush_upto(1, || Ok(()))), (Err(eio), Ok(())));
    }

    #[test]
    fn a_flush_does_not_end_well_where_a_write_through_has_failed_beside_it() {
        let group = GroupFlush::default();
        group.flush_upto(1, || Ok(())).expect("flush");
        group.write_completed();
        let eio = Error::Device { context: "write", errno: libc::EIO };
        let flushed = group.flush_upto(2, || {
            group.write_through_failed(eio.clone());
            Ok(())
        });
        assert_eq!((flushed, group.flushed()), (Err(eio), 1));
    }

    #[test]
    fn one_flush_serves_all_who_wait() {
        let group = GroupFlush::default();
        let (began, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                group.flush_upto(1, move || {
                    began.send(()).expect("the test listens");
                    released.recv().expect("the test releases");
                    Ok(())
                })
            });
            begun.recv().expect("the flush begins");
            let others: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| group.flush_upto(1, || panic!("the flush under way serves"))))
                .collect();
            release.send(()).expect("the flush listens");
            for waiter in others.into_iter().chain([first]) {
                waiter.join().expect("no panic").expect("flush");
            }
        });
        assert_eq!(group.flushes(), 1);
    }

    #[test]
    fn a_failed_flush_fails_all_it_would_have_served() {
        let group = GroupFlush::default();
        let (began, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let eio = Error::Device { context: "flush", errno: libc::EIO };
        std::thread::scope(|scope| {
            let error = eio.clone();
            let first = scope.spawn(|| {
                group.flush_upto(1, move || {
                    began.send(()).expect("the test listens");
                    released.recv().expect("the test releases");
                    Err(error)
                })
            });
            begun.recv().expect("the flush begins");
            let others: Vec<_> = (0..4).map(|_| scope.spawn(|| group.flush_upto(1, || Ok(())))).collect();
            release.send(()).expect("the flush listens");
            for waiter in others.into_iter().chain([first]) {
                assert_eq!(waiter.join().expect("no panic"), Err(eio.clone()));
            }
        });
    }
}
