//! The mutators of targets whose inputs are lists of changes of seven bytes (see `narufs_engine::fuzzing`): most mutations
//! should leave them so. That of requests is in [`requests`].

pub mod requests;

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

    fn value(&mut self) -> u16 {
        if self.below(2) == 0 { self.below(350) as u16 } else { self.below(1 << 16) as u16 }
    }

    /// A change of media that mostly hits metadata and keeps its checksum.
    fn change_of_media(&mut self) -> [u8; CHANGE] {
        let place = self.below(390) as u16;
        let offset = if self.below(3) > 0 { self.below(640) } else { self.below(4096) } as u16;
        let seal = u8::from(self.below(8) > 0);
        let ring = if self.below(3) == 0 { 2 } else { 0 };
        let head = if self.below(12) == 0 { 4 } else { 0 };
        let inside = if self.below(2) == 0 { 8 } else { 0 };
        change(place, offset, self.value(), seal | ring | head | inside)
    }

    /// A change of the memory that a server has left, or sometimes of its media.
    fn change_of_memory(&mut self) -> [u8; CHANGE] {
        if self.below(8) == 0 {
            let [most @ .., flags] = self.change_of_media();
            let [a, b, c, d, e, f] = most;
            return [a, b, c, d, e, f, flags | 64];
        }
        // Each slot has eight words; few are in use.
        let place = if self.below(8) > 0 { self.below(160) } else { self.below(1 << 16) } as u16;
        let flags = self.below(64) as u8;
        change(place, self.below(8) as u16, self.value(), flags)
    }
}

fn change(place: u16, offset: u16, value: u16, flags: u8) -> [u8; CHANGE] {
    let ([p0, p1], [o0, o1], [v0, v1]) = (place.to_le_bytes(), offset.to_le_bytes(), value.to_le_bytes());
    [p0, p1, o0, o1, v0, v1, flags]
}

/// Changes of media, after a byte that chooses them.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut numbers = Numbers(u64::from(seed));
    if size == 0 || numbers.below(9) == 0 {
        data[0] = numbers.below(32) as u8;
        return size.max(1);
    }
    1 + mutate_changes(&mut data[1..], size - 1, max_size - 1, &mut numbers, Numbers::change_of_media)
}

/// Changes of the memory that a server has left.
pub fn mutate_memory(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutate_changes(data, size, max_size, &mut Numbers(u64::from(seed)), Numbers::change_of_memory)
}

/// Adds, replaces or drops a change, or leaves it to libFuzzer; the new length.
fn mutate_changes(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    numbers: &mut Numbers,
    new: fn(&mut Numbers) -> [u8; CHANGE],
) -> usize {
    let changes = size / CHANGE;
    match numbers.below(8) {
        0..3 if (changes + 1) * CHANGE <= max_size => {
            let at = changes * CHANGE;
            data[at..at + CHANGE].copy_from_slice(&new(numbers));
            at + CHANGE
        }
        3..5 if changes > 0 => {
            let at = numbers.below(changes as u64) as usize * CHANGE;
            data[at..at + CHANGE].copy_from_slice(&new(numbers));
            size
        }
        5 if changes > 0 => {
            let at = numbers.below(changes as u64) as usize * CHANGE;
            data.copy_within(at + CHANGE..size, at);
            size - CHANGE
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
}
