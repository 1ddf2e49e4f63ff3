//! What happens before a full image says so.

use super::Alloc;
use crate::{Error, Result};

impl Alloc {
    /// Runs an operation, and if the image is full, makes room and runs it once more. Room is made with a
    /// commit and a checkpoint: the caller holds no lock, `operation` begins its handle itself.
    pub fn with_room<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        match operation() {
            Err(Error::Errno(libc::ENOSPC)) => {
                self.make_room()?;
                operation()
            }
            result => result,
        }
    }

    /// Makes room before so many blocks are asked for one record after the other, if they would not all be found: what
    /// is let go meanwhile goes to what is kept back, in place of the extents that were taken from there.
    pub fn make_room_for(&self, blocks: u64) -> Result<()> {
        if self.shared.budget.available() >= blocks { Ok(()) } else { self.make_room() }
    }

    /// Blocks that can be promised now, before any room is made.
    pub fn available(&self) -> u64 {
        self.shared.budget.available()
    }

    /// Lets go what waits in quarantine, and what is about to be freed, or is freed in memory alone. It sleeps, and logs:
    /// neither credits nor the lock of an inode, nor a file's write-back mutex, may be held. A thread that was refused
    /// space tries once more afterwards, whatever this has found: others make room too.
    pub fn make_room(&self) -> Result<()> {
        let shared = &*self.shared;
        if let Some(wait) = shared.await_frees.get() {
            wait();
        }
        // Outside the rounds, each of which is to let go what was recorded before it: a thread that comes to one of
        // these records a second time waits for it, or finds it in quarantine.
        if let Some(record) = shared.record_frees.get() {
            record();
        }
        let Some(round) = shared.rounds.begin() else { return Ok(()) };
        let waits = shared.quarantine.blocks() > 0 || shared.also_waits.get().is_some_and(|waits| waits());
        if let Some(make_room) = shared.make_room.get().filter(|_| waits) {
            make_room()?;
            round.end();
        }
        Ok(())
    }
}
