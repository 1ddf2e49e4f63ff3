//! Names on their way from one block of a directory to another.
//!
//! A repair writes its blocks one after the other, and may be interrupted between any two: a name that moves from one to
//! another would stand in neither, where that which it leaves goes home first, and two buckets may well have names of each
//! other. So the names that leave a block are kept in one of their own, behind it in the chain, until everything else is
//! home ([`super::super::repair`]). What is interrupted before finds them there: as names that lie in the wrong bucket
//! once more, or that are there twice.

use super::entry::{Entry, bucket_block};
use super::{Dir, MAX_CHAIN};
use crate::Result;
use crate::device::IoBuf;
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, Nid};
use crate::fsck::image::{self, Image};
use crate::fsck::state::State;

/// Free blocks that are asked for at a time, at the most.
const ROW: usize = 256;

/// The names that leave a block.
pub(in crate::fsck) struct Leaving {
    dir: Nid,
    generation: u32,
    bucket: u32,
    entries: Vec<Entry>,
}

impl Leaving {
    pub(super) fn new(dir: &Dir, bucket: u32, entries: Vec<Entry>) -> Leaving {
        Leaving { dir: dir.nid, generation: dir.generation, bucket, entries }
    }

    /// A block that has them, and goes on with another.
    fn block(&self, next: u64) -> IoBuf {
        // They were in one block. Nobody takes it for newer than what they have left, wherever it is found later.
        let dir = Dir { nid: self.dir, generation: self.generation, buckets: 0 };
        bucket_block(&dir, self.bucket, next, &self.entries)
    }
}

/// Takes note of the names that leave blocks of a chain of so many.
pub(super) fn note(state: &mut State<'_>, length: usize, leaving: Vec<(u64, Leaving)>) {
    // A longer one would not be followed to its end.
    if length + leaving.len() <= MAX_CHAIN {
        for (block, leaving) in leaving {
            state.image.leaving.entry(block).or_insert(leaving);
        }
    }
}

/// Finds free blocks for them, once everything is settled: none stays in use. Where there are none left, the rest goes
/// without.
pub(in crate::fsck) fn find_room(state: &mut State<'_>) -> Result<()> {
    let blocks: Vec<u64> = state.image.leaving.keys().copied().collect();
    let (mut done, mut row) = (0, ROW);
    while done < blocks.len() && row > 0 {
        row = row.min(blocks.len() - done);
        match state.allocate(row as u32, false)? {
            Some(first) => {
                state.image.kept_in.extend(blocks[done..done + row].iter().copied().zip(first..));
                done += row;
            }
            None => row /= 2,
        }
    }
    Ok(())
}

/// A block as it goes home first, and the block that has what leaves it with its place: both sealed; none, where nothing
/// leaves it.
pub(in crate::fsck) fn with_leaving(
    image: &Image,
    block: u64,
    home: &IoBuf,
) -> Option<(IoBuf, (u64, IoBuf))> {
    let (leaving, at) = (image.leaving.get(&block)?, *image.kept_in.get(&block)?);
    let header = image::header(home).filter(|header| header.kind() == Some(BlockKind::Bucket))?;
    if header.owner.get() != leaving.dir || header.generation.get() != leaving.generation {
        return None;
    }
    let mut first = home.clone();
    first[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8].copy_from_slice(&at.to_le_bytes());
    let kept = leaving.block(image::word(home, BLOCK_HEADER_SIZE));
    let sealed = |block, buf| image.sealed(block, BlockKind::Bucket, buf);
    Some((sealed(block, first), (at, sealed(at, kept))))
}
