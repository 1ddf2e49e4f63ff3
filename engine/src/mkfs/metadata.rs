//! The metadata of a fresh file system, and its writing in batches.

use zerocopy::IntoBytes;

use super::FormatOptions;
use crate::alloc::fresh_bitmap;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::format::{
    BLOCK_HEADER_SIZE, BlockHeader, BlockKind, INODE_SIZE, Inode, NatEntry, NatIndexEntry, ROOT_NID,
    Superblock, checksum_seed, finish_image, nat_place,
};
use crate::{Result, superblock};

/// Blocks written by one request while regions are filled.
const FILL_BLOCKS: u64 = 256;
/// Requests in flight meanwhile.
const FILL_REQUESTS: usize = 16;

/// Writes everything that a fresh file system consists of, the superblock aside.
pub(super) fn write_metadata(
    device: &dyn BlockDevice,
    sb: &Superblock,
    options: &FormatOptions,
) -> Result<()> {
    let root_node = superblock::group_start(sb, 0) + 1;
    let first_nat = root_node + 1;
    let mut filler = Filler::new(device);
    for index in 0..sb.nat_index_blocks.get() {
        filler.block(sb, sb.nat_index_start.get() + index, BlockKind::NatIndex, index, |page| {
            if index == 0 {
                let entry = NatIndexEntry::new(first_nat, 1);
                page[BLOCK_HEADER_SIZE..][..8].copy_from_slice(entry.as_bytes());
            }
        })?;
    }
    filler.block(sb, sb.orphan_root.get(), BlockKind::OrphanRoot, 0, |_| {})?;
    for group in 0..sb.groups.get() {
        filler.block(sb, superblock::group_start(sb, group), BlockKind::Bitmap, group, |page| {
            // The bitmap itself, and in the first group what follows below.
            *page = fresh_bitmap(sb, group, if group == 0 { 3 } else { 1 });
        })?;
    }
    filler.block(sb, first_nat, BlockKind::Nat, 0, |page| {
        let (_, at) = nat_place(ROOT_NID);
        let entry = NatEntry::new(root_node, 0, 1);
        page[at..at + size_of::<NatEntry>()].copy_from_slice(entry.as_bytes());
    })?;
    filler.block(sb, root_node, BlockKind::Node, 0, |page| {
        page[..INODE_SIZE].copy_from_slice(root(options).as_bytes());
    })?;
    filler.finish()
}

/// The root directory: empty.
fn root(options: &FormatOptions) -> Inode {
    let now = options.now.into();
    Inode {
        crc: 0.into(),
        mode: ((libc::S_IFDIR | 0o755) as u16).into(),
        flags: 0.into(),
        nid: ROOT_NID.into(),
        generation: 1.into(),
        nlink: 2.into(),
        uid: options.owner.0.into(),
        gid: options.owner.1.into(),
        size: 0.into(),
        blocks: 0.into(),
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        rdev: 0.into(),
        extent_depth: 0,
        extent_count: 0,
        reserved0: 0.into(),
        parent: ROOT_NID.into(),
        xattr_block: 0.into(),
        buckets: 0.into(),
        reserved1: 0.into(),
        reserved2: [0.into(); 2],
        inline: [0; crate::format::INODE_INLINE_SIZE],
    }
}

/// Writes zeros over a region.
pub(super) fn zero(device: &dyn BlockDevice, start: u64, blocks: u64) -> Result<()> {
    let mut filler = Filler::new(device);
    let end = start + blocks;
    let mut at = start;
    while at < end {
        let count = FILL_BLOCKS.min(end - at);
        filler.push(at, IoBuf::zeroed(count as usize * BLOCK_SIZE))?;
        at += count;
    }
    filler.finish()
}

/// Collects writes into batches.
struct Filler<'d> {
    device: &'d dyn BlockDevice,
    batch: Vec<Request>,
}

impl<'d> Filler<'d> {
    fn new(device: &'d dyn BlockDevice) -> Self {
        Filler { device, batch: Vec::new() }
    }

    fn push(&mut self, block: u64, buf: IoBuf) -> Result<()> {
        self.batch.push(Request::write(block, buf, Cause::Superblock));
        if self.batch.len() == FILL_REQUESTS { self.finish() } else { Ok(()) }
    }

    /// Writes a fresh metadata block that `fill` has changed.
    fn block(
        &mut self,
        sb: &Superblock,
        block: u64,
        kind: BlockKind,
        owner: u64,
        fill: impl FnOnce(&mut [u8; BLOCK_SIZE]),
    ) -> Result<()> {
        let mut page = [0; BLOCK_SIZE];
        if kind != BlockKind::Node {
            page[..BLOCK_HEADER_SIZE].copy_from_slice(BlockHeader::new(kind, owner, 0).as_bytes());
        }
        fill(&mut page);
        finish_image(checksum_seed(&sb.uuid), block, kind, &mut page);
        self.push(block, IoBuf::from_slice(&page))
    }

    fn finish(&mut self) -> Result<()> {
        self.device.run(std::mem::take(&mut self.batch)).map(drop)
    }
}
