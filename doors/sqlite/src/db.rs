//! A database: what its connection has written, and how that becomes its content. `lib.rs` says what each call means.

use crate::ffi::{
    Answer, BUSY, Code, FULL, IOERR, IOERR_CHECKRESERVEDLOCK, IOERR_COMMIT_ATOMIC, IOERR_FSTAT, IOERR_FSYNC,
    IOERR_LOCK, IOERR_READ, IOERR_SHORT_READ, IOERR_TRUNCATE, IOERR_UNLOCK, IOERR_WRITE, LOCK_EXCLUSIVE,
    LOCK_NONE, LOCK_PENDING, LOCK_RESERVED, LOCK_SHARED, READONLY, log,
};
use crate::journal::{self, Journal};
use crate::mount::{Mount, locked};
use crate::shm::Part;
use crate::stage::Stage;
use crate::supers;
use narufs::{Batch, Commit, File, LockKind};
use std::ffi::c_int;
use std::fs::TryLockError;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Pieces (4 KiB) of a transaction that are kept in memory; what is larger has a real journal. 256 MiB.
const MOST_PIECES: usize = 1 << 16;

/// The bytes that SQLite locks in place of a database (PENDING_BYTE and those behind it).
const PENDING: Range<u64> = 0x4000_0000..0x4000_0001;
const RESERVED: Range<u64> = 0x4000_0001..0x4000_0002;
const SHARED: Range<u64> = 0x4000_0002..0x4000_0002 + 510;

