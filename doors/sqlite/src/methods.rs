//! The methods of open files as SQLite calls them: pointers become slices here, and a panic a failure.

#![allow(unsafe_code, reason = "a leaf module: what C calls, with C's pointers; tests/stock.rs")]

use crate::db::{AtomicStep, Db};
use crate::ffi::{self, Answer, File, Methods, NOTFOUND, OK};
use crate::mount::{has_read, locked};
use crate::names::{Meaning, meaning};
use crate::open::Handle;
use crate::shm::Part;
use crate::{journal, supers};
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// What SQLite keeps room for.
#[repr(C)]
pub struct Opened {
    base: File,
    handle: *mut Handle,
}

static METHODS: Methods = Methods {
    version: 2,
    close,
    read,
    write,
    truncate,
    sync,
    file_size,
    lock,
    unlock,
    check_reserved_lock,
    file_control,
    sector_size,
    device_characteristics,
    shm_map,
    shm_lock,
    shm_barrier,
    shm_unmap,
};

/// Runs what changes something.
pub fn changes(run: impl FnOnce() -> Answer) -> c_int {
    #[cfg(feature = "mortal")]
    crate::mortal::step();
    let code = guarded(run);
    #[cfg(feature = "mortal")]
    crate::mortal::step();
    code
}

/// Runs what may panic.
pub fn guarded(run: impl FnOnce() -> Answer) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => OK,
        Ok(Err(code)) => code,
        Err(_) => ffi::IOERR,
    }
}

/// Puts a handle into the room that SQLite has given.
///
/// # Safety
/// `at` has room for an [`Opened`].
pub unsafe fn put(at: *mut File, handle: Handle) {
    // SAFETY: as the caller says.
    unsafe {
        at.cast::<Opened>()
            .write(Opened { base: File { methods: &METHODS }, handle: Box::into_raw(Box::new(handle)) })
    }
}

/// # Safety
/// `file` is what [`put`] has filled, and is not closed while the answer is used.
unsafe fn handle<'a>(file: *mut File) -> &'a Handle {
    // SAFETY: as the caller says.
    unsafe { &*(*file.cast::<Opened>()).handle }
}

// SAFETY of all that follows: SQLite calls a file's methods with that file while it is open, and with buffers as long as
// it says; one call at a time for each file.

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: see above; after this call SQLite uses the file no more.
    let owned = unsafe {
        let opened = &mut *file.cast::<Opened>();
        opened.base.methods = std::ptr::null();
        Box::from_raw(opened.handle)
    };
    guarded(move || match *owned {
        Handle::Db(db) => db.close(),
        Handle::Journal(journal) => {
            journal.close();
            Ok(())
        }
        Handle::Plain(_) => {
            has_read();
            Ok(())
        }
        Handle::Super(_) => Ok(()),
    })
}

unsafe extern "C" fn read(file: *mut File, into: *mut c_void, n: c_int, offset: i64) -> c_int {
    // SAFETY: see above.
    let (handle, into) =
        unsafe { (handle(file), std::slice::from_raw_parts_mut(into.cast::<u8>(), n.max(0) as usize)) };
    let offset = offset.cast_unsigned();
    guarded(|| match handle {
        Handle::Db(db) => db.read(into, offset),
        Handle::Journal(journal) => journal.read(into, offset),
        Handle::Super(one) => one.read(into, offset),
        Handle::Plain(plain) => plain.read(into, offset),
    })
}

unsafe extern "C" fn write(file: *mut File, bytes: *const c_void, n: c_int, offset: i64) -> c_int {
    // SAFETY: see above.
    let (handle, bytes) =
        unsafe { (handle(file), std::slice::from_raw_parts(bytes.cast::<u8>(), n.max(0) as usize)) };
    let offset = offset.cast_unsigned();
    changes(|| match handle {
        Handle::Db(db) => db.write(bytes, offset),
        Handle::Journal(journal) => journal.write(bytes, offset),
        Handle::Super(one) => one.write(bytes, offset),
        Handle::Plain(plain) => plain.write(bytes, offset),
    })
}

unsafe extern "C" fn truncate(file: *mut File, len: i64) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    let len = len.cast_unsigned();
    changes(|| match handle {
        Handle::Db(db) => db.truncate(len),
        Handle::Journal(journal) => journal.truncate(len),
        Handle::Super(_) => Ok(()),
        Handle::Plain(plain) => plain.truncate(len),
    })
}

unsafe extern "C" fn sync(file: *mut File, _flags: c_int) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    changes(|| match handle {
        Handle::Db(db) => db.sync(),
        Handle::Journal(journal) => journal.sync(),
        Handle::Super(one) => one.sync(),
        Handle::Plain(plain) => plain.sync(),
    })
}

unsafe extern "C" fn file_size(file: *mut File, size: *mut i64) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    guarded(|| {
        let len = match handle {
            Handle::Db(db) => db.size()?,
            Handle::Journal(journal) => journal.size()?,
            Handle::Super(one) => one.size(),
            Handle::Plain(plain) => plain.size()?,
        };
        // SAFETY: see above.
        unsafe { size.write(len.cast_signed()) };
        Ok(())
    })
}

/// A database does what is asked; of others nothing is.
fn of_database(handle: &Handle, run: impl FnOnce(&Arc<Db>) -> Answer) -> c_int {
    guarded(|| if let Handle::Db(db) = handle { run(db) } else { Ok(()) })
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: see above.
    of_database(unsafe { handle(file) }, |db| db.lock(level))
}

unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: see above.
    changes(|| if let Handle::Db(db) = unsafe { handle(file) } { db.unlock(level) } else { Ok(()) })
}

