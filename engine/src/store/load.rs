//! Bringing pages into memory: read once however many ask, verified before anyone sees them.

use super::Store;
use super::page::{Page, PageRef};
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::format::{BlockHeader, BlockKind, INODE_SIZE, INODES_PER_BLOCK, Inode, checksum};
use crate::sync::Arc;
use crate::{Error, Result};

use zerocopy::FromBytes;

impl Store {
    /// The page of a block, from memory or read and verified. It may sleep.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the block is outside the image, does not verify, or holds something else.
    pub fn get(&self, block: u64, kind: BlockKind) -> Result<PageRef> {
        if let Some(page) = self.table.find(block)
            && page.is_loaded()
        {
            return expect_kind(page, kind);
        }
        let mut pages = self.get_many(&[(block, kind)])?;
        Ok(pages.swap_remove(0))
    }

    /// As [`Store::get`] for several blocks, in their order; what is not in memory is read in one batch.
    pub fn get_many(&self, wanted: &[(u64, BlockKind)]) -> Result<Vec<PageRef>> {
        loop {
            if let Some(pages) = self.try_get_many(wanted)? {
                return Ok(pages);
            }
        }
    }

    /// `None` if somebody else's load of one of the pages failed: it is then tried again, as one's own.
    fn try_get_many(&self, wanted: &[(u64, BlockKind)]) -> Result<Option<Vec<PageRef>>> {
        // Made first: the guards below borrow from them.
        let made: Vec<PageRef> = wanted.iter().map(|(block, kind)| Page::unloaded(*block, *kind)).collect();
        let mut pages = Vec::with_capacity(wanted.len());
        let mut loads = Vec::new();
        for (block, _) in wanted {
            self.check_block(*block)?;
        }
        for page in &made {
            // Held from before anyone can find the page until it is loaded; nobody else knows it yet.
            let guard = page.latch();
            match self.table.find_or_insert(page) {
                Some(there) => pages.push(there),
                None => {
                    loads.push((page, guard));
                    pages.push(Arc::clone(page));
                }
            }
        }
        let mut outcome = Ok(());
        if !loads.is_empty() {
            let blocks: Vec<u64> = loads.iter().map(|(page, _)| page.block()).collect();
            for ((page, mut body), read) in loads.into_iter().zip(self.fetch(&blocks)) {
                let verified =
                    read.and_then(|buf| verify(self.seed, page.block(), page.kind(), &buf).map(|()| buf));
                match verified {
                    Ok(buf) => {
                        body.bytes.copy_from_slice(&buf);
                        page.set_loaded();
                    }
                    Err(e) => {
                        self.table.remove(page);
                        outcome = outcome.and(Err(e));
                    }
                }
            }
        }
        outcome?;
        // Only now, with no load of our own left: two callers that wait for each other's pages get on.
        for (page, (_, kind)) in pages.iter().zip(wanted) {
            if !page.is_loaded() {
                page.wait_loaded();
                if !page.is_loaded() {
                    return Ok(None);
                }
            }
            expect_kind(Arc::clone(page), *kind)?;
        }
        Ok(Some(pages))
    }

    /// Reads blocks from the device: one by the quickest way for one, several in a batch.
    fn fetch(&self, blocks: &[u64]) -> Vec<Result<IoBuf>> {
        crate::blocking::about_to_block();
        if let [block] = blocks {
            let mut buf = IoBuf::unwiped(BLOCK_SIZE);
            return vec![self.device.read_into(*block, &mut buf, Cause::Metadata).map(|()| buf)];
        }
        let read = |block: &u64| Request::read(*block, IoBuf::unwiped(BLOCK_SIZE), Cause::Metadata);
        let done = self.device.wait(self.device.submit(blocks.iter().map(read).collect()));
        done.into_iter().map(|done| done.result.map(|()| done.buf)).collect()
    }
}

fn expect_kind(page: PageRef, kind: BlockKind) -> Result<PageRef> {
    if page.kind() == kind {
        return Ok(page);
    }
    Err(corrupt(page.block(), kind, format!("the block holds {:?}", page.kind())))
}

fn corrupt(block: u64, kind: BlockKind, detail: String) -> Error {
    Error::Corrupt { what: "metadata block", place: format!("block {block} ({kind:?})"), detail }
}

/// Whether the bytes are those of a block of this kind at this address: magic, kind and checksum; in a node
/// block the checksum of every inode in use.
pub(crate) fn verify(seed: u32, block: u64, kind: BlockKind, bytes: &[u8]) -> Result<()> {
    if kind == BlockKind::Node {
        for (slot, bytes) in bytes.chunks_exact(INODE_SIZE).enumerate() {
            let inode = Inode::read_from_bytes(bytes).unwrap_or_else(|_| unreachable!("exact chunks"));
            let address = block.wrapping_mul(INODES_PER_BLOCK as u64).wrapping_add(slot as u64);
            if inode.nid.get() != 0 && inode.crc.get() != checksum(seed, address, bytes) {
                return Err(corrupt(block, kind, format!("the checksum of inode slot {slot} does not hold")));
            }
        }
        return Ok(());
    }
    let Ok((header, _)) = BlockHeader::read_from_prefix(bytes) else {
        return Err(corrupt(block, kind, "it is cut short".into()));
    };
    match header.kind() {
        Some(found) if found == kind => {}
        Some(found) => return Err(corrupt(block, kind, format!("it holds {found:?}"))),
        None => return Err(corrupt(block, kind, "it has no magic".into())),
    }
    if header.crc.get() != checksum(seed, block, bytes) {
        return Err(corrupt(block, kind, "its checksum does not hold".into()));
    }
    Ok(())
}
