//! Directories of whose buckets some are not mapped any more, for a block of their extents is lost.
//!
//! In which bucket a name lies follows from how many there are: without those behind a hole most names of the others would
//! lie wrong too. So a hole is filled. Its buckets are still somewhere on the image, marked unless the marks are lost, and
//! nobody's; each says whose it is, and which. What is not found is made anew, empty. Where there is no room for that, what
//! lies behind the hole is given up.

use super::*;
use crate::fsck::nat::unclaimed;
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

/// A block of a bucket that was found: nothing that is mapped leads there.
pub(in crate::fsck) struct Found {
    block: u64,
    bucket: u32,
    /// The block after it.
    next: u64,
    /// It is marked. Where the marks are lost it may as well have been freed since.
    marked: bool,
    /// The position of its image in the journal: the later of two is the newer.
    position: u64,
}

/// Looks for the buckets of directories that have holes, and has nobody else take them. To be used once every block is
/// claimed.
pub(in crate::fsck) fn find_lost(state: &mut State<'_>) -> Result<()> {
    if state.holes.is_empty() {
        return Ok(());
    }
    let of = |nid: &Nid| Some((*nid, state.inode(*nid)?.generation.get()));
    let generations: BTreeMap<Nid, u32> = state.holes.iter().filter_map(of).collect();
    unclaimed(state, |state, block, bytes, marked| {
        let (Some(owner), Some(header)) = (image::header(bytes), bucket::header(bytes)) else {
            return Ok(());
        };
        let nid = owner.owner.get();
        if generations.get(&nid).is_some_and(|generation| image::foreign(bytes, nid, *generation).is_none())
            && state.image.verify(block, BlockKind::Bucket, bytes).is_ok()
        {
            let (bucket, next, position) = (header.bucket.get(), header.next.get(), owner.position.get());
            state.lost_buckets.entry(nid).or_default().push(Found { block, bucket, next, marked, position });
            state.image.held.add(block);
        }
        Ok(())
    })?;
    hold_chains(state);
    Ok(())
}

/// Has nobody take what lies behind those buckets in their chains either. That comes back with them, though it be marked as
/// free: a lost write of a bitmap leaves it so, as does a repair that was interrupted while names were on their way.
fn hold_chains(state: &mut State<'_>) {
    let lost = std::mem::take(&mut state.lost_buckets);
    let mut followed = HashSet::new();
    for (nid, blocks) in &lost {
        let Some(inode) = state.inode(*nid) else { continue };
        let dir = describe(&inode, 0);
        for found in blocks {
            let mut next = found.next;
            while !state.claims.has(next)
                && (open(state, &dir, found.bucket, next).is_ok() || is_ours(state, &dir, next))
                && followed.insert(next)
            {
                state.image.held.add(next);
                let Ok(bytes) = state.image.read(next) else { break };
                next = image::word(&bytes, BLOCK_HEADER_SIZE);
            }
        }
    }
    state.lost_buckets = lost;
}

/// Fills the holes that were found; whether there were any. To be used once every block is claimed.
pub(in crate::fsck) fn fill_holes(state: &mut State<'_>) -> Result<bool> {
    let dirs = std::mem::take(&mut state.holes);
    for nid in &dirs {
        let lost = state.lost_buckets.remove(nid).unwrap_or_default();
        let Some(mut inode) = state.inode(*nid) else { continue };
        if !fill(state, &mut inode, lost)? {
            cut_off(state, *nid, &mut inode)?;
        }
    }
    Ok(!dirs.is_empty())
}

/// The blocks that each bucket has lost to which none of its others leads: the rest is found from there. Those marked are
/// its own; of those that may be free the newest alone is, and only where there is no other.
fn firsts(lost: &[Found]) -> BTreeMap<u32, Vec<u64>> {
    let followed: HashSet<(u32, u64)> = lost.iter().map(|found| (found.bucket, found.next)).collect();
    let mut firsts: BTreeMap<u32, Vec<&Found>> = BTreeMap::new();
    for found in lost.iter().filter(|found| !followed.contains(&(found.bucket, found.block))) {
        firsts.entry(found.bucket).or_default().push(found);
    }
    let own = |blocks: Vec<&Found>| -> Vec<u64> {
        let marked: Vec<u64> = blocks.iter().filter(|found| found.marked).map(|found| found.block).collect();
        let newest = blocks.iter().max_by_key(|found| found.position).map(|found| found.block);
        if marked.is_empty() { newest.into_iter().collect() } else { marked }
    };
    firsts.into_iter().map(|(bucket, blocks)| (bucket, own(blocks))).collect()
}

/// Makes one chain of several of a bucket: what was to lead from one to the other may not have come home. What would make it
/// too long is left out.
fn join(state: &mut State<'_>, dir: &Dir, bucket: u32, firsts: &[u64]) -> Result<()> {
    let mut joined: Vec<(u64, IoBuf)> = Vec::new();
    for first in firsts {
        let further = chain(state, dir, bucket, *first);
        if joined.len() + further.len() > MAX_CHAIN {
            continue;
        }
        if let Some((last, bytes)) = joined.last_mut() {
            bytes[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8].copy_from_slice(&first.to_le_bytes());
            state.image.put(*last, BlockKind::Bucket, bytes.clone())?;
        }
        joined.extend(further);
    }
    Ok(())
}

/// Maps the buckets that are missing; false, and the inode is as it was, where there is no room.
fn fill(state: &mut State<'_>, inode: &mut Inode, lost: Vec<Found>) -> Result<bool> {
    let nid = inode.nid.get();
    let all = All::of(state, inode)?;
    let mut buckets: Vec<Option<u64>> = vec![None; inode.buckets.get() as usize];
    for (bucket, block) in all.buckets() {
        if let Some(place) = buckets.get_mut(bucket as usize) {
            *place = Some(block);
        }
    }
    let dir = describe(inode, buckets.len());
    for (bucket, firsts) in firsts(&lost) {
        if let Some(place @ None) = buckets.get_mut(bucket as usize) {
            join(state, &dir, bucket, &firsts)?;
            *place = firsts.first().copied();
        }
    }
    let mut made = Vec::new();
    for bucket in (0..).zip(&buckets).filter(|(_, block)| block.is_none()).map(|(bucket, _)| bucket) {
        let Some(block) = state.allocate(1, true)? else { return Ok(false) };
        made.push((bucket, block));
    }
    for (bucket, block) in &made {
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
    // Not before: what is written and then given up is free for nothing else that this repair does.
    for (bucket, block) in made {
        write_bucket(state, &dir, bucket, block, 0, &[])?;
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
