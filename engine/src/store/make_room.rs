//! Room for operations where no thread makes it.
//!
//! The store knows when a round is due, and runs none: that is done above it. What it has of those who do is one hook.
//!
//! # Set-up and take-down
//! The mount sets the hook once, before anybody else has the store, and only where it starts no thread for rounds; so a
//! store with a hook is one whose operations run the rounds. The store holds it weakly: whoever made it keeps the store,
//! and it is gone when that is. From then on no round runs, and an operation that needs one fails: the file system has
//! been let go.

use super::Store;
use crate::journal::CreditClass;
use crate::sync::{Arc, Weak};
use crate::{Error, Result};

/// What there is too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Short {
    /// Room in the journal for the operation that asks.
    Journal,
    /// Nothing yet, but a round is due.
    Soon,
}

/// Who runs a round on behalf of an operation.
pub(crate) trait MakeRoom: Send + Sync {
    /// Runs a round, unless one is running. May sleep.
    fn make_room(&self, short: Short) -> Result<()>;
}

impl Store {
    /// Has operations make room by this from now on; to be called once.
    pub(crate) fn set_make_room(&self, hook: &Arc<dyn MakeRoom>) {
        if self.make_room.set(Arc::downgrade(hook)).is_err() {
            unreachable!("it is set once, by the mount");
        }
    }

    /// Whether operations run the rounds.
    pub(super) fn makes_room_inline(&self) -> bool {
        self.make_room.get().is_some()
    }

    /// Where no thread runs rounds: the operation has one run if it is due, or if it would wait for one.
    pub(super) fn make_room_inline(&self, max_slots: u32, class: CreditClass) -> Result<()> {
        let due = self.signal.take_round() || self.dirty.count() >= self.dirty_limit;
        let short = match self.journal() {
            Some(journal) if !journal.has_room(max_slots, class) => Short::Journal,
            _ if due => Short::Soon,
            _ => return Ok(()),
        };
        match self.make_room.get().and_then(Weak::upgrade) {
            Some(hook) => hook.make_room(short),
            None => Err(Error::ReadOnly("it was let go, and nothing makes room in its journal".into())),
        }
    }
}
