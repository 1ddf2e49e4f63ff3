//! The word that all reservations add to, by itself.

use super::cpu_ns;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Additions between two looks at whether it is enough.
const AT_ONCE: u64 = 64;

/// Nanoseconds of processor time for an addition as `narufs_engine::journal` makes it, with so many threads for so long.
pub fn measure(threads: usize, time: Duration) -> f64 {
    let word = Arc::new(narufs_engine::sync::CachePadded::new(AtomicU64::new(0)));
    let (begin, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let took: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (word, begin, stop) = (&word, &begin, &stop);
                scope.spawn(move || {
                    begin.wait();
                    let began = cpu_ns();
                    loop {
                        for _ in 0..AT_ONCE {
                            std::hint::black_box(word.fetch_add(2, Ordering::AcqRel));
                        }
                        // Relaxed: it only ends the loop.
                        if stop.load(Ordering::Relaxed) {
                            return cpu_ns() - began;
                        }
                    }
                })
            })
            .collect();
        begin.wait();
        std::thread::sleep(time);
        // Relaxed: as above.
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    // Relaxed: the threads were joined.
    let added = word.load(Ordering::Relaxed) / 2;
    took as f64 / added as f64
}
