//! How a directory gets room: the first bucket, splits, overflow blocks.
//!
//! Buckets are split in turn, whichever is full, and the halves of one that was split are far from full when the
//! others are about to be: so a bucket is seldom full long before its turn. It waits for up to [`PATIENCE`] splits to
//! reach it before it gets an overflow block, which each look-up of its names would read as well. (With random names,
//! and one split after the other, 1.07 blocks a look-up in place of 1.47 with one split; the buckets are 63 % full in
//! place of 68 %.)
//!
//! While a bucket is split nobody else is in the directory, and to have it for oneself, and to let all in again that
//! have waited, costs more than a split. So a large directory splits several buckets at a time ([`splits_at_once`]):
//! some come before anybody needs them, a sixty-fourth of the directory at the most. (Files made in one directory of
//! 100,000 by two threads on two cores: a tenth to a quarter more a second; by sixteen, a tenth. 1.01 blocks a look-up;
//! the buckets are 57 % full.)
//!
//! The splits of one call are one record. A chain too long for it would therefore end all splits, and every chain
//! would grow from then on: so nobody adds a block but for a bucket that is full when the directory is locked, none
//! to a chain that the ring could not split then, and any thread that has the credits splits a chain of any length.

use super::bucket::{self, Dentry, pack};
use super::change::retain;
use super::hash::{bucket_of, hash_of, next_to_split};
use super::{Dir, DirBlocks};
use crate::device::BLOCK_SIZE;
use crate::error::Result;
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, Inode, SLOT_PAYLOAD};
use crate::store::{Handle, PageRef};
use std::ops::ControlFlow;

/// Slots that one block's image takes, with what its allocation takes beside.
const BLOCK_SLOTS: u32 = (BLOCK_SIZE / SLOT_PAYLOAD) as u32 + 3;
/// Most splits that a full bucket waits for.
pub(crate) const PATIENCE: u32 = 3;
/// Most splits of one record.
const MOST_SPLITS: u32 = 16;
/// Blocks of the chains that the splits of one record divide, as a rule: every ring has room for so many. Chains of two
/// blocks are met where a bucket was full too long before its turn.
pub(crate) const USUAL_CHAINS: u32 = 2 * PATIENCE;
/// [`split_slots`] of usual chains.
pub(crate) const GROW_SLOTS: u32 = split_slots(USUAL_CHAINS);
/// Slots that [`Dir::grow`] takes at the most where it may not split: the device is full.
pub(crate) const OVERFLOW_SLOTS: u32 = 16;

/// Slots that [`Dir::grow`] takes at the most where it may split chains of so many blocks together, the directory's
/// inode included: twice as many blocks are logged.
pub(crate) const fn split_slots(blocks: u32) -> u32 {
    (2 * blocks + 2) * BLOCK_SLOTS + 8
}

/// What there are credits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Splits {
    /// So many splits at the most.
    pub count: u32,
    /// Of chains of so many blocks together.
    pub blocks: u32,
    /// Blocks of the longest chain for which there can be credits at all.
    pub longest: u32,
}

/// How many splits a directory of so many buckets makes at a time, where there are credits for so many.
pub(super) fn splits_at_once(buckets: u32) -> u32 {
    (buckets / 64).clamp(1, MOST_SPLITS)
}

/// How many it makes where a bucket is still full by then.
pub(crate) fn most_splits(buckets: u32) -> u32 {
    splits_at_once(buckets).max(PATIENCE)
}