unsafe extern "C" fn check_reserved_lock(file: *mut File, is: *mut c_int) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    guarded(|| {
        let reserved = if let Handle::Db(db) = handle { db.is_reserved()? } else { false };
        // SAFETY: see above.
        unsafe { is.write(c_int::from(reserved)) };
        Ok(())
    })
}

unsafe extern "C" fn file_control(file: *mut File, what: c_int, with: *mut c_void) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    changes(|| {
        if what == ffi::FCNTL_VFSNAME {
            // SAFETY: SQLite passes a place for a pointer, and frees what is put there.
            unsafe { with.cast::<*mut c_char>().write(ffi::given(c"narufs")) };
            return Ok(());
        }
        let Handle::Db(db) = handle else { return Err(NOTFOUND) };
        match what {
            ffi::FCNTL_SYNC => {
                // SAFETY: the argument is null or the name of a super-journal.
                let name = unsafe { ffi::words(with.cast()) };
                await_super(db, name)
            }
            ffi::FCNTL_COMMIT_PHASETWO => db.phase_two(),
            ffi::FCNTL_CKPT_START => db.checkpoint_begins(),
            ffi::FCNTL_CKPT_DONE => db.checkpoint_ends(),
            ffi::FCNTL_BEGIN_ATOMIC_WRITE => db.atomic(AtomicStep::Begin),
            ffi::FCNTL_COMMIT_ATOMIC_WRITE => db.atomic(AtomicStep::Commit),
            ffi::FCNTL_ROLLBACK_ATOMIC_WRITE => db.atomic(AtomicStep::Rollback),
            ffi::FCNTL_SIZE_HINT => Ok(()),
            ffi::FCNTL_LOCKSTATE => answer(with, locked(&db.state).level),
            ffi::FCNTL_HAS_MOVED => answer(with, c_int::from(db.has_moved())),
            ffi::FCNTL_PERSIST_WAL => switch(with, &mut locked(&db.state).persist_wal),
            ffi::FCNTL_POWERSAFE_OVERWRITE => switch(with, &mut locked(&db.state).powersafe),
            _ => Err(NOTFOUND),
        }
    })
}

/// Whose end this commit waits for, if it is one that this process has made.
fn await_super(db: &Arc<Db>, name: Option<&str>) -> Answer {
    let place =
        name.and_then(|name| if let Meaning::Ours(place) = meaning(name) { Some(place) } else { None });
    let mut state = locked(&db.state);
    // While a lock stays nobody looks for a journal, and with `journal_mode=OFF` nobody opens one. Who has lost the end of one
    // plays back what is left of it, and comes here before anything is read.
    journal::end_stuck(db)?;
    supers::leave(db, &mut state);
    state.awaits = place.is_some_and(|place| supers::join(&place, db)).then_some(false);
    state.finished = state.awaits.is_none();
    state.alone = name.is_some() && state.finished;
    if state.alone {
        return db.commit_alone(&mut state);
    }
    // With a real journal there is nothing to do at once: what fails is told while there is a journal to go back by.
    if state.finished && state.journal.is_real() { db.bring_home(&mut state) } else { Ok(()) }
}

fn answer(with: *mut c_void, value: c_int) -> Answer {
    // SAFETY: for these controls the argument is a place for an int.
    unsafe { with.cast::<c_int>().write(value) };
    Ok(())
}

/// Sets what is not negative, and says what is set.
fn switch(with: *mut c_void, is: &mut bool) -> Answer {
    let with = with.cast::<c_int>();
    // SAFETY: for these controls the argument is an int that is read and written.
    unsafe {
        if with.read() < 0 {
            with.write(c_int::from(*is));
        } else {
            *is = with.read() != 0;
        }
    }
    Ok(())
}

unsafe extern "C" fn sector_size(_: *mut File) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(file: *mut File) -> c_int {
    // SAFETY: see above.
    let powersafe = match unsafe { handle(file) } {
        Handle::Db(db) => locked(&db.state).powersafe,
        _ => true,
    };
    ffi::IOCAP_BATCH_ATOMIC | if powersafe { ffi::IOCAP_POWERSAFE_OVERWRITE } else { 0 }
}

unsafe extern "C" fn shm_map(
    file: *mut File,
    number: c_int,
    bytes: c_int,
    make: c_int,
    at: *mut *mut c_void,
) -> c_int {
    // SAFETY: see above.
    let handle = unsafe { handle(file) };
    // SAFETY: see above.
    unsafe { at.write(std::ptr::null_mut()) };
    of_database(handle, |db| {
        let mut state = locked(&db.state);
        if state.index.is_none() {
            state.index = Some(Part::join(&db.mount, &db.file, &db.path)?);
        }
        let Some(index) = &state.index else { return Err(ffi::IOERR_SHMMAP) };
        if let Some(region) = index.region(number.max(0) as usize, bytes.max(0) as usize, make != 0)? {
            // SAFETY: see above. The region lives until the last connection has left.
            unsafe { at.write(region.cast_mut().cast()) };
        }
        Ok(())
    })
}

unsafe extern "C" fn shm_lock(file: *mut File, first: c_int, n: c_int, flags: c_int) -> c_int {
    // SAFETY: see above.
    of_database(unsafe { handle(file) }, |db| match &mut locked(&db.state).index {
        Some(index) => index.lock(first, n, flags),
        None => Err(ffi::IOERR_SHMLOCK),
    })
}

unsafe extern "C" fn shm_barrier(_: *mut File) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut File, remove: c_int) -> c_int {
    // SAFETY: see above.
    of_database(unsafe { handle(file) }, |db| {
        if let Some(index) = locked(&db.state).index.take() {
            index.leave(&db.mount, remove != 0);
        }
        Ok(())
    })
}
