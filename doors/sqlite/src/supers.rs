//! Super-journals: the end of one is the commit of all databases of a transaction.
//!
//! SQLite writes one where a transaction changes several databases, and names it in the journal of each; removing it
//! commits them all. Here it is in memory, and lists the databases whose commits wait for it: its removal is one batch
//! of all that they have staged. Where one of them needs a real journal it becomes a real file first, for a hot journal
//! whose super-journal is not there counts as finalized.

use crate::db::{Db, State, code, filled};
use crate::ffi::{Answer, CANTOPEN, IOERR_DELETE, IOERR_WRITE, log};
use crate::journal::HEADER_BYTES;
use crate::mount::{Mount, locked};
use crate::names::{Meaning, Place, meaning};
use crate::{journal, owners, vfs};
use narufs::{Commit, OpenOptions};
use std::collections::HashMap;
use std::ffi::CStr;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// Where the header of a database says how many free pages there are.
const FREE_PAGES: usize = 36;

/// And what is 0 unless VACUUM may be automatic.
const LARGEST_ROOT: usize = 52;

struct Super {
    /// SQLite forgets one that no journal names yet when a commit fails: it keeps no image open.
    mount: Weak<Mount>,
    place: Place,
    content: Vec<u8>,
    /// What of that is not known to be of databases that are open here.
    others: Vec<u8>,
    /// Whether it is a file, durable.
    real: bool,
    /// Its name could not be kept when the commit failed: whoever looks for it takes all of them for committed.
    gone: bool,
    /// Those that wait.
    members: Vec<Arc<Db>>,
}

/// An open super-journal.
pub struct SuperFile {
    name: String,
}

/// Those that are there, by their full names.
static OPEN: LazyLock<Mutex<HashMap<String, Super>>> = LazyLock::new(Mutex::default);

/// Makes one.
pub fn create(mount: &Arc<Mount>, place: Place) -> SuperFile {
    let name = place.name();
    let mount = Arc::downgrade(mount);
    let (content, others, members) = (Vec::new(), Vec::new(), Vec::new());
    let made = Super { mount, place, content, others, real: false, gone: false, members };
    let mut all = locked(&OPEN);
    all.retain(|_, one| one.is_there());
    all.insert(name.clone(), made);
    SuperFile { name }
}

/// Opens one that this process has made.
pub fn open(place: &Place) -> Option<SuperFile> {
    let name = place.name();
    locked(&OPEN).get(&name).is_some_and(Super::is_there).then_some(SuperFile { name })
}

/// Lets a database's commit wait for the end of a super-journal. False if that is none of this process's.
pub fn join(place: &Place, db: &Arc<Db>) -> bool {
    let mut all = locked(&OPEN);
    let Some(joined) = all.get_mut(&place.name()) else { return false };
    if !joined.members.iter().any(|member| Arc::ptr_eq(member, db)) {
        joined.members.push(Arc::clone(db));
    }
    true
}

/// Whether a super-journal of this name is one that this process has made here.
pub fn is_ours(name: &str) -> bool {
    matches!(meaning(name), Meaning::Ours(place) if open(&place).is_some())
}

/// Whether a name is in the list of one: of a database elsewhere that has no other.
pub fn lists(name: &str) -> bool {
    let lists = |one: &Super| one.content.split(|byte| *byte == 0).any(|listed| listed == name.as_bytes());
    locked(&OPEN).values().any(lists)
}

/// Whether SQLite lists the journal of a database that is open here: with NARUFS_SQLITE_AT one of the system may have the same
/// name, but does not have it in the same place.
fn is_own(bytes: &[u8]) -> bool {
    let name = CStr::from_bytes_with_nul(bytes).ok().and_then(|name| name.to_str().ok());
    name.is_some_and(|name| {
        let owner = |place: &Place| owners::owner(bytes.as_ptr().addr(), place, "-journal");
        matches!(meaning(name), Meaning::Ours(place) if owner(&place).is_some())
    })
}

/// Of the journals that a super-journal lists, one that is to name it and is of a database elsewhere: after a crash another
/// SQLite finds nothing by that name, takes the journal for finalized and leaves that database torn.
fn elsewhere(others: &[u8]) -> Option<String> {
    let names = others.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    // Of one that is in memory the name is no path.
    let mut elsewhere = names.filter(|name| name.starts_with('/')).filter(|name| {
        // Below a VFS that has names of its own; unless the path is that of a file of the system as well.
        let is_ours = matches!(meaning(name), Meaning::Ours(place) if owners::has_journal(&place));
        let is_theirs = || name.strip_suffix("-journal").is_some_and(|db| Path::new(db).is_file());
        (!is_ours || is_theirs()) && !is_idle(name)
    });
    elsewhere.next().map(|name| name.into_owned())
}

