//! What directories seem to have of buckets, and whether they do.
//!
//! Nothing is written over in a block that another has: a wrong entry in a directory's tree would otherwise cost a file
//! its data, or another directory its names. A block that says whose bucket it is belongs to whom it says. One that does
//! not, for it is damaged or no bucket, belongs to the directory only if nobody else has it.

use crate::Result;
use crate::extent::Run;
use crate::format::{BlockKind, Nid};
use crate::fsck::extents::{self, Visitor};
use crate::fsck::image::{self, BATCH, Bits};
use crate::fsck::issue::{IssueKind, Location};
use crate::fsck::seats::{self, places};
use crate::fsck::state::State;
use crate::inode::FileType;

/// Buckets of a directory that are read ahead: most have fewer.
const AHEAD: usize = 4;

/// Reads the first buckets of directories in one batch; what was read ahead stays.
pub(super) fn read_ahead(state: &State<'_>, batch: &[(u64, Nid)]) {
    let inodes = batch.iter().filter_map(|(_, nid)| state.inode(*nid));
    let mut blocks: Vec<u64> = inodes.flat_map(|inode| extents::first_buckets(&inode, AHEAD)).collect();
    blocks.retain(|block| state.image.holds(*block));
    if !blocks.is_empty() {
        state.image.read_further_ahead(&blocks);
    }
}

/// Whether each block of a run says that it is a bucket of this directory. One that cannot be read ends the check.
pub(super) fn are_of(state: &mut State<'_>, nid: Nid, run: &Run) -> bool {
    let Some(generation) = state.inode(nid).map(|inode| inode.generation.get()) else { return false };
    let says_so = |bytes: &[u8]| {
        image::header(bytes).is_some_and(|header| header.kind() == Some(BlockKind::Bucket))
            && image::foreign(bytes, nid, generation).is_none()
    };
    let blocks: Vec<u64> = (run.block..run.block + u64::from(run.len)).collect();
    for blocks in blocks.chunks(BATCH) {
        let read = match blocks.len() {
            0..=AHEAD => blocks.iter().map(|block| state.image.read(*block)).collect(),
            _ => state.image.read_many(blocks),
        };
        for (block, read) in blocks.iter().zip(read) {
            match read {
                Ok(bytes) if says_so(&bytes) => {}
                Ok(_) => return false,
                Err(why) => state.found(IssueKind::Bucket, Location::both(nid, *block), why),
            }
        }
    }
    true
}

/// Claims the blocks of buckets.
pub(super) fn claim(state: &mut State<'_>, nid: Nid, run: &Run) {
    state.claims.add_all(run.block, run.len.into());
    state.metadata.add_all(run.block, run.len.into());
    if let Some(record) = state.records.get_mut(nid) {
        record.blocks += u64::from(run.len);
    }
}

/// Decides on what is doubtful, once all other metadata are claimed.
pub(super) fn settle(state: &mut State<'_>) -> Result<()> {
    let mut doubtful = std::mem::take(&mut state.doubtful);
    if doubtful.is_empty() {
        return Ok(());
    }
    let data = data_of_files(state)?;
    for runs in doubtful.chunk_by_mut(|a, b| a.0 == b.0) {
        runs.sort_unstable_by_key(|(_, run)| run.logical);
        let Some((nid, _)) = runs.first().copied() else { continue };
        let Some(mut inode) = state.inode(nid) else { continue };
        let mut visitor = Settle { nid, runs, data: &data };
        if extents::walk(state, &mut inode, &mut visitor)? {
            state.put_inode(nid, &inode)?;
        }
    }
    Ok(())
}

/// Whether a block is whole, and says that it is no bucket of this directory: what a chain or a table leads to is claimed
/// after this.
fn says_otherwise(state: &State<'_>, nid: Nid, block: u64) -> bool {
    let Ok(bytes) = state.image.read(block) else { return false };
    let Some(kind) = image::header(&bytes).and_then(|header| header.kind()) else { return false };
    let is_ours = || {
        let generation = state.inode(nid).map_or(0, |inode| inode.generation.get());
        kind == BlockKind::Bucket && image::foreign(&bytes, nid, generation).is_none()
    };
    state.image.verify(block, kind, &bytes).is_ok() && !is_ours()
}

/// The blocks that regular files map.
fn data_of_files(state: &mut State<'_>) -> Result<Bits> {
    let mut mapped = Mapped(Bits::new(state.image.sb.blocks.get()));
    let mut files = places(state);
    files.retain(|(_, nid)| {
        state.records.get(*nid).is_some_and(|record| record.file_type() == Some(FileType::Regular))
    });
    for batch in files.chunks(BATCH) {
        seats::read_ahead(state, batch);
        for (_, nid) in batch {
            let Some(mut inode) = state.inode(*nid) else { continue };
            extents::walk(state, &mut inode, &mut mapped)?;
        }
    }
    Ok(mapped.0)
}

/// Gathers what files map.
struct Mapped(Bits);

impl Visitor for Mapped {
    fn node(&mut self, _: &mut State<'_>, _: u64) -> bool {
        true
    }

    fn run(&mut self, _: &mut State<'_>, run: &mut Run) -> Result<bool> {
        self.0.add_all(run.block, run.len.into());
        Ok(true)
    }
}

/// Claims of doubtful runs what nobody else has, up to the first block that somebody has.
struct Settle<'s> {
    nid: Nid,
    runs: &'s [(Nid, Run)],
    data: &'s Bits,
}

impl Visitor for Settle<'_> {
    fn node(&mut self, _: &mut State<'_>, _: u64) -> bool {
        true
    }

    fn run(&mut self, state: &mut State<'_>, run: &mut Run) -> Result<bool> {
        let at = self.runs.binary_search_by_key(&run.logical, |(_, doubtful)| doubtful.logical);
        if at.ok().and_then(|at| self.runs.get(at)).is_none_or(|(_, doubtful)| doubtful != run) {
            return Ok(true);
        }
        let free = |block: &u64| {
            !state.claims.has(*block) && !self.data.has(*block) && !says_otherwise(state, self.nid, *block)
        };
        let own = (run.block..run.block + u64::from(run.len)).take_while(free).count() as u32;
        if own < run.len {
            let block = run.block + u64::from(own);
            let (first, last) = (u64::from(run.logical) + u64::from(own), run.end() - 1);
            let detail = format!("buckets {first} to {last}: something else uses their blocks");
            state.found(IssueKind::BlockTwoOwners, Location::both(self.nid, block), detail);
            run.len = own;
        }
        claim(state, self.nid, run);
        Ok(own > 0)
    }
}
