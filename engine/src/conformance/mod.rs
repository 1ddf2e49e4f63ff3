//! What each seam of the engine promises, as tests that every implementation runs: `check` of [`device`], [`journal`]
//! and [`file_lock`].
//!
//! Compiled for tests and under the feature `sim`, so that implementations outside the engine are held by them too.

pub mod device;
pub mod file_lock;
pub mod journal;
