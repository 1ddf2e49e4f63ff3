//! The image as fsck sees it: blocks read, verified, sealed and written, all over an overlay.

use super::dirs::Leaving;
use crate::device::Overlay;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::dir::NameHash;
use crate::format::{
    BLOCK_HEADER_SIZE, BLOCKS_PER_GROUP, BlockHeader, BlockKind, INODE_SIZE, INODES_PER_BLOCK, Inode,
    NatEntry, Nid, Superblock, checksum, checksum_seed, finish_image,
};
use crate::store::verify;
use crate::sync::Arc;
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use zerocopy::{FromBytes, IntoBytes};

/// Blocks read by one batch.
pub(super) const BATCH: usize = 256;

/// Blocks of file data that a repair copies before anything leads to the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copy {
    /// Where they are; none: the copy is zeros.
    pub from: Option<u64>,
    /// Where they go.
    pub to: u64,
    /// How many.
    pub len: u32,
}

/// What stays the same of an image under check, for every thread that looks at it.
#[derive(Clone)]
pub(super) struct Base {
    pub device: Arc<Overlay>,
    pub sb: Superblock,
    pub hash: NameHash,
    seed: u32,
}

/// An image under check.
pub(super) struct Image {
    base: Base,
    /// What is to be copied when the plan is carried out.
    pub copies: Vec<Copy>,
    /// Blocks that were free, for metadata: nothing leads to them until the plan is carried out.
    pub fresh: BTreeSet<u64>,
    /// Blocks that the plan has nobody take that does not have them: those marked, those that anything led to in one of the
    /// rounds, and those that the plan has written. Something on the device may lead there until the plan is carried out,
    /// whatever later rounds and the marks say.
    pub held: Bits,
    /// Names that leave blocks of directories, by the block.
    pub leaving: BTreeMap<u64, Leaving>,
    /// Free blocks that have them while the plan is carried out.
    pub kept_in: BTreeMap<u64, u64>,
    /// Blocks read ahead.
    ahead: RefCell<HashMap<u64, IoBuf>>,
    /// Something could not be read that is not in the areas.
    unreadable: Cell<bool>,
}

impl Deref for Image {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Base {
    /// How often something was written.
    pub fn writes(&self) -> u64 {
        self.device.writes_completed()
    }

    /// Whether nothing was written since so many writes: what was read then is not out of date.
    pub fn is_as_after(&self, writes: u64) -> bool {
        #[cfg(all(test, not(any(loom, shuttle))))]
        if super::tests::CLOSELY.get() {
            return false;
        }
        self.writes() == writes
    }

    /// Whether it is a block that can be allocated: in a group, not its bitmap.
    pub fn holds(&self, block: u64) -> bool {
        let start = self.sb.groups_start.get();
        let end = self.groups_end();
        block >= start && block < end && !(block - start).is_multiple_of(BLOCKS_PER_GROUP)
    }

    /// The block after the last group.
    pub fn groups_end(&self) -> u64 {
        let end = self.sb.groups.get().saturating_mul(BLOCKS_PER_GROUP);
        self.sb.groups_start.get().saturating_add(end).min(self.sb.blocks.get())
    }

    /// Blocks as they are.
    pub fn read_many(&self, blocks: &[u64]) -> Vec<Result<IoBuf, String>> {
        let request = |block: &u64| Request::read(*block, IoBuf::zeroed(BLOCK_SIZE), Cause::Fsck);
        let done = self.device.wait(self.device.submit(blocks.iter().map(request).collect()));
        done.into_iter().map(|d| d.result.map(|()| d.buf).map_err(|e| e.to_string())).collect()
    }

    /// Whether the bytes are those of such a block.
    pub fn verify(&self, block: u64, kind: BlockKind, bytes: &[u8]) -> Result<(), String> {
        verify(self.seed, block, kind, bytes).map_err(|e| match e {
            Error::Corrupt { detail, .. } => detail,
            other => other.to_string(),
        })
    }

