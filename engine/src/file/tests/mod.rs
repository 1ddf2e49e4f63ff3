//! The data path over small images on a device that can fail and lose what was not flushed.

mod absorbed;
mod batches;
mod content;
mod crash;
mod faults;
pub(super) mod image;
mod lossy;
mod mounted;
mod overlapping;
mod pressure;
mod read_only;
mod recorded_meanwhile;
mod replaced;
mod reused;
mod streaming;
mod under_write_back;
