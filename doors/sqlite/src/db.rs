//! A database: what its connection has written, and how that becomes its content. `lib.rs` says what each call means.

use crate::ffi::{
    Answer, Code, FULL, IOERR, IOERR_COMMIT_ATOMIC, IOERR_FSTAT, IOERR_FSYNC, IOERR_READ, IOERR_SHORT_READ,
    IOERR_TRUNCATE, IOERR_WRITE, LOCK_NONE, LOCK_RESERVED, READONLY, log,
};
use crate::journal::{self, Journal};
use crate::mount::{Mount, locked};
use crate::plain::Plain;
use crate::shm::Part;
use crate::stage::Stage;
use crate::supers;
use narufs::{Batch, Commit, File};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, Weak};

/// Pieces (4 KiB) of a transaction that are kept in memory; what is larger has a real journal. 256 MiB.
#[cfg(not(feature = "mortal"))]
fn most_pieces() -> usize {
    1 << 16
}
#[cfg(feature = "mortal")]
use crate::mortal::most_pieces;

/// An open database: one connection's.
pub struct Db {
    /// Its path in the image.
    pub path: String,
    pub file: File,
    pub state: Mutex<State>,
    /// The last of its fields: a file keeps the image open, and whoever waits is told when this goes that it is closed.
    pub mount: Arc<Mount>,
}

/// What changes of it.
pub struct State {
    /// What of SQLite's locks it has.
    pub level: c_int,
    pub stage: Stage,
    pub journal: Journal,
    /// Between BEGIN_ATOMIC_WRITE and its end: there is no journal outside of SQLite's memory.
    pub atomic: bool,
    /// Content of this transaction may be durable, and its journal is not finalized.
    pub committed: bool,
    /// The last commit has failed, or the journal could not be written out: a rollback must need no room.
    pub failed: bool,
    /// What went to the file itself was not synced.
    pub unsynced: bool,
    /// A real journal has what was not synced.
    pub journal_unsynced: bool,
    /// SQLite has said that what is staged is all of a transaction, or of a rollback.
    pub finished: bool,
    /// A log is being written back; how what could not be told of that went.
    pub checkpoint: Option<Answer>,
    /// The commit comes with the end of a super-journal; whether it is to be durable.
    pub awaits: Option<bool>,
    /// The commit is this database's alone, beside a super-journal elsewhere: when that is gone nobody looks at an answer.
    pub alone: bool,
    pub index: Option<Part>,
    /// The open log.
    pub log: Weak<Plain>,
    pub persist_wal: bool,
    pub powersafe: bool,
}

/// What a failure is to SQLite, where it is nothing special.
pub fn code(error: &narufs::Error, otherwise: Code) -> Code {
    match error.errno() {
        libc::ENOSPC | libc::EDQUOT => FULL,
        libc::EROFS => {
            log(READONLY, &error.to_string());
            otherwise
        }
        _ => {
            log(otherwise, &error.to_string());
            otherwise
        }
    }
}

