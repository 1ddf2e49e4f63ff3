//! A small image in memory for the tests of everything that allocates.

use zerocopy::{FromZeros, IntoBytes};

use super::Alloc;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, MemoryDevice, Op, Request};
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCKS_PER_GROUP, BlockHeader, BlockKind, Superblock, U32, U64, checksum,
    checksum_seed,
};
use crate::store::{Log, Store, StoreOptions};
use crate::sync::Arc;

/// Blocks before the first group: two superblocks, two blocks of the NAT index, the orphan root.
pub(crate) const BEFORE_GROUPS: u64 = 5;

/// A store without a journal over an empty image whose groups have `blocks` blocks, bitmaps included.
pub(crate) fn image(blocks: u64) -> Store {
    image_with(blocks, &StoreOptions::default())
}

/// The same, with a store of other options.
pub(crate) fn image_with(blocks: u64, options: &StoreOptions) -> Store {
    image_on(Arc::new(MemoryDevice::new(BEFORE_GROUPS + blocks)), blocks, options)
}

/// The same on a device that has as many, and those before.
pub(crate) fn image_on(device: Arc<dyn BlockDevice>, blocks: u64, options: &StoreOptions) -> Store {
    let mut superblock = Superblock::new_zeroed();
    superblock.uuid = *b"a test's uuid...";
    superblock.blocks = U64::new(BEFORE_GROUPS + blocks);
    superblock.nat_index_start = U64::new(2);
    superblock.nat_index_blocks = U64::new(2);
    superblock.orphan_root = U64::new(4);
    superblock.groups_start = U64::new(BEFORE_GROUPS);
    superblock.groups = U64::new(blocks.div_ceil(BLOCKS_PER_GROUP));
    let seed = checksum_seed(&superblock.uuid);
    let write = |block: u64, kind: BlockKind, owner: u64, first_byte: u8| {
        let mut buf = IoBuf::zeroed(BLOCK_SIZE);
        buf[..BLOCK_HEADER_SIZE].copy_from_slice(BlockHeader::new(kind, owner, 0).as_bytes());
        buf[BLOCK_HEADER_SIZE] = first_byte;
        let crc = U32::new(checksum(seed, block, &buf));
        buf[..4].copy_from_slice(crc.as_bytes());
        let request = Request { op: Op::Write, block, buf, cause: Cause::Superblock };
        device.run(vec![request]).expect("memory does not fail");
    };
    write(2, BlockKind::NatIndex, 0, 0);
    write(3, BlockKind::NatIndex, 1, 0);
    write(4, BlockKind::OrphanRoot, 0, 0);
    for group in 0..superblock.groups.get() {
        write(BEFORE_GROUPS + group * BLOCKS_PER_GROUP, BlockKind::Bitmap, group, 1);
    }
    Store::new(device, superblock, Log::default(), options)
}

/// Lets everything go that waits in quarantine.
pub(crate) fn end_quarantine(alloc: &Alloc) {
    alloc.durable(u64::MAX - 1);
    alloc.head_passed(u64::MAX - 1);
}

/// Blocks whose bit in a bitmap page is set, bitmaps not counted.
pub(crate) fn bits_set(store: &Store) -> u64 {
    let groups = store.superblock().groups.get();
    (0..groups)
        .map(|group| {
            let block = BEFORE_GROUPS + group * BLOCKS_PER_GROUP;
            let page = store.get(block, BlockKind::Bitmap).expect("it was written");
            let set: u32 =
                page.read(|bytes| bytes[BLOCK_HEADER_SIZE..].iter().map(|byte| byte.count_ones()).sum());
            u64::from(set) - 1
        })
        .sum()
}