impl<B: DirBlocks> Dir<'_, B> {
    /// The bucket whose turn to be split it is, if there is one.
    pub(crate) fn next_to_split(&self, image: &Inode) -> Option<u32> {
        let buckets = image.buckets.get();
        (1..u32::MAX / 2).contains(&buckets).then(|| next_to_split(buckets))
    }

    /// Makes room for a name whose bucket is full: adds the first bucket; or splits the buckets whose turn it is,
    /// `splits_at_once` or as many as it takes, within what `most` says, and gives the name's bucket an overflow
    /// block if no split concerned it. Changes the image.
    ///
    /// False, and nothing is changed: the name is there, or its bucket has room by now. The caller that found it full
    /// had to let the directory go, and others may have come first.
    pub(crate) fn grow(&self, h: &mut Handle, image: &mut Inode, name: &[u8], most: Splits) -> Result<bool> {
        if !self.vacancy(Some(h), image, name)?.is_ok_and(|vacancy| vacancy.grows()) {
            return Ok(false);
        }
        if image.buckets.get() == 0 {
            return self.new_bucket(h, image, &[]).map(|()| true);
        }
        let hash = self.hash.of(name);
        let buckets = image.buckets.get();
        let at_once = splits_at_once(buckets);
        let mut blocks = most.blocks;
        let (mut split, mut has_room) = (false, false);
        for done in 1..=most_splits(buckets).min(most.count) {
            let Some(victim) = self.next_to_split(image).filter(|_| blocks > 0) else { break };
            let chain = self.chain(Some(h), image, victim)?;
            let Some(left) = blocks.checked_sub(chain.len() as u32) else { break };
            blocks = left;
            let new = image.buckets.get();
            self.split(h, image, victim, chain)?;
            split = true;
            has_room |= [victim, new].contains(&bucket_of(hash, new + 1));
            if has_room && done >= at_once {
                break;
            }
        }
        if has_room {
            return Ok(true);
        }
        let bucket = bucket_of(hash, image.buckets.get());
        let chain = self.chain(Some(h), image, bucket)?;
        if chain.len() < super::MAX_CHAIN.min(most.longest as usize) {
            self.add_overflow(h, image, bucket, &chain)?;
        } else if !split {
            return Err(crate::Error::Errno(libc::ENOSPC));
        }
        // Where the chain is as long as can be, its turn comes with the splits that follow.
        Ok(true)
    }

    /// Puts an empty block at the end of a bucket's chain.
    fn add_overflow(&self, h: &mut Handle, image: &mut Inode, bucket: u32, chain: &[PageRef]) -> Result<()> {
        let Some(last) = chain.last() else { return Ok(()) };
        let block = self.blocks.add_overflow(h, image, last.block() + 1)?;
        let page = h.init(block, BlockKind::Bucket, self.nid, self.generation)?;
        let body = pack(bucket, &[]);
        self.fill(h, &page, &body[0]);
        self.link(h, last, block);
        Ok(())
    }

    /// Sets the overflow block that follows.
    fn link(&self, h: &mut Handle, page: &PageRef, next: u64) {
        h.edit(page, BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8).copy_from_slice(&next.to_le_bytes());
    }

    /// Adds the bucket after the last, with what it holds.
    fn new_bucket(&self, h: &mut Handle, image: &mut Inode, dentries: &[Dentry]) -> Result<()> {
        let bucket = image.buckets.get();
        let block = self.blocks.add_bucket(h, image, bucket)?;
        image.buckets.set(bucket + 1);
        image.size.set((u64::from(bucket) + 1) * BLOCK_SIZE as u64);
        let first = h.init(block, BlockKind::Bucket, self.nid, self.generation)?;
        self.fill_chain(h, image, vec![first], &pack(bucket, dentries))
    }

    /// Gives a chain its content: takes more blocks, or frees those left over.
    pub(super) fn fill_chain(
        &self,
        h: &mut Handle,
        image: &mut Inode,
        mut chain: Vec<PageRef>,
        bodies: &[Vec<u8>],
    ) -> Result<()> {
        while chain.len() < bodies.len() {
            let goal = chain.last().map_or(0, |page| page.block() + 1);
            let block = self.blocks.add_overflow(h, image, goal)?;
            chain.push(h.init(block, BlockKind::Bucket, self.nid, self.generation)?);
        }
        for (i, (page, body)) in chain.iter().zip(bodies).enumerate() {
            self.fill(h, page, body);
            let next = chain.get(i + 1).filter(|_| i + 1 < bodies.len());
            self.link(h, page, next.map_or(0, |page| page.block()));
        }
        for page in chain.iter().skip(bodies.len()) {
            h.forget(page);
            self.blocks.free_overflow(h, image, page.block())?;
        }
        Ok(())
    }

    /// The bytes of a bucket's blocks.
    pub(super) fn copies(&self, h: &Handle, chain: &[PageRef]) -> Vec<Vec<u8>> {
        chain.iter().map(|page| h.view(page, 0..BLOCK_SIZE)).collect()
    }

    /// The entries in copies of a bucket's blocks.
    pub(super) fn entries<'c>(&self, chain: &[PageRef], copies: &'c [Vec<u8>]) -> Result<Vec<Dentry<'c>>> {
        let mut entries = Vec::new();
        for (page, bytes) in chain.iter().zip(copies) {
            let walked = bucket::walk(bytes, |_, dentry| {
                entries.push(dentry);
                ControlFlow::<()>::Continue(())
            });
            walked.map_err(|fault| self.damaged(page, fault))?;
        }
        Ok(entries)
    }

    /// Divides a bucket between itself and the new last one.
    fn split(&self, h: &mut Handle, image: &mut Inode, victim: u32, chain: Vec<PageRef>) -> Result<()> {
        let after = image.buckets.get() + 1;
        let stays = |d: &Dentry| bucket_of(hash_of(d.cookie), after) == victim;
        let copies = self.copies(h, &chain);
        let (keep, go): (Vec<_>, Vec<_>) = self.entries(&chain, &copies)?.into_iter().partition(stays);
        self.new_bucket(h, image, &go)?;
        if let [page] = &chain[..] {
            // In place: what stays is not logged again.
            return retain(h.edit(page, 0..BLOCK_SIZE), stays).map_err(|fault| self.damaged(page, fault));
        }
        self.fill_chain(h, image, chain, &pack(victim, &keep))
    }
}
