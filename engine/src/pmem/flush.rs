//! Cache lines on their way to persistent memory: the instructions, and what they cost on emulated media.
//!
//! On x86_64 the best of `clwb`, `clflushopt` and `clflush` is chosen at run time, and `sfence` orders them.
//! On aarch64 `dc cvap` cleans to the point of persistence, where the processor has one, and `dsb` waits. No
//! other processor is served.

#![allow(unsafe_code, reason = "a leaf module: instructions that write cache lines back")]

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::sync::LaneCounter;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Error, Result};

/// Bytes in a cache line.
pub const LINE: usize = 64;

/// Cache lines that a range touches.
pub(super) fn lines(offset: usize, len: usize) -> u64 {
    if len == 0 { 0 } else { ((offset + len - 1) / LINE - offset / LINE + 1) as u64 }
}

/// Write-backs and fences so far.
#[derive(Debug, Default)]
pub(super) struct LineCounts {
    lines: LaneCounter,
    fences: LaneCounter,
}

impl LineCounts {
    /// So many lines were written back.
    pub fn write_back(&self, lines: u64) {
        self.lines.add(lines);
    }

    /// A fence was executed.
    pub fn fence(&self) {
        self.fences.add(1);
    }

    /// Lines written back, and fences.
    pub fn get(&self) -> (u64, u64) {
        (self.lines.get(), self.fences.get())
    }
}

/// The instruction that writes a cache line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// x86_64: writes back, may keep the line.
    Clwb,
    /// x86_64: writes back and evicts, without order.
    ClflushOpt,
    /// x86_64: writes back and evicts, one after the other.
    Clflush,
    /// aarch64: cleans to the point of persistence.
    DcCvap,
}

impl Instruction {
    /// The best one that this processor has.
    ///
    /// # Errors
    /// [`Error::Refused`] when it has none.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Result<Self> {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let extended = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        if extended & (1 << 24) != 0 {
            Ok(Self::Clwb)
        } else if extended & (1 << 23) != 0 {
            Ok(Self::ClflushOpt)
        } else if __cpuid(1).edx & (1 << 19) != 0 {
            Ok(Self::Clflush)
        } else {
            Err(none())
        }
    }

    /// The best one that this processor has.
    ///
    /// # Errors
    /// [`Error::Refused`] when it has none.
    #[cfg(target_arch = "aarch64")]
    pub fn detect() -> Result<Self> {
        if rustix::param::linux_hwcap().0 & libc::HWCAP_DCPOP as usize != 0 {
            Ok(Self::DcCvap)
        } else {
            Err(none())
        }
    }

    /// The best one that this processor has.
    ///
    /// # Errors
    /// [`Error::Refused`]: none is known for this processor.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub fn detect() -> Result<Self> {
        Err(none())
    }

    /// Starts the write-back of the lines that hold `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are mapped, and `self` came from [`Instruction::detect`] on this machine.
    pub(super) unsafe fn write_back(self, start: *const u8, len: usize) {
        let end = start.addr() + len;
        let mut line = start.map_addr(|a| a & !(LINE - 1));
        while line.addr() < end {
            // SAFETY: the line holds a mapped byte, and the processor has the instruction; it changes no
            // memory. Guarded by `every_instruction_of_this_processor_runs`.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                use std::arch::asm;
                match self {
                    Self::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    Self::ClflushOpt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                    _ => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                }
            }
            // SAFETY: as above; `dc cvap` is encoded as `sys`, which every assembler knows.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                std::arch::asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags));
            }
            line = line.wrapping_add(LINE);
        }
    }

    /// Orders this thread's earlier write-backs before all that follows.
    pub(super) fn fence(self) {
        // SAFETY: part of every x86_64. The memory clobber (no `nomem`) also holds the compiler back.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("sfence", options(nostack, preserves_flags));
        }
        // SAFETY: part of every aarch64.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("dsb sy", options(nostack, preserves_flags));
        }
    }
}

