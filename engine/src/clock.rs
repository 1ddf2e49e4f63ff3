//! The clock that the age of promises is measured with: it never goes back. Tests move a clock of their own.

use std::time::Instant;

use crate::sync::{Arc, Counter, OnceLock};

/// Nanoseconds since some moment; never 0.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    moved: Option<Arc<Counter>>,
}

impl Clock {
    /// A clock that shows what was added to `counter`.
    pub fn moved_by(counter: Arc<Counter>) -> Clock {
        Clock { moved: Some(counter) }
    }

    /// The time.
    pub fn now(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        match &self.moved {
            Some(counter) => counter.get() + 1,
            None => START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1,
        }
    }
}
