//! How many requests common operations, and steps of programs, send to the server of a mount.
//!
//! Each [`Row`] is done `TIMES` times, in names of its own, on a mount as `narufs mount` makes it, and the
//! server's counters are read before and after. What happens once for each mount or directory happens before:
//! the kernel has been told what the server does not want to be asked, and the step has been done once.
//!
//! What it leaves to others: what the table says and whether it may change ([`report`], `reasons`), and the
//! steps themselves (`look`, `bytes`, `names`, `attributes`, `programs`).
//!
//! Invariant: a count is of requests that the step sends each time, or there is none. What something else
//! sends in between (the kernel asks for times of directories once more after a second; a machine short of
//! memory makes it forget) is no multiple of the number of times: then the row is done again.

pub mod report;

mod attributes;
mod bytes;
mod look;
mod names;
mod programs;
mod reasons;
mod scene;

use crate::lab::Ring;
use crate::place::Place;
use crate::served::{Served, transports};
use narufs_fuse::control;
use narufs_fuse::mount::Transport;
use scene::{Scene, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

/// How often a step is done.
const TIMES: usize = 20;
/// How often a row is begun anew before it is given up.
const ATTEMPTS: usize = 10;
const IMAGE_BYTES: u64 = 128 << 20;
const SLOTS: u64 = 16_384;

/// Kinds that are in no row: when the kernel forgets, and how much at once, is a matter of time; counters are
/// read by IOCTL.
const LEFT_OUT: [&str; 3] = ["FORGET", "BATCH_FORGET", "IOCTL"];

/// An operation, or a step of a program.
pub struct Row {
    /// What a reader knows it by.
    pub name: &'static str,
    /// Makes what it needs.
    made: Step,
    /// Whether the kernel has seen nothing of that.
    is_new: bool,
    /// What has been seen all the same.
    seen: Step,
    step: Step,
}

impl Row {
    /// Needs nothing.
    fn new(name: &'static str, step: Step) -> Row {
        Row { name, made: |_, _| Ok(()), is_new: false, seen: |_, _| Ok(()), step }
    }

    /// Needs what this makes.
    fn of(self, made: Step) -> Row {
        Row { made, ..self }
    }

    /// Comes after a look at it.
    fn after(self, seen: Step) -> Row {
        Row { seen, ..self }
    }

    /// Finds a kernel that has not seen what was made.
    fn unseen(self) -> Row {
        Row { is_new: true, ..self }
    }
}

/// All of them, under a heading each.
fn catalogue() -> Vec<(&'static str, Vec<Row>)> {
    vec![
        ("Looking", look::rows()),
        ("Bytes of files", bytes::rows()),
        ("Names", names::rows()),
        ("Attributes", attributes::rows()),
        ("What programs do", programs::rows()),
    ]
}

/// Requests by name.
pub type Requests = BTreeMap<String, u64>;

/// What a step sends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// By kind.
    pub sent: Requests,
    /// How many of them a caller waits for.
    pub awaited: u64,
}

impl Counts {
    /// The counters of a mount so far.
    fn so_far(mount: &Path) -> Result<Counts, String> {
        let stats = control::stats(mount).map_err(|e| format!("counters: {e}"))?;
        let stats: serde_json::Value = serde_json::from_str(&stats).map_err(|e| format!("counters: {e}"))?;
        let of = |which: &str| -> Requests {
            let kinds = stats[which].as_object().into_iter().flatten();
            let kinds = kinds.filter(|(kind, _)| !LEFT_OUT.contains(&kind.as_str()));
            kinds.map(|(kind, count)| (kind.clone(), count.as_u64().unwrap_or(0))).collect()
        };
        Ok(Counts { sent: of("requests"), awaited: of("requests_awaited").values().sum() })
    }

    /// Of one time out of [`TIMES`]; none if they were not the same each time.
    fn of_one(before: &Counts, after: &Counts) -> Option<Counts> {
        let one = |before: u64, after: u64| {
            let more = after.saturating_sub(before);
            more.is_multiple_of(TIMES as u64).then_some(more / TIMES as u64)
        };
        let mut sent = Requests::new();
        for (kind, after) in &after.sent {
            let count = one(before.sent.get(kind).copied().unwrap_or(0), *after)?;
            if count > 0 {
                sent.insert(kind.clone(), count);
            }
        }
        Some(Counts { sent, awaited: one(before.awaited, after.awaited)? })
    }
}

