//! Which connection a rollback journal or a write-ahead log belongs to.
//!
//! SQLite keeps the names of a database, of its journal and of its log in one piece of memory, for as long as the connection has
//! the database open. So whoever opens a journal by the very name that lies there is that connection, whose database is
//! open here. A VFS above this one (one that splits a database into several files, say) has names of its own: its
//! journals and logs belong to nobody, and are files.

use crate::db::Db;
use crate::mount::locked;
use crate::names::Place;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// By the addresses of the names of its journal and of its log.
static OPEN: LazyLock<Mutex<HashMap<usize, Weak<Db>>>> = LazyLock::new(Mutex::default);

/// A database is open, whose journal and log have their names there.
pub fn opened(names: [usize; 2], db: &Arc<Db>) {
    let mut open = locked(&OPEN);
    // Memory is used again.
    open.retain(|_, db| db.strong_count() > 0);
    open.extend(names.map(|name| (name, Arc::downgrade(db))));
}

/// Whether a journal is that of a database which is open here.
pub fn has_journal(place: &Place) -> bool {
    let open: Vec<_> = locked(&OPEN).values().filter_map(Weak::upgrade).collect();
    let path = place.path.strip_suffix("-journal");
    open.iter().any(|db| path == Some(&*db.path) && db.mount.image() == place.image)
}

/// The database whose journal or log, as the end of its name says, is opened by the name that lies there.
pub fn owner(name: usize, place: &Place, end: &str) -> Option<Arc<Db>> {
    let db = locked(&OPEN).get(&name)?.upgrade()?;
    (place.path.strip_suffix(end) == Some(&*db.path)).then_some(db)
}
