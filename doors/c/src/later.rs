//! Deferred durability: calls that return before what they ask for is durable, and tell when it is.

#![allow(unsafe_code, reason = "calls back into C, and names that C links to")]

use crate::fail::{Failure, Outcome, done, tell};
use crate::table::with;
use crate::types::{narufs_done, narufs_file};
use narufs::File;
use std::ffi::{c_int, c_void};

/// Whom to tell, once.
pub(crate) struct Teller {
    done: unsafe extern "C" fn(*mut c_void, c_int),
    arg: *mut c_void,
}

// SAFETY: the caller says that `done` may be called with `arg` by any thread.
unsafe impl Send for Teller {}

impl Teller {
    pub(crate) fn new(done: narufs_done, arg: *mut c_void) -> Outcome<Teller> {
        let done = done.ok_or_else(|| Failure::invalid("there is nobody to tell: done is NULL"))?;
        Ok(Teller { done, arg })
    }

    pub(crate) fn tell(self, outcome: narufs::Result<()>) {
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
            let told = |outcome| teller.tell(outcome);
            if datasync == 0 {
                file.sync_all_then(told)
            } else {
                file.sync_data_then(told)
            }
            Ok(())
        })
    })
}
