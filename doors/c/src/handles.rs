//! What C holds for what is open: numbers of a [`Table`] that look like pointers.

use crate::fail::{Failure, Outcome};
use crate::table::{Closed, Refused, Table};

/// What is known by a handle.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// What C has a pointer to.
    type Opaque;
    fn table() -> &'static Table<Self>;
}

impl From<Refused> for Failure {
    #[cold]
    fn from(refused: Refused) -> Failure {
        let (errno, words) = match refused {
            Refused::Bad => (libc::EBADF, "the handle is none that is open"),
            Refused::Full => (libc::ENFILE, "there are too many open handles: close some"),
            Refused::Memory => (libc::ENOMEM, "there is no memory for more handles"),
            Refused::Nested => {
                (libc::EDEADLK, "calls within calls: what is called back must not use the file system")
            }
        };
        Failure::of(errno, words)
    }
}

fn number<T>(handle: *const T) -> u64 {
    handle as usize as u64
}

/// Opens a handle.
pub(crate) fn open<T: Object>(value: T) -> Outcome<*mut T::Opaque> {
    Ok(T::table().insert(value)? as usize as *mut T::Opaque)
}

/// Uses what a handle stands for.
#[inline]
pub(crate) fn with<T: Object, R>(
    handle: *const T::Opaque,
    call: impl FnOnce(&T) -> Outcome<R>,
) -> Outcome<R> {
    T::table().with(number(handle), call)?
}

/// Whether a handle was opened by this very process.
pub(crate) fn is_ours<T: Object>(handle: *const T::Opaque) -> bool {
    T::table().is_ours(number(handle))
}

/// Uses what can be used by one thread at a time, and is locked: not in a child, where a thread of the parent may hold
/// it for ever.
pub(crate) fn with_ours<T: Object, R>(
    handle: *const T::Opaque,
    call: impl FnOnce(&T) -> Outcome<R>,
) -> Outcome<R> {
    if is_ours::<T>(handle) { with(handle, call) } else { Err(Failure::forked()) }
}

/// Closes a handle.
pub(crate) fn close<T: Object>(handle: *mut T::Opaque) -> Outcome<Closed<T>> {
    Ok(T::table().close(number(handle.cast_const()))?)
}

/// Closes a handle whose end has nothing to tell.
pub(crate) fn end<T: Object>(handle: *mut T::Opaque) -> Outcome<()> {
    match close::<T>(handle)? {
        // Dropped here, or by the last who uses it.
        Closed::Taken(_) | Closed::InUse => Ok(()),
        Closed::Forked => Err(Failure::forked()),
    }
}
