//! Whether a panic breaks an operation off.
//!
//! A guard that is dropped while its thread panics cannot tell from that alone: destructors of a program run while a
//! panic unwinds it, and what they do here comes to its end as ever. So a guard knows how it began. A panic of ours within such
//! a destructor is beyond that: it ends the process, unless the destructor itself catches it.

use std::thread::panicking;

/// Made when a guard begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unwinding {
    had_begun: bool,
}

impl Unwinding {
    /// From now on.
    pub fn watch() -> Unwinding {
        Unwinding { had_begun: panicking() }
    }

    /// Whether a panic has begun since.
    pub fn has_begun(&self) -> bool {
        panicking() && !self.had_begun
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    #[test]
    fn a_panic_counts_that_began_within() {
        struct Guard<'a>(Unwinding, &'a mut Vec<bool>);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                // Of a destructor of a program.
                let within = Unwinding::watch();
                self.1.extend([self.0.has_begun(), within.has_begun()]);
            }
        }
        let mut seen = Vec::new();
        drop(Guard(Unwinding::watch(), &mut seen));
        let panic = AssertUnwindSafe(|| {
            let _guard = Guard(Unwinding::watch(), &mut seen);
            resume_unwind(Box::new(()));
        });
        assert!(catch_unwind(panic).is_err());
        assert_eq!(seen, [false, false, true, false]);
    }
}
