//! What machines with more cores would do, by the costs that are measured on this one.
//!
//! A simulation of discrete events ([`events`]): threads, each on a core of its own, go through the steps of an operation
//! ([`script`]): work, lines that they share, locks, batches that are committed together, requests to a device with
//! channels. [`machine`] says what a line costs between two cores; [`papers`] has what was published, and sets the model
//! beside it.
//!
//! What it leaves out: bandwidth of memory, the scheduler, and everything that no step names. Where it misses a published
//! figure, that is shown and not mended.

pub mod events;
pub mod machine;
pub mod papers;
pub mod script;
