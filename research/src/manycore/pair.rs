//! What a second thread that shares nothing brings on this machine: where cores are not whole ones (two threads of a core,
//! a host's other guests), less than twice as much, and a technique is not to blame for that.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAGE: usize = 4096;
/// Pages of a thread's own, which its own cache holds.
const PAGES: usize = 64;
/// Pages copied between two looks at whether it is enough.
const AT_ONCE: usize = 256;

/// Times as many pages as one thread two threads copy within memory of their own, in so long a time each; from 1 to 2.
pub fn measure(time: Duration) -> f64 {
    (copied(2, time) as f64 / copied(1, time).max(1) as f64).clamp(1.0, 2.0)
}

fn copied(threads: usize, time: Duration) -> u64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| copy(&stop))).collect();
        std::thread::sleep(time);
        // Relaxed: it only ends the loops.
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum()
    })
}

fn copy(stop: &AtomicBool) -> u64 {
    let (from, mut to) = (vec![1_u8; PAGE], vec![0_u8; PAGE * PAGES]);
    let mut copied = 0;
    // Relaxed: as in `copied`.
    while !stop.load(Ordering::Relaxed) {
        for n in 0..AT_ONCE {
            let at = n % PAGES * PAGE;
            to[at..at + PAGE].copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
        copied += AT_ONCE as u64;
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_thread_brings_between_nothing_and_as_much_again() {
        let pair = measure(Duration::from_millis(5));
        assert!((1.0..=2.0).contains(&pair), "{pair}");
    }
}
