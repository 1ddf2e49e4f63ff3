//! The mount of narufs: the FUSE protocol of the kernel, spoken directly.

pub mod wire;
