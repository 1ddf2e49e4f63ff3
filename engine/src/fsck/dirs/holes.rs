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
    /// What it leads to ends at a block of the directory that does not verify: what was behind that is found by itself.
    broken: bool,
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
            let found = Found { block, bucket, next, marked, position, broken: false };
            state.lost_buckets.entry(nid).or_default().push(found);
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
    let mut lost = std::mem::take(&mut state.lost_buckets);
    for (nid, blocks) in &mut lost {
        let Some(inode) = state.inode(*nid) else { continue };
        let dir = describe(&inode, 0);
        let mut known: HashSet<u64> = blocks.iter().map(|found| found.block).collect();
        let mut behind = Vec::new();
        for found in blocks.iter_mut() {
            let (mut next, bucket) = (found.next, found.bucket);
            for _ in 1..MAX_CHAIN {
                let is_whole = open(state, &dir, bucket, next).is_ok();
                if state.claims.has(next) || !is_whole && !is_ours(state, &dir, next) {
                    break;
                }
                state.image.held.add(next);
                found.broken |= !is_whole;
                let Ok(bytes) = state.image.read(next) else { break };
                let block = next;
                next = image::word(&bytes, BLOCK_HEADER_SIZE);
                if known.insert(block) {
                    // A damaged one only says what is behind it, which is no first then.
                    let header = image::header(&bytes).filter(|_| is_whole);
                    let position = header.map_or(0, |header| header.position.get());
                    behind.push(Found { block, bucket, next, marked: false, position, broken: !is_whole });
                }
            }
        }
        blocks.extend(behind);
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

/// The blocks that each bucket has lost from which the rest of them is found.
fn firsts(lost: &[Found]) -> BTreeMap<u32, Vec<u64>> {
    let mut buckets: BTreeMap<u32, BTreeMap<u64, &Found>> = BTreeMap::new();
    for found in lost {
        buckets.entry(found.bucket).or_default().insert(found.block, found);
    }
    buckets.into_iter().map(|(bucket, lost)| (bucket, firsts_of(&lost))).collect()
}

/// A block of a bucket, and those that it leads to.
fn way<'l>(lost: &BTreeMap<u64, &'l Found>, first: &'l Found) -> impl Iterator<Item = &'l Found> {
    std::iter::successors(Some(first), |found| lost.get(&found.next).copied()).take(MAX_CHAIN)
}

/// Those of one bucket. All that are marked are its own, and the first of those are that no other leads to. Of those that may
/// be free the newest alone is: where there is no other; where it is newer than those marked, for an interrupted repair has
/// marked what it was about to have that lead to; or where what it led to is damaged. And so is the newest that leads to a
/// marked one, unless a marked one does so too: what is behind it in its chain may be written without it.
fn firsts_of(lost: &BTreeMap<u64, &Found>) -> Vec<u64> {
    let (mut marked, free): (Vec<&Found>, Vec<&Found>) =
        lost.values().copied().partition(|found| found.marked);
    let led_to: HashSet<u64> =
        marked.iter().flat_map(|found| way(lost, found).skip(1)).map(|found| found.block).collect();
    let leads = |found: &&Found| way(lost, found).any(|on| on.marked && !led_to.contains(&on.block));
    let newest_marked = marked.iter().map(|found| found.position).max();
    let is_own = |found: &&Found| {
        found.broken || newest_marked.is_none_or(|newest| found.position > newest) || leads(found)
    };
    let followed: HashSet<u64> = lost.values().map(|found| found.next).collect();
    let free = || free.iter().copied().filter(|found| !followed.contains(&found.block));
    let newest = free().filter(is_own).max_by_key(|found| found.position);
    let leading = free().filter(leads).max_by_key(|found| found.position);
    let mut others: Vec<&Found> = leading.into_iter().chain(newest).collect();
    others.dedup_by_key(|found| found.block);
    let mut reached: HashSet<u64> =
        others.iter().flat_map(|found| way(lost, found)).map(|found| found.block).collect();
    // What others lead to and is not reached then has its chain in a circle.
    marked.sort_by_key(|found| led_to.contains(&found.block));
    let mut own = Vec::new();
    for found in marked {
        if !reached.contains(&found.block) {
            reached.extend(way(lost, found).map(|found| found.block));
            own.push(found);
        }
    }
    own.extend(others);
    // What is left of the damaged block has its place behind it, so nothing else has.
    own.sort_by_key(|found| found.broken);
    own.iter().map(|found| found.block).collect()
}

/// Makes one chain of several of a bucket: what was to lead from one to the other may not have come home. What would make it
/// too long is left out.
fn join(state: &mut State<'_>, dir: &Dir, bucket: u32, firsts: &[u64]) -> Result<()> {
    let mut joined: Vec<(u64, IoBuf)> = Vec::new();
    for first in firsts.iter().take(MAX_CHAIN) {
        let mut further = chain(state, dir, bucket, *first);
        // What leads to what is there already ends before that: its last block would be given another end than it has.
        let is_known = |(at, (block, _)): (usize, &(u64, IoBuf))| {
            further[..at].iter().chain(&joined).any(|(known, _)| known == block)
        };
        let met = further.iter().enumerate().position(is_known);
        further.truncate(met.unwrap_or(further.len()));
        if further.is_empty() || joined.len() + further.len() > MAX_CHAIN {
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
    let is_missing = |(_, block): &(u32, &Option<u64>)| block.is_none();
    let missing: Vec<u32> = (0..).zip(&buckets).filter(is_missing).map(|(bucket, _)| bucket).collect();
    let Some(made) = state.allocate_each(missing.len())? else { return Ok(false) };
    for (bucket, block) in missing.iter().zip(&made) {
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
        state.give_back(&made);
        return Ok(false);
    }
    // Not before: what is written and then given up is free for nothing else that this repair does.
    for (bucket, block) in missing.into_iter().zip(made) {
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn found(block: u64, next: u64, marked: bool, position: u64) -> Found {
        Found { block, bucket: 0, next, marked, position, broken: false }
    }

    fn of(lost: &[Found]) -> Vec<u64> {
        firsts(lost).remove(&0).expect("there are some")
    }

    /// It has taken it as free, for the marks of the group are lost that it lies in.
    #[test]
    fn a_block_whose_next_an_interrupted_repair_has_marked_alone_is_the_buckets_own() {
        assert_eq!(of(&[found(7, 0, false, 9), found(8, 0, true, 0)]), [8, 7]);
        // What is older than it is nobody's.
        assert_eq!(of(&[found(6, 0, false, 3), found(7, 0, false, 9), found(8, 0, true, 0)]), [8, 7]);
    }

    #[test]
    fn what_may_be_free_and_is_older_than_what_is_marked_is_left_out() {
        assert_eq!(of(&[found(7, 0, false, 5), found(8, 0, true, 5)]), [8]);
        // Marked, and led to.
        assert_eq!(of(&[found(7, 0, false, 5), found(8, 9, true, 4), found(9, 0, true, 6)]), [8]);
    }

    #[test]
    fn what_led_to_a_marked_block_by_way_of_a_damaged_one_is_the_buckets_own() {
        let first = Found { broken: true, ..found(7, 9, false, 4) };
        assert_eq!(of(&[first, found(8, 0, true, 5)]), [8, 7]);
    }

    /// Where the marks of its group are lost, and not those of the other's.
    #[test]
    fn what_leads_to_a_marked_block_is_the_buckets_own_however_old_it_is() {
        for position in [0, 4, 5] {
            assert_eq!(of(&[found(7, 8, false, 4), found(8, 0, true, position)]), [7]);
        }
        // By way of others.
        assert_eq!(of(&[found(7, 8, false, 4), found(8, 9, false, 4), found(9, 0, true, 5)]), [7]);
        // What may be free and leads nowhere is older than what is marked.
        assert_eq!(of(&[found(6, 0, false, 5), found(7, 8, false, 4), found(8, 0, true, 6)]), [7]);
        // What an interrupted repair has marked alone stands beside them.
        assert_eq!(of(&[found(7, 8, false, 4), found(8, 0, true, 6), found(9, 0, true, 0)]), [9, 7]);
        let damaged = Found { broken: true, ..found(6, 5, false, 3) };
        assert_eq!(of(&[damaged, found(7, 8, false, 4), found(8, 0, true, 6)]), [7]);
    }

    /// What leads there is mended in the next round, and what is behind the damaged block comes with it.
    #[test]
    fn what_is_behind_a_damaged_block_does_not_stand_for_what_leads_to_it() {
        let broken = |block, next, position| Found { broken: true, ..found(block, next, false, position) };
        assert_eq!(of(&[broken(7, 9, 4), broken(9, 8, 0), found(8, 0, false, 5)]), [7]);
        assert_eq!(of(&[broken(7, 9, 4), broken(9, 8, 0), found(8, 0, true, 5)]), [7]);
        // Beside what is newer than all, and may be what was there before.
        let lost = [broken(7, 9, 4), broken(9, 8, 0), found(8, 0, true, 5), found(6, 0, false, 6)];
        assert_eq!(of(&lost), [6, 7]);
    }

    #[test]
    fn of_several_that_lead_to_a_marked_block_the_newest_is_the_buckets_own() {
        let lost = [found(6, 8, false, 3), found(7, 8, false, 4), found(8, 0, true, 5)];
        assert_eq!(of(&lost), [7]);
        // None is, where a marked one leads there.
        assert_eq!(of(&[found(6, 8, false, 3), found(7, 8, true, 4), found(8, 0, true, 5)]), [7]);
        // By way of what may be free.
        let lost = [found(5, 8, false, 3), found(6, 7, true, 4), found(7, 8, false, 4), found(8, 0, true, 5)];
        assert_eq!(of(&lost), [6]);
        // What it leads to may be another's by now, so what is newer than all is not given up for it.
        assert_eq!(of(&[found(6, 8, false, 3), found(7, 0, false, 9), found(8, 0, true, 0)]), [6, 7]);
    }

    #[test]
    fn no_marked_block_goes_with_what_may_be_free_and_led_to_it() {
        let lost = [found(5, 7, false, 3), found(6, 8, false, 4), found(7, 0, true, 5), found(8, 0, true, 5)];
        assert_eq!(of(&lost), [7, 6]);
    }

    #[test]
    fn blocks_in_a_circle_are_found_from_one_of_them() {
        assert_eq!(of(&[found(7, 8, true, 4), found(8, 7, true, 5)]), [7]);
        assert_eq!(of(&[found(7, 8, false, 4), found(8, 7, true, 5)]), [8]);
        assert_eq!(of(&[found(6, 7, false, 4), found(7, 8, true, 4), found(8, 7, true, 5)]), [7]);
        assert_eq!(of(&[found(7, 7, true, 4), found(8, 0, true, 4)]), [8, 7]);
    }
}
