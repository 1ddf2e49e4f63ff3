//! Work that several threads share, for as long as one call lasts.
//!
//! Threads of the standard library: models do not come here, and the threads end before the call does. Where the system
//! has no thread to give, fewer do the work: at the least the caller, so a call never fails for want of one.

use std::panic::resume_unwind;
use std::thread::{Builder, ScopedJoinHandle, scope};

/// Runs `work` in the calling thread and in up to `threads - 1` others, and returns when all have ended. Each is to
/// take what there is to do from a place that they share, until nothing is left.
pub(crate) fn share(threads: usize, work: impl Fn() + Sync) {
    scope(|all| {
        for _ in 1..threads {
            if Builder::new().spawn_scoped(all, &work).is_err() {
                break;
            }
        }
        work();
    });
}

/// What `part` makes of each number below `count`, in threads of their own, while the caller does something else.
pub(crate) fn beside<O: Send, R>(
    count: usize,
    part: impl Fn(usize) -> O + Sync,
    meanwhile: impl FnOnce() -> R,
) -> (Vec<O>, R) {
    let part = &part;
    scope(|all| {
        let start = |n| Builder::new().spawn_scoped(all, move || part(n)).map_err(|_| n);
        let started: Vec<Result<ScopedJoinHandle<'_, O>, usize>> = (0..count).map(start).collect();
        let done = meanwhile();
        let end = |one: Result<ScopedJoinHandle<'_, O>, usize>| match one {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(n) => part(n),
        };
        (started.into_iter().map(end).collect(), done)
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_is_done_once_whoever_does_it() {
        for threads in 0..5 {
            let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
            share(threads, || {
                // Relaxed: the end of the call orders the sum.
                while let n @ ..100 = next.fetch_add(1, Ordering::Relaxed) {
                    sum.fetch_add(n, Ordering::Relaxed);
                }
            });
            assert_eq!(sum.into_inner(), 4950);
            assert_eq!(beside(threads, |n| n * n, || 7), ((0..threads).map(|n| n * n).collect(), 7));
        }
    }
}
