//! One block of a bucket: dentries end to end. Pure functions over bytes; what they read they verify.

use super::hash::hash_of;
use crate::device::BLOCK_SIZE;
use crate::format::BLOCK_HEADER_SIZE;
use crate::format::{
    BUCKET_START, BucketHeader, DENTRY_HEADER_SIZE, DentryHeader, FIRST_COOKIE, Nid, U16, U32, U64,
};
use crate::inode::FileType;
use std::ops::ControlFlow;
use zerocopy::{FromBytes, IntoBytes};

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode.
    pub nid: Nid,
    /// The place in the directory's order.
    pub cookie: u64,
    /// Type of the inode.
    pub file_type: FileType,
}

/// Where a dentry lies in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Its offset.
    pub at: usize,
    /// Offset of the dentry before it.
    pub previous: Option<usize>,
    rec_len: usize,
}

/// A change of a block: write these bytes at this offset (a multiple of 8).
pub type Patch = (usize, Vec<u8>);

/// Bytes that a name takes.
pub fn room_for(name: &[u8]) -> usize {
    (DENTRY_HEADER_SIZE + name.len()).next_multiple_of(8)
}

/// The header of a block's part of a bucket.
pub fn header(block: &[u8]) -> Option<BucketHeader> {
    BucketHeader::read_from_prefix(block.get(BLOCK_HEADER_SIZE..)?).ok().map(|(header, _)| header)
}

/// Calls `visit` for each place of a dentry, used or free. Lengths are verified, and that a name lies within its
/// dentry; of what the dentry says nothing else.
fn scan<'a, B>(
    block: &'a [u8],
    mut visit: impl FnMut(Spot, &'a DentryHeader, &'a [u8]) -> ControlFlow<B>,
) -> Result<Option<B>, &'static str> {
    let block = block.get(..BLOCK_SIZE).ok_or("a block is cut short")?;
    let mut previous = None;
    let mut at = BUCKET_START;
    while at < BLOCK_SIZE {
        let (header, rest) =
            DentryHeader::ref_from_prefix(&block[at..]).map_err(|_| "a dentry is cut short")?;
        let rec_len = usize::from(header.rec_len.get());
        if rec_len < DENTRY_HEADER_SIZE || !rec_len.is_multiple_of(8) || at + rec_len > BLOCK_SIZE {
            return Err("a dentry has an impossible length");
        }
        let mut name: &[u8] = &[];
        if header.nid.get() != 0 {
            let name_len = usize::from(header.name_len);
            if name_len == 0 || DENTRY_HEADER_SIZE + name_len > rec_len {
                return Err("a name has an impossible length");
            }
            name = &rest[..name_len];
        }
        if let ControlFlow::Break(found) = visit(Spot { at, previous, rec_len }, header, name) {
            return Ok(Some(found));
        }
        previous = Some(at);
        at += rec_len;
    }
    Ok(None)
}

/// What a dentry in use says, verified.
fn verified<'a>(header: &DentryHeader, name: &'a [u8]) -> Result<Dentry<'a>, &'static str> {
    let cookie = header.cookie.get();
    if !(FIRST_COOKIE..1 << 63).contains(&cookie) {
        return Err("a cookie is out of bounds");
    }
    if matches!(name, b"." | b"..") || name.iter().any(|c| matches!(c, 0 | b'/')) {
        return Err("a name cannot be one");
    }
    let file_type = FileType::from_dt(header.file_type).ok_or("a file type is unknown")?;
    Ok(Dentry { name, nid: header.nid.get(), cookie, file_type })
}

/// Calls `visit` for each dentry in use.
///
/// # Errors
/// What is wrong with the block; nothing after the first fault was visited.
pub fn walk<'a, B>(
    block: &'a [u8],
    mut visit: impl FnMut(Spot, Dentry<'a>) -> ControlFlow<B>,
) -> Result<Option<B>, &'static str> {
    let found = scan(block, |spot, header, name| match verified(header, name) {
        _ if header.nid.get() == 0 => ControlFlow::Continue(()),
        Ok(dentry) => visit(spot, dentry).map_break(Ok),
        Err(fault) => ControlFlow::Break(Err(fault)),
    })?;
    found.transpose()
}

/// Whether some aligned word of a block reads as a cookie of this hash. Without one no name in it has the hash; with
/// one there may be such a name, or what is left of one. The walk from dentry to dentry waits for each length before
/// it knows where the next lies, and so for each cache line in turn; here nothing depends on anything.
fn mentions(block: &[u8], hash: u64) -> bool {
    /// Words that are compared without a branch.
    const AT_ONCE: usize = 32;
    let (words, _) = block.get(BUCKET_START..).unwrap_or_default().as_chunks::<8>();
    let is_cookie = |word: &[u8; 8]| hash_of(u64::from_le_bytes(*word)) == hash;
    words.chunks(AT_ONCE).any(|words| words.iter().fold(false, |found, word| found | is_cookie(word)))
}

