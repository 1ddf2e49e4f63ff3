//! How large a ring must be, and how it is shared out.

use super::ring::BLOCK_SLOTS;

/// Least number of slots of a ring; an SSD ring has twice as many at the least.
pub const MIN_SLOTS: u64 = 16 * BLOCK_SLOTS / 8;

/// Most slots that are kept for what makes room.
const MAX_RESERVE: u64 = 4096;

const fn min(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// Slots that ordinary operations leave to checkpoint, reclaim and write-back; `pad` is what a commit takes.
pub(super) const fn reserve(slots: u64, pad: u64) -> u64 {
    max(min(slots / 8, MAX_RESERVE), min(pad + 4, slots / 4))
}

/// The largest record: it finds room when the ring is otherwise empty but for a commit's worth.
pub(super) const fn max_record(slots: u64, pad: u64) -> u64 {
    min((slots - reserve(slots, pad) - 2 * pad) / 2, u16::MAX as u64)
}

/// The least number of slots, a multiple of a block's, of a ring in the image (`padded`: its commits fill whole
/// blocks) or in memory, on which a record of `largest` slots is granted to any operation, and one of
/// `of_reserve` slots from the reserve alone, each with the price of its commit.
pub const fn least_slots(largest: u32, of_reserve: u32, padded: bool) -> u64 {
    let pad = if padded { BLOCK_SLOTS } else { 1 };
    let mut slots = max(MIN_SLOTS, 4 * if padded { pad } else { 1 });
    while max_record(slots, pad) < largest as u64 || reserve(slots, pad) < of_reserve as u64 + pad {
        slots += BLOCK_SLOTS;
    }
    slots
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_least_ring_fits_and_none_below_it_does() {
        for (largest, of_reserve, padded) in
            [(1, 1, true), (434, 1, true), (434, 329, false), (3000, 500, true)]
        {
            let pad = if padded { BLOCK_SLOTS } else { 1 };
            let fits = |slots: u64| {
                max_record(slots, pad) >= u64::from(largest)
                    && reserve(slots, pad) >= u64::from(of_reserve) + pad
            };
            let least = least_slots(largest, of_reserve, padded);
            let bottom = if padded { 4 * pad } else { MIN_SLOTS };
            assert!(fits(least) && (least == bottom || !fits(least - BLOCK_SLOTS)), "{largest} {of_reserve}");
        }
    }
}
