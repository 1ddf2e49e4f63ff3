//! What runs ahead of the journal, for a successor of this process; and what a predecessor has left of that.
//!
//! A write that has returned is in frames, with sizes and times in memory: no record holds it for some seconds. Where a mount
//! outlives its server all of that lies in memory which the next server takes over. Pages say of themselves that they are
//! dirty ([`crate::cache`]); size, times and pending truncations are kept for each file ([`InodeObj::keep`]).
//!
//! # Taking over
//! Nobody else uses the files yet. Recovery has brought back what records hold; of each file, then:
//! 1. a truncation to nothing waits again, if no whole record has done it;
//! 2. the pages within the size that was kept (that of the recovered inode where none was) become dirty pages of the file,
//!    in the frames in which they lie; those beyond are of no use;
//! 3. a file that is longer than that was being cut: it is cut; one that is shorter becomes as long, by writes that nothing
//!    has recorded;
//! 4. its times are as they were kept.
//!
//! Each step leaves frames and slots such that it may be done again, should this process die meanwhile: a frame is dirty in
//! the table throughout, a slot stays its file's.
//!
//! What a request that was in service has written of its bytes may be there or not: it is done once more, or it was done.
//!
//! What this leaves to others: requests ([`crate::takeover::requests`]), inodes without names, which are recovered as all
//! others (`vfs`).

use super::data_path::DataPath;
use super::write::joining::Joining;
use crate::cache::{FrameState, Inherited};
use crate::format::{MAX_FILE_SIZE, Nid};
use crate::inode::{FileType, InodeObj};
use crate::meta::Mapping;
use crate::pages::{Delayed, PAGE, page_after};
use crate::planted::kill::{self, Step};
use crate::planted::{self, Bug};
use crate::sync::Arc;
use crate::takeover::KeptInode;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Which file, and of which generation.
type Key = (Nid, u32);

fn key_of(one: &Inherited) -> Key {
    (one.page.nid, one.page.generation)
}

impl DataPath {
    /// Tells a successor of what runs ahead of the journal. To be called when it has changed, before the caller is answered.
    pub fn keep(&self, inode: &InodeObj) {
        if let Some(memory) = &self.takeover
            && !planted::is(Bug::SizeNotKept)
        {
            inode.keep(memory);
        }
    }

    /// The same of a truncation to nothing, whose record is to come.
    pub(in crate::file) fn keep_truncate(&self, inode: &InodeObj) {
        if let Some(memory) = &self.takeover {
            inode.keep_truncate(memory);
        }
    }

    /// What was taken over is not kept, for the next that tries: nobody uses a file any more.
    pub fn leave(&self) {
        self.pool.leave();
    }

    /// Brings back what a predecessor has left; to be called once, before anybody uses a file.
    ///
    /// # Errors
    /// Those of the device, and of a full image: what is not taken over then stays for the next mount.
    pub fn inherit(&self) -> Result<()> {
        let Some(memory) = self.takeover.as_ref().filter(|memory| memory.incarnation() > 0) else {
            return Ok(());
        };
        kill::step(Step::Inheriting);
        let mut all = std::mem::take(&mut *self.inherited.lock());
        if planted::is(Bug::DirtyFrameForgotten) {
            all.drain(..).for_each(|one| self.pool.give_up(&one));
        }
        // There may be some for each frame of a cache: what is one run is mapped and set aside for at once.
        all.sort_unstable_by_key(|one| (one.page.nid, one.page.generation, one.page.page));
        let files = all.chunk_by(|one, next| key_of(one) == key_of(next));
        let mut frames: BTreeMap<Key, &[Inherited]> = files.map(|pages| (key_of(&pages[0]), pages)).collect();
        for kept in memory.inodes().left() {
            let pages = frames.remove(&(kept.nid, kept.generation)).unwrap_or_default();
            match self.file_of((kept.nid, kept.generation))?.filter(|_| kept.size <= MAX_FILE_SIZE) {
                Some(inode) => self.inherit_file(&inode, &kept, pages)?,
                None => {
                    memory.inodes().give(kept.slot);
                    pages.iter().for_each(|one| self.pool.give_up(one));
                }
            }
            kill::step(Step::InheritedFile);
        }
        for (key, pages) in frames {
            match self.file_of(key)? {
                Some(inode) => self.inherit_pages(&inode, inode.data().size(), pages)?,
                None => pages.iter().for_each(|one| self.pool.give_up(one)),
            }
            kill::step(Step::InheritedFile);
        }
        kill::step(Step::Inherited);
        Ok(())
    }

