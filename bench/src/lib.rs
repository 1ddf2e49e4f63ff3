//! The benchmark: the workloads of the papers that narufs joins, on any file system, from one load generator.
//!
//! A [`workload`] is written once over [`target::Session`], the calls that one thread makes. [`target`] has two
//! of them: a directory through the kernel, and the engine in this process. [`load`] runs the threads and takes
//! the time, [`meter`] reads what the media, the processors and the journal did meanwhile, [`check`] brings the
//! target back from its media and compares, [`killed`] does so for the engine in a process that it kills, [`record`] is
//! what comes out. [`run()`] ties them together; [`compare`] does so for one file system after the other.
//!
//! [`daily`] is everyday work, which real programs do on a directory in the place of the load generator.
//!
//! What one operation of each workload is, and why a row counts: docs/BENCH.md.

pub mod check;
pub mod compare;
pub mod content;
pub mod daily;
pub mod error;
pub mod killed;
pub mod load;
mod memory;
pub mod meter;
pub mod params;
pub mod pin;
pub mod progress;
pub mod record;
pub mod run;
pub mod stats;
pub mod stop;
pub mod target;
pub mod workload;

pub use error::{Error, Result};
pub use params::Params;
pub use record::Record;
pub use run::{Plan, run};
