//! Atomic batches: writes to several open files that become visible, and durable, all or none.
//!
//! What this leaves to others: how that is done (`file::batch`). Here is who may write, what is kept open meanwhile, and
//! what is durable on return.

use super::fsync::Waiting;
use super::*;
use crate::device::BLOCK_SIZE;
use crate::file::{SpillFile, StagedFile};
use crate::format::{MAX_FILE_SIZE, ROOT_NID};
use crate::journal::{Done, Durability};
use std::collections::BTreeMap;

/// Pages of a batch at the most.
const MAX_BATCH_PAGES: usize = 1 << 20;

/// How far a commit has come when it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchDurability {
    /// All of it is visible, and a crash leaves all or none: all after any later fsync.
    Ordered,
    /// As after an fsync.
    Synced,
    /// It survives a loss of power, whatever an fsync waits for.
    Power,
}

/// Writes that are staged. To be given back, by [`Vfs::commit_batch`] or [`Vfs::drop_batch`]: it keeps files open.
#[derive(Debug, Default)]
#[must_use = "it keeps files open"]
pub struct Batch {
    files: BTreeMap<Nid, StagedFile>,
    pages: usize,
    /// Pages in memory.
    kept: usize,
    /// Where the rest of a large one lies.
    staging: Option<(SpillFile, FileHandle)>,
}

impl Batch {
    /// Pages that are staged, whole or in part.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The files that it writes to.
    pub fn files(&self) -> usize {
        self.files.len()
    }
}