    /// The regular file that something was left of, if it is there.
    fn file_of(&self, (nid, generation): Key) -> Result<Option<Arc<InodeObj>>> {
        match self.meta.inode(nid) {
            Ok(inode) => {
                let is_meant = inode.generation() == generation && inode.file_type() == FileType::Regular;
                Ok(Some(inode).filter(|_| is_meant))
            }
            // Freed meanwhile, or a number that is none.
            Err(Error::Errno(_) | Error::Corrupt { .. } | Error::Refused(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn inherit_file(&self, inode: &Arc<InodeObj>, kept: &KeptInode, pages: &[Inherited]) -> Result<()> {
        let Some(memory) = &self.takeover else { return Ok(()) };
        let data = inode.data();
        let dropped =
            if kept.truncate_pending && self.write_back.keeps() { self.droppable(inode)? } else { None };
        match dropped {
            // The old content stays until a record has the new, as before; nothing else is mapped from now on.
            Some(dropped) => {
                data.set_size(0);
                data.pages.begin_truncate(dropped.extents);
            }
            None if kept.truncate_pending => {
                self.cut_untold(inode, 0)?;
                memory.inodes().set_truncate_pending(kept.slot, false);
            }
            None => {}
        }
        // Before a page can be written back: the record would hold all of the smaller size, and settle the slot.
        let grows = kept.size > data.size();
        if grows {
            data.set_size(kept.size);
        }
        // Not before: cutting would store the size that the file has now.
        inode.inherit_kept(memory, kept);
        self.inherit_pages(inode, kept.size, pages)?;
        if let Some(dropped) = dropped {
            // Who writes it back by now has the mutex until the truncation waits no more.
            let _quiet = data.write_back.lock();
            if data.pages.is_truncate_pending() {
                self.write_back.pending().add(inode, dropped.blocks);
                self.write_back.queue().add_emptied(inode);
            }
        }
        if kept.size < data.size() {
            self.cut(inode, kept.size)?;
        } else if grows {
            self.write_back.queue().add(inode);
        }
        if kept.mtime != 0 || kept.ctime != 0 {
            inode.bring_times(kept.mtime, kept.ctime);
        }
        // It may have been settled already, by a write-back that came before the times.
        inode.keep(memory);
        inode.settle_kept();
        Ok(())
    }

    /// Pages in ascending order.
    fn inherit_pages(&self, inode: &Arc<InodeObj>, size: u64, pages: &[Inherited]) -> Result<()> {
        let data = inode.data();
        data.pool.get_or_init(|| Arc::clone(&self.pool));
        let mut joining = Joining::begin(self.write_back.queue(), &self.meta, inode, None);
        let kept = pages.partition_point(|one| one.page.page < page_after(size));
        pages[kept..].iter().for_each(|one| self.pool.give_up(one));
        let mut rest = &pages[..kept];
        while let Some(first) = rest.first().map(|one| one.page.page) {
            let mapping = self.meta.map(inode, first)?;
            let end = first.saturating_add(mapping.len().max(1));
            let (run, behind) = rest.split_at(rest.partition_point(|one| one.page.page < end).max(1));
            rest = behind;
            let flags = match mapping {
                Mapping::Mapped { unwritten: false, .. } => FrameState::MAPPED,
                Mapping::Mapped { .. } => FrameState::empty(),
                Mapping::Hole { .. } => FrameState::RESERVED,
            };
            let promised = (flags == FrameState::RESERVED).then(|| {
                let last = run.last().map_or(first, |one| one.page.page);
                Delayed::new(first..last + 1, run.len() as u64, inode.lock.read().extent_depth, true)
            });
            if let Some(promised) = &promised {
                self.meta.reserve_again(promised.blocks(), promised.nodes())?;
            }
            let before = joining.pages.len();
            for one in run {
                let page = one.page.page;
                let valid = (size - page * PAGE).min(PAGE) as usize;
                match self.pool.take_over(one, data.index.slot(page, &self.pool), flags, valid) {
                    Some(_) => joining.pages.push(page),
                    None => self.pool.give_up(one),
                }
            }
            if let Some(promised) = promised {
                let taken = promised.with_blocks((joining.pages.len() - before) as u64);
                joining.delayed = Some(taken).filter(|taken| taken.blocks() > 0);
                let nodes = joining.delayed.map_or(0, |taken| taken.nodes());
                self.meta.unreserve(promised.blocks() - taken.blocks(), promised.nodes() - nodes);
                joining.join();
            }
        }
        joining.join();
        Ok(())
    }
}
