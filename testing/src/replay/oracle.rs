//! What must be there of the load of testing/machines/load.py, whose `judge` says the same of a mount.
//!
//! Of each process operation N writes and syncs a file, renames it to N, appends N to a log, syncs that, removes the file
//! of [`KEEP`] operations before, syncs the directory. Judged by the largest name that is there, for names change in their
//! order: the files before it, whole; the log, but for its last lines; none that was removed by then.

use super::states::Event;
use crate::demand;
use crate::model::Tree;
use crate::outlive::Outcome;
use std::ops::RangeInclusive;

/// Processes of the load.
pub const PROCESSES: usize = 2;
/// Files of each.
pub const KEEP: u64 = 8;
/// Bytes of a line of the log.
const LINE: usize = 16;

/// The last operation of each process that was acknowledged; 0 once it has begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acked([Option<u64>; PROCESSES]);

impl Acked {
    /// Counts what an event tells.
    pub fn hear(&mut self, event: &Event) {
        if let Event::Acknowledged { process, number } = event
            && let Some(last) = self.0.get_mut(*process)
        {
            *last = Some(*number);
        }
    }

    /// Whether all processes have begun: before, there is nothing to be found.
    pub fn has_begun(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }

    /// The processes, with their last; 0 if there is none.
    pub fn each(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().map(|last| last.unwrap_or(0)).enumerate()
    }

    /// Operations of all.
    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }
}

/// What a sector of the load tells.
///
/// # Errors
/// Nothing that the load would.
pub fn told(sector: &[u8]) -> Outcome<Event> {
    let line = sector.split(|b| *b == b'\n').next().unwrap_or_default();
    let text = std::str::from_utf8(line)?;
    let event = match text.split(' ').collect::<Vec<_>>()[..] {
        ["ack", process, number] => {
            Event::Acknowledged { process: process.parse()?, number: number.parse()? }
        }
        _ => return Err(format!("a sector behind the file system says {text:?}").into()),
    };
    let known = matches!(event, Event::Acknowledged { process, .. } if process < PROCESSES);
    demand!(known, "the load has {PROCESSES} processes, a sector says {text:?}");
    Ok(event)
}

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

/// Judges what is there.
///
/// # Errors
/// What contradicts what was acknowledged, in words.
pub fn judge(tree: &Tree, acked: &Acked) -> Result<(), String> {
    acked.each().try_for_each(|(process, acked)| judge_one(tree, process, acked))
}

fn judge_one(tree: &Tree, process: usize, acked: u64) -> Result<(), String> {
    let here = format!("/d{process}/");
    let names = tree.range(here.clone()..).take_while(|(path, _)| path.starts_with(&here));
    let mut there: Vec<u64> = names.filter_map(|(path, _)| path[here.len()..].parse().ok()).collect();
    there.sort_unstable();
    let last = there.last().copied().unwrap_or(0);
    let told = |what: String| {
        format!("process {process}, of {acked} operations acknowledged {last} are there: {what}")
    };
    let fail = |what: String| Err(told(what));
    if last < acked {
        return fail("an operation is lost".into());
    }
    let wanted: Vec<u64> = (last.saturating_sub(KEEP - 1).max(1)..=last).collect();
    // The removal is the last step but one of an operation.
    let before = (last > acked && last > KEEP).then(|| last - KEEP);
    if there != wanted && there != before.into_iter().chain(wanted.iter().copied()).collect::<Vec<_>>() {
        return fail(format!("there is {there:?}, where {wanted:?} should be"));
    }
    for number in there {
        if tree[&format!("{here}{number}")].data != content(process, number) {
            return fail(format!("file {number} has another content"));
        }
    }
    // An operation's name comes before its line is synced.
    let synced = acked.max(last.saturating_sub(1));
    let lines = tree.get(&format!("{here}log")).map_or(&[][..], |log| &log.data);
    let whole = log(1..=synced);
    if !lines.starts_with(&whole) {
        return fail(format!("its log, of {} bytes, is not that of {synced} operations", lines.len()));
    }
    if lines.len() > (last as usize + 1) * LINE {
        return fail(format!("its log has {} bytes", lines.len()));
    }
    Ok(())
}
