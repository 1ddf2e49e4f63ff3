//! What must be there of the stores of mail (testing/machines/loads/mail.py, whose `judge` says the same of a mount).
//!
//! Each process has one, of three boxes of Maildir. Operations take turns: a message is delivered (through tmp to new), that of
//! `SEEN` before is marked as seen (new to cur), that of `KEEP` before is removed; each ends with the sync of the directory
//! in which names have changed. Each changes which names are there, so they say how many there were.

use super::acked::{Allowed, Found};
use super::oracle::{KEEP, content};
use crate::model::Tree;
use std::collections::BTreeSet;

/// Boxes of each process.
const BOXES: u64 = 3;
/// Messages that are not seen yet.
const SEEN: u64 = 3;

/// The messages of a process after so many operations: number, and path below the process' directory.
pub(super) fn messages(last: u64) -> impl Iterator<Item = (u64, String)> {
    let (delivered, seen, removed) = (KEEP + last.div_ceil(3), KEEP - SEEN + (last + 1) / 3, last / 3);
    (removed + 1..=delivered).map(move |message| {
        let name = if message <= seen { format!("cur/{message}:2,S") } else { format!("new/{message}") };
        (message, format!("box{}/{name}", message % BOXES))
    })
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
    let files = tree.range(here.clone()..).take_while(|(path, _)| path.starts_with(&here));
    let files = files.filter(|(_, shown)| shown.mode & libc::S_IFMT == libc::S_IFREG);
    let names: BTreeSet<&str> = files.map(|(path, _)| &path[here.len()..]).collect();
    let (left, there): (BTreeSet<&str>, BTreeSet<&str>) =
        names.iter().partition(|name| name.contains("/tmp/"));
    let number = |name: &&str| name.rsplit('/').next()?.split(':').next()?.parse::<u64>().ok();
    let turns = there.iter().filter_map(number).max().unwrap_or(0).saturating_sub(KEEP);
    let fits = |last: &u64| {
        let wanted: BTreeSet<String> = messages(*last).map(|(_, name)| name).collect();
        wanted.iter().eq(there.iter())
    };
    let last = ((3 * turns).saturating_sub(2)..=3 * turns).find(fits);
    let last = last.ok_or_else(|| format!("there is {there:?}, which no operation leaves"))?;
    for (message, name) in messages(last) {
        if tree[&format!("{here}{name}")].data != content(process, message) {
            return Err(format!("{name} of {last} has another content"));
        }
    }
    // A delivery that is under way: of the next message, or of one that is in new as well.
    let under_way = match last % 3 {
        0 => Some(KEEP + turns + 1),
        1 if last > acked => Some(KEEP + turns),
        _ => None,
    };
    let may_be_left = under_way.map(|message| format!("box{}/tmp/{message}", message % BOXES));
    match left.iter().find(|name| may_be_left.as_deref() != Some(**name)) {
        Some(name) => Err(format!("{name} is left after {last} operations")),
        None => Ok(last),
    }
}
