//! Changing a block of a bucket: the few words that differ, or a block filled anew.

use super::bucket::{Dentry, Fault, Spot, dentry_at, header, rec_len, room_for, verified, whole};
use super::search::Gap;
use crate::device::BLOCK_SIZE;
use crate::format::{
    BLOCK_HEADER_SIZE, BUCKET_START, BucketHeader, DENTRY_HEADER_SIZE, DentryHeader, MAX_NAME, Nid, U16, U32,
    U64,
};
use crate::inode::FileType;
use zerocopy::IntoBytes;

/// Bytes of the longest dentry, and of two words.
const MOST: usize = (DENTRY_HEADER_SIZE + MAX_NAME).next_multiple_of(8) + 16;

/// A change of a block: up to three pieces, each to be written at an offset that is a multiple of 8.
pub(crate) struct Patches {
    bytes: [u8; MOST],
    used: usize,
    /// Offset in the block, and where its bytes end.
    pieces: [(usize, usize); 3],
    count: usize,
}

impl Patches {
    fn new() -> Patches {
        Patches { bytes: [0; MOST], used: 0, pieces: [(0, 0); 3], count: 0 }
    }

    /// Another piece of `len` bytes, zeros so far, to be written at `at`.
    fn add(&mut self, at: usize, len: usize) -> &mut [u8] {
        let from = self.used;
        self.used += len;
        self.pieces[self.count] = (at, self.used);
        self.count += 1;
        &mut self.bytes[from..self.used]
    }

    /// The pieces: where each is to be written, and what.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut from = 0;
        self.pieces[..self.count].iter().map(move |&(at, end)| {
            let bytes = &self.bytes[from..end];
            from = end;
            (at, bytes)
        })
    }

    /// The word of a block's header that counts, changed by `by`.
    fn count(&mut self, block: &[u8], by: i16) -> Result<(), Fault> {
        let mut header = header(block).ok_or("a bucket has no header")?;
        let count = header.count.get().checked_add_signed(by).ok_or("a bucket's count is wrong")?;
        header.count = U16::new(count);
        self.add(BLOCK_HEADER_SIZE + 8, 8).copy_from_slice(&header.as_bytes()[8..]);
        Ok(())
    }

    /// The word with a dentry's length, to be changed.
    fn length_word(&mut self, block: &[u8], at: usize) -> Result<&mut [u8], Fault> {
        let word = block.get(at + 16..at + 24).ok_or("a dentry is cut short")?;
        let piece = self.add(at + 16, 8);
        piece.copy_from_slice(word);
        Ok(piece)
    }

    /// The same, changed to `rec_len`.
    fn length(&mut self, block: &[u8], at: usize, rec_len: usize) -> Result<(), Fault> {
        self.length_word(block, at)?[..2].copy_from_slice(&(rec_len as u16).to_le_bytes());
        Ok(())
    }
}

/// The bytes of a dentry with its name, into as many zeros as it has room for.
fn encode(dentry: &Dentry, rec_len: usize, into: &mut [u8]) {
    let header = DentryHeader {
        nid: U64::new(dentry.nid),
        cookie: U64::new(dentry.cookie),
        rec_len: U16::new(rec_len as u16),
        name_len: dentry.name.len() as u8,
        file_type: dentry.file_type as u8,
        reserved: U32::ZERO,
    };
    into[..DENTRY_HEADER_SIZE].copy_from_slice(header.as_bytes());
    into[DENTRY_HEADER_SIZE..DENTRY_HEADER_SIZE + dentry.name.len()].copy_from_slice(dentry.name);
}

/// How to put a dentry into a gap of a block.
pub(crate) fn insert(block: &[u8], gap: Gap, dentry: &Dentry) -> Result<Patches, Fault> {
    let mut patches = Patches::new();
    let into = patches.add(gap.at + gap.used, room_for(dentry.name));
    encode(dentry, gap.rec_len - gap.used, into);
    patches.count(block, 1)?;
    if gap.used > 0 {
        patches.length(block, gap.at, gap.used)?;
    }
    Ok(patches)
}

/// How to take the dentry at `spot` out: the one before it grows over it, the first becomes free.
pub(crate) fn remove(block: &[u8], spot: Spot) -> Result<Patches, Fault> {
    let mut patches = Patches::new();
    match spot.previous {
        Some(previous) => patches.length(block, previous, spot.at + spot.rec_len - previous)?,
        None => patches.add(spot.at, 8).fill(0),
    }
    patches.count(block, -1)?;
    Ok(patches)
}

/// Takes the dentries out that are not to stay, as [`remove`] does one by one.
pub(super) fn retain(block: &mut [u8], mut stays: impl FnMut(&Dentry) -> bool) -> Result<(), Fault> {
    let mut last = None;
    let mut gone = 0;
    let mut at = BUCKET_START;
    while at < BLOCK_SIZE {
        let whole = whole(block)?;
        let rec_len = rec_len(whole, at)?;
        let goes = match dentry_at(whole, at, rec_len)? {
            Some((header, name)) => !stays(&verified(header, name)?),
            None => false,
        };
        gone += u16::from(goes);
        match last.filter(|_| goes) {
            Some(last) => {
                let length = (at + rec_len - last) as u16;
                block[last + 16..last + 18].copy_from_slice(&length.to_le_bytes());
            }
            None => {
                if goes {
                    block[at..at + 8].fill(0);
                }
                last = Some(at);
            }
        }
        at += rec_len;
    }
    let mut header = header(block).ok_or("a bucket has no header")?;
    let count = header.count.get().checked_sub(gone).ok_or("a bucket's count is wrong")?;
    header.count = U16::new(count);
    block[BLOCK_HEADER_SIZE..BUCKET_START].copy_from_slice(header.as_bytes());
    Ok(())
}

