//! Where everything lies: sizes chosen or checked, regions laid out.

use super::FormatOptions;
use crate::device::BLOCK_SIZE;
use crate::format::{
    DOUBLE_WRITE_ENTRIES, FORMAT_VERSION, INODES_PER_BLOCK, JournalKind, NAT_INDEX_PER_BLOCK, NAT_PER_BLOCK,
    SLOT_SIZE, SLOTS_PER_BLOCK, STATE_CLEAN, SUPERBLOCK_MAGIC, Superblock,
};
use crate::superblock::Bounds;
use crate::{Error, Result};

/// Slots of the journal of an image of so many blocks: a sixteenth of it, from 1 MiB to 256 MiB.
fn default_slots(blocks: u64) -> u64 {
    let bytes = (blocks.saturating_mul(BLOCK_SIZE as u64) / 16).clamp(1 << 20, 256 << 20);
    bytes / SLOT_SIZE as u64 / SLOTS_PER_BLOCK * SLOTS_PER_BLOCK
}

/// Blocks of the double-write area: a 256th of the image, from 16 blocks to four full segments.
fn default_double_write(blocks: u64) -> u64 {
    (blocks / 256).clamp(16, 4 * (DOUBLE_WRITE_ENTRIES as u64 + 1))
}

/// Lays the image out.
pub(super) fn geometry(device_blocks: u64, options: &FormatOptions, least_slots: u64) -> Result<Superblock> {
    let refused = |why: String| Err(Error::Refused(why));
    let blocks = options.blocks.unwrap_or(device_blocks);
    if blocks > device_blocks {
        return refused(format!("{blocks} blocks asked for, the device has {device_blocks}"));
    }
    let slots = options.journal_slots.unwrap_or_else(|| default_slots(blocks));
    if slots < least_slots {
        let kib = |slots: u64| slots.saturating_mul(SLOT_SIZE as u64) / 1024;
        return refused(format!(
            "a journal of {} KiB is too small: it takes {} KiB ({least_slots} slots) at the least, so that every \
             operation fits",
            kib(slots),
            kib(least_slots)
        ));
    }
    if !slots.is_multiple_of(SLOTS_PER_BLOCK) {
        return refused(format!("a journal of {slots} slots: it takes a multiple of {SLOTS_PER_BLOCK}"));
    }
    let dw_blocks = options.double_write_blocks.unwrap_or_else(|| default_double_write(blocks));
    if dw_blocks < 2 {
        return refused("the double-write area takes 2 blocks at the least".into());
    }
    if options.label.len() > 32 {
        return refused(format!("the label has {} bytes, at most 32 fit", options.label.len()));
    }
    let path = options.journal_path.as_deref().unwrap_or("");
    match options.journal {
        JournalKind::Ssd if !path.is_empty() => {
            return refused("a journal in the image has no path of its own".into());
        }
        JournalKind::Pmem | JournalKind::Emulated if path.len() > 256 => {
            return refused("the path of the journal is longer than 256 bytes".into());
        }
        _ => {}
    }
    let ring_blocks = match options.journal {
        JournalKind::Ssd => 2 + slots / SLOTS_PER_BLOCK,
        JournalKind::Pmem | JournalKind::Emulated => 0,
    };
    // One pointer for each NAT block that a device full of inodes could need.
    let nat_blocks = blocks.saturating_mul(INODES_PER_BLOCK as u64).div_ceil(NAT_PER_BLOCK);
    let index_blocks = nat_blocks.div_ceil(NAT_INDEX_PER_BLOCK);
    let ring_start = 2;
    let dw_start = ring_start + ring_blocks;
    let nat_index_start = dw_start.saturating_add(dw_blocks);
    let orphan_root = nat_index_start.saturating_add(index_blocks);
    let groups_start = orphan_root.saturating_add(1);
    // Bitmap, node block, NAT block, and something to keep files in.
    let least = groups_start.saturating_add(8);
    if blocks < least {
        return refused(format!(
            "{blocks} blocks of 4 KiB are too few: with this journal the image needs {least} ({} KiB)",
            least.saturating_mul(4)
        ));
    }
    let groups = Bounds { groups_start, blocks }.groups();
    let random = || *uuid::Uuid::new_v4().as_bytes();
    let mut label = [0; 32];
    label[..options.label.len()].copy_from_slice(options.label.as_bytes());
    let mut journal_path = [0; 256];
    journal_path[..path.len()].copy_from_slice(path.as_bytes());
    Ok(Superblock {
        crc: 0.into(),
        version: FORMAT_VERSION.into(),
        magic: SUPERBLOCK_MAGIC.into(),
        uuid: options.uuid.unwrap_or_else(random),
        label,
        compat: 0.into(),
        ro_compat: 0.into(),
        incompat: 0.into(),
        sequence: 0.into(),
        epoch: 0.into(),
        state: STATE_CLEAN.into(),
        journal_kind: (options.journal as u32).into(),
        ring_uuid: options.ring_uuid.unwrap_or_else(random),
        blocks: blocks.into(),
        ring_start: ring_start.into(),
        ring_blocks: ring_blocks.into(),
        dw_start: dw_start.into(),
        dw_blocks: dw_blocks.into(),
        nat_index_start: nat_index_start.into(),
        nat_index_blocks: index_blocks.into(),
        orphan_root: orphan_root.into(),
        groups_start: groups_start.into(),
        groups: groups.into(),
        hash_key: options.hash_key.unwrap_or_else(random),
        created: (options.now as u64).into(),
        ring_slots: slots.into(),
        next_position: 0.into(),
        journal_path,
    })
}