/// An open database: one connection's.
pub struct Db {
    pub mount: Arc<Mount>,
    /// Its path in the image.
    pub path: String,
    pub file: File,
    pub state: Mutex<State>,
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
    /// The last commit has failed: a rollback must need no room.
    failed: bool,
    /// What went to the file itself was not synced.
    unsynced: bool,
    /// The commit comes with the end of a super-journal; whether it is to be durable.
    pub awaits: Option<bool>,
    pub index: Option<Part>,
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
            awaits: None,
            index: None,
            persist_wal: false,
            powersafe: true,
        };
        Db { mount, path, file, state: Mutex::new(state) }
    }

    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Answer {
        let state = locked(&self.state);
        let read = state.stage.read(&self.file, into, offset).map_err(|e| code(&e, IOERR_READ))?;
        filled(into, read)
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Answer {
        let mut state = locked(&self.state);
        if !state.stages() {
            state.unsynced = true;
            return self.file.write_all_at(bytes, offset).map_err(|e| code(&e, IOERR_WRITE));
        }
        state.stage.write(&self.file, bytes, offset).map_err(|e| code(&e, IOERR_WRITE))?;
        if state.stage.pieces() > MOST_PIECES && !state.atomic {
            self.spill(&mut state)?;
        }
        Ok(())
    }

    pub(crate) fn truncate(&self, len: u64) -> Answer {
        let mut state = locked(&self.state);
        // While a journal in memory is all that could undo it, a cut waits for the commit as pages do.
        if state.stages() && (!state.stage.is_empty() || state.journal.is_hot_in_memory()) {
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
        if state.unsynced {
            self.file.sync_data().map_err(|e| code(&e, IOERR_FSYNC))?;
            state.unsynced = false;
        }
        Ok(())
    }

    /// What is staged becomes the content, at once.
    pub fn commit(&self, state: &mut State, how: Commit) -> Answer {
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
                state.committed |= e.errno() == libc::EIO;
                Err(code(&e, IOERR_FSYNC))
            }
        }
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

    /// More than a batch takes: the journal becomes a real one, and after that pages go home as they come.
    pub fn spill(&self, state: &mut State) -> Answer {
        if state.journal.is_hot_in_memory() {
            self.make_journal_real(state)?;
        }
        state.unsynced = true;
        state.committed = true;
        state.stage.write_home(&self.file).map_err(|e| code(&e, IOERR_WRITE))
    }

    pub(crate) fn make_journal_real(&self, state: &mut State) -> Answer {
        // A journal may name a super-journal, and without that on the medium counts as finalized.
        supers::make_real(&self.mount)?;
        let made = journal::write_real(self, &state.journal).map_err(|e| code(&e, IOERR_WRITE))?;
        state.set_journal(&self.mount, Journal::Real(made));
        Ok(())
    }

    pub(crate) fn lock(&self, level: c_int) -> Answer {
        let mut state = locked(&self.state);
        if state.level >= level {
            return Ok(());
        }
        if level == LOCK_SHARED {
            self.take(LockKind::Shared, PENDING)?;
            let shared = self.take(LockKind::Shared, SHARED);
            self.give_back(PENDING)?;
            shared?;
            state.level = LOCK_SHARED;
            return Ok(());
        }
        if level == LOCK_RESERVED {
            self.take(LockKind::Exclusive, RESERVED)?;
            state.level = LOCK_RESERVED;
            return Ok(());
        }
        if state.level < LOCK_PENDING {
            self.take(LockKind::Exclusive, PENDING)?;
            state.level = LOCK_PENDING;
        }
        if level == LOCK_EXCLUSIVE {
            self.take(LockKind::Exclusive, SHARED)?;
            state.level = LOCK_EXCLUSIVE;
        }
        Ok(())
    }

    pub(crate) fn unlock(&self, level: c_int) -> Answer {
        let mut state = locked(&self.state);
        if state.level <= level {
            return Ok(());
        }
        let mut outcome = Ok(());
        if state.level >= LOCK_RESERVED {
            outcome = self.settle(&mut state);
            if level == LOCK_SHARED {
                self.take(LockKind::Shared, SHARED).map_err(|_| IOERR_UNLOCK)?;
            }
            self.give_back(PENDING.start..RESERVED.end)?;
        }
        if level == LOCK_NONE {
            self.give_back(SHARED)?;
        }
        state.level = level;
        outcome
    }

    /// Before others may look: nothing stays in this connection's memory alone.
    fn settle(&self, state: &mut State) -> Answer {
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
        if matches!(state.journal, Journal::Real(_)) {
            state.set_journal(&self.mount, Journal::None);
        }
        let outcome = self.commit(state, Commit::Ordered);
        state.stage.clear();
        outcome
    }

    fn take(&self, kind: LockKind, range: Range<u64>) -> Answer {
        match self.file.try_lock_range(self.file.lock_owner(), kind, range) {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(BUSY),
            Err(TryLockError::Error(e)) => {
                log(IOERR_LOCK, &e.to_string());
                Err(IOERR_LOCK)
            }
        }
    }

    fn give_back(&self, range: Range<u64>) -> Answer {
        self.file.unlock_range(self.file.lock_owner(), range).map_err(|e| code(&e, IOERR_UNLOCK))
    }

    pub(crate) fn is_reserved(&self) -> Answer<bool> {
        if locked(&self.state).level >= LOCK_RESERVED {
            return Ok(true);
        }
        let other = self.file.test_lock_range(self.file.lock_owner(), LockKind::Exclusive, RESERVED);
        other.map(|lock| lock.is_some()).map_err(|e| code(&e, IOERR_CHECKRESERVEDLOCK))
    }

    /// The end of a transaction that was not synced.
    pub fn phase_two(&self) -> Answer {
        let mut state = locked(&self.state);
        if state.awaits.is_some() {
            return Ok(());
        }
        self.commit(&mut state, Commit::Ordered)
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
        let outcome = self.unlock(LOCK_NONE);
        let mut state = locked(&self.state);
        if let Some(index) = state.index.take() {
            index.leave(&self.mount, false);
        }
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
        self.level >= LOCK_RESERVED && !matches!(self.journal, Journal::Real(_))
    }

    pub(crate) fn set_journal(&mut self, mount: &Mount, journal: Journal) {
        use std::sync::atomic::Ordering::SeqCst;
        if matches!(self.journal, Journal::Real(_)) {
            mount.real_journals.fetch_sub(1, SeqCst);
        }
        if matches!(journal, Journal::Real(_)) {
            mount.real_journals.fetch_add(1, SeqCst);
        }
        self.journal = journal;
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
