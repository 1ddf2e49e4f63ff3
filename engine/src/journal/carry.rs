//! After a kill: what the staging of an SSD ring holds beyond the device's ring goes there too.
//!
//! Recovery writes pages home as the staging's records leave them. Should power fail meanwhile, the staging is
//! gone, and the next recovery has the device's ring alone: it must hold every record that a home may show.
//! So those records are carried there first, and one commit ends them. What no record fills (reservations
//! that the kill cut short) becomes void slots.
//!
//! Invariant: a block of the ring that was durable before is written again with the same bytes alone, and
//! nothing counts of what is new before all of it is there: the commit's checksum covers it. So a crash at
//! any moment leaves what the device's ring held before, or all.

use zerocopy::IntoBytes;

use super::header::HEADER_BLOCKS;
use super::ring::{BLOCK_SLOTS, CRC_AT};
use super::scan::{Reader, Scan};
use crate::device::{BlockDevice, Cause, IoBuf, Request};
use crate::format::{CommitPayload, Position, RING_HEADER_SPACE, SLOT_SIZE, SlotKind};
use crate::{Error, Result};

/// Slots written in one request.
const WINDOW: u64 = 1024;

/// What a ring is to hold.
pub struct Plan {
    /// Slots that no record fills.
    holes: Vec<Position>,
    /// Where the last commit there is ends.
    range_start: Position,
    /// The end, the commit that is made for it included.
    end: Position,
}

impl Scan {
    /// Writes back the lines of what was found in memory: a killed process may have left them in the
    /// processor's caches.
    pub fn persist(&self) {
        let Some(memory) = self.memory() else { return };
        let (first, count) = (self.ring.index(self.head) as u64, self.end - self.head);
        let before_end = count.min(self.ring.slots - first);
        for (from, count) in [(first, before_end), (0, count - before_end)] {
            let offset = RING_HEADER_SPACE + from as usize * SLOT_SIZE;
            if count > 0 {
                memory.write_back(offset, count as usize * SLOT_SIZE);
            }
        }
        memory.persist(0, RING_HEADER_SPACE);
    }

    /// How [`Scan::carry`] is to do it; `None` where there is nothing to carry.
    ///
    /// # Errors
    /// [`Error::Refused`] if the ring is of another shape.
    pub fn can_be_carried(&self) -> Result<Option<Plan>> {
        if self.memory().is_none() || self.end == self.head {
            return Ok(None);
        }
        let (holes, range_start) = self.holes(&mut self.reader())?;
        let end =
            if range_start == self.end { self.end } else { (self.end + 1).next_multiple_of(BLOCK_SLOTS) };
        if !self.head.is_multiple_of(BLOCK_SLOTS) || end % BLOCK_SLOTS != 0 || end > self.limit() {
            return Err(Error::Refused(format!(
                "the staging holds records from {} to {}, which its ring cannot hold",
                self.head, self.end
            )));
        }
        Ok(Some(Plan { holes, range_start, end }))
    }

    /// Makes the ring region of an image, whose first block is `start`, hold durably what this scan of its
    /// staging has found. Nothing if it is the scan of a device. The scan must have found no damage.
    ///
    /// # Errors
    /// Those of the device; [`Error::Refused`] if the ring is of another shape.
    pub fn carry(&self, device: &dyn BlockDevice, start: u64) -> Result<()> {
        let Some(Plan { holes, range_start, end }) = self.can_be_carried()? else { return Ok(()) };
        let mut reader = self.reader();
        let (mut at, mut range_crc) = (self.head, 0);
        while at < end {
            let index = self.ring.index(at) as u64;
            let count = (end - at).min(WINDOW).min(self.ring.slots - index);
            let mut buf = IoBuf::zeroed(count as usize * SLOT_SIZE);
            for (position, into) in (at..).zip(buf.chunks_exact_mut(SLOT_SIZE)) {
                if position >= self.end {
                    let commit = CommitPayload {
                        range_start: range_start.into(),
                        durable_upto: self.head.into(),
                        range_crc: range_crc.into(),
                        reserved: 0.into(),
                    };
                    let place = ((position - self.end) as u16, (end - self.end) as u16);
                    let payload = if position == self.end { commit.as_bytes() } else { &[] };
                    into.copy_from_slice(&self.ring.encode(position, place, SlotKind::Commit, payload));
                } else if holes.binary_search(&position).is_ok() {
                    into.copy_from_slice(&self.ring.encode(position, (0, 1), SlotKind::Void, &[]));
                } else {
                    into.copy_from_slice(reader.raw(position)?);
                }
                if (range_start..self.end).contains(&position) {
                    range_crc = crc32c::crc32c_append(range_crc, &into[CRC_AT..CRC_AT + 4]);
                }
            }
            let block = start + HEADER_BLOCKS + index / BLOCK_SLOTS;
            device.run(vec![Request::write(block, buf, Cause::Recovery)])?;
            at += count;
        }
        device.flush()
    }

    /// The slots that belong to no whole record, and the end of the last commit.
    fn holes(&self, reader: &mut Reader<'_>) -> Result<(Vec<Position>, Position)> {
        let (mut holes, mut committed, mut at) = (Vec::new(), self.head, self.head);
        while at < self.end {
            match reader.record(at)? {
                Some((slot, count)) => {
                    at += count;
                    if slot.kind == SlotKind::Commit {
                        committed = at;
                    }
                }
                None => {
                    holes.push(at);
                    at += 1;
                }
            }
        }
        Ok((holes, committed))
    }
}
