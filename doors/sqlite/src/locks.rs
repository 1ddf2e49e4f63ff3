//! The locks of a database, as SQLite asks for them: bytes of it in the file system's own table.

use crate::db::{Db, code};
use crate::ffi::{
    Answer, BUSY, IOERR_CHECKRESERVEDLOCK, IOERR_LOCK, IOERR_UNLOCK, LOCK_EXCLUSIVE, LOCK_NONE, LOCK_PENDING,
    LOCK_RESERVED, LOCK_SHARED, log,
};
use crate::mount::locked;
use narufs::LockKind;
use std::ffi::c_int;
use std::fs::TryLockError;
use std::ops::Range;

/// The first of the bytes that SQLite locks in place of a database (PENDING_BYTE).
#[cfg(not(feature = "mortal"))]
fn pending_byte() -> u64 {
    0x4000_0000
}
#[cfg(feature = "mortal")]
use crate::mortal::pending_byte;

fn pending() -> Range<u64> {
    pending_byte()..pending_byte() + 1
}

fn reserved() -> Range<u64> {
    pending_byte() + 1..pending_byte() + 2
}

fn shared() -> Range<u64> {
    pending_byte() + 2..pending_byte() + 2 + 510
}

impl Db {
    pub(crate) fn lock(&self, level: c_int) -> Answer {
        let mut state = locked(&self.state);
        if state.level >= level {
            return Ok(());
        }
        if level == LOCK_SHARED {
            self.take(LockKind::Shared, pending())?;
            let taken = self.take(LockKind::Shared, shared());
            self.give_back(pending())?;
            taken?;
            state.level = LOCK_SHARED;
            return Ok(());
        }
        if level == LOCK_RESERVED {
            self.take(LockKind::Exclusive, reserved())?;
            state.level = LOCK_RESERVED;
            return Ok(());
        }
        if state.level < LOCK_PENDING {
            self.take(LockKind::Exclusive, pending())?;
            state.level = LOCK_PENDING;
        }
        if level == LOCK_EXCLUSIVE {
            self.take(LockKind::Exclusive, shared())?;
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
                self.take(LockKind::Shared, shared()).map_err(|_| IOERR_UNLOCK)?;
            }
            self.give_back(pending().start..reserved().end)?;
        }
        if level == LOCK_NONE {
            self.give_back(shared())?;
        }
        state.level = level;
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
        let other = self.file.test_lock_range(self.file.lock_owner(), LockKind::Exclusive, reserved());
        other.map(|lock| lock.is_some()).map_err(|e| code(&e, IOERR_CHECKRESERVEDLOCK))
    }
}
