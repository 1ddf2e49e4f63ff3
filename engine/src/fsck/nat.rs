//! The fixed regions, then the NAT: index, blocks, entries. What is lost of it is looked for on the image.

use super::Stage;
use super::image::{self, BATCH, in_words, slot_of};
use super::issue::{IssueKind, Location};
use super::state::{State, is_marked};
use crate::Result;
use crate::device::IoBuf;
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, INODES_PER_BLOCK, NAT_ENTRY_SIZE, NAT_INDEX_PER_BLOCK, NAT_PER_BLOCK,
    NatEntry, NatIndexEntry,
};
use crate::superblock::{group_blocks, group_start};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::{FromBytes, IntoBytes};

/// Claims what has its place in every image. False: regions overlap, and nothing can be said of the rest.
pub(super) fn claim_regions(state: &mut State<'_>) -> bool {
    let sb = state.image.sb;
    let regions = [
        ("superblocks", 0, 2),
        ("journal", sb.ring_start.get(), sb.ring_blocks.get()),
        ("double-write area", sb.dw_start.get(), sb.dw_blocks.get()),
        ("NAT index", sb.nat_index_start.get(), sb.nat_index_blocks.get()),
        ("orphan root", sb.orphan_root.get(), 1),
    ];
    let mut sound = true;
    for (name, start, len) in regions {
        if len > 0 && start.saturating_add(len) > sb.groups_start.get() || !state.claims.none_of(start, len) {
            let detail = format!("the {name} ({len} blocks from {start} on) overlaps another region");
            state.left(IssueKind::Layout, Location::block(start), detail, IssueKind::Layout.mending());
            sound = false;
        }
        if sound {
            state.claims.add_all(start, len);
            state.metadata.add_all(start, len);
        }
    }
    // mkfs makes one that an image full of inodes needs; a larger one is work and memory for nothing.
    let most = sb.blocks.get().saturating_mul(INODES_PER_BLOCK as u64).div_ceil(NAT_PER_BLOCK);
    if sb.nat_index_blocks.get() > most.div_ceil(NAT_INDEX_PER_BLOCK) {
        let detail =
            format!("a NAT index of {} blocks is more than the image could need", sb.nat_index_blocks);
        let place = Location::block(sb.nat_index_start.get());
        state.left(IssueKind::Layout, place, detail, IssueKind::Layout.mending());
        sound = false;
    }
    for group in 0..sb.groups.get() {
        state.claim_metadata(group_start(&sb, group));
    }
    sound
}

/// NAT blocks whose pointers are gone: of a whole block of the index, or single ones.
#[derive(Default)]
struct Lost {
    index_blocks: BTreeSet<u64>,
    pointers: BTreeSet<u64>,
}

impl Lost {
    fn contains(&self, index: u64) -> bool {
        self.pointers.contains(&index) || self.index_blocks.contains(&(index / NAT_INDEX_PER_BLOCK))
    }
}

/// Reads the whole NAT into records.
pub(super) fn check(state: &mut State<'_>) -> Result<()> {
    let mut lost = Lost::default();
    let mut blocks = read_index(state, &mut lost)?;
    if !(lost.index_blocks.is_empty() && lost.pointers.is_empty()) {
        find_nat_blocks(state, &lost, &mut blocks)?;
    }
    let mut rebuilt = BTreeSet::new();
    read_blocks(state, &blocks, &mut rebuilt)?;
    if !rebuilt.is_empty() {
        find_inodes(state, &rebuilt)?;
    }
    Ok(())
}

/// NAT blocks by index. `lost` gets those whose pointers are gone.
fn read_index(state: &mut State<'_>, lost: &mut Lost) -> Result<BTreeMap<u64, u64>> {
    let (start, total) = (state.image.sb.nat_index_start.get(), state.image.sb.nat_index_blocks.get());
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < total {
        state.at(Stage::Nat, at, total);
        let now: Vec<u64> = (at..total.min(at + BATCH as u64)).collect();
        let blocks: Vec<u64> = now.iter().map(|i| start + i).collect();
        for (index, read) in now.iter().zip(state.image.read_many(&blocks)) {
            let block = start + index;
            let good = read.and_then(|bytes| {
                state.image.verify(block, BlockKind::NatIndex, &bytes)?;
                image::foreign(&bytes, *index, 0).map_or(Ok(bytes), Err)
            });
            let first = index * NAT_INDEX_PER_BLOCK;
            match good {
                Ok(bytes) => read_pointers(state, block, first, bytes, &mut found, lost)?,
                Err(why) => {
                    state.found(IssueKind::NatIndexBlock, Location::block(block), why);
                    state.image.put(
                        block,
                        BlockKind::NatIndex,
                        image::fresh(BlockKind::NatIndex, *index, 0),
                    )?;
                    lost.index_blocks.insert(*index);
                }
            }
        }
        at += now.len() as u64;
    }
    Ok(found)
}