impl Db {
    pub(crate) fn new(mount: Arc<Mount>, path: String, file: File) -> Db {
        let state = State {
            level: LOCK_NONE,
            stage: Stage::default(),
            journal: Journal::None,
            atomic: false,
            committed: false,
            failed: false,
            unsynced: false,
            journal_unsynced: false,
            finished: false,
            checkpoint: None,
            awaits: None,
            alone: false,
            index: None,
            log: Weak::new(),
            persist_wal: false,
            powersafe: true,
        };
        Db { path, file, state: Mutex::new(state), mount }
    }

    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Answer {
        let state = locked(&self.state);
        let read = state.stage.read(&self.file, into, offset).map_err(|e| code(&e, IOERR_READ))?;
        filled(into, read)
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Answer {
        let mut state = locked(&self.state);
        state.told()?;
        if !state.stages() {
            state.unsynced = true;
            return self.file.write_all_at(bytes, offset).map_err(|e| code(&e, IOERR_WRITE));
        }
        state.finished = false;
        state.stage.write(&self.file, bytes, offset).map_err(|e| code(&e, IOERR_WRITE))?;
        // Where the journal had no room, a rollback is to go on in memory.
        if state.stage.pieces() > most_pieces() && !state.atomic && !state.failed {
            self.spill(&mut state)?;
        }
        Ok(())
    }

    pub(crate) fn truncate(&self, len: u64) -> Answer {
        let mut state = locked(&self.state);
        state.told()?;
        // While a journal could undo it, a cut waits for the commit as pages do.
        if state.stages() && (!state.stage.is_empty() || state.journal.is_hot()) {
            return state.stage.set_len(&self.file, len).map_err(|e| code(&e, IOERR_TRUNCATE));
        }
        state.unsynced = true;
        self.file.set_len(len).map_err(|e| code(&e, IOERR_TRUNCATE))
    }

    pub(crate) fn size(&self) -> Answer<u64> {
        locked(&self.state).stage.len(&self.file).map_err(|e| code(&e, IOERR_FSTAT))
    }

    /// xSync: the commit, unless a super-journal's end is.
    pub fn sync(&self) -> Answer {
        let mut state = locked(&self.state);
        if state.awaits.is_some() && !state.stage.is_empty() {
            state.awaits = Some(true);
            return Ok(());
        }
        self.commit(&mut state, Commit::Durable)?;
        self.sync_unsynced(&mut state)
    }

    /// What is staged becomes the content, at once.
    pub fn commit(&self, state: &mut State, how: Commit) -> Answer {
        if state.journal.is_real() {
            return self.bring_home(state);
        }
        if state.stage.is_empty() {
            return Ok(());
        }
        if state.failed {
            state.stage.drop_equal(&self.file).map_err(|e| code(&e, IOERR_FSYNC))?;
        }
        let mut batch = self.mount.fs.batch();
        let staged = state.stage.add_to(&mut batch, &self.file);
        match staged.and_then(|()| if batch.pages() > 0 { batch.commit(how) } else { Ok(()) }) {
            Ok(()) => self.committed(state),
            Err(e) if e.errno() == libc::E2BIG && state.atomic => Err(IOERR_COMMIT_ATOMIC),
            Err(e) if e.errno() == libc::E2BIG => self.spill(state),
            Err(e) => {
                state.failed = true;
                state.finished = false;
                state.committed |= e.errno() == libc::EIO;
                Err(code(&e, IOERR_FSYNC))
            }
        }
    }

    /// The commit beside a super-journal elsewhere. What may fail does so here, where there is a journal to go back by: with
    /// `synchronous=OFF` no xSync follows, and what comes after the end of that super-journal SQLite does not look at.
    pub fn commit_alone(&self, state: &mut State) -> Answer {
        state.unsynced |= !state.stage.is_empty();
        self.commit(state, Commit::Ordered)?;
        if state.journal.is_real() { self.is_home(state) } else { Ok(()) }
    }

    /// Adds what is staged to the batch of a super-journal.
    pub fn add_to(&self, batch: &mut Batch) -> narufs::Result<()> {
        locked(&self.state).stage.add_to(batch, &self.file)
    }

    /// What is left to do once a batch has what was staged.
    pub fn committed(&self, state: &mut State) -> Answer {
        // A file that is too long for a moment, or for good after a crash, is as good: the header knows how many pages
        // count.
        let len =
            match state.stage.cuts(&self.file).and_then(|cut| Ok(cut.or(state.stage.grows(&self.file)?))) {
                Ok(len) => len,
                Err(e) => return Err(code(&e, IOERR_FSTAT)),
            };
        state.stage.clear();
        state.committed = true;
        state.failed = false;
        if let Some(len) = len {
            state.unsynced = true;
            self.file.set_len(len).map_err(|e| code(&e, IOERR_TRUNCATE))?;
        }
        Ok(())
    }

    /// More than a batch takes, or than memory is to: the journal becomes a real one, and what is staged goes home.
    pub fn spill(&self, state: &mut State) -> Answer {
        if state.journal.is_hot_in_memory()
            && let Err(code) = self.make_journal_real(state)
        {
            state.failed = true;
            return Err(code);
        }
        self.bring_home(state)
    }

    /// What is staged goes home as ordinary writes, after what a real journal has of it is durable.
    pub fn bring_home(&self, state: &mut State) -> Answer {
        if state.stage.is_empty() {
            return Ok(());
        }
        journal::sync(state)?;
        state.unsynced = true;
        state.committed = true;
        let written = state.stage.write_home(&self.file);
        if written.is_err() {
            state.finished = false;
            // The file has a part of it: a rollback begins from there, and the real journal has all that it needs. Without
            // one SQLite has it in memory, or nobody has, and the layer is what it rolls back.
            if state.journal.is_real() {
                state.stage.clear();
            } else {
                state.failed = true;
            }
        }
        written.map_err(|e| code(&e, IOERR_WRITE))
    }

    /// What must be so before a real journal may end: that is the commit.
    pub fn is_home(&self, state: &mut State) -> Answer {
        self.bring_home(state)?;
        self.sync_unsynced(state)
    }

    fn sync_unsynced(&self, state: &mut State) -> Answer {
        if state.unsynced {
            self.file.sync_data().map_err(|e| code(&e, IOERR_FSYNC))?;
            state.unsynced = false;
        }
        Ok(())
    }

    pub(crate) fn make_journal_real(&self, state: &mut State) -> Answer {
        // A journal may name a super-journal, and without that on the medium counts as finalized.
        supers::make_real()?;
        let made = journal::write_real(self, &state.journal).map_err(|e| code(&e, IOERR_WRITE))?;
        state.set_journal(Journal::Real(made));
        state.journal_unsynced = false;
        Ok(())
    }

    /// CKPT_START: others are to see what a checkpoint writes, and no page may be durable before the log is.
    pub fn checkpoint_begins(&self) -> Answer {
        let log = self.mount.fs.open(format!("{}-wal", self.path)).and_then(|log| log.sync_data());
        let mut state = locked(&self.state);
        // What is answered here nobody looks at: the first write says it.
        state.checkpoint = Some(log.map_err(|e| code(&e, IOERR_FSYNC)));
        Ok(())
    }

    /// CKPT_DONE: the log may be written anew from now on.
    pub fn checkpoint_ends(&self) -> Answer {
        locked(&self.state).checkpoint = None;
        let synced = self.sync();
        locked(&self.state).checkpoint = synced.err().map(Err);
        Ok(())
    }

    /// Before others may look: nothing stays in this connection's memory alone.
    pub fn settle(&self, state: &mut State) -> Answer {
        supers::leave(self, state);
        if state.journal.is_hot_in_memory() {
            // The transaction has failed and was not rolled back: what was not committed is forgotten, and for what may
            // have been the next who locks the database plays the journal back.
            let kept = if state.committed { self.make_journal_real(state) } else { Ok(()) };
            state.stage.clear();
            journal::finalize(self, state);
            return kept;
        }
        // Not finalized: it stays, and the next who locks the database plays it back.
        if state.journal.is_real() {
            state.stage.clear();
            journal::finalize(self, state);
            journal::forget(self);
            return Ok(());
        }
        // What nobody has called whole is what a rollback has left.
        let outcome = if state.finished { self.commit(state, Commit::Ordered) } else { Ok(()) };
        state.stage.clear();
        state.failed = false;
        outcome
    }

    /// The end of a transaction that was not synced: it is to outlive the process, as everywhere.
    pub fn phase_two(&self) -> Answer {
        let mut state = locked(&self.state);
        if state.awaits.is_some() {
            return Ok(());
        }
        state.finished = true;
        if let Err(code) = self.commit(&mut state, Commit::Ordered) {
            // The journal has ended: SQLite rolls back by forgetting its pages, and with `locking_mode=EXCLUSIVE` no xUnlock
            // follows. Left staged, what was refused would be committed with the next.
            state.stage.clear();
            state.failed = false;
            return Err(code);
        }
        // A commit that lies in the log alone, which SQLite syncs with `synchronous=FULL` only.
        state.log.upgrade().map_or(Ok(()), |log| log.settle())
    }

    /// BEGIN_, COMMIT_ and ROLLBACK_ATOMIC_WRITE.
    pub fn atomic(&self, step: AtomicStep) -> Answer {
        let mut state = locked(&self.state);
        match step {
            AtomicStep::Begin => {
                state.atomic = true;
                Ok(())
            }
            AtomicStep::Commit => {
                let outcome = self.commit(&mut state, Commit::Durable);
                state.atomic = outcome.is_err();
                // SQLite tries its journal after errors of input and output alone.
                outcome.map_err(|code| if code & 0xff == IOERR { IOERR_COMMIT_ATOMIC } else { code })
            }
            AtomicStep::Rollback => {
                state.atomic = false;
                state.stage.clear();
                Ok(())
            }
        }
    }

    /// Whether its name leads elsewhere by now.
    pub fn has_moved(&self) -> bool {
        let now = self.mount.fs.metadata(&self.path).map(|metadata| metadata.ino());
        now.ok() != self.file.metadata().ok().map(|metadata| metadata.ino())
    }

    /// xClose.
    pub fn close(&self) -> Answer {
        // While the locks that it may have keep others away.
        let ended = journal::end_stuck(self);
        let outcome = self.unlock(LOCK_NONE).and(ended);
        let mut state = locked(&self.state);
        if let Some(index) = state.index.take() {
            index.leave(&self.mount, false);
        }
        drop(state);
        journal::forget(self);
        outcome
    }
}

/// A step of SQLite's protocol for file systems that write atomically.
pub enum AtomicStep {
    Begin,
    Commit,
    Rollback,
}

impl State {
    /// Whether what is written waits for a commit. Nobody else looks from RESERVED on, but for what was there before; a
    /// checkpoint of a log has no such lock, and others are to see what it writes.
    fn stages(&self) -> bool {
        self.level >= LOCK_RESERVED && self.checkpoint.is_none()
    }

    /// What went wrong where SQLite does not look at the answer.
    fn told(&mut self) -> Answer {
        match self.checkpoint {
            Some(Err(code)) => {
                self.checkpoint = None;
                Err(code)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn set_journal(&mut self, journal: Journal) -> Journal {
        use std::sync::atomic::Ordering::SeqCst;
        if self.journal.is_real() {
            journal::REAL.fetch_sub(1, SeqCst);
        }
        if journal.is_real() {
            journal::REAL.fetch_add(1, SeqCst);
        }
        std::mem::replace(&mut self.journal, journal)
    }
}

/// The rest of a read beyond the end is zeros, and SQLite is told.
pub fn filled(into: &mut [u8], read: usize) -> Answer {
    if read == into.len() {
        return Ok(());
    }
    into[read..].fill(0);
    Err(IOERR_SHORT_READ)
}
