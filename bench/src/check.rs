//! After the time: everything is synced, the target is brought back from its media, and what is there is compared
//! with what the threads did.
//!
//! A directory is as good as what brings it back: without help it is only synced. What this leaves to others: what
//! must be there (`workload`), and the library, whose process is killed (`killed`).

use crate::Result;
use crate::record::Check;
use crate::target::Target;
use crate::workload::{Seen, Workload};
use std::time::Instant;

/// Brings the target back and compares. No session is alive.
pub fn check<T: Target, W: Workload<T::Session>>(
    target: &mut T,
    workload: &W,
    left: &[W::Left],
) -> Result<Check> {
    brought_back(target, |target| workload.check(left, &mut target.session()?))
}

/// Brings the target back, and has what is there compared. No session is alive.
pub fn brought_back<T: Target>(
    target: &mut T,
    compare: impl FnOnce(&mut T) -> Result<Seen>,
) -> Result<Check> {
    let begin = Instant::now();
    target.sync_all()?;
    let reopened = target.reopen()?;
    let back = Instant::now();
    let seen = compare(target)?;
    Ok(Check {
        reopened,
        reopen_s: (back - begin).as_secs_f64(),
        compare_s: back.elapsed().as_secs_f64(),
        files: seen.files,
        bytes: seen.bytes,
    })
}
