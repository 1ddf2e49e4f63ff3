//! Finding a name in a block of a bucket, or a place for one: what every operation on a name does.
//!
//! A walk from dentry to dentry waits for each length before it knows where the next lies. So the cookies of a hash
//! are looked for first, in all words of the block, where nothing depends on anything; as a rule that ends the search
//! for a name that is not there, and leads to the one that is. But a word that reads as a cookie may be part of a name,
//! or of what is left of a dentry: only a walk to where it lies says whether a dentry begins there.

use super::bucket::{Dentry, Fault, Spot, dentry_at, extent_of, rec_len, room_for, verified, whole};
use super::hash::{cookie_base, hash_of};
use crate::device::BLOCK_SIZE;
use crate::format::{BUCKET_START, DentryHeader};
use std::mem::offset_of;

const WORDS: usize = BLOCK_SIZE / 8;
/// Words that are compared without a branch.
const AT_ONCE: usize = 64;
const _: () = assert!(WORDS.is_multiple_of(AT_ONCE));
/// Where a dentry has its cookie.
const COOKIE: usize = offset_of!(DentryHeader, cookie);

/// The places in a block where a dentry with a cookie of one hash may begin, in ascending order.
struct Mentions<'a> {
    words: &'a [[u8; 8]],
    /// The upper half of such a cookie: half as much to compare.
    key: u32,
    /// The word to go on with.
    next: usize,
}

impl<'a> Mentions<'a> {
    fn new(block: &'a [u8; BLOCK_SIZE], hash: u64) -> Mentions<'a> {
        Mentions { words: block.as_chunks().0, key: (cookie_base(hash) >> 32) as u32, next: 0 }
    }

    fn is_key(&self, word: &[u8; 8]) -> bool {
        u32::from_le_bytes([word[4], word[5], word[6], word[7]]) == self.key
    }
}

impl Iterator for Mentions<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.next < self.words.len() {
            let group = &self.words[self.next / AT_ONCE * AT_ONCE..][..AT_ONCE];
            let from = self.next % AT_ONCE;
            // Of a group that was begun, the rest has been compared already, but seldom is there a second match.
            let any = group.iter().fold(false, |any, word| any | self.is_key(word));
            let at = if any { group[from..].iter().position(|word| self.is_key(word)) } else { None };
            match at {
                None => self.next += AT_ONCE - from,
                Some(at) => {
                    let word = self.next + at;
                    self.next = word + 1;
                    if let Some(at) = (word * 8).checked_sub(COOKIE).filter(|at| *at >= BUCKET_START) {
                        return Some(at);
                    }
                }
            }
        }
        None
    }
}

/// A walk over the places of dentries; of what they say it looks at the lengths alone.
struct Steps<'a> {
    block: &'a [u8; BLOCK_SIZE],
    at: usize,
    previous: Option<usize>,
}

impl Steps<'_> {
    /// Goes on to the first place at or behind `to`; whether a dentry begins just there.
    fn reach(&mut self, to: usize) -> Result<bool, Fault> {
        let (mut at, mut before) = (self.at, 0);
        while at < to {
            before = at;
            at += rec_len(self.block, at)?;
        }
        if at != self.at {
            (self.at, self.previous) = (at, Some(before));
        }
        Ok(at == to)
    }
}

/// Calls `visit` for each dentry of a hash, until it returns something.
fn of_hash<'a, R>(
    block: &'a [u8; BLOCK_SIZE],
    hash: u64,
    mut visit: impl FnMut(Spot, &'a DentryHeader, &'a [u8]) -> Option<R>,
) -> Result<Option<R>, Fault> {
    let mut steps = Steps { block, at: BUCKET_START, previous: None };
    for at in Mentions::new(block, hash) {
        if !steps.reach(at)? {
            continue;
        }
        let rec_len = rec_len(block, at)?;
        if let Some((header, name)) = dentry_at(block, at, rec_len)?
            && hash_of(header.cookie.get()) == hash
            && let Some(found) = visit(Spot { at, previous: steps.previous, rec_len }, header, name)
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The dentry of a name, whose hash is known. Of the others, only lengths are verified, and only up to where a dentry
/// may have that hash.
pub(crate) fn find<'a>(block: &'a [u8], hash: u64, name: &[u8]) -> Result<Option<(Spot, Dentry<'a>)>, Fault> {
    let found = of_hash(whole(block)?, hash, |spot, header, other| {
        (other == name).then(|| verified(header, other).map(|dentry| (spot, dentry)))
    })?;
    found.transpose()
}

/// Where a dentry can be put into a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Offset of the dentry that has room.
    pub(super) at: usize,
    /// Bytes that it uses itself; 0 if it is free.
    pub(super) used: usize,
    pub(super) rec_len: usize,
}

