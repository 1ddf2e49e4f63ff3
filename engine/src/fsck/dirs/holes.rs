//! Directories of whose buckets some are not mapped any more, for a block of their extents is lost.
//!
//! In which bucket a name lies follows from how many there are: without those behind a hole most names of the others would
//! lie wrong too. So a hole is filled. Its buckets are still somewhere on the image, marked, and nobody's; each says whose
//! it is, and which. What is not found is made anew, empty. Where there is no room for that, what lies behind the hole is
//! given up.

use super::*;
use crate::fsck::state::is_marked;
use crate::superblock::{group_blocks, group_start};
use std::collections::BTreeMap;

/// Buckets that are missing of a directory, at the most: of a number beyond nothing is to be believed.
const MOST: u64 = 1 << 20;

/// The runs of a directory's buckets.
#[derive(Default)]
pub(super) struct All {
    runs: Vec<Run>,
    /// There are others.
    unwritten: bool,
}

impl Visitor for All {
    fn node(&mut self, _: &mut State<'_>, _: u64) -> bool {
        true
    }

    fn run(&mut self, _: &mut State<'_>, run: &mut Run) -> Result<bool> {
        if run.unwritten {
            self.unwritten = true;
        } else {
            self.runs.push(*run);
        }
        Ok(true)
    }
}

impl All {
    /// Those of an inode.
    pub fn of(state: &mut State<'_>, inode: &Inode) -> Result<All> {
        let mut all = All::default();
        extents::walk(state, &mut inode.clone(), &mut all)?;
        Ok(all)
    }

    /// The buckets that are mapped, with their blocks.
    pub fn buckets(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.runs.iter().flat_map(|run| (run.logical..).zip(run.block..run.block + u64::from(run.len)))
    }

    /// Where the inode's size is that of its buckets: how many of them are not mapped, if nothing is that is none.
    fn missing(&self, inode: &Inode) -> Option<u64> {
        let said = u64::from(inode.buckets.get());
        let mapped: u64 = self.runs.iter().map(|run| u64::from(run.len)).sum();
        let holds = inode.size.get() == said * BLOCK_SIZE as u64
            && self.runs.last().is_none_or(|run| run.end() <= said);
        said.checked_sub(mapped).filter(|_| holds)
    }

    /// Whether all of it is as it should be.
    pub fn is_whole(&self, inode: &Inode) -> bool {
        !self.unwritten && self.missing(inode) == Some(0)
    }

    /// Whether a part of the tree is lost.
    pub fn has_holes(&self, inode: &Inode) -> bool {
        self.missing(inode).is_some_and(|missing| missing > 0 && missing <= MOST)
    }
}

/// Fills the holes that were found; whether there were any. To be used once every block is claimed.
pub(in crate::fsck) fn fill_holes(state: &mut State<'_>) -> Result<bool> {
    let dirs = std::mem::take(&mut state.holes);
    if dirs.is_empty() {
        return Ok(false);
    }
    let mut lost = lost_buckets(state, &dirs)?;
    for nid in dirs {
        let Some(mut inode) = state.inode(nid) else { continue };
        if !fill(state, &mut inode, lost.remove(&nid).unwrap_or_default())? {
            cut_off(state, nid, &mut inode)?;
        }
    }
    Ok(true)
}

/// A block that was found: which bucket it is of, and the block after it.
type Found = (u64, u32, u64);

/// Blocks of buckets of these directories that are marked, and nobody's.
fn lost_buckets(state: &mut State<'_>, dirs: &[Nid]) -> Result<BTreeMap<Nid, Vec<Found>>> {
    let mut blocks = Vec::new();
    state.bitmaps(|state, group, bytes| {
        let Ok(bytes) = bytes else { return Ok(()) };
        let (first, len) = (group_start(&state.image.sb, group), group_blocks(&state.image.sb, group));
        let lost = |at: &u64| is_marked(bytes, *at) && !state.claims.has(first + at);
        blocks.extend((1..len).filter(lost).map(|at| first + at));
        Ok(())
    })?;
    let generations: BTreeMap<Nid, u32> =
        dirs.iter().filter_map(|nid| Some((*nid, state.inode(*nid)?.generation.get()))).collect();
    let mut found: BTreeMap<Nid, Vec<Found>> = BTreeMap::new();
    for blocks in blocks.chunks(BATCH) {
        for (block, read) in blocks.iter().zip(state.image.read_many(blocks)) {
            let Ok(bytes) = read else { continue };
            let Some(nid) = image::header(&bytes).map(|header| header.owner.get()) else { continue };
            let is_whole = || state.image.verify(*block, BlockKind::Bucket, &bytes).is_ok();
            let is_of = |generation: &u32| image::foreign(&bytes, nid, *generation).is_none() && is_whole();
            if generations.get(&nid).is_some_and(is_of)
                && let Some(header) = bucket::header(&bytes)
            {
                found.entry(nid).or_default().push((*block, header.bucket.get(), header.next.get()));
            }
        }
    }
    Ok(found)
}

/// Maps the buckets that are missing; false, and nothing is done, where there is no room.
fn fill(state: &mut State<'_>, inode: &mut Inode, lost: Vec<Found>) -> Result<bool> {
    let nid = inode.nid.get();
    let all = All::of(state, inode)?;
    let mut buckets: Vec<Option<u64>> = vec![None; inode.buckets.get() as usize];
    for (bucket, block) in all.buckets() {
        if let Some(place) = buckets.get_mut(bucket as usize) {
            *place = Some(block);
        }
    }
    let followed: HashSet<u64> = lost.iter().map(|(_, _, next)| *next).collect();
    // The first of a chain is the one that no other leads to; the rest of it is found from there.
    for (block, bucket, _) in lost.iter().filter(|(block, ..)| !followed.contains(block)) {
        if let Some(place @ None) = buckets.get_mut(*bucket as usize) {
            *place = Some(*block);
            state.claim_metadata(*block);
        }
    }
    let dir = describe(inode, buckets.len());
    let mut made = Vec::new();
    for bucket in (0..).zip(&buckets).filter(|(_, block)| block.is_none()).map(|(bucket, _)| bucket) {
        let Some(block) = state.allocate(1, true)? else { return Ok(false) };
        made.push((bucket, block));
    }
    for (bucket, block) in &made {
        write_bucket(state, &dir, *bucket, *block, 0, &[])?;
        buckets[*bucket as usize] = Some(*block);
    }
    let mut runs: Vec<Run> = Vec::new();
    for (bucket, block) in (0..).zip(buckets.iter().flatten()) {
        match runs.last_mut().filter(|run| run.block + u64::from(run.len) == *block) {
            Some(run) => run.len += 1,
            None => runs.push(Run { logical: bucket, len: 1, block: *block, unwritten: false }),
        }
    }
    if !extents::build(state, inode, runs)? {
        return Ok(false);
    }
    state.put_inode(nid, inode)?;
    Ok(true)
}

/// Gives up what lies behind the first hole.
fn cut_off(state: &mut State<'_>, nid: Nid, inode: &mut Inode) -> Result<()> {
    let mut gather = Gather { blocks: Vec::new(), trim: true };
    extents::walk(state, inode, &mut gather)?;
    inode.buckets.set(gather.blocks.len() as u32);
    inode.size.set(gather.blocks.len() as u64 * BLOCK_SIZE as u64);
    state.put_inode(nid, inode)
}
