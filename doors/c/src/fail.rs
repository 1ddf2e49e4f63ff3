//! The boundary: what a call gives back, errno, and words for the thread that has called.
//!
//! Every function that C can call goes through one of [`done`], [`number`], [`handle`] and [`guarded`], which catch
//! panics: `tests/door` holds that.

#![allow(unsafe_code, reason = "sets errno, and names that C links to")]

use narufs::{Cause, Error};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call has failed. A pointer, so that what a call gives fits the registers.
pub(crate) struct Failure(Box<Why>);

enum Why {
    Narufs(Error),
    /// An errno, and words.
    Errno(c_int, &'static str),
    /// What the standard library makes of an errno.
    Io(std::io::Error),
    Panicked(String),
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure(Box::new(Why::Narufs(error)))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure(Box::new(error.downcast().map_or_else(Why::Io, Why::Narufs)))
    }
}

impl From<std::fs::TryLockError> for Failure {
    fn from(error: std::fs::TryLockError) -> Failure {
        match error {
            std::fs::TryLockError::WouldBlock => {
                Failure::of(libc::EWOULDBLOCK, "another's lock is in the way")
            }
            std::fs::TryLockError::Error(error) => error.into(),
        }
    }
}

impl Failure {
    /// An errno, and words.
    #[cold]
    pub(crate) fn of(errno: c_int, words: &'static str) -> Failure {
        Failure(Box::new(Why::Errno(errno, words)))
    }

    pub(crate) fn invalid(words: &'static str) -> Failure {
        Failure::of(libc::EINVAL, words)
    }

    pub(crate) fn forked() -> Failure {
        let words = "this process was forked from one that had a file system open, and can use none";
        Failure::of(libc::ECHILD, words)
    }

    pub(crate) fn errno(&self) -> c_int {
        match &*self.0 {
            Why::Narufs(error) => error.errno(),
            Why::Errno(errno, _) => *errno,
            Why::Io(error) => error.raw_os_error().unwrap_or(libc::EIO),
            Why::Panicked(_) => libc::EIO,
        }
    }

    fn cause(&self) -> c_int {
        match &*self.0 {
            Why::Narufs(error) => match error.cause() {
                Cause::Device { .. } => NARUFS_CAUSE_DEVICE,
                Cause::Damaged(_) => NARUFS_CAUSE_DAMAGED,
                Cause::ReadOnly(_) => NARUFS_CAUSE_READ_ONLY,
                Cause::InUse(_) => NARUFS_CAUSE_IN_USE,
                Cause::Refused(_) => NARUFS_CAUSE_REFUSED,
                Cause::Forked => NARUFS_CAUSE_FORKED,
                _ => NARUFS_CAUSE_ERRNO,
            },
            Why::Errno(libc::ECHILD, _) => NARUFS_CAUSE_FORKED,
            Why::Errno(..) | Why::Io(_) => NARUFS_CAUSE_ERRNO,
            Why::Panicked(_) => NARUFS_CAUSE_PANIC,
        }
    }

    fn words(&self) -> String {
        match &*self.0 {
            Why::Narufs(error) => error.to_string(),
            Why::Errno(_, words) => (*words).to_owned(),
            Why::Io(error) => error.to_string(),
            Why::Panicked(words) => {
                format!("narufs has failed in itself, which is a fault of it to be reported: {words}")
            }
        }
    }
}

/// No call of this thread has failed.
pub const NARUFS_CAUSE_NONE: c_int = 0;
/// errno says it all.
pub const NARUFS_CAUSE_ERRNO: c_int = 1;
/// The device has failed a request.
pub const NARUFS_CAUSE_DEVICE: c_int = 2;
/// Something that was read does not verify; the message says what, and where it lies.
pub const NARUFS_CAUSE_DAMAGED: c_int = 3;
/// Nothing may be changed any more; the message says why.
pub const NARUFS_CAUSE_READ_ONLY: c_int = 4;
/// Another has opened the image, or its journal; the message says what to do.
pub const NARUFS_CAUSE_IN_USE: c_int = 5;
/// The image, its journal or the options are of no use; the message says why, and what to do.
pub const NARUFS_CAUSE_REFUSED: c_int = 6;
/// This process was forked from one that had a file system open.
pub const NARUFS_CAUSE_FORKED: c_int = 7;
/// A fault of narufs.
pub const NARUFS_CAUSE_PANIC: c_int = 8;

