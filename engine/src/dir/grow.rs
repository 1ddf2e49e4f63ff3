//! How a directory gets room: the first bucket, splits, overflow blocks.

use super::bucket::{self, Dentry, pack};
use super::hash::{bucket_of, hash_of, next_to_split};
use super::{Dir, DirBlocks, OwnedDentry};
use crate::device::BLOCK_SIZE;
use crate::error::Result;
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, Inode, SLOT_PAYLOAD};
use crate::store::{Handle, PageRef};
use std::ops::ControlFlow;

/// Slots that one block's image takes, with what its allocation takes beside.
const BLOCK_SLOTS: u32 = (BLOCK_SIZE / SLOT_PAYLOAD) as u32 + 3;
/// Longest chain that is split in one record: twice as many blocks are logged.
const MAX_SPLIT: u32 = 3;
/// Slots that [`Dir::grow`] takes at the most, the directory's inode included.
pub const GROW_SLOTS: u32 = (2 * MAX_SPLIT + 2) * BLOCK_SLOTS + 8;
/// The same where it may not split: the ring is tiny, or the device full.
pub const OVERFLOW_SLOTS: u32 = 16;

impl<B: DirBlocks> Dir<'_, B> {
    /// Makes room for a name whose bucket is full: adds the first bucket; or splits the bucket whose turn it
    /// is (unless `split` is false, or its chain is too long for one record), and gives the name's bucket an
    /// overflow block if the split did not concern it. Changes the image.
    pub fn grow(&self, h: &mut Handle, image: &mut Inode, name: &[u8], split: bool) -> Result<()> {
        let buckets = image.buckets.get();
        if buckets == 0 {
            return self.new_bucket(h, image, &[]).map(|_| ());
        }
        let hash = self.hash.of(name);
        let victim = next_to_split(buckets);
        let mut relieved = false;
        if split && buckets < u32::MAX / 2 {
            let chain = self.chain(Some(h), image, victim)?;
            if chain.len() <= MAX_SPLIT as usize {
                self.split(h, image, victim, &chain)?;
                relieved = [victim, buckets].contains(&bucket_of(hash, buckets + 1));
            }
        }
        if relieved { Ok(()) } else { self.add_overflow(h, image, bucket_of(hash, image.buckets.get())) }
    }

    /// Puts an empty block at the end of a bucket's chain.
    fn add_overflow(&self, h: &mut Handle, image: &mut Inode, bucket: u32) -> Result<()> {
        let chain = self.chain(Some(h), image, bucket)?;
        let Some(last) = chain.last() else { return Ok(()) };
        if chain.len() >= super::MAX_CHAIN {
            return Err(crate::Error::Errno(libc::ENOSPC));
        }
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
    fn fill_chain(
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

    /// Divides a bucket between itself and the new last one.
    fn split(&self, h: &mut Handle, image: &mut Inode, victim: u32, chain: &[PageRef]) -> Result<()> {
        let after = image.buckets.get() + 1;
        let mut entries = Vec::new();
        for page in chain {
            self.walk(Some(h), page, |_, d| {
                entries.push(OwnedDentry {
                    name: d.name.to_vec(),
                    nid: d.nid,
                    cookie: d.cookie,
                    file_type: d.file_type,
                });
                ControlFlow::<()>::Continue(())
            })?;
        }
        let (keep, go): (Vec<_>, Vec<_>) = entries
            .iter()
            .map(OwnedDentry::borrow)
            .partition(|d| bucket_of(hash_of(d.cookie), after) == victim);
        self.new_bucket(h, image, &go)?;
        if let [page] = chain {
            // In place: what stays is not logged again.
            let after_removal = |h: &Handle| -> Result<Option<bucket::Spot>> {
                self.walk(Some(h), page, |spot, d| match bucket_of(hash_of(d.cookie), after) == victim {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(spot),
                })
            };
            while let Some(spot) = after_removal(h)? {
                let patches = h.read(page, |bytes| bucket::remove(bytes, spot));
                let patches = patches.map_err(|detail| self.damaged(page, detail))?;
                self.patch(h, page, patches);
            }
            return Ok(());
        }
        self.fill_chain(h, image, chain.to_vec(), &pack(victim, &keep))
    }
}

impl OwnedDentry {
    fn borrow(&self) -> Dentry<'_> {
        Dentry { name: &self.name, nid: self.nid, cookie: self.cookie, file_type: self.file_type }
    }
}
