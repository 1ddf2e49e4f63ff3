//! What threads share things by: that of the standard library, or with `--cfg loom` that of a model checker, which then
//! checks the table of handles itself.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread_local,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread_local,
};

/// As loom's, which sees who uses it at the same time.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, call: impl FnOnce(*const T) -> R) -> R {
        call(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, call: impl FnOnce(*mut T) -> R) -> R {
        call(self.0.get())
    }
}

/// A function that makes a constant, where atomics can be constants: loom's cannot.
macro_rules! constant {
    ($visible:vis fn $($rest:tt)*) => {
        #[cfg(loom)]
        $visible fn $($rest)*
        #[cfg(not(loom))]
        $visible const fn $($rest)*
    };
}

/// As many null pointers.
macro_rules! nulls {
    ($count:expr) => {{
        #[cfg(loom)]
        let nulls = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        #[cfg(not(loom))]
        let nulls = [const { AtomicPtr::new(ptr::null_mut()) }; $count];
        nulls
    }};
}

/// A static, which in a model is made anew for each execution.
macro_rules! shared {
    (static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(loom)]
        loom::lazy_static! { static ref $name: $type = $value; }
        #[cfg(not(loom))]
        static $name: $type = $value;
    };
}

pub(crate) use {constant, nulls, shared};
