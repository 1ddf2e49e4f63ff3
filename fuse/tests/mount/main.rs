//! The mount end to end, over a small file system in memory. Needs root and /dev/fuse.

#[macro_use]
#[path = "../common/transports.rs"]
mod transports;

mod ends;
mod files;
mod lone;
mod memfs;
mod serving;
mod resumed;
mod session;
mod support;
