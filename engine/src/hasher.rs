//! Hash tables by number: block numbers and node ids, which are dense and which no user chooses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by number.
pub type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

/// Multiplies and folds: the table takes the low bits for the place and the high ones for the tag.
#[derive(Debug, Default, Clone, Copy)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_and_multiples_go_apart() {
        for step in [1u64, 64, 4096] {
            let places = (0..256).map(|n| {
                let mut hasher = NumberHasher::default();
                hasher.write_u64(n * step);
                hasher.finish()
            });
            let (low, high): (BTreeSet<_>, BTreeSet<_>) = places.map(|h| (h % 1024, h >> 57)).unzip();
            assert!(
                low.len() > 128 && high.len() > 64,
                "step {step}: {} places, {} tags",
                low.len(),
                high.len()
            );
        }
    }
}
