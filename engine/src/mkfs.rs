//! Making a file system: geometry, reserved regions, the root directory.
//!
//! The superblock is written last, so that an interrupted mkfs leaves no image that could be mounted.

use zerocopy::IntoBytes;

use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCKS_PER_GROUP, BlockHeader, BlockKind, DOUBLE_WRITE_ENTRIES, FORMAT_VERSION,
    INODE_SIZE, INODES_PER_BLOCK, Inode, JournalKind, NAT_INDEX_PER_BLOCK, NAT_PER_BLOCK, NatEntry,
    NatIndexEntry, ROOT_NID, SLOT_SIZE, SLOTS_PER_BLOCK, STATE_CLEAN, SUPERBLOCK_MAGIC, Superblock, checksum,
    checksum_seed, nat_place,
};
use crate::journal::MIN_SLOTS;
use crate::store::fill_bits;
use crate::{Error, Result, superblock};

/// Blocks written by one request while regions are filled.
const FILL_BLOCKS: u64 = 256;
/// Requests in flight meanwhile.
const FILL_REQUESTS: usize = 16;

/// What mkfs is asked for. `None` chooses.
#[derive(Debug, Clone)]
pub struct FormatOptions {
    /// Blocks of the file system; at most (and by default) those of the device.
    pub blocks: Option<u64>,
    /// Slots of the journal (256 bytes each); a multiple of 16, at least 64 (32 outside the image).
    pub journal_slots: Option<u64>,
    /// Blocks of the double-write area, its headers among them; at least 2.
    pub double_write_blocks: Option<u64>,
    /// Where the journal lies.
    pub journal: JournalKind,
    /// Path of a persistent-memory or emulated journal.
    pub journal_path: Option<String>,
    /// Name of the file system, 32 bytes of UTF-8 at the most.
    pub label: String,
    /// Leave the reserved regions unwritten: the device is known to hold zeros there. Faster, but writes to
    /// the journal may then wait for the device to allocate space.
    pub sparse: bool,
    /// Make it even where there is a file system already.
    pub force: bool,
    /// Identity; random by default.
    pub uuid: Option<[u8; 16]>,
    /// Identity of the ring; random by default.
    pub ring_uuid: Option<[u8; 16]>,
    /// Key of the hash of names; random by default.
    pub hash_key: Option<[u8; 16]>,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// Time of making, ns since 1970.
    pub now: i64,
}

impl Default for FormatOptions {
    fn default() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        FormatOptions {
            blocks: None,
            journal_slots: None,
            double_write_blocks: None,
            journal: JournalKind::Ssd,
            journal_path: None,
            label: String::new(),
            sparse: false,
            force: false,
            uuid: None,
            ring_uuid: None,
            hash_key: None,
            owner: (0, 0),
            now: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX),
        }
    }
}

/// Makes a file system on a device and gives back its superblock.
///
/// # Errors
/// [`Error::Refused`] if the device is too small (the message says how large it must be), holds a file
/// system already, or the options contradict each other.
pub fn format(device: &dyn BlockDevice, options: &FormatOptions) -> Result<Superblock> {
    if !options.force
        && let Ok(found) = superblock::read(device)
    {
        return Err(Error::Refused(format!(
            "there is a narufs file system already ({}); use --force to destroy it",
            uuid::Uuid::from_bytes(found.uuid)
        )));
    }
    let mut sb = geometry(device.blocks(), options)?;
    // Nothing that was here before may be mistaken for what is made now.
    for block in crate::format::SUPERBLOCK_BLOCKS {
        device.run(vec![Request::write(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Superblock)])?;
    }
    device.flush()?;
    if !options.sparse {
        zero(device, sb.ring_start.get(), sb.ring_blocks.get())?;
        zero(device, sb.dw_start.get(), sb.dw_blocks.get())?;
    } else {
        // The headers at least: whatever lay here is void.
        zero(device, sb.ring_start.get(), sb.ring_blocks.get().min(2))?;
        for segment in (0..sb.dw_blocks.get()).step_by(DOUBLE_WRITE_ENTRIES + 1) {
            zero(device, sb.dw_start.get() + segment, 1)?;
        }
    }
    write_metadata(device, &sb, options)?;
    for _copy in crate::format::SUPERBLOCK_BLOCKS {
        superblock::write(device, &mut sb)?;
    }
    Ok(sb)
}

/// Slots of the journal of an image of so many blocks: a sixteenth of it, from 1 MiB to 128 MiB.
fn default_slots(blocks: u64) -> u64 {
    let bytes = (blocks.saturating_mul(BLOCK_SIZE as u64) / 16).clamp(1 << 20, 128 << 20);
    bytes / SLOT_SIZE as u64 / SLOTS_PER_BLOCK * SLOTS_PER_BLOCK
}

/// Blocks of the double-write area: a 256th of the image, from 16 blocks to four full segments.
fn default_double_write(blocks: u64) -> u64 {
    (blocks / 256).clamp(16, 4 * (DOUBLE_WRITE_ENTRIES as u64 + 1))
}

