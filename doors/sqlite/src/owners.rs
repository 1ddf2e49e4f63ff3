//! Which connection a rollback journal belongs to.
//!
//! SQLite keeps the names of a database, of its journal and of its log in one piece of memory, for as long as the connection has
//! the database open. So whoever opens a journal by the very name that lies there is that connection, whose database is
//! open here. A VFS above this one (one that splits a database into several files, say) has names of its own: its
//! journals belong to nobody, and are files.

use crate::db::Db;
use crate::mount::locked;
use crate::names::Place;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// By the address of the journal's name.
static OPEN: LazyLock<Mutex<HashMap<usize, Weak<Db>>>> = LazyLock::new(Mutex::default);

/// A database is open, whose journal has its name there.
pub fn opened(journal: usize, db: &Arc<Db>) {
    let mut open = locked(&OPEN);
    // Memory is used again.
    open.retain(|_, db| db.strong_count() > 0);
    open.insert(journal, Arc::downgrade(db));
}

/// The database whose journal is opened by the name that lies there.
pub fn owner(journal: usize, place: &Place) -> Option<Arc<Db>> {
    let db = locked(&OPEN).get(&journal)?.upgrade()?;
    (place.path.strip_suffix("-journal") == Some(&*db.path)).then_some(db)
}
