//! A rollback journal: in the memory of the connection whose database it belongs to, until that has more to commit than a
//! batch takes.

use crate::db::{Db, State, code, filled};
use crate::ffi::{
    Answer, Code, IOERR_DELETE, IOERR_DELETE_NOENT, IOERR_FSYNC, IOERR_READ, IOERR_TRUNCATE, IOERR_WRITE, log,
};
use crate::mount::{Mount, has_read, is_written_in, locked};
use crate::names::Place;
use crate::open::{give_to_owner, mode_of};
use crate::stuck;
use narufs::{File, OpenOptions};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// Where a transaction keeps what it overwrites.
pub enum Journal {
    None,
    /// In memory.
    Memory(Vec<u8>),
    /// On the medium, as in every other file system.
    Real(File),
}

/// An open journal.
pub struct JournalFile {
    db: Arc<Db>,
    /// Its full name.
    name: String,
    /// Whether this is its writer's, and not that of one who looks what it says.
    writer: bool,
}

/// What SQLite writes behind the name of a super-journal, by itself: the first bytes of a journal.
const NAME_ENDS: &[u8] = &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Bytes at its beginning that SQLite zeroes where it ends one and keeps it.
pub const HEADER_BYTES: usize = 28;

/// How many are real, in whatever image, and may be hot if the process ends now.
pub static REAL: AtomicUsize = AtomicUsize::new(0);

/// Whose journals are in memory, or were made real, by their full names.
static OPEN: LazyLock<Mutex<HashMap<String, Weak<Db>>>> = LazyLock::new(Mutex::default);

impl Journal {
    /// Whether it is in memory and undoes something.
    pub fn is_hot_in_memory(&self) -> bool {
        matches!(self, Journal::Memory(content) if is_hot(content))
    }

    /// Whether it undoes something, wherever it is.
    pub fn is_hot(&self) -> bool {
        self.is_hot_in_memory() || self.is_real()
    }

    /// Whether the name of a super-journal that ends here is that of one elsewhere. Who plays back another database takes that
    /// away and does not know of this journal, which SQLite takes for finalized then. Without the name it undoes its own
    /// database, until it ends.
    fn names_another(&self, end: u64) -> bool {
        let part = |from: u64, len: usize| match self {
            Journal::None => None,
            Journal::Memory(content) => {
                content.get(usize::try_from(from).ok()?..)?.get(..len).map(<[u8]>::to_vec)
            }
            Journal::Real(file) => {
                let mut bytes = vec![0; len];
                file.read_at(&mut bytes, from).is_ok_and(|read| read == len).then_some(bytes)
            }
        };
        let name = || {
            // The name, its length, and its checksum.
            let behind = end.checked_sub(8)?;
            let len = u32::from_be_bytes(part(behind, 4)?.try_into().ok()?);
            String::from_utf8(part(behind.checked_sub(len.into())?, len as usize)?).ok()
        };
        !name().is_some_and(|name| crate::supers::is_ours(&name))
    }

    /// Whether it is a file.
    pub fn is_real(&self) -> bool {
        matches!(self, Journal::Real(_))
    }
}

/// SQLite's own rule: a journal whose first byte is zero was finalized.
fn is_hot(content: &[u8]) -> bool {
    content.first().is_some_and(|byte| *byte != 0)
}

fn path_of(db: &Db) -> String {
    format!("{}-journal", db.path)
}

/// Opens the journal of a transaction that begins.
pub fn begin(db: &Arc<Db>, place: &Place) -> Answer<JournalFile> {
    let mut state = locked(&db.state);
    end_stuck(db)?;
    finalize(db, &mut state);
    state.set_journal(Journal::Memory(Vec::new()));
    drop(state);
    Ok(JournalFile::of_writer(db, place))
}

/// Opens a hot journal that is really there for the connection that plays it back.
pub fn take_over(db: &Arc<Db>, place: &Place, file: File) -> JournalFile {
    let mut state = locked(&db.state);
    state.set_journal(Journal::Real(file));
    state.committed = true;
    // Whoever has written it may not have synced it.
    state.journal_unsynced = true;
    drop(state);
    JournalFile::of_writer(db, place)
}

/// A database has no journal that could be asked for any more.
pub fn forget(db: &Db) {
    locked(&OPEN).retain(|_, other| !std::ptr::eq(other.as_ptr(), db));
}

/// Whose journal in memory this is, if it would undo something.
fn owner(place: &Place) -> Option<Arc<Db>> {
    let db = locked(&OPEN).get(&place.name()).and_then(Weak::upgrade)?;
    let hot = locked(&db.state).journal.is_hot_in_memory();
    hot.then_some(db)
}

/// Opens a journal in memory to look at it.
pub fn look_at(place: &Place) -> Option<JournalFile> {
    owner(place).map(|db| JournalFile { db, name: place.name(), writer: false })
}