/// How to make the dentry at `spot` lead to another inode.
pub(crate) fn replace(block: &[u8], spot: Spot, nid: Nid, file_type: FileType) -> Result<Patches, Fault> {
    let mut patches = Patches::new();
    patches.add(spot.at, 8).copy_from_slice(&nid.to_le_bytes());
    patches.length_word(block, spot.at)?[3] = file_type as u8;
    Ok(patches)
}

/// Fills blocks (from the bucket header on: [`BLOCK_HEADER_SIZE`] is cut off) with dentries, as many blocks as
/// it takes and at least one; what may lie behind the last dentry's name is not given. `next` pointers are left 0.
pub(crate) fn pack(bucket: u32, dentries: &[Dentry]) -> Vec<Vec<u8>> {
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
        let mut block = Vec::with_capacity(BLOCK_SIZE);
        block.extend_from_slice(header.as_bytes());
        match now.split_last() {
            Some((last, others)) => {
                let mut put = |d: &Dentry, more: usize| {
                    let from = block.len();
                    block.resize(from + room_for(d.name), 0);
                    encode(d, room_for(d.name) + more, &mut block[from..]);
                };
                others.iter().for_each(|d| put(d, 0));
                put(last, room);
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
        blocks.push(block);
        rest = later;
        if rest.is_empty() {
            return blocks;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::bucket::{find, gap, walk};
    use super::super::hash::hash_of;
    use super::*;
    use crate::format::FIRST_COOKIE;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    pub(in crate::dir) fn empty() -> Vec<u8> {
        let mut block = vec![0; BLOCK_SIZE];
        fill(&mut block, &[]);
        block
    }

    fn fill(block: &mut [u8], dentries: &[Dentry]) {
        let packed = pack(3, dentries);
        assert_eq!(packed.len(), 1);
        block[BLOCK_HEADER_SIZE..][..packed[0].len()].copy_from_slice(&packed[0]);
    }

    /// Puts an entry in, if it has room.
    fn put(block: &[u8], dentry: &Dentry) -> Result<Option<Patches>, Fault> {
        let gap = gap(block, hash_of(dentry.cookie), dentry.name, true, |_| {})?;
        gap.unwrap_or(None).map(|gap| insert(block, gap, dentry)).transpose()
    }

    pub(in crate::dir) fn apply(block: &mut [u8], patches: &Patches) {
        for (at, bytes) in patches.iter() {
            assert!(at % 8 == 0);
            block[at..at + bytes.len()].copy_from_slice(bytes);
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
                let found = walk(&block, |s, d| if d.name == name { ControlFlow::Break((s, d)) } else { ControlFlow::Continue(()) }).unwrap();
                prop_assert_eq!(found.is_some(), model.contains_key(&name));
                if let Some((spot, there)) = found {
                    prop_assert_eq!(find(&block, hash_of(there.cookie), &name), Ok(Some((spot, there))));
                }
                match (op, found) {
                    (0, None) => if let Some(patches) = put(&block, &dentry(&name, nid)).unwrap() {
                        apply(&mut block, &patches);
                        model.insert(name, nid);
                    },
                    (1, Some((spot, _))) => {
                        let patches = remove(&block, spot).unwrap();
                        apply(&mut block, &patches);
                        model.remove(&name);
                    }
                    (_, Some((spot, _))) => {
                        let patches = replace(&block, spot, nid, FileType::Fifo).unwrap();
                        apply(&mut block, &patches);
                        model.insert(name, nid);
                    }
                    _ => {}
                }
                prop_assert_eq!(&names(&block), &model);
            }
            let mut divided = block.clone();
            retain(&mut divided, |d| d.nid % 3 != 0).unwrap();
            model.retain(|_, nid| *nid % 3 != 0);
            prop_assert_eq!(&names(&divided), &model);
            let kept: Vec<_> = model.iter().map(|(name, nid)| dentry(name, *nid)).collect();
            fill(&mut block, &kept);
            prop_assert_eq!(&names(&block), &model);
        }

        #[test]
        fn any_block_is_walked_without_harm(
            seed in proptest::collection::vec(any::<u8>(), 4096),
            sane in any::<bool>(),
            at in BUCKET_START / 8..BLOCK_SIZE / 8,
        ) {
            let mut block = seed;
            if sane {
                let whole = empty();
                block[..BUCKET_START + 24].copy_from_slice(&whole[..BUCKET_START + 24]);
                block[BUCKET_START] = 1;
            }
            let hash = hash_of(u64::from_le_bytes(*block[at * 8..].first_chunk().unwrap()));
            let _ = find(&block, hash, b"x");
            let _ = gap(&block, hash, b"x", true, |_| {});
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
