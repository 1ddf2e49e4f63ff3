//! An end to reading that does not come from the kernel.
//!
//! Where nothing can cut a connection off (the control file system of FUSE cannot be reached, and unmounting by
//! `fusermount3` leaves it to those who still use the mount), it ends when its last descriptor is closed. Their readers wait
//! in the kernel, which tells them nothing of that: so they wait for this as well, and let the descriptors go when it comes.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// One for all descriptors of a mount.
#[derive(Debug)]
pub struct Ending {
    has_come: AtomicBool,
    /// Can be read from when it has come.
    wake: OwnedFd,
}

impl Ending {
    /// It is yet to come.
    pub fn new() -> io::Result<Ending> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Ending { has_come: AtomicBool::new(false), wake })
    }

    /// It comes.
    pub fn come(&self) {
        // Release, with the Acquire below: readers see what was done before.
        self.has_come.store(true, Ordering::Release);
        // What keeps it from being written is that it was, so often that no more goes in.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Whether it has.
    pub fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Acquire)
    }

    /// Waits for it, or until there is something to be read.
    pub fn or_readable(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut either =
            [PollFd::from_borrowed_fd(fd, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
        match poll(&mut either, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}
