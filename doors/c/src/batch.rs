//! Batches: writes to any number of files that become visible, and durable, all or none.

#![allow(unsafe_code, reason = "names that C links to")]

use crate::args::bytes;
use crate::dir::Place;
use crate::fail::{Failure, Outcome, done, handle, number};
use crate::handles::{self, Object, with, with_ours};
use crate::later::Teller;
use crate::table::Table;
use crate::types::{narufs_batch, narufs_dir, narufs_done, narufs_file};
use narufs::{Batch, Commit, File};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// What a narufs_batch stands for: one thread at a time uses it. None once it is committed.
struct Staged(Mutex<Option<Batch>>);

impl Object for Staged {
    type Opaque = narufs_batch;
    fn table() -> &'static Table<Staged> {
        static TABLE: Table<Staged> = Table::new(4);
        &TABLE
    }
}

fn staged<R>(batch: *mut narufs_batch, call: impl FnOnce(&mut Option<Batch>) -> Outcome<R>) -> Outcome<R> {
    // A panic in between has staged the whole of a write or nothing of it.
    with_ours(batch, |staged: &Staged| call(&mut staged.0.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn committed() -> Failure {
    Failure::of(libc::EBADF, "the batch is committed")
}

/// Only visible; a crash leaves all of it or none, and all of it after a later sync, of any file.
pub const NARUFS_COMMIT_ORDERED: c_int = 0;
/// As after narufs_fsync().
pub const NARUFS_COMMIT_DURABLE: c_int = 1;
/// It survives a loss of power, whatever the mount's durability says.
pub const NARUFS_COMMIT_POWER: c_int = 2;

fn to_commit(how: c_int) -> Outcome<Commit> {
    match how {
        NARUFS_COMMIT_ORDERED => Ok(Commit::Ordered),
        NARUFS_COMMIT_DURABLE => Ok(Commit::Durable),
        NARUFS_COMMIT_POWER => Ok(Commit::Power),
        _ => Err(Failure::invalid("none of NARUFS_COMMIT_...")),
    }
}

/// The batch to be committed; its handle is closed.
fn take(batch: *mut narufs_batch) -> Outcome<Batch> {
    let taken = staged(batch, |staged| staged.take().ok_or_else(committed))?;
    // Another thread may have closed it in between: it is committed all the same.
    if let Ok(closed) = handles::close::<Staged>(batch) {
        drop(closed);
    }
    Ok(taken)
}

/// Begins a batch of writes to files of a file system, wherever they lie.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_batch_begin(dir: *mut narufs_dir) -> *mut narufs_batch {
    handle(|| with(dir, |place: &Place| handles::open(Staged(Mutex::new(Some(place.batch()))))))
}

/// Stages bytes for an offset of a file, all of them or, with -1, none: E2BIG if the batch has no room for them. After ENOSPC
/// or EIO, of a batch that is too large for memory, some of them may be staged: give the batch up, or stage them once more.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_batch_write(
    batch: *mut narufs_batch,
    file: *mut narufs_file,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> c_int {
    done(|| {
        let from = bytes(from.cast(), len)?;
        staged(batch, |staged| {
            let staged = staged.as_mut().ok_or_else(committed)?;
            with(file, |file: &File| Ok(staged.write_all_at(file, from, offset)?))
        })
    })
}

/// Pages (4 KiB) that are staged, whole or in part; or -1.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_batch_pages(batch: *mut narufs_batch) -> i64 {
    number(|| staged(batch, |staged| Ok(staged.as_ref().ok_or_else(committed)?.pages())))
}

/// Makes all that is staged the content of the files, or with -1 nothing of it; after EIO or EROFS it may be there, whole,
/// but not be durable. how is NARUFS_COMMIT_.... The handle is closed in any case, unless it is EBADF or EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_batch_commit(batch: *mut narufs_batch, how: c_int) -> c_int {
    done(|| {
        let how = to_commit(how)?;
        Ok(take(batch)?.commit(how)?)
    })
}

/// As narufs_batch_commit(), but done is called with the outcome as soon as that is known. All of it is visible on return,
/// unless it has failed.
///
/// 0: done is called once, maybe before this returns. -1: it is never called.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_batch_commit_then(
    batch: *mut narufs_batch,
    how: c_int,
    done: narufs_done,
    arg: *mut c_void,
) -> c_int {
    self::done(|| {
        let (how, teller) = (to_commit(how)?, Teller::new(done, arg)?);
        let batch = take(batch)?;
        teller.hand_to(|teller| batch.commit_then(how, |outcome| teller.tell(outcome)));
        Ok(())
    })
}

/// Gives a batch up: nothing of it has happened. EBADF: it is committed, or another thread is about to.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_batch_drop(batch: *mut narufs_batch) -> c_int {
    done(|| {
        let taken = take(batch);
        if taken.is_err() && !handles::is_ours::<Staged>(batch) {
            // The parent's: what it stands for stays, the number is known no more.
            return handles::end::<Staged>(batch);
        }
        taken.map(drop)
    })
}
