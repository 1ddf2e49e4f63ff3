//! What stamps are drawn from: the time stamp counter where all cores show the same one, else a word that all add to.

#![allow(unsafe_code, reason = "an instruction that reads the time stamp counter")]

use super::Stamp;
use narufs_engine::sync::CachePadded;
use narufs_engine::sync::atomic::{AtomicU64, Ordering};

/// A source of stamps.
pub enum Clock {
    /// The processor's time stamp counter, in its ticks. Reading it touches no memory.
    Tsc,
    /// One word that each reading raises: every lane's line after all, but right on any machine.
    Word(CachePadded<AtomicU64>),
    /// What a test wants each lane to see; those who commit ask as the lane after the last.
    #[cfg(test)]
    Scripted(Box<dyn Fn(usize) -> Stamp + Send + Sync>),
}

impl Clock {
    /// The time stamp counter if it is invariant, else a word.
    pub fn best() -> Clock {
        if tsc_is_invariant() { Clock::Tsc } else { Clock::word() }
    }

    /// A word at 0.
    pub fn word() -> Clock {
        Clock::Word(CachePadded::new(AtomicU64::new(0)))
    }

    /// The time, as lane `_who` sees it.
    pub(super) fn now(&self, _who: usize) -> Stamp {
        match self {
            Clock::Tsc => ticks(),
            // Relaxed: it only keeps stamps apart and close; the lanes' words and the objects' locks make the order.
            Clock::Word(word) => word.fetch_add(1, Ordering::Relaxed) + 1,
            #[cfg(test)]
            Clock::Scripted(now) => now(_who),
        }
    }
}

/// Whether the counter runs at one rate in all states of the processor, and the same on all cores: by what the
/// processor says (AMD APM 3, Intel SDM 2: CPUID 8000_0007, EDX bit 8), or because the kernel, which watches it, keeps
/// its own time by it (a guest may not be shown the bit).
#[cfg(target_arch = "x86_64")]
fn tsc_is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    let says_so = __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0;
    let used = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    says_so || std::fs::read_to_string(used).is_ok_and(|name| name.trim() == "tsc")
}

/// Of other processors nothing is known here.
#[cfg(not(target_arch = "x86_64"))]
fn tsc_is_invariant() -> bool {
    false
}

/// The counter. Not ordered with what stands around it: no rule needs that.
#[cfg(target_arch = "x86_64")]
fn ticks() -> Stamp {
    // SAFETY: every x86_64 has the instruction, and it changes no memory. A stamp has one bit less than the counter,
    // which the mask keeps from mattering. Guarded by `clocks_do_not_go_back`.
    unsafe { std::arch::x86_64::_rdtsc() & (Stamp::MAX >> 1) }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> Stamp {
    0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn clocks_do_not_go_back() {
        for clock in [Clock::best(), Clock::word()] {
            let seen: Vec<Stamp> = (0..1000).map(|_| clock.now(0)).collect();
            assert!(seen.is_sorted());
        }
    }
}
