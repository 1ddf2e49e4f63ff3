//! A disk as a loss of power leaves it.

use super::acked::Told;
use super::log::{Content, Entry};
use crate::demand;
use crate::drive::SECTOR;
use crate::outlive::Outcome;
use rand::Rng;
use rand::rngs::StdRng;

/// What an entry of the record is to the file system, or to who judges it.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Whole sectors from this one on; those of a discard are zeros.
    Written {
        /// The first one.
        sector: usize,
        /// Their bytes.
        bytes: Vec<u8>,
        /// It was on the medium when it ended.
        forced: bool,
    },
    /// The load has told that an operation has returned.
    Acknowledged(Told),
}

impl Event {
    /// Whether the file system may be another after it.
    pub fn changes(&self) -> bool {
        matches!(self, Event::Written { .. })
    }
}

/// What an entry says; none of a flush or mark alone.
///
/// # Errors
/// A write across the end of the file system, or what the load never tells.
pub fn event(entry: Entry, sectors: usize) -> Outcome<Option<Event>> {
    let size = (sectors * SECTOR) as u64;
    let Entry { offset, forced, content, .. } = entry;
    let bytes = match content {
        Content::Mark => return Ok(None),
        Content::Data(bytes) if bytes.is_empty() => return Ok(None),
        // Of the load's sectors it says nothing.
        Content::Discarded(len) if len == 0 || offset >= size => return Ok(None),
        Content::Data(bytes) if offset >= size => {
            return Ok(Some(Event::Acknowledged(Told::read(&bytes)?)));
        }
        Content::Data(bytes) => bytes,
        Content::Discarded(len) => vec![0; usize::try_from(len.min(size - offset))?],
    };
    let fits = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= size);
    demand!(fits, "{} bytes at {offset} go beyond the file system, of {size} bytes", bytes.len());
    Ok(Some(Event::Written { sector: usize::try_from(offset)? / SECTOR, bytes, forced }))
}

/// What is on the medium.
#[derive(Debug)]
pub struct Disk(Vec<u8>);

impl Disk {
    /// A blank one of so many sectors.
    pub fn new(sectors: usize) -> Disk {
        Disk(vec![0; sectors * SECTOR])
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The whole of an event.
    pub fn apply(&mut self, event: &Event) {
        if let Event::Written { sector, bytes, .. } = event {
            self.0[sector * SECTOR..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// What is left where of each write some sectors have reached the medium, and all of those that were forced. A sector
    /// that was written more than once is as any of its writes has left it, or none.
    pub fn some_of(&self, events: &[Event], odds: f64, random: &mut StdRng) -> Vec<u8> {
        let mut left = self.0.clone();
        for event in events {
            let Event::Written { sector, bytes, forced } = event else { continue };
            for (number, bytes) in (*sector..).zip(bytes.chunks(SECTOR)) {
                if *forced || random.random_bool(odds) {
                    left[number * SECTOR..][..bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        left
    }
}
