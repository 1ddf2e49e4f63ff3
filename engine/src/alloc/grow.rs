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
//! If a step fails, the size stays what it was, and the call can be made again. Before step 4 the device becomes as short
//! again as it was, too: a file that kept the bitmaps of step 2 might leave its file system no room for anything else.

use super::Alloc;
use super::bits::Bits;
use super::group::Group;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
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
        let mut sb = *on_media;
        sb.blocks.set(blocks);
        sb.groups.set(new.groups());
        let device = store.device();
        let had = device.blocks();
        // What is there already may have its room.
        if blocks > had {
            check_room(device.as_ref(), new.groups() - old.groups())?;
        }
        device.grow(blocks, sparse)?;
        let prepared = write_bitmaps(store, &sb, old.groups()..new.groups()).and_then(|()| {
            let last = old.groups().checked_sub(1);
            last.map_or(Ok(()), |last| self.free_behind(store, &on_media, &sb, last))
        });
        if let Err(e) = prepared {
            device.ungrow(had);
            return Err(e);
        }
        // From here on the new size may be on media, and with it all that it counts.
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

/// Refuses what would fill the file system below with bitmaps: whoever wrote meanwhile would find no room there.
fn check_room(device: &dyn BlockDevice, groups: u64) -> Result<()> {
    let needed = groups.saturating_mul(BLOCK_SIZE as u64);
    match device.room().filter(|room| *room < needed) {
        Some(room) => Err(Error::Refused(format!(
            "the bitmaps of so large a file system take {} MiB more, and where the image lies {} MiB are free; free some there \
             or ask for less",
            needed.div_ceil(1 << 20),
            room >> 20
        ))),
        None => Ok(()),
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::testing::{BEFORE_GROUPS, image_on};
    use super::*;
    use crate::device::{Completion, ImageFile, PlainDevice, Ticket, forwarded};
    use crate::store::StoreOptions;
    use crate::sync::Arc;
    use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// An image some of whose blocks cannot be written.
    struct Full {
        below: PlainDevice,
        from: AtomicU64,
        to: AtomicU64,
    }

    impl BlockDevice for Full {
        forwarded!(below);
        fn submit(&self, mut batch: Vec<Request>) -> Ticket {
            let full = self.from.load(Relaxed)..self.to.load(Relaxed);
            let fails = |request: &&mut Request| full.contains(&request.block);
            batch.iter_mut().filter(fails).for_each(|request| request.block = u64::MAX);
            self.below.submit(batch)
        }
        fn wait(&self, ticket: Ticket) -> Vec<Completion> {
            self.below.wait(ticket)
        }
        fn grow(&self, blocks: u64, sparse: bool) -> Result<()> {
            self.below.grow(blocks, sparse)
        }
        fn ungrow(&self, blocks: u64) {
            self.below.ungrow(blocks);
        }
    }

    #[test]
    fn a_growth_that_fails_gives_back_what_it_took_unless_it_may_count() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("image");
        let old = BEFORE_GROUPS + 100;
        let below = PlainDevice::new(ImageFile::create_sparse(&path, old).expect("room"));
        let device = Arc::new(Full { below, from: AtomicU64::new(u64::MAX), to: AtomicU64::new(u64::MAX) });
        let store = image_on(Arc::clone(&device) as Arc<dyn BlockDevice>, 100, &StoreOptions::default());
        let alloc = Alloc::load(&store).expect("a fresh image");
        let len = || std::fs::metadata(&path).expect("it is there").len() / BLOCK_SIZE as u64;
        let groups = |n: u64| BEFORE_GROUPS + n * BLOCKS_PER_GROUP;
        let grow = |blocks: u64, full: std::ops::Range<u64>| {
            device.from.store(full.start, Relaxed);
            device.to.store(full.end, Relaxed);
            alloc.grow(&store, blocks, true)
        };

        // More than a batch is written by then.
        grow(groups(1000), groups(700)..u64::MAX).expect_err("full");
        assert_eq!((len(), device.blocks(), store.bounds().blocks), (old, old, old));
        grow(groups(2), 0..2).expect_err("no superblock");
        assert_eq!((len(), store.bounds().blocks), (groups(2), old), "the superblock may say so");
        grow(groups(3), groups(2)..u64::MAX).expect_err("full");
        assert_eq!((len(), store.bounds().blocks), (groups(2), old), "the superblock may say so still");
        grow(groups(3), 0..0).expect("room");
        assert_eq!((len(), device.blocks(), store.bounds().blocks), (groups(3), groups(3), groups(3)));
    }
}