/// Whether there is such a journal in memory.
pub fn exists(place: &Place) -> bool {
    owner(place).is_some()
}

/// xDelete of a journal: finalizes it. None if there is none that this process has open.
pub fn delete(place: &Place) -> Option<Answer> {
    let db = locked(&OPEN).get(&place.name()).and_then(Weak::upgrade)?;
    let mut state = locked(&db.state);
    let outcome = if state.journal.is_real() {
        let removed = db.is_home(&mut state).and_then(|()| remove(&db.mount, place, true));
        ended_alone(&db, &mut state, removed)
    } else {
        // What another program has left there undoes nothing, or it would have been played back.
        match remove(&db.mount, place, false) {
            Err(IOERR_DELETE_NOENT) => Ok(()),
            Err(_) if state.alone => Ok(()),
            removed => removed,
        }
    };
    if outcome.is_ok() {
        finalize(&db, &mut state);
        forget(&db);
    }
    Some(outcome)
}

/// What became of the end of a real journal. Beside a super-journal elsewhere, which is gone, SQLite does not look at that,
/// and the next who locks the database would undo what was called committed. So it is ended in another way; and where that
/// fails too, nothing is done with the database before [`stuck::end`] has done it.
fn ended_alone(db: &Db, state: &mut State, outcome: Answer) -> Answer {
    if let Journal::Real(file) = &state.journal
        && state.alone
        && let Err(code) = outcome
    {
        let ended = stuck::zero(file);
        if let Journal::Real(file) = state.set_journal(Journal::None)
            && !ended
        {
            db.mount.stuck.insert(path_of(db), file);
        }
        finalize(db, state);
        return if ended { Ok(()) } else { Err(code) };
    }
    outcome
}

/// Ends the journal of an earlier transaction that is stuck, before anything is done that it would tear.
pub fn end_stuck(db: &Db) -> Answer {
    stuck::end(&db.mount, &path_of(db))
}

/// Removes a file, and makes that durable if it is to be.
pub fn remove(mount: &Mount, place: &Place, durable: bool) -> Answer {
    #[cfg(feature = "mortal")]
    if durable && crate::mortal::end_fails() {
        return Err(IOERR_DELETE);
    }
    mount.fs.remove_file(&place.path).map_err(|e| match e.errno() {
        libc::ENOENT => IOERR_DELETE_NOENT,
        _ => code(&e, IOERR_DELETE),
    })?;
    if durable { sync_names(mount, place) } else { Ok(()) }
}

/// Makes the names of the directory durable that a file lies in, or lay.
pub fn sync_names(mount: &Mount, place: &Place) -> Answer {
    #[cfg(feature = "mortal")]
    if crate::mortal::fails() {
        return Err(IOERR_FSYNC);
    }
    let parent = place.path.rsplit_once('/').map_or("/", |(parent, _)| parent);
    let parent = if parent.is_empty() { "/" } else { parent };
    let synced = mount.fs.open_dir(parent).and_then(|dir| dir.sync_all());
    synced.map_err(|e| code(&e, IOERR_FSYNC))
}

/// The transaction is over.
pub fn finalize(db: &Db, state: &mut State) {
    crate::supers::leave(db, state);
    has_read();
    state.committed = false;
    state.failed = false;
    state.alone = false;
    state.journal_unsynced = false;
    state.set_journal(Journal::None);
}

/// What a real journal has becomes durable.
pub fn sync(state: &mut State) -> Answer {
    if let Journal::Real(file) = &state.journal
        && state.journal_unsynced
    {
        file.sync_all().map_err(|e| code(&e, IOERR_FSYNC))?;
        state.journal_unsynced = false;
    }
    Ok(())
}

/// Writes a journal out and makes it durable.
pub fn write_real(db: &Db, journal: &Journal) -> narufs::Result<File> {
    let beside = db.file.metadata()?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).no_follow(true).mode(mode_of(&beside));
    let path = path_of(db);
    let file = db.mount.fs.open_with(&path, &options)?;
    let content = if let Journal::Memory(content) = journal { content.as_slice() } else { &[] };
    let written = give_to_owner(&file, &beside).and_then(|()| file.write_all_at(content, 0));
    let written = written.and_then(|()| is_written_in(&db.mount, &file));
    if let Err(e) = written.and_then(|()| file.sync_all()) {
        drop(file);
        // Later it would undo what was committed since.
        let place = Place { image: PathBuf::new(), path };
        if remove(&db.mount, &place, true).is_err() {
            log(IOERR_DELETE, &format!("{}: it is not whole and could not be removed; do so", place.path));
        }
        return Err(e);
    }
    Ok(file)
}