#[derive(Default)]
struct Last {
    failure: Option<Failure>,
    /// Made when it is asked for.
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Keeps why a call has failed, for the thread that has called, and sets errno.
#[cold]
pub(crate) fn tell(failure: Failure) {
    let errno = failure.errno();
    // A thread that is ending has no words any more.
    let _ = LAST.try_with(|last| last.borrow_mut().failure = Some(failure));
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = errno };
}

fn panicked(payload: Box<dyn Any + Send>) -> Failure {
    let words = payload.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| payload.downcast_ref::<String>().cloned());
    // Dropping what it carries could panic too.
    std::mem::forget(payload);
    Failure(Box::new(Why::Panicked(words.unwrap_or_default())))
}

/// Calls, and gives `failed` if that fails or panics.
#[inline]
pub(crate) fn guarded<T>(failed: T, call: impl FnOnce() -> Outcome<T>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            tell(failure);
            failed
        }
        Err(payload) => {
            tell(panicked(payload));
            failed
        }
    }
}

/// 0, or -1.
#[inline]
pub(crate) fn done(call: impl FnOnce() -> Outcome<()>) -> c_int {
    guarded(-1, || call().map(|()| 0))
}

/// A number, or -1.
#[inline]
pub(crate) fn number<N: TryInto<i64>>(call: impl FnOnce() -> Outcome<N>) -> i64 {
    let large = |_| Failure::of(libc::EOVERFLOW, "the number is too large for its type");
    guarded(-1, || call()?.try_into().map_err(large))
}

/// A handle, or NULL.
#[inline]
pub(crate) fn handle<T>(call: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    guarded(std::ptr::null_mut(), call)
}

/// Why the last call of this thread that has failed did so, in words: what was asked for, of which path, and what is
/// wrong. Empty if none has failed. It stays until the next call of this thread that fails, or the next of this function.
#[unsafe(no_mangle)]
pub extern "C" fn narufs_error_message() -> *const c_char {
    guarded(c"".as_ptr(), || {
        let text = LAST.try_with(|last| {
            let Last { failure, text } = &mut *last.borrow_mut();
            let words = failure.as_ref().map(Failure::words).unwrap_or_default();
            *text = CString::new(words.replace('\0', "\u{fffd}")).unwrap_or_default();
            text.as_ptr()
        });
        Ok(text.unwrap_or(c"".as_ptr()))
    })
}

/// What kind of failure the last of this thread was: one of NARUFS_CAUSE_....
#[unsafe(no_mangle)]
pub extern "C" fn narufs_error_cause() -> c_int {
    guarded(NARUFS_CAUSE_NONE, || {
        let cause = LAST.try_with(|last| last.borrow().failure.as_ref().map(Failure::cause));
        Ok(cause.ok().flatten().unwrap_or(NARUFS_CAUSE_NONE))
    })
}

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// The version of the library that runs, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn narufs_version() -> *const c_char {
    guarded(c"".as_ptr(), || Ok(VERSION.as_ptr()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> String {
        // SAFETY: it is the thread's own text, and ends with a zero byte.
        unsafe { CStr::from_ptr(narufs_error_message()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_an_error_of_the_thread_and_no_more() {
        assert_eq!((narufs_error_cause(), words()), (NARUFS_CAUSE_NONE, String::new()));
        assert_eq!(done(|| panic!("by design, {}", 1)), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        assert_eq!(narufs_error_cause(), NARUFS_CAUSE_PANIC);
        assert!(words().ends_with("by design, 1"), "{}", words());
        assert!(handle::<u8>(|| panic!("by design")).is_null());
        assert_eq!(number::<u64>(|| std::panic::panic_any(7)), -1);
        let other = std::thread::spawn(|| narufs_error_cause()).join();
        assert_eq!(other.ok(), Some(NARUFS_CAUSE_NONE), "each thread has its own");
        assert_eq!(done(|| Ok(())), 0);
        assert_eq!(narufs_error_cause(), NARUFS_CAUSE_PANIC, "what succeeds leaves it");
        assert_eq!(number(|| Ok(u64::MAX)), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOVERFLOW));
    }

    #[test]
    fn errors_keep_their_errno_on_the_way_through_the_standard_library() {
        let fs = narufs::Fs::scratch(&narufs::ScratchOptions::new(64 << 20)).expect("room");
        let error = fs.open("/missing").expect_err("it is not there");
        let failure = Failure::from(std::io::Error::from(error));
        assert_eq!((failure.errno(), failure.cause()), (libc::ENOENT, NARUFS_CAUSE_ERRNO));
        assert!(failure.words().contains("/missing"), "{}", failure.words());
    }
}
