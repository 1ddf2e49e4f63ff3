//! How requests reach the server and replies the kernel.
//!
//! [`Port`] is the seam: one core's way to the kernel. [`device`] is the port over `/dev/fuse`, [`uring`] the one
//! over io_uring, and nothing above them differs. [`lane`] runs the threads of one core, whatever the port.
//! `buffers` are where requests lie, and [`reply`] makes sure that each request is answered exactly once. [`focus`] decides which lanes read where they
//! share a queue, [`beside`] on which side of a lone client it is served faster, and [`awake`] keeps idle cores from
//! halting meanwhile. [`latency`] measures how long requests take, and [`ending`] ends it all where the kernel does not.
//!
//! What this leaves to others: what a request means (`session`), and how the descriptor came about (`mount`).
//!
//! Invariants: a reply leaves through the port that delivered its request (the kernel looks it up there);
//! at most one thread of a lane waits in [`Port::receive`].

pub mod awake;
pub mod beside;
mod buffers;
pub mod device;
pub mod ending;
pub mod focus;
pub mod lane;
pub mod latency;
pub mod reply;
pub mod uring;

pub use lane::{Lane, LaneConfig};
pub use reply::{Reply, ReplyHandle};

use crate::wire::{Opcode, RequestParts};
use latency::Latencies;
use narufs_engine::blocking::Deep;
use std::io;
use std::sync::Arc;

/// The way back to the kernel.
pub trait Channel: Send + Sync {
    /// Sends one message: the reply to `unique` with `error` 0 or minus an errno, or with `unique` 0 the
    /// notification of code `error`. It is one message even if it has many parts. An error means that the
    /// kernel did not take it: the caller died, or the mount is gone.
    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()>;

    /// As [`Channel::send`], but any thread that passes the message on may sleep: true if it has to be woken, see
    /// [`Channel::wake`].
    fn post(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<bool> {
        self.send(unique, error, parts).map(|()| false)
    }

    /// Has what was posted passed on.
    fn wake(&self) {}

    /// Where the times of the requests that it answers are noted, if anywhere.
    fn latencies(&self) -> Option<&Arc<Latencies>> {
        None
    }
}

/// One core's way to the kernel.
pub trait Port: Channel + 'static {
    /// What one request lies in, and its reply is built in. Each thread has one.
    type Slot;

    /// Makes a slot.
    fn slot(&self) -> Self::Slot;

    /// Waits for the next request. False: the mount is gone, no request will come any more.
    fn receive(&self, slot: &mut Self::Slot) -> io::Result<bool>;

    /// Whether [`Port::look`] works.
    fn can_look(&self) -> bool {
        false
    }

    /// As [`Port::receive`], but `None` if no request is there yet. To be called only if [`Port::can_look`].
    fn look(&self, slot: &mut Self::Slot) -> io::Result<Option<bool>> {
        self.receive(slot).map(Some)
    }

    /// The request received last is about to be served, while so many sleep: it may be moved, to take no more than it is.
    fn settle(&self, _: &mut Self::Slot, _asleep: usize) {}

    /// The thread of this slot has been replaced as the reader, and its request is over.
    fn rest(&self, _: &mut Self::Slot) {}

    /// Whether the thread of this slot must not end before the mount is gone.
    fn keeps(&self, _: &Self::Slot) -> bool {
        false
    }

    /// What makes the calls of this slot's thread that wait for a device, if it must not wait there.
    fn deep(self: &Arc<Self>, _: &Self::Slot) -> Option<Deep> {
        None
    }

    /// Nobody receives any more.
    fn end(&self) {}

    /// The request received last, if it is whole, and if [`has_buffer`] a buffer of at least what it asks for.
    fn open<'s>(&'s self, slot: &'s mut Self::Slot) -> (Option<RequestParts<'s>>, &'s mut [u8]);
}

/// Whether the reply to this operation is built in a buffer.
pub fn has_buffer(opcode: u32) -> bool {
    matches!(Opcode::from_number(opcode), Some(Opcode::Read | Opcode::Readdir | Opcode::Readdirplus))
}

/// What serves the requests.
pub trait Service: Send + Sync + 'static {
    /// Serves one request, on the thread that received it. A thread that is about to sleep in here must say so by
    /// [`narufs_engine::blocking::about_to_block`]; the lane's other threads then serve what comes next.
    fn serve(&self, request: RequestParts<'_>, reply: Reply<'_>);
}
