//! The end of a server, for the tests of what it leaves.

use super::Takeover;
use std::sync::Arc;

/// As the next process finds it. What the one before has in memory of its own is to be forgotten, not dropped: who is killed
/// gives nothing back.
pub(crate) fn killed(memory: &Takeover) -> Arc<Takeover> {
    Takeover::adopt(memory.descriptor().try_clone_to_owned().expect("a descriptor")).expect("it is there")
}
