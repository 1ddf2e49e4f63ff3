//! What must be there of the load of files (testing/machines/loads/files.py, whose `judge` says the same of a mount).
//!
//! Of each process operation N writes and syncs a file, renames it to N, appends N to a log, syncs that, removes the file
//! of [`KEEP`] operations before, syncs the directory. Judged by the largest name that is there, for names change in their
//! order: the files before it, whole; the log, but for its last lines; none that was removed by then.

use super::acked::{Allowed, Found};
use crate::model::Tree;
use std::ops::RangeInclusive;

/// Files of each process.
pub const KEEP: u64 = 8;
/// Bytes of a line of the log.
const LINE: usize = 16;

/// The bytes of a file.
pub fn content(process: usize, number: u64) -> Vec<u8> {
    let size = 1 + (number as usize * 7919 + process * 104_729) % 40_000;
    let lines = (0..=size / 64).map(|i| format!("{:<63}\n", format!("{process} {number} {i}")));
    let mut bytes: Vec<u8> = lines.flat_map(String::into_bytes).collect();
    bytes.truncate(size);
    bytes
}

/// The log of the first operations.
pub fn log(numbers: RangeInclusive<u64>) -> Vec<u8> {
    numbers.flat_map(|n| format!("{n:015}\n").into_bytes()).collect()
}

/// What is there of so many operations.
pub fn kept(last: u64) -> RangeInclusive<u64> {
    last.saturating_sub(KEEP - 1).max(1)..=last
}

/// Judges what is there: the last operation of each process.
///
/// # Errors
/// What contradicts what was acknowledged, in words.
pub fn judge(tree: &Tree, allowed: &Allowed) -> Result<Found, String> {
    allowed.each(|process, allowed| judge_one(tree, process, *allowed.start()))
}

fn judge_one(tree: &Tree, process: usize, acked: u64) -> Result<u64, String> {
    let here = format!("/d{process}/");
    let names = tree.range(here.clone()..).take_while(|(path, _)| path.starts_with(&here));
    let mut there: Vec<u64> = names.filter_map(|(path, _)| path[here.len()..].parse().ok()).collect();
    there.sort_unstable();
    let last = there.last().copied().unwrap_or(0);
    if last < acked {
        return Ok(last);
    }
    let wanted: Vec<u64> = kept(last).collect();
    // The removal is the last step but one of an operation.
    let before = (last > acked && last > KEEP).then(|| last - KEEP);
    if there != wanted && there != before.into_iter().chain(wanted.iter().copied()).collect::<Vec<_>>() {
        return Err(format!("there is {there:?}, where {wanted:?} should be"));
    }
    for number in there {
        if tree[&format!("{here}{number}")].data != content(process, number) {
            return Err(format!("file {number} of {last} has another content"));
        }
    }
    // An operation's name comes before its line is synced.
    let synced = acked.max(last.saturating_sub(1));
    let lines = tree.get(&format!("{here}log")).map_or(&[][..], |log| &log.data);
    let whole = log(1..=synced);
    if !lines.starts_with(&whole) {
        return Err(format!("its log, of {} bytes, is not that of {synced} operations", lines.len()));
    }
    if lines.len() > (last as usize + 1) * LINE {
        return Err(format!("its log has {} bytes after {last} operations", lines.len()));
    }
    Ok(last)
}