impl Vfs {
    /// Stages bytes for an offset of an open file. Nobody sees them before the commit.
    ///
    /// # Errors
    /// EBADF if it is not open for writing; EINVAL if it is open for appending, for where its end will be is not known;
    /// EFBIG; EROFS; E2BIG if it would be more than a batch can be. The batch is then as it was. ENOSPC, EIO of one that
    /// lies on the device: some of the bytes may be staged, so drop it, or stage them once more.
    pub fn stage(&self, batch: &mut Batch, handle: &FileHandle, offset: u64, bytes: &[u8]) -> Result<()> {
        if !handle.flags.writes() {
            return Err(Error::Errno(libc::EBADF));
        }
        if handle.flags.contains(OpenFlags::APPEND) {
            return Err(Error::Errno(libc::EINVAL));
        }
        self.writable()?;
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > MAX_FILE_SIZE) {
            return Err(Error::Errno(libc::EFBIG));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let inode = &handle.inode;
        let fresh = StagedFile::of(inode);
        let there = batch.files.get(&inode.nid());
        let (new, _) = there.unwrap_or(&fresh).new_pages(offset, bytes.len());
        let keeps = self.meta.store.profile().keeps();
        if batch.pages + new > if keeps { MAX_BATCH_PAGES } else { self.data.record_pages() } {
            return Err(Error::Errno(libc::E2BIG));
        }
        if there.is_none() && !inode.holds.open() {
            return Err(Error::Errno(libc::ESTALE));
        }
        if there.is_none() {
            // It writes until it is committed or given up, whoever closes the file.
            self.data.opened(inode);
        }
        batch.files.entry(inode.nid()).or_insert(fresh);
        // So much of it that memory never holds more than one record may take, and as much again.
        let most = self.data.record_pages() * BLOCK_SIZE;
        let mut at = offset;
        for part in bytes.chunks(most) {
            self.stage_part(batch, inode.nid(), at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn stage_part(&self, batch: &mut Batch, nid: Nid, offset: u64, bytes: &[u8]) -> Result<()> {
        let new_pages =
            |batch: &Batch| batch.files.get(&nid).map_or((0, 0), |file| file.new_pages(offset, bytes.len()));
        let (mut new, mut kept) = new_pages(batch);
        if batch.kept > 0 && batch.kept + kept > self.data.record_pages() && self.meta.store.profile().keeps()
        {
            let (staging, _) = self.staging_of(&mut batch.staging)?;
            let spilled = self.data.spill(staging, batch.files.values_mut());
            batch.kept = batch.files.values().map(StagedFile::page_count).sum();
            spilled?;
            (new, kept) = new_pages(batch);
        }
        if let Some(file) = batch.files.get_mut(&nid) {
            file.stage(offset, bytes);
            batch.pages += new;
            batch.kept += kept;
        }
        Ok(())
    }

    /// The staging file, which is made if there is none.
    fn staging_of<'b>(
        &self,
        staging: &'b mut Option<(SpillFile, FileHandle)>,
    ) -> Result<&'b mut (SpillFile, FileHandle)> {
        let made = match staging.take() {
            Some(there) => there,
            None => {
                self.meta.note_batches()?;
                let (entry, handle) = self.tmpfile(&Context::root(), ROOT_NID, 0, OpenFlags::READ_WRITE)?;
                self.forget(entry.nid, 1);
                (SpillFile::in_file(&handle.inode), handle)
            }
        };
        Ok(staging.insert(made))
    }

    /// Makes all that is staged the content of the files.
    ///
    /// # Errors
    /// Nothing of it has happened: ENOSPC; E2BIG if no record of this file system's journal has room for it; EIO; EROFS.
    /// Of a failure to make it durable: what happened, and [`Vfs::sync_power`] says whether it lasts.
    pub fn commit_batch(&self, ctx: &Context, batch: Batch, durability: BatchDurability) -> Result<()> {
        let upto = self.apply_batch(ctx, batch)?;
        let store = &self.meta.store;
        match self.at_least(durability) {
            BatchDurability::Ordered => Ok(()),
            BatchDurability::Synced => store.settle_upto(upto, self.meta.durability),
            BatchDurability::Power => store.commit_upto(upto, Durability::Power),
        }
    }

    /// As [`Vfs::commit_batch`], but `done` is called with the outcome, by this thread or another; it must neither sleep
    /// nor take locks of the file system. Everything is visible on return, unless it has failed. What waits for the commit
    /// is run by whom `later` gives it to.
    pub fn commit_batch_then(
        &self,
        ctx: &Context,
        batch: Batch,
        durability: BatchDurability,
        done: Done,
        later: impl FnOnce(Waiting),
    ) {
        let durability = match self.at_least(durability) {
            BatchDurability::Ordered => None,
            BatchDurability::Synced => Some(self.meta.durability),
            BatchDurability::Power => Some(Durability::Power),
        };
        match (self.apply_batch(ctx, batch), durability) {
            (Err(e), _) => done(Err(e)),
            (Ok(_), None) => done(Ok(())),
            (Ok(upto), Some(durability)) => {
                let store = Arc::clone(&self.meta.store);
                later(Box::new(move || done(store.settle_upto(upto, durability))));
            }
        }
    }

    /// What is asked for, or what every change of this mount has on return.
    fn at_least(&self, asked: BatchDurability) -> BatchDurability {
        let is_less = asked == BatchDurability::Ordered;
        if is_less && self.options.sync { BatchDurability::Synced } else { asked }
    }

    /// Forgets what is staged.
    pub fn drop_batch(&self, batch: Batch) {
        for file in batch.files.values() {
            self.data.closed(file.inode());
            self.leave_inode(file.inode());
        }
        if let Some((_, handle)) = batch.staging {
            self.release(handle, None);
        }
    }

    /// The position below which everything of the batch is logged.
    fn apply_batch(&self, ctx: &Context, batch: Batch) -> Result<Position> {
        let Batch { files, mut staging, .. } = batch;
        let mut files: Vec<StagedFile> = files.into_values().collect();
        let changing: Vec<_> = match self.is_told(ctx) {
            true => files
                .iter()
                .map(|file| (file.span(), file.inode()))
                .map(|((offset, len), inode)| self.changing(ctx, inode, offset, len))
                .collect(),
            false => Vec::new(),
        };
        let applied = self.apply_files(ctx, &mut files, &mut staging);
        drop(changing);
        for file in &files {
            self.data.closed(file.inode());
            self.leave_inode(file.inode());
        }
        // One that still has what is to be moved stays, for the next mount.
        if let Some((_, handle)) = staging
            && handle.inode.is_usable()
        {
            self.release(handle, None);
        }
        applied
    }

    fn apply_files(
        &self,
        ctx: &Context,
        files: &mut [StagedFile],
        staging: &mut Option<(SpillFile, FileHandle)>,
    ) -> Result<Position> {
        self.writable()?;
        for file in &*files {
            self.strip(ctx, file.inode(), false)?;
        }
        if files.is_empty() {
            return Ok(self.meta.store.tail());
        }
        if staging.is_none()
            && let Some(end) = self.data.commit_in_record(files)?
        {
            return Ok(end);
        }
        if !self.meta.store.profile().keeps() {
            return Err(Error::Errno(libc::E2BIG));
        }
        self.data.commit_by_intent(files, &mut self.staging_of(staging)?.0)
    }
}