/// Whether the journal of a database elsewhere is to name nothing: SQLite has written nothing to it. It does with the first page
/// that is changed, so nothing is (`BEGIN IMMEDIATE` lists all that are ATTACHed), or the database has a log, or has its
/// journal in memory, where no name is written to it. The commit itself changes one first where an automatic VACUUM finds free
/// pages: mostly there are none, for each commit does that.
fn is_idle(journal: &str) -> bool {
    let Some(db) = journal.strip_suffix("-journal") else { return false };
    // The names of another VFS need be no paths.
    if !Path::new(db).is_file() {
        return false;
    }
    let is_unwritten = match std::fs::metadata(journal) {
        Err(e) => e.kind() == ErrorKind::NotFound,
        Ok(there) if there.len() == 0 => true,
        // One that is kept begins with zeros, and so does a header before its sync, but for the sizes of sector and page.
        Ok(there) => {
            let mut header = [1; HEADER_BYTES];
            let mut read = || std::fs::File::open(journal)?.read_exact(&mut header);
            there.is_file() && read().is_ok() && header == [0; HEADER_BYTES]
        }
    };
    let has_log = || Path::new(&format!("{db}-wal")).exists();
    let frees_pages = || {
        let is_some = |header: [u8; 100], at: usize| header[at..at + 4] != [0; 4];
        vfs::header_of(db).is_none_or(|header| is_some(header, FREE_PAGES) && is_some(header, LARGEST_ROOT))
    };
    is_unwritten && (has_log() || !vfs::keeps_journals_back(db) && !frees_pages())
}

/// A database waits no more: it was committed, or is rolled back.
pub fn leave(db: &Db, state: &mut State) {
    if state.awaits.take().is_some() {
        for one in locked(&OPEN).values_mut() {
            one.members.retain(|member| !std::ptr::eq(Arc::as_ptr(member), db));
        }
    }
}

impl Super {
    /// Whether its image is open; else the next who opens that has what is on the medium.
    fn is_there(&self) -> bool {
        self.mount.strong_count() > 0
    }

    fn mount(&self) -> Answer<Arc<Mount>> {
        self.mount.upgrade().ok_or(IOERR_WRITE)
    }

    fn make_real(&mut self) -> Answer {
        if !self.real {
            self.write_out()?;
            self.real = true;
        }
        Ok(())
    }

    fn write_out(&self) -> Answer {
        let options = OpenOptions::new().write(true).create(true).truncate(true).no_follow(true).clone();
        let mount = self.mount()?;
        let fs = &mount.fs;
        let written = fs.open_with(&self.place.path, &options).and_then(|file| {
            file.write_all_at(&self.content, 0)?;
            file.sync_all()
        });
        written.map_err(|e| {
            // Nobody would take it away: SQLite may have no journal yet that names it. It may not have been made.
            let _ = fs.remove_file(&self.place.path);
            code(&e, IOERR_WRITE)
        })
    }

    /// All that waits becomes content.
    fn commit(&mut self) -> Answer {
        if !self.real && self.commit_at_once()? {
            return Ok(());
        }
        // Too much for a batch, or a member has a real journal already: SQLite's own way, whose commit is the removal.
        if !self.members.is_empty() {
            self.make_real()?;
        }
        // What no journal undoes (`journal_mode=MEMORY` and `OFF`) comes last: nothing but the removal may fail after it.
        let (undone, others): (Vec<_>, Vec<_>) =
            self.members.iter().partition(|db| locked(&db.state).journal.is_hot());
        for db in undone {
            let mut state = locked(&db.state);
            db.spill(&mut state)?;
            // Once this name is gone, a journal without it undoes its database alone.
            journal::sync(&mut state)?;
            db.is_home(&mut state)?;
        }
        for db in others {
            let mut state = locked(&db.state);
            // Pages that went home one by one would be torn by a crash.
            db.commit(&mut state, Commit::Durable)?;
            db.is_home(&mut state)?;
        }
        if self.real {
            let mount = self.mount()?;
            journal::remove(&mount, &self.place, false)?;
            if let Err(code) = journal::sync_names(&mount, &self.place) {
                self.is_named_again();
                return Err(code);
            }
        }
        Ok(())
    }

