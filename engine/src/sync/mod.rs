//! The one place that chooses between the real synchronisation primitives and those of a model checker.
//!
//! Everything in the engine that threads share goes through this module, so that models check the production
//! types themselves. `--cfg loom` selects loom, `--cfg shuttle` selects shuttle, nothing selects the atomics and threads of the
//! standard library and the locks of parking_lot:
//!
//! ```text
//! RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/as-loom    cargo test -p narufs-engine --profile proof --lib loom_
//! RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/as-shuttle cargo test -p narufs-engine --profile proof --lib shuttle_
//! ```
//!
//! loom tries every interleaving and every value a load may see, but treats SeqCst accesses as AcqRel (its
//! SeqCst *fences* are true ones), so what needs a total order here uses fences. shuttle tries random
//! schedules, sequentially consistent, and so takes larger models.
//!
//! Locks have parking_lot's interface (no poisoning, a condition variable borrows the guard). They spin
//! briefly, then call [`crate::blocking::about_to_block`], then sleep: there may be far more threads than
//! cores. What is not replaced under a model checker: [`Arc`] and [`OnceLock`] (the models take them as
//! correct; a `OnceLock` initialiser must not block) and [`Counter`], which carries no protocol.

mod counter;
mod futex;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, loom))]
mod loom_readers;
mod margin;
#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod native;
mod readers;
mod rounds;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod wait_queue;

pub use counter::{Counter, Gauge, LaneCounter};
pub use margin::Margin;
pub use readers::{Grace, Readers, Reading};
pub use rounds::Rounds;
pub use wait_queue::WaitQueue;

pub use crossbeam_utils::CachePadded;
pub use std::sync::{Arc, OnceLock, Weak};

#[cfg(any(loom, shuttle))]
pub use model::*;
#[cfg(not(any(loom, shuttle)))]
pub use native::*;

#[cfg(loom)]
pub use loom::{hint, sync::atomic, thread, thread_local};
#[cfg(shuttle)]
pub use shuttle::{hint, sync::atomic, thread, thread_local};
#[cfg(not(any(loom, shuttle)))]
pub use std::{hint, sync::atomic, thread, thread_local};

/// Cores that this process may run on, found once.
pub fn available_cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, Into::into))
}

/// How often a waiter looks before it sleeps. A model checker gains nothing from a spin.
pub(crate) const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };

/// Spins until `ready` holds, for a short while at most; says whether it held.
pub(crate) fn spin(mut ready: impl FnMut() -> bool) -> bool {
    for _ in 0..SPINS {
        if ready() {
            return true;
        }
        hint::spin_loop();
    }
    false
}
