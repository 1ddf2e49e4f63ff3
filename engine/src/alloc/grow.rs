//! Growing a file system while it is used.
//!
//! # Order
//! What a crash leaves behind is the file system of before or the one of after, never a mixture:
//! 1. The device becomes longer. Nothing refers to what is new.
//! 2. The bitmaps of new groups are written there. Nothing refers to them.
//! 3. A record frees the bits of the last group that lay behind the old end, and is durable
//!    against a loss of power. Nobody looks at bits behind the end of an image.
//! 4. The superblock with the new size is written: the one write that counts.
//! 5. The blocks are given to those that allocate.
//!
//! If a step fails, the size stays what it was, and the call can be made again.

use super::Alloc;
use super::bits::Bits;
use super::group::Group;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCKS_PER_GROUP, BlockHeader, BlockKind, SLOT_PAYLOAD, Superblock, checksum,
    checksum_seed,
};
use crate::journal::Durability;
use crate::store::{Profile, Store, fill_bits};
use crate::superblock::{self, Bounds, group_blocks, group_start};
use crate::{Error, Result};
use zerocopy::IntoBytes;

/// Bitmaps written in one batch.
const BATCH: usize = 256;

/// The bitmap of a group in which the first `used` blocks are taken, and nothing else.
pub(crate) fn fresh_bitmap(sb: &Superblock, group: u64, used: u32) -> [u8; BLOCK_SIZE] {
    let mut page = [0; BLOCK_SIZE];
    page[..BLOCK_HEADER_SIZE].copy_from_slice(BlockHeader::new(BlockKind::Bitmap, group, 0).as_bytes());
    let blocks = group_blocks(sb, group) as u32;
    fill_bits(&mut page, 0, used, true);
    fill_bits(&mut page, blocks, BLOCKS_PER_GROUP as u32 - blocks, true);
    page
}

impl Alloc {
    /// Makes the file system `blocks` blocks long; the device grows where it must, its space reserved unless
    /// `sparse`. Others go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Refused`] if that is less than it has, or what the device cannot have; errors of the device.
    pub fn grow(&self, store: &Store, blocks: u64, sparse: bool) -> Result<()> {
        store.check_writable()?;
        if store.profile() != Profile::Durable {
            return Err(Error::Refused("scratch space has no image that could grow".into()));
        }
        let mut on_media = store.superblock_on_media();
        let old = Bounds::of(&on_media);
        if blocks < old.blocks {
            return Err(Error::Refused(format!(
                "the file system has {} blocks of 4 KiB: it can grow, not shrink to {blocks}",
                old.blocks
            )));
        }
        let new = Bounds { blocks, ..old };
        if new == old {
            return Ok(());
        }
        store.device().grow(blocks, sparse)?;
        let mut sb = *on_media;
        sb.blocks.set(blocks);
        sb.groups.set(new.groups());
        write_bitmaps(store, &sb, old.groups()..new.groups())?;
        if let Some(last) = old.groups().checked_sub(1) {
            self.free_behind(store, &on_media, &sb, last)?;
        }
        superblock::write_both(store.device().as_ref(), &mut sb)?;
        *on_media = sb;
        store.set_blocks(blocks);
        self.add_blocks(&sb);
        Ok(())
    }

    /// Frees in the bitmap of the last group what lies behind the old end.
    fn free_behind(&self, store: &Store, old: &Superblock, new: &Superblock, group: u64) -> Result<()> {
        let (from, to) = (group_blocks(old, group) as u32, group_blocks(new, group) as u32);
        if from == to {
            return Ok(());
        }
        let mut h = store.begin(super::BITS_DELTA_BYTES.div_ceil(SLOT_PAYLOAD) as u32)?;
        let bitmap = store.get(group_start(old, group), BlockKind::Bitmap)?;
        h.clear_bits(&bitmap, from, to - from);
        let end = h.commit()?;
        store.commit_upto(end, Durability::Power)
    }

    /// Gives out what a superblock has beyond the groups there are.
    fn add_blocks(&self, sb: &Superblock) {
        let groups = &self.shared.groups;
        let mut added = 0;
        if let Some(last) = groups.len().checked_sub(1)
            && let Some(group) = groups.get(last)
        {
            added += u64::from(group.extend(group_blocks(sb, last as u64) as u32));
        }
        for index in groups.len() as u64..sb.groups.get() {
            let blocks = group_blocks(sb, index) as u32;
            let bits = Bits::from_block(&fresh_bitmap(sb, index, 1), blocks);
            added += u64::from(bits.free());
            groups.push(Group::new(group_start(sb, index), bits, blocks));
        }
        self.shared.budget.give(added);
    }
}

/// Writes the bitmaps of empty groups, and waits until they are durable.
fn write_bitmaps(store: &Store, sb: &Superblock, groups: std::ops::Range<u64>) -> Result<()> {
    let seed = checksum_seed(&sb.uuid);
    let request = |group: u64| {
        let (mut page, block) = (fresh_bitmap(sb, group, 1), group_start(sb, group));
        let crc = checksum(seed, block, &page);
        page[..4].copy_from_slice(&crc.to_le_bytes());
        Request::write(block, IoBuf::from_slice(&page), Cause::Superblock)
    };
    let mut groups = groups.peekable();
    while groups.peek().is_some() {
        store.device().run(groups.by_ref().take(BATCH).map(request).collect())?;
    }
    store.device().flush()
}
