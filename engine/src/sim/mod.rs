//! Simulated media: a device and persistent memories whose every event is logged, so that a test can ask what
//! a crash at any point would have left.
//!
//! One [`SimMedia`] owns one global log, in which the events of its device and of all its persistent memories
//! stand in the order they happened: both clocks at once. [`SimMedia::crash_points`] walks the log; each
//! [`CrashPoint`] enumerates the [`CrashState`]s that its pending writes and stores allow; each state restarts
//! as new media, on which recovery runs and may crash again.
//!
//! What the model grants, and nothing more:
//! - a device write is on media once a flush that began after its completion has ended; until then each of
//!   its 512-byte sectors may be there or not, whatever other writes did, and of several pending writes to
//!   one sector any may have come last;
//! - a store to persistent memory is on media once its line was written back after it and the same thread
//!   fenced after that; until then the line may hold any state it passed through since, in steps of the
//!   eight-byte words that were stored;
//! - a killed process leaves all its stores (the last one perhaps cut short between two words) and all its
//!   completed writes; its writes in flight may be done or not.
//!   What was not flushed remains unflushed for the next process;
//! - a write that failed shows readers as much of it as a test says, and a crash any of its sectors, until they are
//!   written again; a read that failed leaves in its buffer what no one wrote;
//! - a discarded block reads as a pattern that no one wrote, so that nobody relies on it.
//!
//! Compiled for tests and under the feature `sim`.

mod crash;
mod device;
mod frontier;
mod image;
mod media;
mod plan;
mod pmem;
#[cfg(test)]
mod tests;

pub use crash::{Crash, CrashPoint, CrashState, CrashStates, Left};
pub use device::SimDevice;
pub use media::{CrashPoints, Event, Failure, Fault, PmemSpec, SimMedia};
pub use pmem::SimPmem;
