//! A set of nids, which are dense: a bit for each, in chunks of them that are made when they are needed. It takes no more
//! than a bit for each nid that there ever was, and something for each chunk.

use crate::format::Nid;
use crate::hasher::NumberMap;
use crate::sync::Mutex;

/// Bits of a chunk.
const CHUNK: u64 = 512;

/// See the module.
#[derive(Debug, Default)]
pub struct NidSet(Mutex<NumberMap<[u64; CHUNK as usize / 64]>>);

impl NidSet {
    /// Puts a nid there; true if it was not.
    pub fn insert(&self, nid: Nid) -> bool {
        let (word, bit) = ((nid % CHUNK / 64) as usize, 1 << (nid % 64));
        let mut chunks = self.0.lock();
        let word = &mut chunks.entry(nid / CHUNK).or_default()[word];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn each_nid_is_new_once_and_takes_a_bit() {
        let set = NidSet::default();
        for _ in 0..2 {
            let new = (0..100_000).filter(|nid| set.insert(nid * 3)).count();
            assert!(new == 100_000 || new == 0, "{new}");
        }
        assert!(set.insert(1) && set.insert(u64::MAX) && !set.insert(u64::MAX));
        assert!(set.0.lock().len() <= 300_000 / 512 + 2);
    }
}