    /// Whether an inode's checksum holds at its place.
    pub fn inode_verifies(&self, block: u64, slot: usize, inode: &Inode) -> bool {
        inode.crc.get() == checksum(self.seed, inode_address(block, slot), inode.as_bytes())
    }
}

impl Image {
    /// The image on a device, with what its superblock says.
    pub fn new(device: Arc<Overlay>, sb: Superblock) -> Image {
        let (hash, seed) = (NameHash::new(&sb.hash_key), checksum_seed(&sb.uuid));
        let base = Base { device, sb, hash, seed };
        Image {
            base,
            copies: Vec::new(),
            fresh: BTreeSet::new(),
            held: Bits::new(sb.blocks.get()),
            leaving: BTreeMap::new(),
            kept_in: BTreeMap::new(),
            ahead: RefCell::default(),
            unreadable: Cell::new(false),
        }
    }

    /// What threads share.
    pub fn base(&self) -> Base {
        self.base.clone()
    }

    /// Whether a block could not be read. The areas of journal and double writes do not count: their blocks are written
    /// anew.
    pub fn has_unreadable(&self) -> bool {
        self.unreadable.get()
    }

    /// Blocks as they are; that one cannot be read is kept in mind.
    pub fn read_many(&self, blocks: &[u64]) -> Vec<Result<IoBuf, String>> {
        let sb = &self.base.sb;
        let areas = [(sb.ring_start.get(), sb.ring_blocks.get()), (sb.dw_start.get(), sb.dw_blocks.get())];
        let is_of_areas =
            |block: u64| areas.iter().any(|(start, len)| block >= *start && block - start < *len);
        let read = self.base.read_many(blocks);
        if blocks.iter().zip(&read).any(|(block, read)| read.is_err() && !is_of_areas(*block)) {
            self.unreadable.set(true);
        }
        read
    }

    /// Reads blocks in one batch, for [`Image::read`] to find them; what was read ahead before is dropped.
    pub fn read_ahead(&self, blocks: &[u64]) {
        self.ahead.borrow_mut().clear();
        self.read_further_ahead(blocks);
    }

    /// As [`Image::read_ahead`], but keeps what was read ahead before.
    pub fn read_further_ahead(&self, blocks: &[u64]) {
        // What fails is read again in its turn.
        let read = self.base.read_many(blocks);
        let good = blocks.iter().zip(read).filter_map(|(block, read)| Some((*block, read.ok()?)));
        self.ahead.borrow_mut().extend(good);
    }

    /// A block as it is.
    pub fn read(&self, block: u64) -> Result<IoBuf, String> {
        if let Some(buf) = self.ahead.borrow().get(&block) {
            return Ok(buf.clone());
        }
        self.read_many(&[block]).pop().unwrap_or_else(|| Err("it could not be read".into()))
    }

    /// A block with a header, verified.
    pub fn get(&self, block: u64, kind: BlockKind) -> Result<IoBuf, String> {
        let buf = self.read(block)?;
        self.verify(block, kind, &buf).map(|()| buf)
    }

    /// A block with a header, sealed for its place.
    pub fn sealed(&self, block: u64, kind: BlockKind, mut buf: IoBuf) -> IoBuf {
        finish_image(self.seed, block, kind, &mut buf);
        buf
    }

    /// Writes a block with a header, sealed.
    pub fn put(&self, block: u64, kind: BlockKind, buf: IoBuf) -> Result<()> {
        self.put_raw(block, self.sealed(block, kind, buf))
    }

    /// Writes bytes as they are.
    pub fn put_raw(&self, block: u64, buf: IoBuf) -> Result<()> {
        self.ahead.borrow_mut().remove(&block);
        self.device.run(vec![Request::write(block, buf, Cause::Fsck)]).map(drop)
    }

    /// The inode of a slot, as it is.
    pub fn inode(&self, block: u64, slot: usize) -> Result<Inode, String> {
        if let Some(buf) = self.ahead.borrow().get(&block) {
            return slot_of(buf, slot).ok_or_else(|| "no such slot".into());
        }
        let buf = self.read(block)?;
        slot_of(&buf, slot).ok_or_else(|| "no such slot".into())
    }