    /// SQLite is about to roll back by journals that nobody would play back without this name.
    fn is_named_again(&mut self) {
        self.real = false;
        self.gone = self.make_real().is_err();
    }

    /// One batch for each image; gives whether everything had room.
    fn commit_at_once(&self) -> Answer<bool> {
        let mut mounts: Vec<Arc<Mount>> = Vec::new();
        for db in &self.members {
            if !mounts.iter().any(|mount| Arc::ptr_eq(mount, &db.mount)) {
                mounts.push(Arc::clone(&db.mount));
            }
        }
        let mut batches = Vec::new();
        for mount in &mounts {
            let mut batch = mount.fs.batch();
            let mut how = Commit::Ordered;
            for db in self.members.iter().filter(|db| Arc::ptr_eq(mount, &db.mount)) {
                if let Err(e) = db.add_to(&mut batch) {
                    return if e.errno() == libc::E2BIG { Ok(false) } else { Err(code(&e, IOERR_DELETE)) };
                }
                if locked(&db.state).awaits == Some(true) {
                    how = Commit::Durable;
                }
            }
            batches.push((batch, how));
        }
        for (n, (batch, how)) in batches.into_iter().enumerate() {
            match batch.commit(how) {
                Ok(()) => {}
                Err(e) if e.errno() == libc::E2BIG && n == 0 => return Ok(false),
                Err(e) => {
                    self.members.iter().for_each(|db| locked(&db.state).committed = true);
                    return Err(code(&e, IOERR_DELETE));
                }
            }
        }
        for db in &self.members {
            db.committed(&mut locked(&db.state))?;
        }
        Ok(true)
    }
}

/// xDelete of a super-journal: the commit, which is to be durable, or the end of one that has failed. None if this process
/// has made none of this name.
pub fn delete(place: &Place, commits: bool) -> Option<Answer> {
    let name = place.name();
    let mut ended = locked(&OPEN).remove(&name)?;
    let outcome = match (commits, ended.real) {
        (true, _) => ended.commit(),
        (false, true) => ended.mount().and_then(|mount| journal::remove(&mount, place, false)),
        (false, false) => Ok(()),
    };
    if outcome.is_err() && !ended.gone {
        locked(&OPEN).insert(name, ended);
        return Some(outcome);
    }
    for db in ended.members {
        locked(&db.state).awaits = None;
    }
    Some(outcome)
}

/// Makes those real that are in memory: a journal in any image may name one in any other.
pub fn make_real() -> Answer {
    locked(&OPEN).values_mut().filter(|one| one.is_there()).try_for_each(Super::make_real)
}

impl SuperFile {
    fn with<T>(&self, otherwise: T, look: impl FnOnce(&mut Super) -> T) -> T {
        locked(&OPEN).get_mut(&self.name).map_or(otherwise, look)
    }

    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Answer {
        let read = self.with(0, |one| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(one.content.len());
            let n = into.len().min(one.content.len() - from);
            into[..n].copy_from_slice(&one.content[from..from + n]);
            n
        });
        filled(into, read)
    }

    /// SQLite writes it from the first byte to the last, each name from where its connection has it.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Answer {
        let is_own = is_own(bytes);
        self.with(Err(IOERR_WRITE), |one| {
            if offset != one.content.len() as u64 {
                return Err(IOERR_WRITE);
            }
            one.content.extend_from_slice(bytes);
            if !is_own {
                one.others.extend_from_slice(bytes);
            }
            // A journal that is real, of another connection, may have made it so.
            if std::mem::take(&mut one.real) { one.make_real() } else { Ok(()) }
        })
    }

    pub(crate) fn size(&self) -> u64 {
        self.with(0, |one| one.content.len() as u64)
    }

    /// SQLite has listed all, and no journal names it yet. One that is real already may, in whatever image.
    pub fn sync(&self) -> Answer {
        let others = self.with(Vec::new(), |one| one.others.clone());
        if let Some(journal) = elsewhere(&others) {
            // SQLite's log takes 200 bytes or so.
            let why = "of a database elsewhere: a crash would tear it; commit it alone, or open it first and ATTACH these";
            log(CANTOPEN, &format!("{journal}: {why}"));
            return Err(CANTOPEN);
        }
        self.with(Ok(()), |one| if journal::REAL.load(SeqCst) == 0 { Ok(()) } else { one.make_real() })
    }
}
