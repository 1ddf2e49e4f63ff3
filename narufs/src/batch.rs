//! Atomic batches.

use crate::dir::Dir;
use crate::engine::{self, Session, told};
use crate::error::{Error, Result};
use crate::file::File;
use std::sync::Arc;

/// How far a commit of a [`Batch`] has come when it returns, or its call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// All of it is visible. A crash leaves all of it or none; all of it after a later sync, of any file.
    Ordered,
    /// As after a [`File::sync_all`]: what that means [`Durability`](crate::Durability) says.
    Durable,
    /// It survives a loss of power, whatever [`Durability`](crate::Durability) says.
    Power,
}

/// Writes to any number of files that become visible, and durable, all or none ([`Dir::batch`](crate::Dir::batch)).
///
/// What is staged nobody sees before the commit, who has staged it neither. The commit is one write as far as each file
/// is concerned: a read sees all that the batch has for that file, or nothing. (Two reads, of one file or of two, may
/// fall before and behind it.) A crash, whenever it comes, leaves everything of a batch or nothing. Files stay open for
/// it when they are closed; dropped without a commit, it has done nothing. A file that was emptied for it
/// ([`Dir::create`](crate::Dir::create)), and not written to since, has its old content until a small batch is committed; with
/// a large one a crash before the commit may leave it empty.
///
/// A small batch (up to 1,024 pages of 4 KiB, fewer with a small journal or little memory) is one record of the journal,
/// with one flush of the device at the most, which those share that commit at that moment. What is more, up to a million
/// pages, is written to the device as it comes, where it takes as much room again until the commit has moved it to its
/// files, and some hundred bytes of memory for each page. That commit waits for one flush too, and always for a record
/// that survives a loss of power; until it returns nobody else reads or writes these files from the first to the last page
/// of the batch. A process that ends in the midst of it leaves the rest to who opens the image next. In scratch space an
/// eighth of the memory is the most.
///
/// ```
/// # use narufs::{Commit, Fs, ScratchOptions};
/// # let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// let (accounts, log) = (fs.create("/accounts")?, fs.create("/log")?);
/// let mut batch = fs.batch();
/// batch.write_all_at(&accounts, b"90", 0)?;
/// batch.write_all_at(&accounts, b"110", 4096)?;
/// batch.write_all_at(&log, b"10 from 1 to 2\n", 0)?;
/// assert_eq!(fs.read("/log")?, b"");
/// batch.commit(Commit::Durable)?;
/// assert_eq!(fs.read("/log")?, b"10 from 1 to 2\n");
/// # Ok::<(), narufs::Error>(())
/// ```
pub struct Batch {
    session: Arc<Session>,
    /// None once it is committed.
    staged: Option<engine::Batch>,
}

impl Dir {
    /// Begins a batch of writes to files of this file system, wherever they lie.
    pub fn batch(&self) -> Batch {
        Batch { session: Arc::clone(self.session()), staged: None }
    }
}

impl Batch {
    /// Stages bytes for an offset of a file; what the batch had there is overwritten.
    ///
    /// # Errors
    /// The batch is as it was: EBADF if the file is not open for writing; EINVAL if it is open for appending; EXDEV if it
    /// is of another file system; EFBIG; E2BIG if the batch has no room for it. ENOSPC and EIO of a large batch: some of
    /// the bytes may be staged; drop the batch, or stage them once more when there is room.
    pub fn write_all_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
        const OPERATION: &str = "batch";
        let engine = self.session.enter(OPERATION)?;
        if !self.session.is_same_volume(file.session()) {
            return Err(Error::of_errno(OPERATION, libc::EXDEV));
        }
        let staged = self.staged.get_or_insert_default();
        engine.stage(staged, file.handle(), offset, bytes).map_err(|e| told(OPERATION, e))
    }

    /// Pages that are staged, whole or in part.
    pub fn pages(&self) -> usize {
        self.staged.as_ref().map_or(0, engine::Batch::pages)
    }

    /// Makes all that is staged the content of the files.
    ///
    /// # Errors
    /// ENOSPC: nothing has happened. EIO: as of [`File::sync_all`], it is not known whether it is durable, but it is whole
    /// or not there; where it was broken off in its midst, its files cannot be used until the next mount, which ends it.
    pub fn commit(mut self, commit: Commit) -> Result<()> {
        const OPERATION: &str = "commit";
        let engine = self.session.enter(OPERATION)?;
        let staged = self.staged.take().unwrap_or_default();
        let committed = engine.commit_batch(&self.session.caller, staged, commit.to_engine());
        committed.map_err(|e| told(OPERATION, e))
    }

    /// As [`Batch::commit`], but `done` is called with the outcome, by this thread or another, as soon as it is known:
    /// it must neither wait nor use the file system. All of it is visible on return, unless it has failed. Any number of
    /// commits can wait to be told, and none of them has a thread: one of the file system does for all.
    pub fn commit_then(mut self, commit: Commit, done: impl FnOnce(Result<()>) + Send + 'static) {
        const OPERATION: &str = "commit";
        let engine = match self.session.enter(OPERATION) {
            Ok(engine) => engine,
            Err(e) => return done(Err(e)),
        };
        let staged = self.staged.take().unwrap_or_default();
        let told = move |outcome: narufs_engine::Result<()>| done(outcome.map_err(|e| told(OPERATION, e)));
        let volume = &self.session.volume;
        let later = |wait| volume.later(wait);
        engine.commit_batch_then(&self.session.caller, staged, commit.to_engine(), Box::new(told), later);
    }
}

impl Commit {
    fn to_engine(self) -> engine::BatchDurability {
        match self {
            Commit::Ordered => engine::BatchDurability::Ordered,
            Commit::Durable => engine::BatchDurability::Synced,
            Commit::Power => engine::BatchDurability::Power,
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let Some(staged) = self.staged.take() else { return };
        match self.session.enter("batch") {
            Ok(engine) => engine.drop_batch(staged),
            // The parent's.
            Err(_) => std::mem::forget(staged),
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("pages", &self.pages()).finish_non_exhaustive()
    }
}
