//! File data: each block has one owner; the count of blocks of every inode; in how many rows of blocks data lie.

use super::Stage;
use super::dirs;
use super::extents::{self, Visitor};
use super::image::{BATCH, Base, Copy, slot_of};
use super::issue::{IssueKind, Location};
use super::parallel::in_order;
use super::seats::{Seat, chunks, places, read_ahead, read_seats, seats};
use super::state::State;
use crate::Result;
use crate::extent::Run;
use crate::format::Nid;
use crate::inode::FileType;
use std::collections::HashMap;

/// What threads see in a chunk of node blocks.
struct Looks {
    /// Writes before it was looked at.
    writes: u64,
    /// Of each inode whose root holds all that it maps.
    inodes: Vec<Option<Mapped>>,
    /// Their runs, one inode's after the other's: first block and length.
    runs: Vec<(u64, u32)>,
}

/// What an inode maps.
struct Mapped {
    /// How many of the runs are its own.
    runs: usize,
    /// Blocks that it says it has.
    blocks: u64,
}

fn look(base: &Base, seats: &[Seat]) -> Looks {
    let mut looks =
        Looks { writes: base.writes(), inodes: Vec::with_capacity(seats.len()), runs: Vec::new() };
    let rows = read_seats(base, seats);
    for seat in seats {
        let inode = rows.get(seat.block).and_then(|bytes| slot_of(bytes, seat.slot));
        let mapped = inode.filter(|inode| inode.nid.get() == seat.nid).and_then(|inode| {
            let regular = FileType::from_mode(inode.mode.get().into()) == Some(FileType::Regular);
            let runs = if regular { extents::plain_runs(base, &inode)? } else { Vec::new() };
            looks.runs.extend(runs.iter().map(|run| (run.block, run.len)));
            Some(Mapped { runs: runs.len(), blocks: inode.blocks.get() })
        });
        looks.inodes.push(mapped);
    }
    looks
}

/// Counts the rows of blocks that the runs of one file are, in the order of its bytes.
#[derive(Default)]
struct Rows {
    count: u64,
    /// Where the last run ends.
    end: u64,
}

impl Rows {
    fn add(&mut self, block: u64, len: u32) {
        self.count += u64::from(block != self.end);
        self.end = block + u64::from(len);
    }

    fn of(runs: &[(u64, u32)]) -> u64 {
        let mut rows = Rows::default();
        runs.iter().for_each(|(block, len)| rows.add(*block, *len));
        rows.count
    }
}

/// Claims the data of every file, and counts: the files that have some, and the rows of blocks that they lie in.
pub(super) fn check(state: &mut State<'_>) -> Result<(u64, u64)> {
    let places = places(state);
    let (base, total) = (state.image.base(), places.len() as u64);
    let (mut contested, mut done) = (Vec::new(), 0);
    let (mut with_data, mut all_rows) = (0, 0);
    in_order(
        state.threads,
        state,
        chunks(&places),
        |state, chunk| seats(state, chunk),
        |seats| look(&base, seats),
        |state, chunk, looks| {
            state.at(Stage::Data, done, total);
            done += chunk.len() as u64;
            let mut runs = &looks.runs[..];
            let unseen = |(place, mapped): (&(u64, Nid), &Option<_>)| mapped.is_none().then_some(*place);
            let mut unseen =
                chunk.iter().zip(&looks.inodes).filter_map(unseen).collect::<Vec<_>>().into_iter();
            let mut ahead = 0;
            for ((_, nid), mapped) in chunk.iter().zip(looks.inodes) {
                if mapped.is_none() {
                    if ahead == 0 {
                        let batch: Vec<(u64, Nid)> = unseen.by_ref().take(BATCH).collect();
                        read_ahead(state, &batch);
                        ahead = batch.len();
                    }
                    ahead -= 1;
                }
                let own = mapped.as_ref().map_or(0, |mapped| mapped.runs);
                let own = runs.split_off(..own).unwrap_or_default();
                let current = mapped.filter(|_| base.is_as_after(looks.writes));
                let rows = match current.filter(|mapped| take(state, *nid, own, mapped.blocks)) {
                    Some(_) => Rows::of(own),
                    None => claim(state, *nid, &mut contested)?,
                };
                with_data += u64::from(rows > 0);
                all_rows += rows;
            }
            Ok(())
        },
    )?;
    // Whatever becomes of them, nobody else gets what is theirs alone.
    for run in contested.iter().flat_map(|(_, runs)| runs) {
        state.claims.add_all(run.block, run.len.into());
    }
    state.hold_claims();
    dirs::find_lost(state)?;
    for (nid, runs) in contested {
        let Some(mut inode) = state.inode(nid) else { continue };
        let mut visitor = Relocate { nid, runs: runs.iter().map(|run| (run.logical, run.first)).collect() };
        if extents::walk(state, &mut inode, &mut visitor)? {
            state.put_inode(nid, &inode)?;
        }
    }
    Ok((with_data, all_rows))
}

