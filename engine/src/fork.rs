//! Descriptors that a forked child lets go.
//!
//! A child shares the open files of the process that has forked it, and with them the locks on image and journal: those
//! would stay locked as long as the child lives, after the end of its parent too, though it can use none of them. The
//! users of a mount would wait for a server that is gone. So the descriptors that carry locks or serve mounts are entered
//! in a list, and [`let_go`] takes them from a child: each gives way to a descriptor with which nothing can be done, so
//! that the number means no other file while somebody remembers it.
//! Mappings keep a file open as descriptors do; those of `pmem` are not handed down to a child at all.
//!
//! The list grows to as many entries as were ever open at once. Entries are reused, and never move: a child finds the
//! list whole, whatever other threads of its parent were about.
//!
//! Nor is what carries a lock ever one of the three standard descriptors (`beyond_standard`): who has been started without
//! those writes what they print into the first files that they open.
//!
//! What this leaves to others: to call it in each child (the library `narufs` does), and to keep a child from what its
//! parent had. A child that is forked while another thread is in the midst of opening or closing may keep that one file.

#![allow(unsafe_code, reason = "a leaf module: takes descriptors away from those who own them, in a child")]

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{DupFlags, dup3};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

const NONE: i32 = -1;

/// A descriptor of the same open file that is none of the standard ones.
pub(crate) fn beyond_standard(fd: OwnedFd) -> rustix::io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 { Ok(fd) } else { rustix::io::fcntl_dupfd_cloexec(&fd, 3) }
}

/// A descriptor in the list, or room for one.
#[derive(Debug)]
struct Entry {
    // Relaxed: a fork copies all of memory at one instant, in which the entering thread has or has not stored it.
    fd: AtomicI32,
    next: OnceLock<Box<Entry>>,
}

static FIRST: Entry = Entry { fd: AtomicI32::new(NONE), next: OnceLock::new() };

/// A descriptor that children let go; dropped before it is closed.
#[derive(Debug)]
pub struct KeptFromChildren {
    entry: &'static Entry,
    fd: i32,
}

impl KeptFromChildren {
    /// Enters a descriptor, before its file is locked.
    pub fn enter(file: &impl AsFd) -> KeptFromChildren {
        let fd = file.as_fd().as_raw_fd();
        let mut entry = &FIRST;
        while entry.fd.compare_exchange(NONE, fd, Relaxed, Relaxed).is_err() {
            entry = entry
                .next
                .get_or_init(|| Box::new(Entry { fd: AtomicI32::new(NONE), next: OnceLock::new() }));
        }
        KeptFromChildren { entry, fd }
    }
}

impl Drop for KeptFromChildren {
    fn drop(&mut self) {
        // In a child the entry may be another descriptor's by now.
        let _ = self.entry.fd.compare_exchange(self.fd, NONE, Relaxed, Relaxed);
    }
}

/// Lets go what the parent has open: images, journals, spill space, and the other end of mounts.
///
/// It calls nothing that a child of a process with many threads may not call.
///
/// # Safety
/// To be called in a child that was just forked, and that neither uses nor drops anything of a file system that its
/// parent has opened.
pub unsafe fn let_go() {
    let nothing = eventfd(0, EventfdFlags::CLOEXEC);
    let mut next = Some(&FIRST);
    while let Some(entry) = next {
        next = entry.next.get().map(|next| &**next);
        let fd = entry.fd.swap(NONE, Relaxed);
        if fd == NONE {
            continue;
        }
        // SAFETY: the number is open, for its owner takes it out of the list before closing it; the owner is never used
        // again in this process, as the caller has promised. Guarded by narufs/tests/fork_locks.rs.
        let mut shared = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
        if nothing.as_ref().is_ok_and(|nothing| dup3(nothing, &mut shared, DupFlags::CLOEXEC).is_ok()) {
            continue;
        }
        drop(ManuallyDrop::into_inner(shared));
    }
}
