//! What the load of a record has told, and what a loss of power may leave of that.
//!
//! With `durability=power` an operation that has returned is there, and of each process at most one more. With a window the
//! state may be that of an earlier moment, of one for all processes, and the first answer that is lost and the last one that was
//! given are less than the window apart (docs/CONSISTENCY.md, sentence 12). The record has no times, so the load tells when
//! the last sync of an operation began and ended: the answer came between. Hence an operation may be lost only if its sync
//! ended at most the window before the last sync of all began. With `process` any earlier moment will do.

use super::states::Event;
use crate::demand;
use crate::outlive::Outcome;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Processes of the load.
pub const PROCESSES: usize = 2;

/// What the mount promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// What has returned is there.
    Power,
    /// The state is at most so many microseconds old.
    Window(u64),
    /// The state is that of some moment.
    Process,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        let unit = |value: &str, unit: &str, micros: u64| {
            value.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(micros).map(Durability::Window)
        };
        let window = |value: &str| unit(value, "ms", 1000).or_else(|| unit(value, "s", 1_000_000));
        match text {
            "power" => Ok(Durability::Power),
            "process" => Ok(Durability::Process),
            other => other
                .strip_prefix("window=")
                .and_then(window)
                .ok_or_else(|| format!("{text}: neither power, process nor window=TIME")),
        }
    }
}

/// One operation that has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Whose.
    pub process: usize,
    /// Its number; 0 is what comes before the first.
    pub number: u64,
    /// When its last sync began, in microseconds of a clock that all processes have.
    pub begun: u64,
    /// A moment when that had ended.
    pub ended: u64,
}

impl Told {
    /// What a sector of the load tells.
    ///
    /// # Errors
    /// Nothing that the load would.
    pub fn read(sector: &[u8]) -> Outcome<Told> {
        let line = sector.split(|b| *b == b'\n').next().unwrap_or_default();
        let text = std::str::from_utf8(line)?;
        let ["ack", process, number, begun, ended] = text.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("a sector behind the file system says {text:?}").into());
        };
        let process = process.parse()?;
        demand!(process < PROCESSES, "the load has {PROCESSES} processes, a sector says {text:?}");
        Ok(Told { process, number: number.parse()?, begun: begun.parse()?, ended: ended.parse()? })
    }
}

/// The last operation of each process that is there.
pub type Found = [u64; PROCESSES];

/// Which operation of each process may be the last that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed(pub [RangeInclusive<u64>; PROCESSES]);

impl Allowed {
    /// Judges what is there of each process: `judge` says what its last operation is.
    ///
    /// # Errors
    /// What it says, or that this one is none that may be.
    pub fn each(
        &self,
        mut judge: impl FnMut(usize, &RangeInclusive<u64>) -> Result<u64, String>,
    ) -> Result<Found, String> {
        let mut found = Found::default();
        for (process, allowed) in self.0.iter().enumerate() {
            let told = |why| {
                format!(
                    "process {process}, of which {} must be there, {} may: {why}",
                    allowed.start(),
                    allowed.end()
                )
            };
            let last = judge(process, allowed).map_err(told)?;
            if !allowed.contains(&last) {
                return Err(told(format!("the last that is there is {last}")));
            }
            found[process] = last;
        }
        Ok(found)
    }
}

/// What was acknowledged by some moment, in its order.
#[derive(Debug, Clone, Default)]
pub struct Acked {
    told: Vec<Told>,
    last: [Option<u64>; PROCESSES],
}

impl Acked {
    /// Counts what an event tells.
    pub fn hear(&mut self, event: &Event) {
        if let Event::Acknowledged(told) = event
            && let Some(last) = self.last.get_mut(told.process)
        {
            *last = Some(told.number);
            self.told.push(*told);
        }
    }

    /// Whether all processes have begun: before, there is nothing to be found.
    pub fn has_begun(&self) -> bool {
        self.last.iter().all(Option::is_some)
    }

    /// Operations of all.
    pub fn total(&self) -> u64 {
        self.last.iter().flatten().sum()
    }

    /// What may be there after a loss of power at this moment.
    pub fn allowed(&self, durability: Durability) -> Allowed {
        let last_sync = self.told.iter().map(|told| told.begun).max().unwrap_or(0);
        Allowed(std::array::from_fn(|process| {
            let acked = self.last[process].unwrap_or(0);
            let of = self.told.iter().filter(|told| told.process == process);
            let least = match durability {
                Durability::Power => acked,
                Durability::Process => 0,
                Durability::Window(time) => {
                    let kept = of.filter(|told| told.ended.saturating_add(time) < last_sync);
                    kept.map(|told| told.number).max().unwrap_or(0)
                }
            };
            least..=acked + 1
        }))
    }

    /// Whether there was a moment that left just this: of each process what it had acknowledged by then, or one more.
    pub fn at_one_moment(&self, found: &Found) -> bool {
        let mut by_then = Found::default();
        let fits = |by_then: &Found| {
            by_then.iter().zip(found).all(|(acked, found)| (*acked..=acked + 1).contains(found))
        };
        fits(&by_then)
            || self.told.iter().any(|told| {
                by_then[told.process] = told.number;
                fits(&by_then)
            })
    }

    /// Whether something is missing that was acknowledged.
    pub fn is_ahead_of(&self, found: &Found) -> bool {
        self.last.iter().zip(found).any(|(acked, found)| acked.unwrap_or(0) > *found)
    }
}