impl JournalFile {
    fn of_writer(db: &Arc<Db>, place: &Place) -> JournalFile {
        let journal = JournalFile { db: Arc::clone(db), name: place.name(), writer: true };
        journal.is_known();
        journal
    }

    /// From now on the name leads to this one.
    fn is_known(&self) {
        locked(&OPEN).insert(self.name.clone(), Arc::downgrade(&self.db));
    }

    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Answer {
        let state = locked(&self.db.state);
        let read = match &state.journal {
            Journal::None => 0,
            Journal::Memory(content) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
                let n = into.len().min(content.len() - from);
                into[..n].copy_from_slice(&content[from..from + n]);
                n
            }
            Journal::Real(file) => file.read_at(into, offset).map_err(|e| code(&e, IOERR_READ))?,
        };
        filled(into, read)
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Answer {
        let mut state = locked(&self.db.state);
        let is_foreign = bytes == NAME_ENDS && state.journal.names_another(offset);
        let bytes = if is_foreign { &[0; NAME_ENDS.len()] } else { bytes };
        match &mut state.journal {
            // Finalized, and still open: the next transaction.
            Journal::None => {
                end_stuck(&self.db)?;
                let mut content = Vec::new();
                put(&mut content, bytes, offset)?;
                state.set_journal(Journal::Memory(content));
                // Another connection may have had the name in between.
                self.is_known();
            }
            Journal::Memory(content) => {
                let was_hot = is_hot(content);
                put(content, bytes, offset)?;
                if was_hot && !is_hot(content) {
                    finalize(&self.db, &mut state);
                }
            }
            Journal::Real(_) if offset == 0 && bytes.first() == Some(&0) => {
                let ended = self.end_real(&mut state, |file| file.write_all_at(bytes, 0), IOERR_WRITE);
                return ended_alone(&self.db, &mut state, ended);
            }
            Journal::Real(_) => {
                // It may be the name of one.
                crate::supers::make_real()?;
                state.journal_unsynced = true;
                if let Journal::Real(file) = &state.journal {
                    file.write_all_at(bytes, offset).map_err(|e| code(&e, IOERR_WRITE))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn truncate(&self, len: u64) -> Answer {
        let mut state = locked(&self.db.state);
        match &mut state.journal {
            Journal::None => {}
            Journal::Memory(content) => {
                content.truncate(usize::try_from(len).unwrap_or(usize::MAX));
                if len == 0 {
                    finalize(&self.db, &mut state);
                }
            }
            Journal::Real(_) if len == 0 => {
                let ended = self.end_real(&mut state, |file| file.set_len(0), IOERR_TRUNCATE);
                return ended_alone(&self.db, &mut state, ended);
            }
            Journal::Real(file) => {
                file.set_len(len).map_err(|e| code(&e, IOERR_TRUNCATE))?;
                state.journal_unsynced = true;
            }
        }
        Ok(())
    }

    /// A real journal is finalized without being removed: that is the commit, so it is made durable.
    fn end_real(
        &self,
        state: &mut State,
        end: impl FnOnce(&File) -> narufs::Result<()>,
        otherwise: Code,
    ) -> Answer {
        self.db.is_home(state)?;
        #[cfg(feature = "mortal")]
        if crate::mortal::end_fails() {
            return Err(otherwise);
        }
        if let Journal::Real(file) = &state.journal {
            end(file).map_err(|e| code(&e, otherwise))?;
            file.sync_all().map_err(|e| code(&e, IOERR_FSYNC))?;
        }
        finalize(&self.db, state);
        Ok(())
    }

    pub(crate) fn sync(&self) -> Answer {
        sync(&mut locked(&self.db.state))
    }

    pub(crate) fn size(&self) -> Answer<u64> {
        match &locked(&self.db.state).journal {
            Journal::None => Ok(0),
            Journal::Memory(content) => Ok(content.len() as u64),
            Journal::Real(file) => file.metadata().map(|m| m.len()).map_err(|e| code(&e, IOERR_READ)),
        }
    }

    pub(crate) fn close(&self) {
        if !self.writer {
            return;
        }
        has_read();
        let mut state = locked(&self.db.state);
        if matches!(state.journal, Journal::None) {
            forget(&self.db);
        } else if !state.journal.is_hot() {
            // It is known until it is removed: SQLite takes it for a failure if nothing is there to remove.
            finalize(&self.db, &mut state);
        }
    }
}

fn put(content: &mut Vec<u8>, bytes: &[u8], offset: u64) -> Answer {
    let from = usize::try_from(offset).map_err(|_| IOERR_WRITE)?;
    let to = from.checked_add(bytes.len()).ok_or(IOERR_WRITE)?;
    if to > content.len() {
        content.try_reserve(to - content.len()).map_err(|_| crate::ffi::NOMEM)?;
        content.resize(to, 0);
    }
    content[from..to].copy_from_slice(bytes);
    Ok(())
}
