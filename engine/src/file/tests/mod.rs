//! The data path over a model of metadata and a device that can fail and lose what was not flushed.

mod absorbed;
mod content;
mod crash;
mod faults;
mod in_hands;
mod lossy;
pub(super) mod model;
mod mounted;
mod overlapping;
mod pressure;
mod read_only;
mod replaced;
mod streaming;
mod together;