/// The first gap for a name (if one is `wanted`), unless the name is there already: then its dentry. `meet` is called
/// with the cookie of each other dentry of this hash.
pub(crate) fn gap<'a>(
    block: &'a [u8],
    hash: u64,
    name: &[u8],
    wanted: bool,
    mut meet: impl FnMut(u64),
) -> Result<Result<Option<Gap>, Dentry<'a>>, Fault> {
    let block = whole(block)?;
    let there = of_hash(block, hash, |_, header, other| {
        if other == name {
            return Some(verified(header, other));
        }
        meet(header.cookie.get());
        None
    })?;
    Ok(match there.transpose()? {
        Some(there) => Err(there),
        None if wanted => Ok(first_gap(block, room_for(name))?),
        None => Ok(None),
    })
}

/// The first dentry that leaves `need` bytes.
fn first_gap(block: &[u8; BLOCK_SIZE], need: usize) -> Result<Option<Gap>, Fault> {
    let mut at = BUCKET_START;
    while at < BLOCK_SIZE {
        let (rec_len, used) = extent_of(block, at)?;
        if rec_len >= used + need {
            return Ok(Some(Gap { at, used, rec_len }));
        }
        at += rec_len;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::bucket::{insert, pack, remove, walk};
    use super::super::change::tests::{apply, empty};
    use super::*;
    use crate::format::{BLOCK_HEADER_SIZE, MAX_NAME, Nid};
    use crate::inode::FileType;
    use std::ops::ControlFlow;

    fn dentry(name: &[u8], nid: Nid, hash: u64) -> Dentry<'_> {
        Dentry { name, nid, cookie: cookie_base(hash) + nid, file_type: FileType::Regular }
    }

    /// A name whose bytes read as the cookie of a hash wherever a word begins.
    fn imitation(hash: u64) -> Vec<u8> {
        let mut name = vec![b'x'; MAX_NAME];
        for word in name.chunks_exact_mut(8) {
            word.copy_from_slice(&(cookie_base(hash) | 0x41).to_le_bytes());
        }
        name
    }

    /// A hash whose cookies have no byte that a name cannot have.
    const HASH: u64 = 0x11_2233_4455_6677;
    const OTHER: u64 = 0x33_4455_6677_1122;

    #[test]
    fn a_name_that_reads_as_cookies_is_no_dentry() {
        let mut block = empty();
        let names = [imitation(HASH), b"a".to_vec(), imitation(HASH)[..200].to_vec()];
        for (name, nid) in names.iter().zip(1..) {
            let gap =
                gap(&block, OTHER, name, true, |_| {}).expect("sound").expect("not there").expect("room");
            let patches = insert(&block, gap, &dentry(name, nid, OTHER)).expect("sound");
            apply(&mut block, &patches);
        }
        assert!(Mentions::new(whole(&block).expect("whole"), HASH).count() > 40);
        assert_eq!(find(&block, HASH, b"a"), Ok(None));
        assert_eq!(find(&block, HASH, &names[0]), Ok(None));
        let mut met = Vec::new();
        let gap =
            gap(&block, HASH, b"b", true, |cookie| met.push(cookie)).expect("sound").expect("not there");
        assert!(gap.is_some() && met.is_empty());
        let (spot, found) = find(&block, OTHER, &names[2]).expect("sound").expect("there");
        assert_eq!((found.nid, found.name), (3, &names[2][..]));
        assert!(spot.previous.is_some());
        let patches = remove(&block, spot).expect("sound");
        apply(&mut block, &patches);
        assert_eq!(find(&block, OTHER, &names[2]), Ok(None));
    }

    #[test]
    fn what_is_left_of_a_dentry_is_none() {
        let mut block = vec![0; BLOCK_HEADER_SIZE];
        let all = [dentry(b"first", 1, OTHER), dentry(b"second", 2, HASH), dentry(b"third", 3, HASH)];
        block.extend(pack(3, &all).remove(0));
        block.resize(BLOCK_SIZE, 0);
        let (spot, _) = find(&block, HASH, b"second").expect("sound").expect("there");
        let patches = remove(&block, spot).expect("sound");
        apply(&mut block, &patches);
        assert!(Mentions::new(whole(&block).expect("whole"), HASH).count() == 2);
        assert_eq!(find(&block, HASH, b"second"), Ok(None));
        let found = find(&block, HASH, b"third").expect("sound").expect("there");
        let walked = walk(&block, |spot, dentry| match dentry.name {
            b"third" => ControlFlow::Break((spot, dentry)),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(Ok(Some(found)), walked);
    }

    #[test]
    fn dentries_of_one_hash_are_all_met() {
        let names: Vec<String> = (0..90).map(|n| format!("{n:02}")).collect();
        let all: Vec<_> =
            names.iter().zip(1..).map(|(name, nid)| dentry(name.as_bytes(), nid, HASH)).collect();
        let mut block = vec![0; BLOCK_HEADER_SIZE];
        block.extend(pack(3, &all).remove(0));
        block.resize(BLOCK_SIZE, 0);
        let mut met = Vec::new();
        assert!(gap(&block, HASH, b"new", true, |cookie| met.push(cookie)).expect("sound").is_ok());
        assert_eq!(met, all.iter().map(|d| d.cookie).collect::<Vec<_>>());
        for (name, nid) in names.iter().zip(1..) {
            assert_eq!(find(&block, HASH, name.as_bytes()).expect("sound").map(|(_, d)| d.nid), Some(nid));
        }
    }
}