/// Claims what was seen of an inode; false, and nothing is done, where it is not as it should be.
fn take(state: &mut State<'_>, nid: Nid, runs: &[(u64, u32)], blocks: u64) -> bool {
    let Some(record) = state.records.get(nid) else { return false };
    let Some(file_type) = record.file_type() else { return false };
    let runs = if file_type == FileType::Regular { runs } else { &[] };
    let meet = |(at, run): (usize, &(u64, u32))| {
        runs[..at]
            .iter()
            .any(|other| other.0 < run.0 + u64::from(run.1) && run.0 < other.0 + u64::from(other.1))
    };
    let counted = record.blocks + runs.iter().map(|run| u64::from(run.1)).sum::<u64>();
    let free = |run: &(u64, u32)| state.claims.none_of(run.0, run.1.into());
    if counted != blocks || !runs.iter().all(free) || runs.iter().enumerate().any(meet) {
        return false;
    }
    for (block, len) in runs {
        state.claims.add_all(*block, u64::from(*len));
    }
    if let Some(record) = state.records.get_mut(nid) {
        record.blocks = counted;
    }
    true
}

/// Claims the data of one inode and puts its count right; the rows of blocks that they lie in. `contested` gets the runs
/// that others own in part.
fn claim(state: &mut State<'_>, nid: Nid, contested: &mut Vec<(Nid, Vec<Contested>)>) -> Result<u64> {
    let kind = state.records.get(nid).and_then(|record| record.file_type());
    let (Some(file_type), Some(mut inode)) = (kind, state.inode(nid)) else { return Ok(0) };
    let mut found = 0;
    if file_type == FileType::Regular {
        let mut claim = Claim { contested: Vec::new(), rows: Rows::default(), blocks: 0 };
        extents::walk(state, &mut inode, &mut claim)?;
        found = claim.rows.count;
        if !claim.contested.is_empty() {
            contested.push((nid, claim.contested));
        }
        if let Some(record) = state.records.get_mut(nid) {
            record.blocks += claim.blocks;
        }
    }
    let counted = state.records.get(nid).map_or(0, |record| record.blocks);
    if inode.blocks.get() != counted {
        let detail = format!("it says {} blocks and has {counted}", inode.blocks);
        state.found(IssueKind::InodeBlocks, Location::nid(nid), detail);
        inode.blocks.set(counted);
        state.put_inode(nid, &inode)?;
    }
    Ok(found)
}

/// A run that others own in part.
struct Contested {
    logical: u32,
    block: u64,
    len: u32,
    /// The first block that another owns.
    first: u64,
}

/// Claims runs; those that others own in part are noted.
struct Claim {
    contested: Vec<Contested>,
    rows: Rows,
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
            let (logical, block, len) = (run.logical, run.block, run.len);
            self.contested.push(Contested { logical, block, len, first });
        } else {
            state.claims.add_all(run.block, len);
        }
        self.rows.add(run.block, run.len);
        self.blocks += len;
        Ok(true)
    }
}

/// Gives contested runs a place of their own, with what could be read of the old one.
struct Relocate {
    nid: Nid,
    /// The first block of each that another owns.
    runs: HashMap<u32, u64>,
}

impl Visitor for Relocate {
    fn node(&mut self, _: &mut State<'_>, _: u64) -> bool {
        true
    }

    fn run(&mut self, state: &mut State<'_>, run: &mut Run) -> Result<bool> {
        let Some(first) = self.runs.get(&run.logical).copied() else { return Ok(true) };
        let place = Location::both(self.nid, first);
        let detail =
            format!("something else owns it too; the file maps {} blocks from {} on", run.len, run.block);
        let Some(to) = state.allocate(run.len, false)? else {
            let why = "there is no free row of blocks for a copy: free some space, then repair again";
            state.left(IssueKind::BlockTwoOwners, place, detail, why);
            return Ok(true);
        };
        state.found(IssueKind::BlockTwoOwners, place, detail);
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
