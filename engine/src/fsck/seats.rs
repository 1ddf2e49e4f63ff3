//! Where inodes are said to be, in the order of their node blocks, and reading these together.

use super::extents;
use super::image::Base;
use super::parallel::{CHUNK, Rows};
use super::state::State;
use crate::format::{INODES_PER_BLOCK, Nid};

/// Node blocks that NAT entries lead to, each with the nids in it, in order.
pub(super) fn places(state: &State<'_>) -> Vec<(u64, Nid)> {
    let mut places: Vec<_> =
        state.records.used().map(|(nid, record)| (record.entry().block(), nid)).collect();
    places.sort_unstable();
    places
}

/// Chunks of places, each of whole node blocks.
pub(super) fn chunks(places: &[(u64, Nid)]) -> impl Iterator<Item = &[(u64, Nid)]> {
    let mut rest = places;
    std::iter::from_fn(move || {
        let mut end = rest.len().min(CHUNK * INODES_PER_BLOCK);
        while end < rest.len() && end > 0 && rest[end].0 == rest[end - 1].0 {
            end += 1;
        }
        let (chunk, later) = rest.split_at(end);
        rest = later;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Where an inode is said to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    pub block: u64,
    pub slot: usize,
    pub nid: Nid,
    pub generation: u32,
}

/// The seats of places.
pub(super) fn seats(state: &State<'_>, places: &[(u64, Nid)]) -> Vec<Seat> {
    let seat = |(block, nid): &(u64, Nid)| {
        let record = state.records.get(*nid)?;
        Some(Seat { block: *block, slot: record.at().1, nid: *nid, generation: record.generation })
    };
    places.iter().filter_map(seat).collect()
}

/// The blocks of seats, which come in their order, read together.
pub(super) fn read_seats(base: &Base, seats: &[Seat]) -> Rows {
    Rows::read(base, seats.chunk_by(|a, b| a.block == b.block).map(|seats| seats[0].block).collect())
}

/// Reads the node blocks of inodes in one batch, then in another what these lead to at once.
pub(super) fn read_ahead(state: &State<'_>, batch: &[(u64, Nid)]) {
    let mut blocks: Vec<u64> = batch.iter().map(|(block, _)| *block).collect();
    blocks.dedup();
    state.image.read_ahead(&blocks);
    let inodes = batch.iter().filter_map(|(_, nid)| state.inode(*nid));
    let mut further: Vec<u64> = inodes.flat_map(|inode| extents::leads_to(&inode)).collect();
    further.retain(|block| state.image.holds(*block));
    state.image.read_further_ahead(&further);
}
