//! What operations are done on: the library, or a directory of any file system.

use crate::model::{Outcome, Tree};
use crate::op::Op;

/// In nanoseconds since 1970, later than any time that operations set and earlier than this run.
pub(crate) const RECENT: i64 = 1_600_000_000_000_000_000;

/// A file system under test.
pub trait Target {
    /// Does an operation as uid 0.
    fn apply(&mut self, op: &Op) -> Outcome;
    /// Reads everything there is to see.
    ///
    /// # Errors
    /// The first errno that a call answered, with what was being done.
    fn tree(&mut self) -> Result<Tree, String>;
}

/// Compares what a target shows with what the model shows; the error names the first difference.
///
/// # Errors
/// One line that names path and member.
pub fn compare(model: &Tree, shown: &Tree) -> Result<(), String> {
    for (path, want) in model {
        let Some(got) = shown.get(path) else { return Err(format!("{path} is missing")) };
        let numbers = [
            ("mode", want.mode, got.mode),
            ("nlink", want.nlink, got.nlink),
            ("uid", want.uid, got.uid),
            ("gid", want.gid, got.gid),
            ("device number", want.rdev, got.rdev),
        ];
        for (what, want, got) in numbers {
            if want != got {
                return Err(format!("{path}: {what} is {got:o} (octal), expected {want:o}"));
            }
        }
        if want.data.len() != got.data.len() {
            return Err(format!("{path}: {} bytes, expected {}", got.data.len(), want.data.len()));
        }
        if want.data != got.data
            && let Some(at) = want.data.iter().zip(&got.data).position(|(a, b)| a != b)
        {
            return Err(format!("{path}: byte {at} is {:#x}, expected {:#x}", got.data[at], want.data[at]));
        }
        if want.xattrs != got.xattrs {
            return Err(format!("{path}: attributes {:?}, expected {:?}", got.xattrs, want.xattrs));
        }
        if want.times.is_some() && want.times != got.times {
            return Err(format!("{path}: times {:?}, expected {:?}", got.times, want.times));
        }
        if want.touched && got.times.is_none_or(|(_, mtime)| mtime < RECENT) {
            return Err(format!("{path}: times {:?}, though it was changed in this run", got.times));
        }
        if want.same_as != got.same_as {
            return Err(format!("{path}: linked with {}, expected {}", got.same_as, want.same_as));
        }
    }
    match shown.keys().find(|p| !model.contains_key(*p)) {
        Some(extra) => Err(format!("{extra} should not be there")),
        None => Ok(()),
    }
}
