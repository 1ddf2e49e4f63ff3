//! The benchmark: the workloads of the papers that narufs joins, on any file system, from one load generator.
//!
//! A [`workload`] is written once over [`target::Session`], the calls that one thread makes. [`target`] has two
//! of them: a directory through the kernel, and the engine in this process. [`load`] runs the threads and takes
//! the time, [`meter`] reads what the media, the processors and the journal did meanwhile, [`check`] brings the
//! target back from its media and compares, [`killed`] does so for the engine in a process that it kills, [`record`] is
//! what comes out. [`run`] ties them together; [`compare`] does so for one file system after the other.
//!
//! [`daily`] is everyday work, which real programs do on a directory in the place of the load generator.
//!
//! [`locks`] are range locks of the literature, for `cargo bench -p narufs-bench --bench range_locks` alone;
//! [`journal`] is what `--bench journal` measures, [`checkpoint`] what `--bench checkpoint` does.
//!
//! What one operation of each workload is, and why a row counts: docs/BENCH.md.
//!
//! A build for loom has the lanes of [`journal`] alone, whose models it is for.

#[cfg(not(loom))]
pub mod check;
#[cfg(not(loom))]
pub mod checkpoint;
#[cfg(not(loom))]
pub mod compare;
#[cfg(not(loom))]
pub mod content;
#[cfg(not(loom))]
pub mod daily;
#[cfg(not(loom))]
pub mod error;
pub mod journal;
#[cfg(not(loom))]
pub mod killed;
#[cfg(not(loom))]
pub mod load;
#[cfg(not(loom))]
pub mod locks;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
pub mod meter;
#[cfg(not(loom))]
pub mod params;
#[cfg(not(loom))]
pub mod pin;
#[cfg(not(loom))]
pub mod progress;
#[cfg(not(loom))]
pub mod record;
#[cfg(not(loom))]
pub mod run;
#[cfg(not(loom))]
pub mod stats;
#[cfg(not(loom))]
pub mod stop;
#[cfg(not(loom))]
pub mod target;
#[cfg(not(loom))]
pub mod workload;

#[cfg(not(loom))]
pub use error::{Error, Result};
#[cfg(not(loom))]
pub use params::Params;
#[cfg(not(loom))]
pub use record::Record;
#[cfg(not(loom))]
pub use run::{Plan, run};
