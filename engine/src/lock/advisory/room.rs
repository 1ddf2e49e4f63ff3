//! How many ranges may be locked at a time: so many in the whole file system for each of its two sides, so that those who
//! come through a mount cannot leave the program that has it open without any, nor the other way round.

use super::Owner;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Error, Result};
use crossbeam_utils::CachePadded;

/// Ranges that one side may have locked.
pub(super) const MOST: u64 = 1 << 16;

/// The ranges that are locked, by side. Relaxed throughout: they are numbers, and nothing hangs on their order.
#[derive(Debug, Default)]
pub(super) struct Room {
    library: CachePadded<AtomicU64>,
    mount: CachePadded<AtomicU64>,
}

impl Room {
    pub(super) fn held(&self, owner: Owner) -> &AtomicU64 {
        match owner {
            Owner::Library(_) => &self.library,
            Owner::Mount(_) => &self.mount,
        }
    }

    /// Takes room for ranges that are about to be held. ENOLCK: there is none.
    pub(super) fn take(&self, owner: Owner, ranges: usize) -> Result<()> {
        if ranges == 0 {
            return Ok(());
        }
        let more = |held: u64| held.checked_add(ranges as u64).filter(|held| *held <= MOST);
        let taken = self.held(owner).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(drop).map_err(|_| Error::Errno(libc::ENOLCK))
    }

    /// Gives back that of ranges that are not held any more.
    pub(super) fn give_back(&self, owner: Owner, ranges: usize) {
        if ranges == 0 {
            return;
        }
        self.held(owner).fetch_sub(ranges as u64, Ordering::Relaxed);
    }
}