fn read_pointers(
    state: &mut State<'_>,
    block: u64,
    first: u64,
    mut bytes: IoBuf,
    found: &mut BTreeMap<u64, u64>,
    lost: &mut Lost,
) -> Result<()> {
    let mut changed = false;
    for (index, entry) in (first..).zip(bytes[BLOCK_HEADER_SIZE..].chunks_exact_mut(8)) {
        let Ok(pointer) = NatIndexEntry::read_from_bytes(entry).map(|pointer| pointer.block()) else {
            continue;
        };
        if pointer == 0 {
            continue;
        }
        let elsewhere = |state: &State<'_>| {
            let bytes = state.image.get(pointer, BlockKind::Nat).ok()?;
            image::foreign(&bytes, index, 0)
        };
        let problem = if !state.image.holds(pointer) {
            Some("it lies outside of the groups".to_string())
        } else if state.claims.has(pointer) {
            Some("something else uses it already".to_string())
        } else {
            elsewhere(state)
        };
        if let Some(why) = problem {
            let detail = format!("the pointer to NAT block {index} leads to block {pointer}: {why}");
            state.found(IssueKind::NatPointer, Location::block(block), detail);
            entry.fill(0);
            lost.pointers.insert(index);
            changed = true;
        } else {
            state.claim_metadata(pointer);
            found.insert(index, pointer);
        }
    }
    if changed { state.image.put(block, BlockKind::NatIndex, bytes) } else { Ok(()) }
}

