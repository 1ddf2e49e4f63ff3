//! Copies of bytes that another thread may be changing.
//!
//! A thread that reads a page without a pin ([`super`], rule 8) may read while the frame is written, finds that out
//! afterwards, and throws away what it read. For the compiler an ordinary copy of such bytes would be undefined,
//! so this one is made of instructions it does not look into: each byte is read and written once or twice, in no
//! particular order. Order comes from the fences around.
//!
//! It is also faster than `memcpy` where that uses `rep movsb`, which takes twenty times as long on some
//! processors when source and destination lie unevenly within their pages.

#![allow(unsafe_code, reason = "a leaf module: copies of bytes that other threads change")]

/// Copies `len` bytes.
///
/// # Safety
/// `from` must be valid for reads and `to` for writes of `len` bytes, and they must not overlap. Other threads may
/// write to `from`, or read from `to`, at the same time, but only through this function; then the bytes copied
/// are any mixture, which the caller must not use.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= 32 && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: as the caller has promised; the processor has AVX, as just seen. Guarded by the tests below.
        unsafe { blocks(from, to, len) }
        return;
    }
    // SAFETY: as the caller has promised. Guarded by the tests below.
    unsafe { bytes(from, to, len) }
}

/// # Safety
/// As [`copy`]; `len` is 32 or more.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn blocks(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: reads within `from` and writes within `to`: whole blocks while so many bytes are left, then the last
    // 32 bytes, some of them a second time. Guarded by the tests below.
    unsafe {
        std::arch::asm!(
            "cmp {left}, 128",
            "jb 3f",
            "2:",
            "vmovups {a}, [{from}]",
            "vmovups {b}, [{from} + 32]",
            "vmovups {c}, [{from} + 64]",
            "vmovups {d}, [{from} + 96]",
            "vmovups [{to}], {a}",
            "vmovups [{to} + 32], {b}",
            "vmovups [{to} + 64], {c}",
            "vmovups [{to} + 96], {d}",
            "add {from}, 128",
            "add {to}, 128",
            "sub {left}, 128",
            "cmp {left}, 128",
            "jae 2b",
            "3:",
            "cmp {left}, 32",
            "jb 4f",
            "vmovups {a}, [{from}]",
            "vmovups [{to}], {a}",
            "add {from}, 32",
            "add {to}, 32",
            "sub {left}, 32",
            "jmp 3b",
            "4:",
            "test {left}, {left}",
            "jz 5f",
            "vmovups {a}, [{from} + {left} - 32]",
            "vmovups [{to} + {left} - 32], {a}",
            "5:",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            left = inout(reg) len => _,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            c = out(ymm_reg) _,
            d = out(ymm_reg) _,
            options(nostack)
        );
    }
}

/// # Safety
/// As [`copy`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `rep movsb` reads and writes just those bytes; the direction flag is clear, as it is wherever Rust
    // runs. Guarded by the tests below.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// # Safety
/// As [`copy`].
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
    let mut at = 0;
    // Relaxed, all of them: the fences around order the whole.
    while at < len {
        // SAFETY: within both, as `at` is below `len` by as much as is moved; words are aligned, as checked.
        // Guarded by the tests below.
        unsafe {
            let (from, to) = (from.add(at), to.add(at));
            if len - at >= 8 && from.addr() % 8 == 0 && to.addr() % 8 == 0 {
                let word = AtomicU64::from_ptr(from.cast_mut().cast()).load(Ordering::Relaxed);
                AtomicU64::from_ptr(to.cast()).store(word, Ordering::Relaxed);
                at += 8;
            } else {
                let byte = AtomicU8::from_ptr(from.cast_mut()).load(Ordering::Relaxed);
                AtomicU8::from_ptr(to).store(byte, Ordering::Relaxed);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_at_every_offset_is_copied_and_nothing_beside() {
        let from: Vec<u8> = (0..5000).map(|i| (i * 7 % 251) as u8).collect();
        for len in (0..300).chain([511, 512, 1000, 4095, 4096]) {
            for (source, target) in [(0, 0), (1, 0), (0, 3), (17, 31), (64, 5)] {
                let mut to = vec![255; len + 64];
                // SAFETY: both are longer than what is copied and belong to this thread alone.
                unsafe { copy(from[source..].as_ptr(), to[target..].as_mut_ptr(), len) };
                assert_eq!(to[target..target + len], from[source..source + len]);
                assert!(to[..target].iter().chain(&to[target + len..]).all(|byte| *byte == 255));
            }
        }
    }
}
