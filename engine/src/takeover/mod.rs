//! What a process that serves a mount shares with its successor: memory that outlives it.
//!
//! A server may be killed at any instruction; a process that only keeps descriptors then starts another one, which maps
//! the same memory and goes on. What lies there is what neither the image nor the journal has, and what a caller may
//! have seen or may be waiting for:
//! - [`requests`]: a slot for each request in service, and what is known of its outcome;
//! - [`inodes`]: size and times of files that run ahead of the journal, and truncations that are pending;
//! - the frames of the page cache, and of each what page of which file it holds (`crate::cache`);
//! - [`homes`]: pages in place that are newer than what the journal would put there;
//! - [`notices`]: what the kernel is still to be told;
//! - [`unrecalled`]: of which files it may have pages older than a write that was answered;
//! - `flushes`: that a flush of the device has failed;
//! - what was agreed on with the kernel, which it says once ([`Takeover::session`]), counts of the mount's life
//!   ([`life`]), and which image it is of, and as which mount of that (`image`).
//!
//! What this leaves to others: what any of it means. Who keeps the descriptor and starts the successor is the command's.
//!
//! # Protocol
//! 1. One process at a time maps the memory for use: the successor begins when its predecessor is gone, and the locks of
//!    image and journal, which it takes first, say so.
//! 2. Stores of a process that was killed are all there, in the order in which they were made, up to some instruction.
//!    So each slot is filled before the word that makes it count is stored (Release, which keeps the compiler in order
//!    too), and that word is cleared before anything else of it changes.
//! 3. The memory is as hostile as an image: the predecessor may have died of the very fault that spoilt it. Numbers are
//!    checked against bounds before they are used, and what does not fit is left out and said.
//!
//! # Invariants
//! Offsets and sizes follow from the counts in the header, which is checked against the file's size; the file cannot
//! shrink (it is sealed, or nobody else can reach it), so no access raises SIGBUS.

mod backing;
mod flushes;
pub mod homes;
mod image;
pub mod inodes;
mod layout;
pub mod life;
mod memory;
pub mod notices;
mod region;
pub mod requests;
#[cfg(test)]
pub(crate) mod testing;
pub mod unrecalled;

pub(crate) use inodes::undecided;
pub(crate) use requests::is_decisive;

pub use homes::{Homes, NewerHome};
pub(crate) use image::IMAGE_WORDS;
pub use inodes::{Inodes, KeptInode, KeptSlot};
pub use life::{LeftCounts, Life, Phase, PhaseCounts, now};
pub use memory::{SESSION_BYTES, Takeover};
pub use notices::{MOST_NOTICES, Notices};
pub use region::FrameRegion;
pub use requests::{Entered, Left, Requests, Taken};
pub use unrecalled::{MOST_UNRECALLED, Unrecalled};

/// Asks the kernel what it holds.
pub trait Prober: Send + Sync {
    /// Whether the kernel has an inode of this number. An error of the asking counts as yes: what is held in vain is
    /// freed by the next mount, what is freed in vain is lost.
    fn kernel_holds(&self, nid: u64) -> bool;
}

/// A record of this thread's has this position, and is not persistent yet: what the record decides is noted.
#[inline]
pub(crate) fn reserved(epoch: u64, position: u64) {
    requests::reserved(epoch, position);
    inodes::reserved(epoch, position);
}
