//! Threads on cores of their own.

use crate::{Error, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may use, in order.
pub fn cores() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).map_err(|e| Error::io("ask for the cores", "", e))?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

/// Keeps the calling thread on the core that is its share: threads go around the cores in turn.
pub fn pin(thread: usize, cores: &[usize]) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cores[thread % cores.len()]);
    sched_setaffinity(None, &only).map_err(|e| Error::io("pin a thread", "", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_around_the_cores() {
        let cores = cores().expect("the kernel tells");
        let count = cores.len();
        for thread in 0..2 * count {
            let cores = cores.clone();
            let on = std::thread::spawn(move || {
                pin(thread, &cores).expect("allowed");
                (sched_getaffinity(None).expect("known").count(), rustix::thread::sched_getcpu())
            });
            assert_eq!(on.join().expect("no panic"), (1, cores_of(thread, count)));
        }
        fn cores_of(thread: usize, count: usize) -> usize {
            super::cores().expect("the kernel tells")[thread % count]
        }
    }
}
