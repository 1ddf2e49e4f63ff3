//! Crash enumeration: sequences of operations on simulated media, crashed at their events, recovered, judged.
//!
//! A [`Bench`] is one ring, one kind of crash and one starting tree. A sequence runs on a copy of the start, by
//! one thread and without background work, so that its events follow from the operations alone. At a crash
//! point, each enumerated state is recovered as a new process would; what it shows goes before the oracle;
//! then the image is unmounted, checked, mounted again and must show the same. Of some states the recovery
//! itself is crashed once more, by the end of the process and by a loss of power; some go on with other
//! operations and are crashed in them; some images are filled, emptied and counted.
//!
//! # Which states
//! The media say which units a crash may have left (see [`narufs_engine::sim::CrashPoint::states`]): all subsets of up
//! to ten units; of more none, all, each alone, each missing, and 200 sampled ones; all prefixes; cuts at the
//! grain of the media. Between two events that take states away (a flush ends, a fence, a write ends before a
//! kill) or change what is promised (an operation returns), what a crash may leave only grows: the last point
//! holds the states of all before it, so it stands for them. After it, until something is added, what a crash may
//! leave only shrinks: those points it stands for as well.
//!
//! [`Effort::FULL`] takes every such point and every state of it; [`Effort::SAMPLE`] a few of each.

mod bench;
mod catalogue;
mod effort;
mod judge;
mod known;
mod parts;

pub use bench::Bench;
pub use catalogue::{operations, setup};
pub use effort::{Effort, Tally};
pub use known::Known;
pub use parts::Writers;