/// Lays the image out.
fn geometry(device_blocks: u64, options: &FormatOptions) -> Result<Superblock> {
    let refused = |why: String| Err(Error::Refused(why));
    let blocks = options.blocks.unwrap_or(device_blocks);
    if blocks > device_blocks {
        return refused(format!("{blocks} blocks asked for, the device has {device_blocks}"));
    }
    let slots = options.journal_slots.unwrap_or_else(|| default_slots(blocks));
    // Commits of a ring in the image are padded to blocks, so it needs more room.
    let least_slots = match options.journal {
        JournalKind::Ssd => MIN_SLOTS.max(4 * SLOTS_PER_BLOCK),
        JournalKind::Pmem | JournalKind::Emulated => MIN_SLOTS,
    };
    if slots < least_slots || !slots.is_multiple_of(SLOTS_PER_BLOCK) {
        return refused(format!(
            "a journal of {slots} slots: it takes a multiple of {SLOTS_PER_BLOCK}, {least_slots} at the least"
        ));
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
    let groups_start = orphan_root + 1;
    // Bitmap, node block, NAT block, and something to keep files in.
    let least = groups_start.saturating_add(8);
    if blocks < least {
        return refused(format!(
            "{blocks} blocks of 4 KiB are too few: with this journal the image needs {least} ({} KiB)",
            least.saturating_mul(4)
        ));
    }
    let rest = blocks - groups_start;
    // A last group of a bitmap alone would hold nothing.
    let groups = rest / BLOCKS_PER_GROUP + u64::from(rest % BLOCKS_PER_GROUP > 1);
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

/// Writes everything that a fresh file system consists of, the superblock aside.
fn write_metadata(device: &dyn BlockDevice, sb: &Superblock, options: &FormatOptions) -> Result<()> {
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
            // The bitmap itself, in the first group what follows below, and what lies beyond the image.
            let blocks = superblock::group_blocks(sb, group) as u32;
            fill_bits(page, 0, if group == 0 { 3 } else { 1 }, true);
            fill_bits(page, blocks, BLOCKS_PER_GROUP as u32 - blocks, true);
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

/// Puts the checksums into the image of a metadata block: of the block, or of each inode in use.
pub(crate) fn finish_image(seed: u32, block: u64, kind: BlockKind, page: &mut [u8]) {
    if kind != BlockKind::Node {
        let crc = checksum(seed, block, page);
        page[..4].copy_from_slice(&crc.to_le_bytes());
        return;
    }
    for (slot, inode) in page.chunks_exact_mut(INODE_SIZE).enumerate() {
        let in_use = inode[8..16].iter().any(|b| *b != 0);
        let address = block.wrapping_mul(INODES_PER_BLOCK as u64).wrapping_add(slot as u64);
        let crc = if in_use { checksum(seed, address, inode) } else { 0 };
        inode[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Writes zeros over a region.
fn zero(device: &dyn BlockDevice, start: u64, blocks: u64) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use crate::store::verify;

    fn tiny() -> FormatOptions {
        FormatOptions { journal_slots: Some(64), double_write_blocks: Some(3), ..FormatOptions::default() }
    }

    #[test]
    fn a_fresh_image_is_read_back_and_verifies() {
        let device = MemoryDevice::new(64);
        let made = format(&device, &tiny()).expect("64 blocks are enough");
        let sb = superblock::read(&device).expect("just made");
        assert_eq!(sb, made);
        let blocks = [
            (sb.nat_index_start.get(), BlockKind::NatIndex),
            (sb.orphan_root.get(), BlockKind::OrphanRoot),
            (sb.groups_start.get(), BlockKind::Bitmap),
            (sb.groups_start.get() + 1, BlockKind::Node),
            (sb.groups_start.get() + 2, BlockKind::Nat),
        ];
        for (block, kind) in blocks {
            let read = Request::read(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Fsck);
            let bufs = device.run(vec![read]).expect("memory");
            verify(checksum_seed(&sb.uuid), block, kind, &bufs[0]).expect("it was just written");
            assert!(verify(checksum_seed(&sb.uuid), block + 1, kind, &bufs[0]).is_err());
        }
    }

    #[test]
    fn what_cannot_be_made_is_refused_with_the_size_it_takes() {
        let device = MemoryDevice::new(16);
        let Err(Error::Refused(why)) = format(&device, &tiny()) else { panic!("too small") };
        assert!(why.contains("needs 21 (84 KiB)"), "{why}");
        let device = MemoryDevice::new(64);
        format(&device, &tiny()).expect("64 blocks are enough");
        assert!(matches!(format(&device, &tiny()), Err(Error::Refused(_))));
        format(&device, &FormatOptions { force: true, ..tiny() }).expect("forced");
    }

    #[test]
    fn other_images_are_refused_each_in_its_own_words() {
        let refused = |device: &MemoryDevice| match superblock::read(device) {
            Err(Error::Refused(why)) => why,
            other => panic!("not refused: {other:?}"),
        };
        let device = MemoryDevice::new(64);
        assert!(refused(&device).contains("not a narufs image"));
        let mut sb = format(&device, &tiny()).expect("64 blocks are enough");
        sb.incompat = 1.into();
        superblock::write(&device, &mut sb).expect("memory");
        assert!(refused(&device).contains("features"));
        (sb.incompat, sb.version) = (0.into(), 9.into());
        superblock::write(&device, &mut sb).expect("memory");
        assert!(refused(&device).contains("version 9"));
        (sb.version, sb.blocks) = (FORMAT_VERSION.into(), 65.into());
        superblock::write(&device, &mut sb).expect("memory");
        assert!(refused(&device).contains("truncated"));
    }
}
