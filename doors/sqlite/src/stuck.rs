//! Journals that undo what was called committed, and could not be ended then. Each is ended as soon as that can be, and until
//! then nothing is written past it: the next who locks the database would undo a part of that as well, or tear it.

use crate::ffi::{Answer, IOERR_ACCESS, log};
use crate::journal::HEADER_BYTES;
use crate::mount::{Mount, locked};
use crate::names::Place;
use narufs::File;
use std::collections::HashMap;
use std::sync::Mutex;

/// Those of an image, by their paths.
#[derive(Default)]
pub struct Stuck(Mutex<HashMap<String, File>>);

impl Stuck {
    pub(crate) fn insert(&self, path: String, journal: File) {
        locked(&self.0).insert(path, journal);
    }

    /// The last attempt: the image is closed, or the process ends.
    pub(crate) fn end_all(&self) {
        // At the end of the process whoever holds this lock may never let go of it.
        let Ok(mut stuck) = self.0.try_lock() else { return };
        stuck.retain(|path, journal| {
            let ended = zero(journal);
            if !ended {
                let why = "it undoes what is committed, and cannot be written to: remove it before its database is \
                           opened again";
                log(IOERR_ACCESS, &format!("{path}: {why}"));
            }
            !ended
        });
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// Ends the journal of this path if it is one of those: before anybody locks its database, writes to it or leaves it.
pub fn end(mount: &Mount, path: &str) -> Answer {
    let mut stuck = locked(&mount.stuck.0);
    let Some(journal) = stuck.get(path) else { return Ok(()) };
    if !zero(journal) {
        let why =
            "it undoes what is committed, and cannot be written to: its database is refused until it can";
        let place = Place { image: mount.image().to_owned(), path: path.to_owned() };
        log(IOERR_ACCESS, &format!("{}: {why}", place.name()));
        return Err(IOERR_ACCESS);
    }
    stuck.remove(path);
    Ok(())
}

/// Ends a journal as SQLite does where it keeps it; whether that is durable.
pub fn zero(journal: &File) -> bool {
    #[cfg(feature = "mortal")]
    if crate::mortal::end_fails() {
        return false;
    }
    journal.write_all_at(&[0; HEADER_BYTES], 0).and_then(|()| journal.sync_all()).is_ok()
}