    /// Writes an inode into its slot, sealed; zeros (a free slot) stay as they are. The other slots of the
    /// block are left alone, whatever is in them.
    pub fn put_inode(&self, block: u64, slot: usize, inode: &Inode) -> Result<()> {
        let mut buf = self.read(block).unwrap_or_else(|_| IoBuf::zeroed(BLOCK_SIZE));
        let mut inode = *inode;
        inode.crc = 0.into();
        if inode.nid.get() != 0 {
            inode.crc.set(checksum(self.seed, inode_address(block, slot), inode.as_bytes()));
        }
        if let Some(bytes) = buf.chunks_exact_mut(INODE_SIZE).nth(slot) {
            bytes.copy_from_slice(inode.as_bytes());
        }
        self.put_raw(block, buf)
    }
}

fn inode_address(block: u64, slot: usize) -> u64 {
    block.wrapping_mul(INODES_PER_BLOCK as u64).wrapping_add(slot as u64)
}

/// The inode in a slot of a node block's bytes.
pub(super) fn slot_of(bytes: &[u8], slot: usize) -> Option<Inode> {
    Inode::read_from_bytes(bytes.chunks_exact(INODE_SIZE).nth(slot)?).ok()
}

/// A block of zeros with a fresh header.
pub(super) fn fresh(kind: BlockKind, owner: Nid, generation: u32) -> IoBuf {
    let mut buf = IoBuf::zeroed(BLOCK_SIZE);
    buf[..BLOCK_HEADER_SIZE].copy_from_slice(BlockHeader::new(kind, owner, generation).as_bytes());
    buf
}

/// The header of a block.
pub(super) fn header(bytes: &[u8]) -> Option<BlockHeader> {
    BlockHeader::read_from_prefix(bytes).ok().map(|(header, _)| header)
}

/// Why a block is not of this owner, if it is not.
pub(super) fn foreign(bytes: &[u8], owner: u64, generation: u32) -> Option<String> {
    let header = header(bytes)?;
    let theirs = (header.owner.get(), header.generation.get());
    (theirs != (owner, generation)).then(|| {
        format!(
            "it belongs to {} of generation {}, not to {owner} of generation {generation}",
            theirs.0, theirs.1
        )
    })
}

/// A little-endian word of a block.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The place of a NAT entry in words.
pub(super) fn in_words(entry: &NatEntry) -> String {
    format!("block {} slot {}", entry.block(), entry.slot())
}

/// A set of blocks.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// So many bits, none set.
    pub fn new(len: u64) -> Bits {
        Bits { words: vec![0; len.div_ceil(64) as usize] }
    }

    /// Whether a bit is set.
    pub fn has(&self, at: u64) -> bool {
        self.words.get((at / 64) as usize).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Adds one; whether it was new.
    pub fn add(&mut self, at: u64) -> bool {
        let Some(word) = self.words.get_mut((at / 64) as usize) else { return false };
        let new = *word >> (at % 64) & 1 == 0;
        *word |= 1 << (at % 64);
        new
    }

    /// Takes one out.
    pub fn remove(&mut self, at: u64) {
        if let Some(word) = self.words.get_mut((at / 64) as usize) {
            *word &= !(1 << (at % 64));
        }
    }

    /// Adds a row of them.
    pub fn add_all(&mut self, from: u64, len: u64) {
        for at in from..from.saturating_add(len).min(self.words.len() as u64 * 64) {
            self.add(at);
        }
    }

    /// Adds those of another set.
    pub fn add_those_of(&mut self, other: &Bits) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, others)| *word |= others);
    }

    /// Whether none of a row is in the set.
    pub fn none_of(&self, from: u64, len: u64) -> bool {
        (from..from.saturating_add(len)).all(|at| !self.has(at))
    }
}
