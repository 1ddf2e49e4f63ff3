//! What a file system does for the journal under it: it finishes what earlier mounts have begun, and follows how far
//! records have travelled.

use super::{FileType, Vfs};
use crate::extent;
use crate::format::{Intent, Nid, OrphanEntry, Position};
use crate::inode::InodeObj;
use crate::store::Observer;
use crate::sync::Arc;
use crate::{Error, Result};

impl Observer for Vfs {
    fn pre_checkpoint(&self, upto: Position) -> Result<()> {
        self.data.pre_checkpoint(upto)
    }
    fn durable(&self, upto: Position) {
        self.meta.alloc.durable(upto);
        self.meta.space.durable(upto);
    }
    fn head_passed(&self, upto: Position) {
        self.meta.alloc.head_passed(upto);
    }
    fn used_nids(&self, nat_block: u64) -> Option<u16> {
        self.meta.space.used_nids(nat_block)
    }
}

impl Vfs {
    /// Notes for the next mount what would else have to be searched for.
    pub(crate) fn save_hints(&self) -> Result<()> {
        self.meta.space.save_hints()
    }

    /// Finishes what earlier mounts have begun: frees inodes without names, ends truncations and moves.
    pub(crate) fn finish_intents(&self) -> Result<()> {
        let mut entries = self.meta.space.entries();
        // Moves of extents first: an inode that is freed needs none of them.
        entries.sort_by_key(|e| (e.nid.get(), std::cmp::Reverse(e.intent.get())));
        let batches: Vec<Nid> =
            entries.iter().filter(|e| e.what() == Some(Intent::Batch)).map(|e| e.nid.get()).collect();
        for entry in entries {
            let given_up = || self.meta.inode(entry.nid.get()).is_ok_and(|inode| !inode.is_usable());
            if entry.what() == Some(Intent::Orphan) && batches.contains(&entry.nid.get()) && given_up() {
                // It has what is still to be moved.
                continue;
            }
            match self.finish_intent(&entry) {
                // The device may do better at the next mount; until then that file alone is of no use.
                Err(Error::Errno(_) | Error::Device { .. }) if given_up() => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Where nothing is written, and so no batch finished, nor a range that is freed or moved: the files are neither the old
    /// nor the new, and nobody is to read them.
    pub(crate) fn bar_unfinished(&self) -> Result<()> {
        for entry in &self.meta.space.entries() {
            let Some(inode) = self.target(entry.nid.get(), entry.generation.get())? else { continue };
            match entry.what() {
                Some(Intent::Collapse | Intent::Insert) => inode.poison(),
                // Behind the end, what a truncation has left is seen by nobody.
                Some(Intent::Punch) if entry.arg0.get() < inode.size() => inode.poison(),
                Some(Intent::Batch) => {
                    for run in self.data.batch_runs(&inode, entry)? {
                        if let Some(target) = self.target(run.nid.get(), run.generation.get())? {
                            target.poison();
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish_intent(&self, entry: &OrphanEntry) -> Result<()> {
        let (nid, progress) = (entry.nid.get(), entry.progress.get());
        let Some(intent) = entry.what() else {
            return Err(Error::Corrupt {
                what: "orphan entry",
                place: format!("nid {nid}"),
                detail: format!("intent {} is unknown", entry.intent),
            });
        };
        let inode = match self.meta.inode(nid) {
            Ok(inode) if inode.generation() == entry.generation.get() => inode,
            Ok(_) | Err(Error::Errno(_)) => return self.drop_intent(nid, intent),
            Err(e) => return Err(e),
        };
        if !matches!(intent, Intent::Orphan | Intent::Batch)
            && let Some(detail) = problem(entry, &inode)
        {
            return Err(Error::Corrupt { what: "orphan entry", place: format!("nid {nid}"), detail });
        }
        const BLOCK: u64 = crate::device::BLOCK_SIZE as u64;
        let (first, last) = (entry.arg0.get() / BLOCK, entry.arg1.get().div_ceil(BLOCK));
        match intent {
            Intent::Orphan => {
                if inode.nlink() > 0 {
                    return self.drop_intent(nid, intent);
                }
                self.reap(&inode);
                Ok(())
            }
            Intent::Truncate | Intent::Punch => {
                let first = entry.arg0.get().div_ceil(BLOCK);
                let end =
                    if intent == Intent::Punch { last.min(extent::LOGICAL_END) } else { extent::LOGICAL_END };
                self.meta.free_range(&inode, first..end, intent)
            }
            Intent::Collapse => self.meta.resume_collapse(&inode, first..last, progress),
            Intent::Insert => self.meta.resume_insert(&inode, first, last, progress),
            Intent::Batch if inode.file_type() != FileType::Regular => self.drop_intent(nid, intent),
            Intent::Batch => {
                self.data.resume_batch(&inode, entry, |nid, generation| self.target(nid, generation))
            }
        }
    }

    /// A file that a batch has pages for, unless it is gone.
    fn target(&self, nid: Nid, generation: u32) -> Result<Option<Arc<InodeObj>>> {
        match self.meta.inode(nid) {
            Ok(inode) if inode.file_type() == FileType::Regular && inode.generation() == generation => {
                Ok(Some(inode))
            }
            Ok(_) | Err(Error::Errno(libc::ESTALE | libc::ENOENT)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn drop_intent(&self, nid: Nid, intent: Intent) -> Result<()> {
        let mut h = self.meta.begin(4)?;
        self.meta.space.end_intent(&mut h, nid, intent)?;
        h.commit().map(drop)
    }
}

/// What keeps an intent about a file's pages from being acted on.
fn problem(entry: &OrphanEntry, inode: &InodeObj) -> Option<String> {
    if inode.file_type() != FileType::Regular {
        return Some("the inode is no regular file".into());
    }
    entry.range_problem(inode.size())
}
