//! What is found through a pointer: the references that a table keeps as pointers, and its own nodes.

#![allow(unsafe_code, reason = "a leaf module: pointers to entries and nodes, and their ends")]

use crate::sync::Arc;
use crate::sync::atomic::{Ordering, fence};
use std::ptr::NonNull;

/// A reference that counts itself in what it refers to, and can be kept as a pointer.
///
/// # Safety
/// The pointer of [`Counted::into_ptr`] is not null and even, and stays the same for all references to one thing. A
/// reference may be used and dropped in another thread than the one it was made in.
pub(crate) unsafe trait Counted: Sized + Send + Sync {
    /// The pointer, which has the reference's count.
    fn into_ptr(self) -> *mut ();

    /// The reference back.
    ///
    /// # Safety
    /// The pointer comes from [`Counted::into_ptr`], and its count is used once.
    unsafe fn from_ptr(pointer: *mut ()) -> Self;

    /// One reference more.
    ///
    /// # Safety
    /// The pointer comes from [`Counted::into_ptr`], and its count is not used before this returns.
    unsafe fn another(pointer: *mut ()) -> Self;

    /// Whether there is no other reference. Then what was done through others has happened before.
    fn is_alone(&self) -> bool;
}

// SAFETY: `Arc::into_raw` gives where the value lies, of an even address by the assertion. Guarded by
// `rcu_table::tests` and `loom_models` (with a count of their own).
unsafe impl<T: Send + Sync> Counted for Arc<T> {
    fn into_ptr(self) -> *mut () {
        const { assert!(align_of::<T>() >= 2) };
        Arc::into_raw(self).cast_mut().cast()
    }

    unsafe fn from_ptr(pointer: *mut ()) -> Self {
        // SAFETY: the caller's, word for word.
        unsafe { Arc::from_raw(pointer.cast::<T>()) }
    }

    unsafe fn another(pointer: *mut ()) -> Self {
        // SAFETY: the caller's: the count that the pointer has keeps the value meanwhile.
        unsafe {
            Arc::increment_strong_count(pointer.cast::<T>());
            Arc::from_raw(pointer.cast::<T>())
        }
    }

    fn is_alone(&self) -> bool {
        let alone = Arc::strong_count(self) == 1;
        // Acquire: pairs with the Release with which another reference was dropped.
        fence(Ordering::Acquire);
        alone
    }
}

/// A node: memory that readers reach through pointers. Models notice when one does after it was freed.
#[derive(Debug)]
pub(super) struct Node<T> {
    value: T,
    #[cfg(loom)]
    there: loom::cell::UnsafeCell<bool>,
}

impl<T> Node<T> {
    /// What it holds.
    ///
    /// # Safety
    /// The node is not freed before the reference is used for the last time.
    pub unsafe fn at<'a>(node: *const Node<T>) -> &'a T {
        // SAFETY: the caller's.
        let node = unsafe { &*node };
        #[cfg(loom)]
        // SAFETY: it is changed when the node is freed alone, which loom compares with this.
        node.there.with(|there| assert!(unsafe { *there }, "a node is used after it was freed"));
        &node.value
    }
}

/// A node, owned.
#[derive(Debug)]
pub(super) struct Own<T>(NonNull<Node<T>>);

// SAFETY: it owns its node as a box does. Guarded by `rcu_table::tests`.
unsafe impl<T: Send> Send for Own<T> {}
// SAFETY: it gives shared references to what it holds, as a box does. Guarded by `rcu_table::tests`.
unsafe impl<T: Sync> Sync for Own<T> {}

impl<T> Own<T> {
    /// A value on the heap.
    pub fn new(value: T) -> Own<T> {
        let node = Node {
            value,
            #[cfg(loom)]
            there: loom::cell::UnsafeCell::new(true),
        };
        Own(NonNull::from(Box::leak(Box::new(node))))
    }

    /// The pointer for readers.
    pub fn pointer(&self) -> *mut Node<T> {
        self.0.as_ptr()
    }
}

impl<T> std::ops::Deref for Own<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: it is freed when this is dropped. Guarded by `rcu_table::tests`.
        unsafe { Node::at(self.0.as_ptr()) }
    }
}

#[cfg(not(loom))]
impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        // SAFETY: it was made from a box in `new`; a thread that drops what readers could reach waits for them (see
        // `limbo`). Guarded by `rcu_table::tests`.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(loom)]
impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        // The memory stays, for loom's objects cannot be looked at once they are gone.
        // SAFETY: loom compares this access with all others.
        unsafe { self.0.as_ref() }.there.with_mut(|there| unsafe { *there = false });
    }
}