/// The dentry of a name, whose hash is known. Of the others, only lengths are verified, and only where one may have
/// that hash: this is what every operation on a name does.
pub fn find<'a>(block: &'a [u8], hash: u64, name: &[u8]) -> Result<Option<(Spot, Dentry<'a>)>, &'static str> {
    if !mentions(block, hash) {
        return Ok(None);
    }
    let found = scan(block, |spot, header, other| {
        if hash_of(header.cookie.get()) == hash && other == name {
            return ControlFlow::Break(verified(header, other).map(|dentry| (spot, dentry)));
        }
        ControlFlow::Continue(())
    })?;
    found.transpose()
}

/// Where a dentry can be put into a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Offset of the dentry that has room.
    at: usize,
    /// Bytes that it uses itself; 0 if it is free.
    used: usize,
    rec_len: usize,
}

/// The first gap for a name, unless the name is there already: then its dentry. `meet` is called with the cookie
/// of each other dentry of this hash.
pub fn gap<'a>(
    block: &'a [u8],
    hash: u64,
    name: &[u8],
    mut meet: impl FnMut(u64),
) -> Result<Result<Option<Gap>, Dentry<'a>>, &'static str> {
    let mut gap = None;
    let need = room_for(name);
    // If none can, the first gap ends the walk.
    let may_meet = mentions(block, hash);
    let found = scan(block, |spot, header, other| {
        let used = match header.nid.get() {
            0 => 0,
            _ => {
                if hash_of(header.cookie.get()) == hash {
                    if other == name {
                        return ControlFlow::Break(Some(verified(header, other)));
                    }
                    meet(header.cookie.get());
                }
                room_for(other)
            }
        };
        if gap.is_none() && spot.rec_len >= used + need {
            gap = Some(Gap { at: spot.at, used, rec_len: spot.rec_len });
            if !may_meet {
                return ControlFlow::Break(None);
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(match found.flatten().transpose()? {
        Some(there) => Err(there),
        None => Ok(gap),
    })
}

/// The bytes of a dentry with its name, padded.
fn encode(dentry: &Dentry, rec_len: usize) -> Vec<u8> {
    let header = DentryHeader {
        nid: U64::new(dentry.nid),
        cookie: U64::new(dentry.cookie),
        rec_len: U16::new(rec_len as u16),
        name_len: dentry.name.len() as u8,
        file_type: dentry.file_type as u8,
        reserved: U32::ZERO,
    };
    let mut bytes = Vec::with_capacity(room_for(dentry.name));
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(dentry.name);
    bytes.resize(room_for(dentry.name), 0);
    bytes
}

/// The word of a block's header that counts, changed by `by`.
fn count_patch(block: &[u8], by: i16) -> Result<Patch, &'static str> {
    let mut header = header(block).ok_or("a bucket has no header")?;
    let count = header.count.get().checked_add_signed(by).ok_or("a bucket's count is wrong")?;
    header.count = U16::new(count);
    Ok((BLOCK_HEADER_SIZE + 8, header.as_bytes()[8..].to_vec()))
}

/// The word with a dentry's length, changed to `rec_len`.
fn length_patch(block: &[u8], at: usize, rec_len: usize) -> Result<Patch, &'static str> {
    let mut word = block.get(at + 16..at + 24).ok_or("a dentry is cut short")?.to_vec();
    word[..2].copy_from_slice(&(rec_len as u16).to_le_bytes());
    Ok((at + 16, word))
}

/// How to put a dentry into a gap of a block.
pub fn insert(block: &[u8], gap: Gap, dentry: &Dentry) -> Result<Vec<Patch>, &'static str> {
    let mut patches = Vec::with_capacity(3);
    patches.push((gap.at + gap.used, encode(dentry, gap.rec_len - gap.used)));
    patches.push(count_patch(block, 1)?);
    if gap.used > 0 {
        patches.push(length_patch(block, gap.at, gap.used)?);
    }
    Ok(patches)
}

/// How to take the dentry at `spot` out: the one before it grows over it, the first becomes free.
pub fn remove(block: &[u8], spot: Spot) -> Result<Vec<Patch>, &'static str> {
    let gone = match spot.previous {
        Some(previous) => length_patch(block, previous, spot.at + spot.rec_len - previous)?,
        None => (spot.at, vec![0; 8]),
    };
    Ok(vec![gone, count_patch(block, -1)?])
}

/// How to make the dentry at `spot` lead to another inode.
pub fn replace(block: &[u8], spot: Spot, nid: Nid, file_type: FileType) -> Result<Vec<Patch>, &'static str> {
    let mut word = block.get(spot.at + 16..spot.at + 24).ok_or("a dentry is cut short")?.to_vec();
    word[3] = file_type as u8;
    Ok(vec![(spot.at, nid.to_le_bytes().to_vec()), (spot.at + 16, word)])
}