/// Rows in their order.
pub type Table = Vec<(&'static str, Counts)>;

/// What each row sends, however requests reach the server.
///
/// # Errors
/// Those of a row; rows that depend on the way of requests; a way that this machine does not have.
pub fn measure_each_way(under: &Path) -> Result<Table, String> {
    let [device, uring] = transports()?;
    let (table, others) = (measure(under, device)?, measure(under, uring)?);
    let differ = |(one, other): (&(&str, Counts), &(&str, Counts))| {
        (one != other).then(|| format!("{}: {:?} by /dev/fuse, {:?} over io_uring", one.0, one.1, other.1))
    };
    let odd: Vec<String> = table.iter().zip(&others).filter_map(differ).collect();
    if odd.is_empty() { Ok(table) } else { Err(odd.join("\n")) }
}

/// What each row sends, in the order of the catalogue.
///
/// # Errors
/// Of the mount or of a step; rows that never came out the same.
fn measure(under: &Path, transport: Transport) -> Result<Table, String> {
    let rows: Vec<Row> = catalogue().into_iter().flat_map(|(_, rows)| rows).collect();
    let mut found: BTreeMap<&str, Counts> = BTreeMap::new();
    for _ in 0..ATTEMPTS {
        let left: Vec<&Row> = rows.iter().filter(|row| !found.contains_key(row.name)).collect();
        if left.is_empty() {
            break;
        }
        found.extend(attempt(under, transport, &left)?);
    }
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let odd: BTreeSet<&str> = names.iter().copied().filter(|name| !found.contains_key(name)).collect();
    if !odd.is_empty() {
        return Err(format!("not the same number of requests each time: {odd:?}"));
    }
    Ok(names.into_iter().filter_map(|name| found.remove_entry(name)).collect())
}

/// One new file system; gives what was the same each time.
fn attempt(under: &Path, transport: Transport, rows: &[&Row]) -> Result<Table, String> {
    let ring = Ring::Nvm;
    let place = Place::make(under, ring, IMAGE_BYTES, SLOTS).map_err(|e| format!("mkfs: {e}"))?;
    let point = place.point();
    let about = |row: &Row, e: rustix::io::Errno| format!("{}: {e}", row.name);
    let served = Served::start_usual(&place, ring, transport)?;
    for (nth, row) in rows.iter().enumerate() {
        let scene = Scene::make(&point, nth).map_err(|e| about(row, e))?;
        if row.is_new {
            scene.each(TIMES, row.made).map_err(|e| about(row, e))?;
        }
    }
    let opened = point.join("opened");
    std::fs::write(&opened, "").map_err(|e| format!("a file to open: {e}"))?;
    served.stop()?;

    let served = Served::start_usual(&place, ring, transport)?;
    // Until an OPEN has been refused, files that were made are released by a request.
    File::open(&opened).map_err(|e| format!("the first open: {e}"))?;
    let mut found = Vec::new();
    for (nth, row) in rows.iter().enumerate() {
        let scene = Scene::open(&point, nth).map_err(|e| about(row, e))?;
        if !row.is_new {
            scene.each(TIMES, row.made).map_err(|e| about(row, e))?;
        }
        scene.each(TIMES, row.seen).map_err(|e| about(row, e))?;
        (row.step)(&scene, 0).map_err(|e| about(row, e))?;
        // The first time the kernel may ask about the mount's root, by whose name the counters are found.
        Counts::so_far(&point)?;
        let before = Counts::so_far(&point)?;
        for n in 1..=TIMES {
            (row.step)(&scene, n).map_err(|e| about(row, e))?;
        }
        found.extend(Counts::of_one(&before, &Counts::so_far(&point)?).map(|counts| (row.name, counts)));
    }
    served.stop()?;
    Ok(found)
}
