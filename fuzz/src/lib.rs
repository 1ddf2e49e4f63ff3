//! The mutator that both targets share: inputs are lists of changes of seven bytes after a first byte (see
//! `narufs::fuzzing`), and most mutations should leave them so.

use libfuzzer_sys::fuzzer_mutate;

const CHANGE: usize = 7;

/// Numbers from a seed: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// A change that mostly hits metadata and keeps its checksum.
    fn change(&mut self) -> [u8; CHANGE] {
        let place = self.below(330) as u16;
        let offset = if self.below(3) > 0 { self.below(640) } else { self.below(4096) } as u16;
        let value = if self.below(2) == 0 { self.below(350) } else { self.below(1 << 16) } as u16;
        let seal = u8::from(self.below(8) > 0);
        let ring = if self.below(3) == 0 { 2 } else { 0 };
        let head = if self.below(12) == 0 { 4 } else { 0 };
        let ([p0, p1], [o0, o1], [v0, v1]) = (place.to_le_bytes(), offset.to_le_bytes(), value.to_le_bytes());
        [p0, p1, o0, o1, v0, v1, seal | ring | head]
    }
}

/// Adds, replaces or drops a change, or leaves it to libFuzzer; the new length.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut numbers = Numbers(u64::from(seed));
    let changes = size.saturating_sub(1) / CHANGE;
    let place = |n: u64| 1 + n as usize * CHANGE;
    match numbers.below(8) {
        0..3 if 1 + (changes + 1) * CHANGE <= max_size => {
            if size == 0 {
                data[0] = numbers.below(4) as u8;
            }
            let at = place(changes as u64);
            data[at..at + CHANGE].copy_from_slice(&numbers.change());
            at + CHANGE
        }
        3..5 if changes > 0 => {
            let at = place(numbers.below(changes as u64));
            data[at..at + CHANGE].copy_from_slice(&numbers.change());
            size
        }
        5 if changes > 0 => {
            let at = place(numbers.below(changes as u64));
            data.copy_within(at + CHANGE..size, at);
            size - CHANGE
        }
        6 if size > 0 => {
            data[0] = numbers.below(4) as u8;
            size
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
}
