//! One damage for each kind of issue.

use super::tool::Tool;
use crate::format::{
    BLOCK_HEADER_SIZE, BUCKET_START, BlockKind, EXTENT_NODE_START, Nid, ROOT_NID, U16, U32, U64, XATTR_START,
    XATTR_SYMLINK, XattrEntry,
};
use crate::fsck::IssueKind::{self, *};
use crate::fsck::image::{fresh, slot_of};
use zerocopy::IntoBytes;

/// A block that nothing uses, at the end of the image.
fn unused(tool: &Tool<'_>) -> u64 {
    tool.image.sb.blocks.get() - 3
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Changes an entry of a directory in place.
fn edit_dentry(tool: &Tool<'_>, dir: Nid, name: &[u8], f: impl FnOnce(&mut [u8])) {
    let (block, at) = tool.dentry(dir, name);
    tool.edit(block, BlockKind::Bucket, |bytes| f(&mut bytes[at..]));
}

/// Puts an orphan table with one entry of three words into the first place.
fn orphan_table(tool: &Tool<'_>, nid: Nid, generation: u32, intent: u32) {
    let block = unused(tool);
    let mut table = fresh(BlockKind::Orphans, 0, 0);
    put_u64(&mut table, BLOCK_HEADER_SIZE, nid);
    table[BLOCK_HEADER_SIZE + 8..BLOCK_HEADER_SIZE + 12].copy_from_slice(&generation.to_le_bytes());
    table[BLOCK_HEADER_SIZE + 12..BLOCK_HEADER_SIZE + 16].copy_from_slice(&intent.to_le_bytes());
    tool.image.put(block, BlockKind::Orphans, table).expect("memory");
    let root = tool.image.sb.orphan_root.get();
    tool.edit(root, BlockKind::OrphanRoot, |bytes| put_u64(bytes, BLOCK_HEADER_SIZE, block));
}

/// Has the link keep its target of 200 bytes in an attribute: of this name, and so long.
fn long_target(tool: &Tool<'_>, name: &[u8], len: usize) {
    let (block, link) = (unused(tool), tool.made.link);
    let entry = XattrEntry {
        value_len: U32::new(len as u32),
        name_len: U16::new(name.len() as u16),
        reserved: U16::ZERO,
    };
    let attribute = [entry.as_bytes(), name, &vec![b't'; len]].concat();
    let mut bytes = fresh(BlockKind::Xattr, link, tool.inode(link).generation.get());
    bytes[BLOCK_HEADER_SIZE + 8..BLOCK_HEADER_SIZE + 12]
        .copy_from_slice(&(attribute.len() as u32).to_le_bytes());
    bytes[XATTR_START..][..attribute.len()].copy_from_slice(&attribute);
    tool.image.put(block, BlockKind::Xattr, bytes).expect("memory");
    tool.edit_inode(link, |inode| {
        inode.flags.set(inode.flags.get() & !crate::format::InodeFlags::INLINE_SYMLINK.bits());
        inode.size.set(200);
        inode.xattr_block.set(block);
        inode.blocks.set(1);
    });
}

/// Frees the NAT entry of a nid, or leads it elsewhere.
fn set_place(tool: &Tool<'_>, nid: Nid, place: u64) {
    let (block, at) = tool.nat(nid);
    tool.edit(block, BlockKind::Nat, |bytes| put_u64(bytes, at, place));
}

/// Does some damage.
pub type Plant = fn(&Tool<'_>);

/// Every kind that can be planted into a clean image in the middle of a group, with its damage.
pub const PLANTS: &[(IssueKind, Plant)] = &[
    (NatIndexBlock, |t| t.smash(t.image.sb.nat_index_start.get(), 2000)),
    (NatPointer, |t| {
        let block = t.image.sb.nat_index_start.get();
        t.edit(block, BlockKind::NatIndex, |b| put_u64(b, BLOCK_HEADER_SIZE + 8, 1));
    }),
    (NatBlock, |t| t.smash(t.nat(t.made.dir).0, 4000)),
    (NatEntry, |t| set_place(t, 250, 5)),
    (NatDangling, |t| set_place(t, t.made.plain, t.entry(t.made.link).place.get())),
    (NatGeneration, |t| {
        let (block, at) = t.nat(t.made.plain);
        t.edit(block, BlockKind::Nat, |b| b[at + 8] ^= 4);
    }),
    (InodeLost, |t| set_place(t, t.made.plain, 0)),
    (InodeStray, |t| {
        let (block, _) = t.place(t.made.plain);
        let bytes = t.image.read(block).expect("memory");
        let free = (0..16).find(|slot| slot_of(&bytes, *slot).is_some_and(|i| i.nid.get() == 0));
        let (block, slot) = free.map_or_else(|| (t.place(301).0, 15), |slot| (block, slot));
        t.image.put_inode(block, slot, &t.inode(t.made.plain)).expect("memory");
    }),
    (InodeChecksum, |t| {
        let (block, slot) = t.place(t.made.plain);
        t.smash(block, slot * 256 + 24);
    }),
    (InodeChecksum, |t| {
        let (block, slot) = t.place(t.made.plain);
        t.smash(block, slot * 256 + 16);
    }),
    (InodeMode, |t| t.edit_inode(t.made.plain, |i| i.mode.set(0o3))),
    (InodeFlags, |t| t.edit_inode(t.made.plain, |i| i.flags.set(0x4000))),
    (InodeFlags, |t| t.edit_inode(t.made.inner, |i| i.flags.set(8))),
    (InodeSize, |t| t.edit_inode(t.made.plain, |i| i.size.set(u64::MAX))),
    (InodeBlocks, |t| t.edit_inode(t.made.plain, |i| i.blocks.set(77))),
    (InodeLinks, |t| t.edit_inode(t.made.marked, |i| i.nlink.set(1))),
    (InodeLinks, |t| t.edit_inode(t.made.dir, |i| i.nlink.set(9))),
    (SymlinkTarget, |t| t.edit_inode(t.made.link, |i| i.size.set(0))),
    (SymlinkTarget, |t| long_target(t, b"narufs.other", 200)),
    (SymlinkTarget, |t| long_target(t, XATTR_SYMLINK, 199)),
    (ExtentRoot, |t| t.edit_inode(t.made.plain, |i| i.extent_count = 200)),
    (ExtentRoot, |t| t.edit_inode(t.made.scattered, |i| i.extent_depth = 5)),
    (ExtentNode, |t| t.smash(t.root(t.made.scattered)[0].block, 100)),
    (ExtentNode, |t| t.edit_run(t.made.scattered, |run| run.block = 3)),
    (ExtentOrder, |t| {
        let node = t.root(t.made.scattered)[0].block;
        t.edit(node, BlockKind::Extents, |b| b[EXTENT_NODE_START + 16..EXTENT_NODE_START + 20].fill(0));
    }),
    (ExtentBounds, |t| t.edit_run(t.made.plain, |run| run.block = u64::MAX - 1)),
    (ExtentBounds, |t| t.edit_run(t.made.plain, |run| run.len = 0)),
    (BlockTwoOwners, |t| {
        let other = t.root(t.made.marked)[0].block;
        t.edit_run(t.made.plain, |run| run.block = other);
    }),
    (BlockTwoOwners, |t| {
        let metadata = t.buckets(t.made.dir)[0];
        t.edit_run(t.made.plain, |run| run.block = metadata);
    }),
    (Xattr, |t| t.smash(t.inode(t.made.marked).xattr_block.get(), 70)),
    (Xattr, |t| {
        let block = t.inode(t.made.marked).xattr_block.get();
        t.edit(block, BlockKind::Xattr, |b| put_u64(b, BLOCK_HEADER_SIZE, block));
    }),
    (RootMissing, |t| {
        let (block, slot) = t.place(ROOT_NID);
        t.smash(block, slot * 256 + 16);
    }),
    (DirBuckets, |t| t.edit_inode(t.made.dir, |i| i.buckets.set(i.buckets.get() + 3))),
    (Bucket, |t| t.smash(t.buckets(t.made.dir)[1], 60)),
    (BucketChain, |t| {
        let bucket = t.buckets(t.made.dir)[0];
        t.edit(bucket, BlockKind::Bucket, |b| put_u64(b, BLOCK_HEADER_SIZE, bucket));
    }),
    (BucketChain, |t| {
        let (bucket, data) = (t.buckets(t.made.dir)[0], t.root(t.made.plain)[0].block);
        t.edit(bucket, BlockKind::Bucket, |b| put_u64(b, BLOCK_HEADER_SIZE, data));
    }),
    (BucketCount, |t| {
        let bucket = t.buckets(t.made.dir)[0];
        t.edit(bucket, BlockKind::Bucket, |b| b[BLOCK_HEADER_SIZE + 12] ^= 1);
    }),
    (DentryMalformed, |t| {
        let bucket = t.buckets(t.made.dir)[0];
        t.edit(bucket, BlockKind::Bucket, |b| b[BUCKET_START + 16] = 3);
    }),
    (DentryName, |t| edit_dentry(t, t.made.dir, b"inner", |d| d[24] = b'/')),
    (DentryCookie, |t| edit_dentry(t, t.made.dir, b"inner", |d| d[9] ^= 1)),
    (DentryCookieTwice, |t| {
        let (block, at) = t.dentry(t.made.inner, b"plain");
        t.edit(block, BlockKind::Bucket, |b| {
            let mut second = b[at..at + 32].to_vec();
            let rest = u16::from_le_bytes([second[16], second[17]]) - 32;
            b[at + 16..at + 18].copy_from_slice(&32u16.to_le_bytes());
            second[16..18].copy_from_slice(&rest.to_le_bytes());
            second[24] = b'P';
            b[at + 32..at + 64].copy_from_slice(&second);
            b[BLOCK_HEADER_SIZE + 12] += 1;
        });
    }),
    (DentryBucket, |t| {
        let buckets = t.buckets(t.made.dir);
        let (block, at) = t.dentry(t.made.dir, b"inner");
        let other = *buckets.iter().find(|other| **other != block).expect("several");
        // The whole block changes places with another's: every entry in both is wrong there.
        let (a, b) = (t.image.get(block, BlockKind::Bucket), t.image.get(other, BlockKind::Bucket));
        let (a, b) = (a.expect("sound"), b.expect("sound"));
        assert!(at >= BUCKET_START);
        t.edit(block, BlockKind::Bucket, |bytes| bytes[BUCKET_START..].copy_from_slice(&b[BUCKET_START..]));
        t.edit(other, BlockKind::Bucket, |bytes| bytes[BUCKET_START..].copy_from_slice(&a[BUCKET_START..]));
        let count = BLOCK_HEADER_SIZE + 12..BLOCK_HEADER_SIZE + 14;
        t.edit(block, BlockKind::Bucket, |bytes| bytes[count.clone()].copy_from_slice(&b[count.clone()]));
        t.edit(other, BlockKind::Bucket, |bytes| bytes[count.clone()].copy_from_slice(&a[count.clone()]));
    }),
    (DentryTwice, |t| {
        let (block, at) = t.dentry(t.made.inner, b"plain");
        t.edit(block, BlockKind::Bucket, |b| {
            let mut second = b[at..at + 32].to_vec();
            let rest = u16::from_le_bytes([second[16], second[17]]) - 32;
            b[at + 16..at + 18].copy_from_slice(&32u16.to_le_bytes());
            second[16..18].copy_from_slice(&rest.to_le_bytes());
            second[8] ^= 1;
            b[at + 32..at + 64].copy_from_slice(&second);
            b[BLOCK_HEADER_SIZE + 12] += 1;
        });
    }),
    (DentryDangling, |t| edit_dentry(t, t.made.inner, b"plain", |d| put_u64(d, 0, 1 << 40))),
    (DentryType, |t| edit_dentry(t, t.made.inner, b"plain", |d| d[19] = libc::DT_FIFO)),
    (DirTwoParents, |t| {
        let inner = t.made.inner;
        edit_dentry(t, t.made.dir, b"a file with a longer name 7", |d| put_u64(d, 0, inner));
    }),
    (DirTwoParents, |t| edit_dentry(t, t.made.dir, b"a file with a longer name 7", |d| put_u64(d, 0, 1))),
    (DirParent, |t| t.edit_inode(t.made.inner, |i| i.parent.set(1))),
    (DirCycle, |t| {
        // "dir" moves into "inner", which lies in it.
        let (dir, plain) = (t.made.dir, t.made.plain);
        edit_dentry(t, t.made.inner, b"plain", |d| put_u64(d, 0, dir));
        edit_dentry(t, ROOT_NID, b"dir", |d| put_u64(d, 0, plain));
    }),
    (DirUnreachable, |t| {
        let plain = t.made.plain;
        edit_dentry(t, t.made.dir, b"inner", |d| put_u64(d, 0, plain));
    }),
    (InodeUnreachable, |t| {
        let link = t.made.link;
        edit_dentry(t, t.made.inner, b"plain", |d| put_u64(d, 0, link));
    }),
    (OrphanRoot, |t| t.smash(t.image.sb.orphan_root.get(), 500)),
    (OrphanTable, |t| {
        let root = t.image.sb.orphan_root.get();
        t.edit(root, BlockKind::OrphanRoot, |b| put_u64(b, BLOCK_HEADER_SIZE, 1 << 50));
    }),
    (OrphanEntry, |t| orphan_table(t, t.made.plain, t.inode(t.made.plain).generation.get(), 1)),
    (OrphanEntry, |t| orphan_table(t, t.made.plain, 12345, 2)),
    (OrphanEntry, |t| {
        let (inner, plain) = (t.made.inner, t.made.plain);
        edit_dentry(t, t.made.dir, b"inner", |d| put_u64(d, 0, plain));
        orphan_table(t, inner, t.inode(inner).generation.get(), 1);
    }),
    (OrphanEntry, |t| orphan_table(t, 1 << 30, 1, 99)),
    (OrphanFlag, |t| t.edit_inode(t.made.plain, |i| i.flags.set(4))),
    (BitmapBlock, |t| t.smash(t.image.sb.groups_start.get(), 77)),
    (BlockNotMarked, |t| {
        t.edit(t.image.sb.groups_start.get(), BlockKind::Bitmap, |b| b[BLOCK_HEADER_SIZE] = 0)
    }),
    (BlockLeaked, |t| {
        let last = (t.image.sb.blocks.get() - t.image.sb.groups_start.get() - 9) as usize / 8;
        t.edit(t.image.sb.groups_start.get(), BlockKind::Bitmap, |b| b[BLOCK_HEADER_SIZE + last] |= 6);
    }),
    (DoubleWrite, |t| {
        use crate::format::{DOUBLE_WRITE_MAGIC, DoubleWriteHeader, checksum, checksum_seed};
        let at = t.image.sb.dw_start.get();
        let mut buf = crate::device::IoBuf::zeroed(crate::device::BLOCK_SIZE);
        let header = DoubleWriteHeader {
            crc: U32::ZERO,
            count: U32::ZERO,
            magic: U64::new(DOUBLE_WRITE_MAGIC),
            epoch: U64::new(99),
            round: U64::new(1),
            sequence: U64::ZERO,
            reserved: U64::ZERO,
        };
        buf[..header.as_bytes().len()].copy_from_slice(header.as_bytes());
        let crc = checksum(checksum_seed(&t.image.sb.uuid), at, &buf);
        buf[..4].copy_from_slice(&crc.to_le_bytes());
        t.image.put_raw(at, buf).expect("memory");
    }),
    (SuperblockCopy, |t| t.smash((t.image.sb.sequence.get() + 1) % 2, 90)),
    (MarkedDamaged, |t| {
        let mut sb = t.image.sb;
        sb.state.set(crate::format::STATE_DAMAGED);
        crate::superblock::write(&*t.image.device, &mut sb).expect("memory");
    }),
];

/// Kinds that are planted elsewhere, for they need other images or are beyond repair.
pub const ELSEWHERE: &[IssueKind] =
    &[Layout, RingHeader, RingMissing, JournalDamaged, ContentOlder, DoubleWriteUnreadable];
