//! The calls of the VFS that take names, and what they open.

use crate::db::{Db, code};
use crate::ffi::{
    ACCESS_EXISTS, ACCESS_READWRITE, Answer, CANTOPEN, IOERR_ACCESS, OPEN_CREATE, OPEN_DELETEONCLOSE,
    OPEN_EXCLUSIVE, OPEN_MAIN_DB, OPEN_MAIN_JOURNAL, OPEN_READONLY, OPEN_READWRITE, OPEN_SUPER_JOURNAL,
    OPEN_WAL, log,
};
use crate::journal::{self, JournalFile};
use crate::mount::{Mount, locked, mount, mount_of, reads};
use crate::names::Place;
use crate::plain::Plain;
use crate::stuck;
use crate::supers::{self, SuperFile};
use crate::wishes::Wishes;
use narufs::{File, Metadata, OpenOptions};
use std::ffi::c_int;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

/// What an open file is.
pub enum Handle {
    /// A database.
    Db(Arc<Db>),
    /// Its rollback journal.
    Journal(JournalFile),
    /// What several journals name.
    Super(SuperFile),
    /// Everything else.
    Plain(Arc<Plain>),
}

/// What is asked for, beside the name.
pub struct Asked {
    pub flags: c_int,
    pub wishes: Wishes,
    /// The database whose journal or log this is.
    pub db: Option<Arc<Db>>,
}

/// xOpen: the handle, and the flags that it has got.
pub fn open(place: &Place, asked: Asked) -> Answer<(Handle, c_int)> {
    let flags = asked.flags;
    let creates = flags & OPEN_CREATE != 0;
    if flags & OPEN_SUPER_JOURNAL != 0 && creates {
        let mount = mount(&place.image, asked.wishes)?;
        return Ok((Handle::Super(supers::create(&mount, place.clone())), flags));
    }
    if flags & OPEN_SUPER_JOURNAL != 0
        && let Some(made) = supers::open(place)
    {
        return Ok((Handle::Super(made), flags));
    }
    if flags & (OPEN_MAIN_JOURNAL | OPEN_SUPER_JOURNAL) != 0 {
        if let Some(db) = &asked.db
            && creates
        {
            return Ok((Handle::Journal(journal::begin(db, place)?), flags));
        }
        if !creates && let Some(journal) = journal::look_at(place) {
            return Ok((Handle::Journal(journal), flags));
        }
    }
    if flags & OPEN_MAIN_DB != 0 {
        return open_database(place, asked);
    }
    let mount = mount_of(place)?;
    let (file, flags) = open_file(&mount, &place.path, flags)?;
    if flags & OPEN_MAIN_JOURNAL != 0 {
        reads(&mount, &file);
    }
    if let Some(db) = &asked.db
        && flags & OPEN_MAIN_JOURNAL != 0
        && flags & OPEN_READWRITE != 0
        && !creates
    {
        return Ok((Handle::Journal(journal::take_over(db, place, file)), flags));
    }
    let mut plain = Plain::new(mount, file, flags & OPEN_MAIN_JOURNAL != 0 && creates);
    plain.gone = (flags & OPEN_DELETEONCLOSE != 0).then(|| place.path.clone());
    plain.settles = flags & OPEN_WAL != 0 && asked.db.is_none();
    let plain = Arc::new(plain);
    if let Some(db) = asked.db.filter(|_| flags & OPEN_WAL != 0) {
        locked(&db.state).log = Arc::downgrade(&plain);
    }
    Ok((Handle::Plain(plain), flags))
}

fn open_database(place: &Place, asked: Asked) -> Answer<(Handle, c_int)> {
    let mount = mount(&place.image, asked.wishes)?;
    // Its journals would have other names than those of the database itself: one connection would not find another's.
    if mount.fs.symlink_metadata(&place.path).is_ok_and(|there| there.is_symlink()) {
        log(CANTOPEN, &format!("{}: a symbolic link; name the database that it leads to", place.name()));
        return Err(CANTOPEN);
    }
    let (file, flags) = open_file(&mount, &place.path, asked.flags)?;
    let db = Db::new(mount, place.path.clone(), file);
    Ok((Handle::Db(Arc::new(db)), flags))
}

fn open_file(mount: &Arc<Mount>, path: &str, flags: c_int) -> Answer<(File, c_int)> {
    let writes = flags & OPEN_READWRITE != 0;
    let mut options = OpenOptions::new();
    options.read(true).write(writes).create(writes && flags & OPEN_CREATE != 0);
    // Who may make names beside a database does not choose what is written.
    options.no_follow(true);
    options.create_new(writes && flags & OPEN_EXCLUSIVE != 0 && flags & OPEN_CREATE != 0);
    let beside = flags & (OPEN_WAL | OPEN_MAIN_JOURNAL) != 0 && flags & OPEN_CREATE != 0;
    let db = path.rsplit_once('-').filter(|_| beside).and_then(|(db, _)| mount.fs.metadata(db).ok());
    if let Some(db) = &db {
        options.mode(mode_of(db));
    }
    match mount.fs.open_with(path, &options) {
        Ok(file) => {
            db.map_or(Ok(()), |db| give_to_owner(&file, &db)).map_err(|e| code(&e, CANTOPEN))?;
            Ok((file, flags))
        }
        Err(e) if writes && matches!(e.errno(), libc::EACCES | libc::EPERM | libc::EROFS) => {
            let reading = OpenOptions::new().read(true).no_follow(true).clone();
            let file = mount.fs.open_with(path, &reading).map_err(|e| code(&e, CANTOPEN))?;
            Ok((file, flags & !(OPEN_READWRITE | OPEN_CREATE) | OPEN_READONLY))
        }
        Err(e) => {
            log(CANTOPEN, &e.to_string());
            Err(CANTOPEN)
        }
    }
}

/// The permissions that a file beside a database is made with: those of the database.
pub fn mode_of(db: &Metadata) -> u32 {
    db.permissions().mode() & 0o777
}

/// A file beside a database is its owner's, who is to play it back through a mount as well.
pub fn give_to_owner(file: &File, db: &Metadata) -> narufs::Result<()> {
    let made = file.metadata()?;
    // What has another name as well was not made to lie here, and is not given away.
    if (made.uid(), made.gid()) == (db.uid(), db.gid()) || !made.is_file() || made.nlink() != 1 {
        return Ok(());
    }
    file.set_owner(Some(db.uid()), Some(db.gid()))
}

/// xDelete.
pub fn delete(place: &Place, durable: bool) -> Answer {
    if let Some(outcome) = supers::delete(place, durable).or_else(|| journal::delete(place)) {
        return outcome;
    }
    let mount = mount_of(place)?;
    journal::remove(&mount, place, durable)
}

/// xAccess.
pub fn access(place: &Place, how: c_int) -> Answer<bool> {
    if supers::open(place).is_some() || journal::exists(place) {
        return Ok(true);
    }
    let mount = mount_of(place)?;
    stuck::end(&mount, &place.path)?;
    if how == ACCESS_EXISTS {
        // As SQLite's own VFS: an empty file is none.
        return match mount.fs.metadata(&place.path) {
            Ok(metadata) => Ok(!metadata.is_file() || metadata.len() > 0),
            Err(e) if matches!(e.errno(), libc::ENOENT | libc::ENOTDIR) => Ok(false),
            Err(e) => Err(code(&e, IOERR_ACCESS)),
        };
    }
    let mask = if how == ACCESS_READWRITE { libc::R_OK | libc::W_OK } else { libc::R_OK };
    Ok(mount.fs.access(&place.path, mask.cast_unsigned()).is_ok())
}
