//! Deferred durability: calls that return before what they ask for is durable, and tell when it is.

#![allow(unsafe_code, reason = "calls back into C, and names that C links to")]

use crate::fail::{Failure, Outcome, done, tell};
use crate::handles::with;
use crate::types::{narufs_done, narufs_file};
use narufs::File;
use std::ffi::{c_int, c_void};

/// Whom to tell, once.
pub(crate) struct Teller {
    done: unsafe extern "C" fn(*mut c_void, c_int),
    arg: *mut c_void,
    /// Whether the call has promised that it will be told.
    owes: bool,
}

// SAFETY: the caller says that `done` may be called with `arg` by any thread.
unsafe impl Send for Teller {}

impl Teller {
    pub(crate) fn new(done: narufs_done, arg: *mut c_void) -> Outcome<Teller> {
        let done = done.ok_or_else(|| Failure::invalid("there is nobody to tell: done is NULL"))?;
        Ok(Teller { done, arg, owes: false })
    }

    /// Hands it on: from here on it is told, come what may, and the call that has taken it succeeds.
    pub(crate) fn hand_to(mut self, call: impl FnOnce(Teller)) {
        self.owes = true;
        // What was told with the panic, or is told by who has it, is all that there is to say.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(self)));
    }

    pub(crate) fn tell(mut self, outcome: narufs::Result<()>) {
        self.owes = false;
        let errno = match outcome {
            Ok(()) => 0,
            Err(error) => {
                let errno = error.errno();
                tell(error.into());
                errno
            }
        };
        // SAFETY: it is what the caller has given for this, and is called once.
        unsafe { (self.done)(self.arg, errno) }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if self.owes {
            // SAFETY: as in `tell`, which has not been called.
            unsafe { (self.done)(self.arg, libc::EIO) }
        }
    }
}

/// As narufs_fsync(), or with datasync not 0 as narufs_fdatasync(), but done is called with the outcome as soon as that is
/// known: of what was written before the call. Any number can wait to be told, and none of them has a thread.
///
/// 0: done is called once, maybe before this returns. -1: it is never called.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_fsync_then(
    file: *mut narufs_file,
    datasync: c_int,
    done: narufs_done,
    arg: *mut c_void,
) -> c_int {
    self::done(|| {
        let teller = Teller::new(done, arg)?;
        with(file, |file: &File| {
            teller.hand_to(|teller| {
                let told = |outcome| teller.tell(outcome);
                if datasync == 0 { file.sync_all_then(told) } else { file.sync_data_then(told) }
            });
            Ok(())
        })
    })
}
