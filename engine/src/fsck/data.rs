//! File data: each block has one owner; the count of blocks of every inode.

use super::Stage;
use super::extents::{self, Visitor};
use super::image::{BATCH, Copy};
use super::inodes::{places, read_ahead};
use super::issue::{IssueKind, Place};
use super::state::State;
use crate::Result;
use crate::extent::Run;
use crate::format::Nid;
use crate::inode::FileType;
use std::collections::HashSet;

/// Claims the data of every file, and counts.
pub(super) fn check(state: &mut State<'_>) -> Result<()> {
    let places = places(state);
    let mut contested = Vec::new();
    for (done, batch) in places.chunks(BATCH).enumerate() {
        state.at(Stage::Data, (done * BATCH) as u64, places.len() as u64);
        read_ahead(state, batch);
        for (_, nid) in batch {
            let kind = state.records.get(*nid).and_then(|record| record.file_type());
            let (Some(file_type), Some(mut inode)) = (kind, state.inode(*nid)) else { continue };
            if file_type == FileType::Regular {
                let mut claim = Claim { nid: *nid, contested: Vec::new(), blocks: 0 };
                extents::walk(state, &mut inode, &mut claim)?;
                if !claim.contested.is_empty() {
                    contested.push((*nid, claim.contested));
                }
                if let Some(record) = state.records.get_mut(*nid) {
                    record.blocks += claim.blocks;
                }
            }
            let counted = state.records.get(*nid).map_or(0, |record| record.blocks);
            if inode.blocks.get() != counted {
                let detail = format!("it says {} blocks and has {counted}", inode.blocks);
                state.found(IssueKind::InodeBlocks, Place::nid(*nid), detail);
                inode.blocks.set(counted);
                state.put_inode(*nid, &inode)?;
            }
        }
    }
    for (nid, runs) in contested {
        let Some(mut inode) = state.inode(nid) else { continue };
        let mut visitor = Relocate { nid, runs: runs.into_iter().collect() };
        if extents::walk(state, &mut inode, &mut visitor)? {
            state.put_inode(nid, &inode)?;
        }
    }
    Ok(())
}

/// Claims runs; those that others own in part are noted.
struct Claim {
    nid: Nid,
    contested: Vec<u32>,
    blocks: u64,
}

impl Visitor for Claim {
    fn node(&mut self, _: &mut State<'_>, _: u64) -> bool {
        true
    }

    fn run(&mut self, state: &mut State<'_>, run: &mut Run) -> Result<bool> {
        let len = u64::from(run.len);
        if !state.claims.none_of(run.block, len) {
            let first =
                (run.block..run.block + len).find(|block| state.claims.has(*block)).unwrap_or(run.block);
            let detail =
                format!("something else owns it too; the file maps {len} blocks from {} on", run.block);
            state.found(IssueKind::BlockTwoOwners, Place::both(self.nid, first), detail);
            self.contested.push(run.logical);
        } else {
            state.claims.add_all(run.block, len);
        }
        self.blocks += len;
        Ok(true)
    }
}

/// Gives contested runs a place of their own, with what could be read of the old one.
struct Relocate {
    nid: Nid,
    runs: HashSet<u32>,
}

impl Visitor for Relocate {
    fn node(&mut self, _: &mut State<'_>, _: u64) -> bool {
        true
    }

    fn run(&mut self, state: &mut State<'_>, run: &mut Run) -> Result<bool> {
        if !self.runs.contains(&run.logical) {
            return Ok(true);
        }
        let Some(to) = state.allocate(run.len, false)? else {
            let detail = format!("{} blocks from {} on have another owner", run.len, run.block);
            let why = "there is no free row of blocks for a copy: free some space, then repair again";
            state.left(IssueKind::BlockTwoOwners, Place::nid(self.nid), detail, why);
            return Ok(true);
        };
        for at in 0..u64::from(run.len) {
            // What is metadata now was never this file's content to show.
            let from = Some(run.block + at).filter(|block| !state.metadata.has(*block));
            match state.image.copies.last_mut() {
                Some(last) if continues(last, from, to + at) => last.len += 1,
                _ => state.image.copies.push(Copy { from, to: to + at, len: 1 }),
            }
        }
        run.block = to;
        Ok(true)
    }
}

fn continues(last: &Copy, from: Option<u64>, to: u64) -> bool {
    let len = u64::from(last.len);
    last.to + len == to && last.from.map(|block| block + len) == from
}
