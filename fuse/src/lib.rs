//! The mount of narufs: the FUSE protocol of the kernel, spoken directly.

#![deny(unsafe_code)]

pub mod operations;
pub mod session;
mod sys;
pub mod transport;
pub mod types;
pub mod wire;
