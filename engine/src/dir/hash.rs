//! From a name to its bucket: the hash, and linear hashing over its *high* bits.
//!
//! The number of buckets grows by one at a time. With n buckets, 2^k <= n < 2^(k+1): buckets below n - 2^k and
//! from 2^k on are split to k + 1 bits, the others to k. Usual linear hashing takes the low bits of the hash;
//! here they are the high ones in reversed order, so that a bucket is a contiguous range of hashes, and a
//! split cuts it in half. A walk in the order of hashes is therefore never disturbed by a split.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::ops::RangeInclusive;

/// Bits of a hash.
pub(crate) const HASH_BITS: u32 = 55;
/// Bits of a cookie below the hash: they tell entries of equal hash apart.
pub(crate) const TIE_BITS: u32 = 8;

/// The hash of names, keyed by the image: a thread that does not know the key cannot make names meet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameHash(SipHasher13);

impl NameHash {
    /// The hash of an image.
    pub(crate) fn new(key: &[u8; 16]) -> NameHash {
        NameHash(SipHasher13::new_with_key(key))
    }

    /// 55 bits, never 0: the cookies of hash 0 are those of "." and "..".
    pub(crate) fn of(&self, name: &[u8]) -> u64 {
        let mut hasher = self.0;
        hasher.write(name);
        (hasher.finish() >> (64 - HASH_BITS)).max(1)
    }
}

/// The lowest cookie of a hash.
pub(crate) fn cookie_base(hash: u64) -> u64 {
    hash << TIE_BITS
}

/// The hash of a cookie.
pub(crate) fn hash_of(cookie: u64) -> u64 {
    cookie >> TIE_BITS
}

/// The bucket of a hash, of `buckets` (at least 1).
pub(crate) fn bucket_of(hash: u64, buckets: u32) -> u32 {
    let reversed = (hash << (64 - HASH_BITS)).reverse_bits();
    let low = buckets.ilog2();
    let fine = (reversed & ((2u64 << low) - 1)) as u32;
    if fine < buckets { fine } else { fine & ((1 << low) - 1) }
}

/// The hashes of a bucket.
pub(crate) fn hashes_of(bucket: u32, buckets: u32) -> RangeInclusive<u64> {
    let low = buckets.ilog2();
    let split = bucket >= 1 << low || bucket < buckets - (1 << low);
    let bits = low + u32::from(split);
    let width = HASH_BITS - bits;
    let first = if bits == 0 { 0 } else { u64::from(bucket.reverse_bits() >> (32 - bits)) << width };
    first..=first + ((1 << width) - 1)
}

/// The bucket that the next split divides, where there are `buckets`; the new one has the number `buckets`.
pub(crate) fn next_to_split(buckets: u32) -> u32 {
    buckets - (1 << buckets.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_partition_the_hashes() {
        for buckets in 1..200 {
            let mut ranges: Vec<_> = (0..buckets).map(|b| (hashes_of(b, buckets), b)).collect();
            ranges.sort_by_key(|(r, _)| *r.start());
            let mut next = 0;
            for (range, bucket) in &ranges {
                assert_eq!(*range.start(), next);
                next = range.end() + 1;
                assert_eq!(bucket_of(*range.start(), buckets), *bucket);
                assert_eq!(bucket_of(*range.end(), buckets), *bucket);
            }
            assert_eq!(next, 1 << HASH_BITS);
        }
    }

    #[test]
    fn a_split_halves_one_bucket_and_touches_no_other() {
        for buckets in 1..200 {
            let victim = next_to_split(buckets);
            for bucket in (0..buckets).filter(|b| *b != victim) {
                assert_eq!(hashes_of(bucket, buckets), hashes_of(bucket, buckets + 1));
            }
            let (whole, kept) = (hashes_of(victim, buckets), hashes_of(victim, buckets + 1));
            let moved = hashes_of(buckets, buckets + 1);
            assert_eq!((whole.start(), whole.end()), (kept.start(), moved.end()));
            assert_eq!(kept.end() + 1, *moved.start());
        }
    }

    #[test]
    fn the_key_decides() {
        let (a, b) = (NameHash::new(&[1; 16]), NameHash::new(&[2; 16]));
        assert_ne!(a.of(b"name"), b.of(b"name"));
        assert_eq!(a.of(b"name"), a.of(b"name"));
        assert!(a.of(b"name") < 1 << HASH_BITS);
    }
}
