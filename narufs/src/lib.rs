//! narufs, the library: a crash-consistent, multi-core-scalable file system inside a process.

pub use narufs_engine::path::File;
pub use narufs_engine::path::OpenOptions;
pub use narufs_engine::{Error, Files, FormatOptions, Fs, MountOptions, Result, ScratchOptions, format};

#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
pub struct Readme;