/// Calls `visit` with every block that is marked as in use, or of which nobody knows, and that nothing has claimed; whether
/// it is marked.
pub(super) fn unclaimed(
    state: &mut State<'_>,
    mut visit: impl FnMut(&mut State<'_>, u64, &[u8], bool) -> Result<()>,
) -> Result<()> {
    let mut candidates = Vec::new();
    state.bitmaps(|state, group, marks| {
        let first = group_start(&state.image.sb, group);
        for at in 1..group_blocks(&state.image.sb, group) {
            let marked = marks.map_or(true, |marks| is_marked(marks, at));
            if marked && !state.claims.has(first + at) {
                candidates.push(first + at);
            }
            if candidates.len() == BATCH || at + 1 == group_blocks(&state.image.sb, group) {
                for (block, read) in candidates.iter().zip(state.image.read_many(&candidates)) {
                    if let Ok(bytes) = read {
                        visit(state, *block, &bytes, marks.is_ok())?;
                    }
                }
                candidates.clear();
            }
        }
        state.at(Stage::Salvage, group, state.image.sb.groups.get());
        Ok(())
    })
}

/// Looks for the NAT blocks of lost pointers.
fn find_nat_blocks(state: &mut State<'_>, lost: &Lost, blocks: &mut BTreeMap<u64, u64>) -> Result<()> {
    let mut found = Vec::new();
    unclaimed(state, |state, block, bytes, _| {
        if state.image.verify(block, BlockKind::Nat, bytes).is_ok()
            && let Some(index) = image::header(bytes).map(|header| header.owner.get())
            && lost.contains(index)
            && !blocks.contains_key(&index)
        {
            state.claim_metadata(block);
            blocks.insert(index, block);
            found.push((index, block));
        }
        Ok(())
    })?;
    for (index, block) in found {
        let place = state.image.sb.nat_index_start.get() + index / NAT_INDEX_PER_BLOCK;
        let Ok(mut bytes) = state.image.get(place, BlockKind::NatIndex) else { continue };
        let at = BLOCK_HEADER_SIZE + (index % NAT_INDEX_PER_BLOCK) as usize * 8;
        bytes[at..at + 8].copy_from_slice(NatIndexEntry::new(block, 0).as_bytes());
        state.image.put(place, BlockKind::NatIndex, bytes)?;
    }
    Ok(())
}

/// Reads the entries. `rebuilt` gets the indexes of blocks that had to be begun anew.
fn read_blocks(
    state: &mut State<'_>,
    blocks: &BTreeMap<u64, u64>,
    rebuilt: &mut BTreeSet<u64>,
) -> Result<()> {
    let all: Vec<(u64, u64)> = blocks.iter().map(|(index, block)| (*index, *block)).collect();
    for (done, chunk) in all.chunks(BATCH).enumerate() {
        state.at(Stage::Nat, (done * BATCH) as u64, all.len() as u64);
        let numbers: Vec<u64> = chunk.iter().map(|(_, block)| *block).collect();
        for ((index, block), read) in chunk.iter().zip(state.image.read_many(&numbers)) {
            state.records.add(*index, *block);
            let good = read.and_then(|bytes| {
                state.image.verify(*block, BlockKind::Nat, &bytes)?;
                image::foreign(&bytes, *index, 0).map_or(Ok(bytes), Err)
            });
            match good {
                Ok(bytes) => read_entries(state, *index, *block, bytes)?,
                Err(why) => {
                    let detail = format!("NAT block {index}: {why}");
                    state.found(IssueKind::NatBlock, Location::block(*block), detail);
                    state.image.put(*block, BlockKind::Nat, image::fresh(BlockKind::Nat, *index, 0))?;
                    rebuilt.insert(*index);
                }
            }
        }
    }
    Ok(())
}

fn read_entries(state: &mut State<'_>, index: u64, block: u64, mut bytes: IoBuf) -> Result<()> {
    let mut changed = false;
    for (nid, raw) in
        (index * NAT_PER_BLOCK..).zip(bytes[BLOCK_HEADER_SIZE..].chunks_exact_mut(NAT_ENTRY_SIZE))
    {
        let Ok(entry) = NatEntry::read_from_bytes(raw) else { continue };
        let possible =
            nid != 0 && state.image.holds(entry.block()) && usize::from(entry.slot()) < INODES_PER_BLOCK;
        if !entry.is_free() && !possible {
            let detail = format!("its entry leads to {}, where no inode can be", in_words(&entry));
            state.found(IssueKind::NatEntry, Location::both(nid, block), detail);
            raw[..8].fill(0);
            changed = true;
        }
        if let Some(record) = state.records.get_mut(nid) {
            record.generation = entry.generation.get();
            record.place = if possible { entry.place.get() } else { 0 };
        }
    }
    if changed { state.image.put(block, BlockKind::Nat, bytes) } else { Ok(()) }
}

/// Looks for the inodes of NAT blocks that were begun anew.
fn find_inodes(state: &mut State<'_>, rebuilt: &BTreeSet<u64>) -> Result<()> {
    let mut highest = BTreeMap::new();
    unclaimed(state, |state, block, bytes, _| {
        for slot in 0..INODES_PER_BLOCK {
            let Some(inode) = slot_of(bytes, slot) else { continue };
            let (nid, generation) = (inode.nid.get(), inode.generation.get());
            let index = nid / NAT_PER_BLOCK;
            if nid == 0 || !rebuilt.contains(&index) || !state.image.inode_verifies(block, slot, &inode) {
                continue;
            }
            let top = highest.entry(index).or_insert(0);
            *top = generation.max(*top);
            if let Some(record) = state.records.get_mut(nid)
                && (record.place == 0 || record.generation < generation)
            {
                record.place = NatEntry::new(block, slot as u8, generation).place.get();
                record.generation = generation;
            }
        }
        Ok(())
    })?;
    // What a free nid's generation was is gone: it goes on above every one that is known.
    for index in rebuilt {
        let Some(block) = state.records.nat_block(*index) else { continue };
        let above = highest.get(index).copied().unwrap_or(0u32).wrapping_add(1 << 16);
        let Ok(mut bytes) = state.image.get(block, BlockKind::Nat) else { continue };
        let entries = bytes[BLOCK_HEADER_SIZE..].chunks_exact_mut(NAT_ENTRY_SIZE);
        for (nid, raw) in (index * NAT_PER_BLOCK..).zip(entries) {
            if let Some(record) = state.records.get_mut(nid) {
                if record.place == 0 {
                    record.generation = above;
                }
                raw.copy_from_slice(record.entry().as_bytes());
            }
        }
        state.image.put(block, BlockKind::Nat, bytes)?;
    }
    Ok(())
}
