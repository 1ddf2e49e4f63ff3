//! Memory that the machine has at hand.
//!
//! A virtual machine may have given the memory that is free back to its host; who touches it first waits for the host,
//! tens of times as long as for the kernel's zeros. That meets whoever takes large pieces of memory for the first time,
//! an engine in a new process above all, and spares who gets what another has just let go. So all of them find their
//! memory touched.

#![allow(unsafe_code, reason = "touches memory of a mapping of its own")]

use crate::workload::{Needs, Spec};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// What the heap may take for a file.
const FILE: u64 = 4096;
/// Touched in any case.
const LEAST: u64 = 256 << 20;

/// Touches as much free memory as the run is going to take, at the most half of what is free, and lets it go. What
/// measures a limit of memory is left alone. It is done as well as it can be: a failure harms nothing but figures.
pub(crate) fn touch(spec: &Spec, needs: Needs) {
    if spec.limits_memory() {
        return;
    }
    let wanted = (needs.bytes + needs.files * FILE).max(LEAST);
    let len = wanted.min(free() / 2) as usize;
    let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a mapping at an address of the kernel's choice touches nobody's memory, and nobody but these lines knows
    // it. Guarded by the test below.
    unsafe {
        let Ok(base) = rustix::mm::mmap_anonymous(std::ptr::null_mut(), len.max(1), read_write, private)
        else {
            return;
        };
        let _ = rustix::mm::madvise(base, len, Advice::LinuxHugepage);
        let _ = rustix::mm::madvise(base, len, Advice::LinuxPopulateWrite);
        let _ = rustix::mm::munmap(base, len.max(1));
    }
}

/// Bytes of memory that nobody uses, not even as a cache.
fn free() -> u64 {
    let stated = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    free_of(&stated).unwrap_or(0)
}

fn free_of(stated: &str) -> Option<u64> {
    let kib = stated.lines().find_map(|line| line.strip_prefix("MemFree:")?.trim().strip_suffix(" kB"))?;
    kib.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    #[test]
    fn free_memory_is_what_the_kernel_says() {
        assert_eq!(free_of("MemTotal:  9 kB\nMemFree:        18957132 kB\n"), Some(18_957_132 << 10));
        assert_eq!(free_of("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn touched_memory_is_let_go() {
        let spec = workload::find("MWCL").expect("there is one");
        // What is resident: other tests of this process reserve addresses as they like.
        let resident = || {
            let stated = std::fs::read_to_string("/proc/self/statm").expect("the kernel tells");
            stated.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number")
        };
        let before = resident();
        touch(spec, Needs { bytes: 1 << 30, files: 1 });
        assert!(resident() < before + (1 << 17), "half of it would be still there");
    }
}