/// Fills blocks (from the bucket header on: [`BLOCK_HEADER_SIZE`] is cut off) with dentries, as many blocks as
/// it takes and at least one. `next` pointers are left 0.
pub fn pack(bucket: u32, dentries: &[Dentry]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let mut rest = dentries;
    loop {
        let mut room = BLOCK_SIZE - BUCKET_START;
        let fit = rest.iter().take_while(|d| match room.checked_sub(room_for(d.name)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        });
        let (now, later) = rest.split_at(fit.count());
        let header = BucketHeader {
            next: U64::ZERO,
            bucket: U32::new(bucket),
            count: U16::new(now.len() as u16),
            reserved: U16::ZERO,
        };
        let mut block = header.as_bytes().to_vec();
        match now.split_last() {
            Some((last, others)) => {
                others.iter().for_each(|d| block.extend(encode(d, room_for(d.name))));
                block.extend(encode(last, room_for(last.name) + room));
            }
            None => {
                let free = DentryHeader {
                    nid: U64::ZERO,
                    cookie: U64::ZERO,
                    rec_len: U16::new(room as u16),
                    name_len: 0,
                    file_type: 0,
                    reserved: U32::ZERO,
                };
                block.extend_from_slice(free.as_bytes());
            }
        }
        block.resize(BLOCK_SIZE - BLOCK_HEADER_SIZE, 0);
        blocks.push(block);
        rest = later;
        if rest.is_empty() {
            return blocks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn empty() -> Vec<u8> {
        let mut block = vec![0; BLOCK_HEADER_SIZE];
        block.extend(pack(3, &[]).remove(0));
        block
    }

    /// Puts an entry in, if it has room.
    fn put(block: &[u8], dentry: &Dentry) -> Result<Option<Vec<Patch>>, &'static str> {
        let gap = gap(block, hash_of(dentry.cookie), dentry.name, |_| {})?;
        gap.unwrap_or(None).map(|gap| insert(block, gap, dentry)).transpose()
    }

    fn apply(block: &mut [u8], patches: Vec<Patch>) {
        for (at, bytes) in patches {
            assert!(at % 8 == 0);
            block[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }

    fn names(block: &[u8]) -> BTreeMap<Vec<u8>, Nid> {
        let mut found = BTreeMap::new();
        walk(block, |_, d| {
            found.insert(d.name.to_vec(), d.nid);
            ControlFlow::<()>::Continue(())
        })
        .expect("sound");
        assert_eq!(usize::from(header(block).expect("header").count.get()), found.len());
        found
    }

    fn dentry(name: &[u8], nid: Nid) -> Dentry<'_> {
        Dentry { name, nid, cookie: FIRST_COOKIE + nid, file_type: FileType::Regular }
    }

    proptest! {
        #[test]
        fn a_block_holds_what_was_put_there(ops in proptest::collection::vec((0u8..3, 0usize..60, 1usize..256), 1..300)) {
            let mut block = empty();
            let mut model = BTreeMap::new();
            for (n, (op, name, len)) in ops.into_iter().enumerate() {
                let name: Vec<u8> = format!("{name:03}").into_bytes().into_iter().cycle().take(len.max(3)).collect();
                let nid = n as u64 + 1;
                let spot = walk(&block, |s, d| if d.name == name { ControlFlow::Break(s) } else { ControlFlow::Continue(()) }).unwrap();
                prop_assert_eq!(spot.is_some(), model.contains_key(&name));
                match (op, spot) {
                    (0, None) => if let Some(patches) = put(&block, &dentry(&name, nid)).unwrap() {
                        apply(&mut block, patches);
                        model.insert(name, nid);
                    },
                    (1, Some(spot)) => {
                        let patches = remove(&block, spot).unwrap();
                        apply(&mut block, patches);
                        model.remove(&name);
                    }
                    (_, Some(spot)) => {
                        let patches = replace(&block, spot, nid, FileType::Fifo).unwrap();
                        apply(&mut block, patches);
                        model.insert(name, nid);
                    }
                    _ => {}
                }
                prop_assert_eq!(&names(&block), &model);
            }
            let kept: Vec<_> = model.iter().map(|(name, nid)| dentry(name, *nid)).collect();
            let packed = pack(3, &kept);
            prop_assert_eq!(packed.len(), 1);
            block[BLOCK_HEADER_SIZE..].copy_from_slice(&packed[0]);
            prop_assert_eq!(&names(&block), &model);
        }

        #[test]
        fn any_block_is_walked_without_harm(seed in proptest::collection::vec(any::<u8>(), 4096), sane in any::<bool>()) {
            let mut block = seed;
            if sane {
                let whole = empty();
                block[..BUCKET_START + 24].copy_from_slice(&whole[..BUCKET_START + 24]);
                block[BUCKET_START] = 1;
            }
            if walk(&block, |_, _| ControlFlow::<()>::Continue(())).is_ok() {
                let _ = put(&block, &dentry(b"x", 1));
            }
        }
    }

    #[test]
    fn many_names_take_many_blocks() {
        let names: Vec<String> = (0..100).map(|n| format!("{n:0>255}")).collect();
        let all: Vec<_> = names.iter().zip(1..).map(|(name, nid)| dentry(name.as_bytes(), nid)).collect();
        let blocks = pack(0, &all);
        assert_eq!(blocks.len(), 100usize.div_ceil(14));
    }
}
