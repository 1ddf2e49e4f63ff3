//! What it takes until a thread that sleeps runs after another has woken it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

/// Nanoseconds from the wake-up of a sleeper until it runs: two threads wake each other in turn, so many times. Where they
/// have one core, a switch between them is in it.
pub fn measure(turns: u32) -> f64 {
    let turn = AtomicU32::new(0);
    let wait_for = |mine: u32| {
        // Acquire: pairs with the Release of who has woken this thread.
        while turn.load(Ordering::Acquire) != mine {
            thread::park();
        }
    };
    let pass = |next: u32, other: &thread::Thread| {
        turn.store(next, Ordering::Release);
        other.unpark();
    };
    let (begun, first) = (Instant::now(), thread::current());
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            for n in 0..turns {
                wait_for(2 * n + 1);
                pass(2 * n + 2, &first);
            }
        });
        for n in 0..turns {
            pass(2 * n + 1, second.thread());
            wait_for(2 * n + 2);
        }
    });
    begun.elapsed().as_nanos() as f64 / f64::from(2 * turns.max(1))
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_is_woken_as_often_as_the_other() {
        assert!(super::measure(100) > 0.0);
        assert!(super::measure(0) >= 0.0);
    }
}