fn none() -> Error {
    Error::Refused(
        "this processor offers no instruction that writes cache lines back to persistent memory; \
         use the journal on the device"
            .into(),
    )
}

/// What emulated persistent memory costs beyond the memory it stands on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmulationCosts {
    /// Nanoseconds that each fence after a write-back takes longer.
    pub persist_delay_ns: u64,
    /// Bytes that may be written back per second, in whole cache lines; 0 for no limit.
    pub bytes_per_second: u64,
}

thread_local! {
    /// When the medium will have taken this thread's write-backs since its last fence, in nanoseconds of the
    /// medium's clock; 0 when there was none. Threads that use two emulated media wait for the later one.
    static TAKEN_AT: Cell<u64> = const { Cell::new(0) };
}

/// Makes write-backs and fences as slow as asked for.
#[derive(Debug)]
pub(super) struct Pacer {
    costs: EmulationCosts,
    origin: Instant,
    /// When the medium will have taken everything written back so far.
    busy_until: AtomicU64,
}

impl Pacer {
    /// A way that costs what the emulation is told to.
    pub fn new(costs: EmulationCosts) -> Self {
        Self { costs, origin: Instant::now(), busy_until: AtomicU64::new(0) }
    }

    /// Writes lines back, and takes the time that this costs.
    pub fn write_back(&self, lines: u64) {
        if self.costs == EmulationCosts::default() || lines == 0 {
            return;
        }
        let now = self.now();
        let mut taken = now;
        if let Some(cost) = (lines * LINE as u64 * 1_000_000_000).checked_div(self.costs.bytes_per_second) {
            let queue = |busy: u64| Some(busy.max(now) + cost);
            // Relaxed: a clock of the emulation, which orders nothing.
            let before = self.busy_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, queue);
            taken = before.unwrap_or_else(|busy| busy).max(now) + cost;
        }
        TAKEN_AT.set(TAKEN_AT.get().max(taken));
    }

    /// Orders what was written back, and takes the time that this costs.
    pub fn fence(&self) {
        let taken = TAKEN_AT.take();
        if taken == 0 {
            return;
        }
        let until = taken.max(self.now()).saturating_add(self.costs.persist_delay_ns);
        loop {
            let left = until.saturating_sub(self.now());
            match left {
                0 => return,
                // Far from the deadline a spinning core would only be taken from others.
                1_000_000.. => std::thread::sleep(Duration::from_nanos(left - 500_000)),
                10_000.. => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn now(&self) -> u64 {
        // From 1, as 0 says that there is nothing to wait for.
        self.origin.elapsed().as_nanos() as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_what_a_range_touches() {
        assert_eq!(lines(0, 0), 0);
        assert_eq!(lines(63, 1), 1);
        assert_eq!(lines(63, 2), 2);
        assert_eq!(lines(64, 256), 4);
        assert_eq!(lines(1, 64), 2);
    }

    #[test]
    fn every_instruction_of_this_processor_runs() {
        let best = Instruction::detect().expect("the processors that tests run on have one");
        let bytes = [7u8; 300];
        let mut all = vec![best];
        if cfg!(target_arch = "x86_64") {
            // Each processor with the better instruction has the lesser ones too.
            let order = [Instruction::Clwb, Instruction::ClflushOpt, Instruction::Clflush];
            all = order.into_iter().skip_while(|i| *i != best).collect();
        }
        for instruction in all {
            // SAFETY: the array is mapped, and the processor has the instruction.
            unsafe { instruction.write_back(bytes.as_ptr(), bytes.len()) };
            instruction.fence();
        }
        assert_eq!(bytes, [7; 300]);
    }

    #[test]
    fn a_fence_takes_no_less_than_the_costs_ask_for() {
        let pacer = Pacer::new(EmulationCosts { persist_delay_ns: 200_000, bytes_per_second: 64_000_000 });
        let start = Instant::now();
        pacer.write_back(1000);
        pacer.fence();
        assert!(start.elapsed() >= Duration::from_micros(1200));
    }
}
