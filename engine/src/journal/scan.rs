//! The recovery scan: which records of a ring count.
//!
//! It reads, and trusts nothing that it reads: a slot counts only if it verifies for its position, a record
//! only if all its slots do. Memory is bounded: records are found again by position, never held. What the
//! records mean, and whether the header belongs to the image, is for recovery to say.
//!
//! *Mapped rings* (and the staging of an SSD ring). Every slot from the head to the last commit must belong to
//! a whole record; if one does not, that is damage. Beyond the last commit every whole record counts, in
//! order; what is incomplete is skipped, for nothing can depend on it: its locks were held until its seal.
//!
//! *The SSD ring, read from the image.* Commits are a chain: each names the end of the one before and the
//! checksum of its range. What counts is the prefix that ends with the last commit up to which everything
//! verifies. What is invalid beyond is a torn tail, unless a commit anywhere in the ring says that it was on
//! durable media: then it is damage.
//!
//! *Blocks of it that cannot be read*. One that the chain has come to is damage, for nothing tells whether what lies there,
//! or beyond, was promised. One that lies behind the end of the chain has nothing that is needed: it could only have said
//! that the end is none. A header that is older than the ring, where a copy of it is damaged, is known by a first slot of a
//! later lap, and is damage too: until the head has moved nothing is written over what it needs. One of which a copy cannot be
//! read is not judged at all ([`read_device_header`]).

use zerocopy::FromBytes;

use super::header::{HEADER_BLOCKS, read_device_header, read_mapped_header};
use super::ring::{BLOCK_SLOTS, Geometry, POSITION_AT, Slot};
use super::unreadable::Unreadable;
use crate::device::{BlockDevice, Cause, IoBuf, Op, Request};
use crate::format::{
    CommitPayload, Position, RING_HEADER_SPACE, RingHeader, SLOT_HEADER_SIZE, SLOT_SIZE, SlotKind,
};
use crate::planted::{self, Bug};
use crate::pmem::PersistentMemory;
use crate::sync::Arc;
use crate::{Error, Result};

/// Slots read at a time.
const WINDOW: u64 = 1024;

/// What a ring holds.
pub struct Scan {
    /// The header that counts.
    pub header: RingHeader,
    /// First position that recovery needs.
    pub head: Position,
    /// Records at and beyond this position do not count. With damage, where the damage is.
    pub end: Position,
    /// Slot of the last commit found, if there is one.
    pub last_commit: Option<Position>,
    /// Beyond every slot that may ever have been reserved: where the next mount starts.
    pub next_position: Position,
    /// What was committed and does not verify, and where.
    pub damage: Option<String>,
    source: Source,
    pub(super) ring: Geometry,
}

#[derive(Clone)]
enum Source {
    Mapped(Arc<dyn PersistentMemory>),
    Device(Arc<dyn BlockDevice>, u64),
}

/// Scans a mapped ring, or the staging of an SSD ring. Refused if it has no valid header.
pub fn scan_mapped(memory: Arc<dyn PersistentMemory>) -> Result<Scan> {
    let header = read_mapped_header(memory.as_ref())
        .ok_or_else(|| Error::Refused("the journal's memory holds no valid ring header".into()))?;
    let mut scan = Scan::new(Source::Mapped(memory), header);
    scan.find_mapped_end()?;
    Ok(scan)
}

/// Scans the ring region of `blocks` blocks from block `start` on, of an image whose last mount was this one. Refused if it
/// has no valid header.
pub(crate) fn scan_device_of(
    device: Arc<dyn BlockDevice>,
    start: u64,
    blocks: u64,
    epoch: u64,
) -> Result<Scan> {
    let mut scan = scan_device(device, start, blocks)?;
    if scan.damage.is_none() && epoch > scan.header.epoch.get() && scan.has_slots_of(epoch)? {
        scan.damage = Some(format!(
            "the journal's header of mount {epoch} is lost, and there is a journal of that mount"
        ));
    }
    Ok(scan)
}

/// Scans the ring region of `blocks` blocks from block `start` on. Refused if it has no valid header.
pub fn scan_device(device: Arc<dyn BlockDevice>, start: u64, blocks: u64) -> Result<Scan> {
    let header = read_device_header(device.as_ref(), start, blocks)?
        .ok_or_else(|| Error::Refused("the image's journal region holds no valid ring header".into()))?;
    let mut scan = Scan::new(Source::Device(device, start + HEADER_BLOCKS), header);
    scan.find_device_end()?;
    Ok(scan)
}

impl Scan {
    fn new(source: Source, header: RingHeader) -> Scan {
        let (head, slots) = (header.head.get(), header.slots.get());
        Scan {
            header,
            head,
            end: head,
            last_commit: None,
            // No reservation is ever a lap beyond the head.
            next_position: (head + slots).next_multiple_of(BLOCK_SLOTS),
            damage: None,
            ring: Geometry::new(slots, &header.image_uuid, header.epoch.get(), 1),
            source,
        }
    }

    /// The records that count, in position order: first position and payload.
    pub fn records(&self) -> Records<'_> {
        self.records_from(self.head)
    }

    /// As [`records`](Self::records), of those that start at `from` or later.
    pub fn records_from(&self, from: Position) -> Records<'_> {
        Records { scan: self, reader: self.reader(), at: from.max(self.head), until: self.end }
    }

    /// Those beyond the end that are whole, in position order: with damage, what may have been committed.
    pub(crate) fn records_beyond(&self) -> Records<'_> {
        Records { scan: self, reader: self.bearing_reader(), at: self.end, until: self.limit() }
    }

    /// Whether the record that this position was reserved for, in this epoch, counts: it is whole, or recovery needs it no
    /// more.
    pub(crate) fn counts(&self, epoch: u64, position: Position) -> Result<bool> {
        if epoch != self.header.epoch.get() || position < self.head {
            return Ok(epoch <= self.header.epoch.get());
        }
        if position >= self.end {
            return Ok(false);
        }
        Ok(self.reader().record(position)?.is_some_and(|(slot, _)| slot.kind == SlotKind::Operation))
    }

    /// The memory that it read, if it did not read a device.
    pub(super) fn memory(&self) -> Option<&dyn PersistentMemory> {
        match &self.source {
            Source::Mapped(memory) => Some(memory.as_ref()),
            Source::Device(..) => None,
        }
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        Reader {
            scan: self,
            first: 0,
            bytes: IoBuf::zeroed(0),
            unreadable: Unreadable::default(),
            bears: false,
        }
    }

    /// One to which slots that cannot be read are such as do not verify.
    fn bearing_reader(&self) -> Reader<'_> {
        Reader { bears: true, ..self.reader() }
    }

    /// Whether any slot was written in this mount.
    fn has_slots_of(&self, epoch: u64) -> Result<bool> {
        let ring = Geometry::new(self.ring.slots, &self.header.image_uuid, epoch, 1);
        let mut reader = self.bearing_reader();
        for index in 0..self.ring.slots {
            let bytes = reader.raw(index)?;
            let says = bytes[POSITION_AT..].first_chunk().map_or(0, |says| Position::from_le_bytes(*says));
            if ring.index(says) as u64 == index && ring.verify(says, bytes).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn limit(&self) -> Position {
        self.head + self.ring.slots
    }

    /// One pass: a ring is large, and a mount waits for this. A commit is never met within a whole record, whose slots
    /// all say that they are parts of it; so stepping over records misses none.
    fn find_mapped_end(&mut self) -> Result<()> {
        let mut reader = self.reader();
        let (mut at, mut end, mut last_commit, mut hole) = (self.head, self.head, None, None);
        while at < self.limit() {
            match reader.record(at)? {
                Some((slot, count)) => {
                    if slot.kind == SlotKind::Commit {
                        last_commit = Some(at);
                    }
                    at += count;
                    end = at;
                }
                None => {
                    hole.get_or_insert(at);
                    at += 1;
                }
            }
        }
        let torn =
            hole.and_then(|hole| last_commit.filter(|commit| hole < *commit).map(|commit| (hole, commit)));
        self.damage = torn.map(|(hole, commit)| {
            let index = self.ring.index(hole);
            format!(
                "journal slot {hole} (of the ring: {index}) does not verify, although the commit at {commit} covers it"
            )
        });
        self.end = torn.map_or(end, |(hole, _)| hole);
        self.last_commit = last_commit;
        Ok(())
    }

    fn find_device_end(&mut self) -> Result<()> {
        let mut reader = self.bearing_reader();
        let mut last_commit = None;
        let (mut at, mut end, mut range_crc) = (self.head, self.head, 0);
        while at < self.limit() {
            let crc_before = range_crc;
            let Some((slot, count)) = reader.record_with_crc(at, &mut range_crc)? else { break };
            if slot.kind == SlotKind::Commit {
                let Some(commit) = reader.commit(at)? else { break };
                // The head may have been set within a range; then its slots verify one by one, and that is all.
                let cut = last_commit.is_none() && commit.range_start.get() < end;
                let whole = commit.range_start.get() == end && commit.range_crc.get() == crc_before;
                if !(cut || whole) {
                    break;
                }
                last_commit = Some(at);
                end = at + count;
                range_crc = 0;
            }
            at += count;
        }
        let unread = reader.has_met_unreadable();
        // Whether what follows was ever promised, only another commit can tell.
        let mut durable = self.head;
        for at in end..self.limit() {
            if matches!(reader.slot(at)?, Some(Slot { kind: SlotKind::Commit, index: 0, .. }))
                && let Some(commit) = reader.commit(at)?
                && commit.durable_upto.get() <= at
            {
                durable = durable.max(commit.durable_upto.get());
            }
        }
        let is_overtaken = self.ring.verify(self.limit(), reader.raw(self.head)?).is_some();
        let damage = if durable > end {
            Some(format!(
                "the journal is whole only up to slot {end}, but everything up to {durable} was on durable media"
            ))
        } else if unread {
            Some(format!("the journal cannot be read at slot {at}, and what is there may be needed"))
        } else {
            is_overtaken.then(|| "the journal goes on beyond what the newest header that it has says".into())
        };
        (self.end, self.last_commit, self.damage) = (end, last_commit, damage);
        Ok(())
    }
}

/// Reads slots through a window.
pub(super) struct Reader<'s> {
    scan: &'s Scan,
    /// Index of the first slot in the window.
    first: usize,
    bytes: IoBuf,
    unreadable: Unreadable,
    /// Slots that cannot be read do not verify; otherwise to ask for one is an error.
    bears: bool,
}

impl Reader<'_> {
    /// The bytes of the slot that `position` would lie in.
    pub(super) fn raw(&mut self, position: Position) -> Result<&[u8; SLOT_SIZE]> {
        let index = self.scan.ring.index(position);
        let held = self.bytes.len() / SLOT_SIZE;
        if index < self.first || index >= self.first + held {
            self.fill(index)?;
        }
        let at = (index - self.first) * SLOT_SIZE;
        let bytes = self.bytes.get(at..at + SLOT_SIZE).and_then(|b| b.try_into().ok());
        bytes.ok_or_else(|| Error::Corrupt {
            what: "journal",
            place: format!("slot {index}"),
            detail: "could not be read whole".into(),
        })
    }

    fn fill(&mut self, index: usize) -> Result<()> {
        let per_block = BLOCK_SLOTS as usize;
        self.first = index - index % per_block;
        let count = (self.scan.ring.slots as usize - self.first).min(WINDOW as usize);
        let mut buf = std::mem::replace(&mut self.bytes, IoBuf::zeroed(0));
        if buf.len() != count * SLOT_SIZE {
            buf = IoBuf::zeroed(count * SLOT_SIZE);
        }
        self.bytes = match &self.scan.source {
            Source::Mapped(memory) => {
                memory.read(RING_HEADER_SPACE + self.first * SLOT_SIZE, &mut buf);
                buf
            }
            Source::Device(device, start) => {
                let block = start + (self.first / per_block) as u64;
                let request = Request { op: Op::Read, block, buf, cause: Cause::Recovery };
                self.unreadable.blocks.clear();
                match device.run(vec![request]).map(|mut read| read.pop()) {
                    Ok(Some(buf)) => buf,
                    _ => self.unreadable.read_by_blocks(device.as_ref(), block, self.first, count)?,
                }
            }
        };
        Ok(())
    }

    /// Whether a slot was asked for that cannot be read.
    fn has_met_unreadable(&self) -> bool {
        self.unreadable.is_met
    }

    fn slot(&mut self, position: Position) -> Result<Option<Slot>> {
        if let Source::Mapped(memory) = &self.scan.source {
            // Most of a ring is of earlier laps: eight bytes say so, and the rest is not read.
            let mut says = [0; size_of::<Position>()];
            memory.read(
                RING_HEADER_SPACE + self.scan.ring.index(position) * SLOT_SIZE + POSITION_AT,
                &mut says,
            );
            if Position::from_le_bytes(says) != position && !planted::is(Bug::StaleSlotAccepted) {
                return Ok(None);
            }
        }
        let ring = self.scan.ring;
        let slot = ring.verify(position, self.raw(position)?);
        let index = ring.index(position);
        if self.unreadable.blocks.contains(&(index - index % BLOCK_SLOTS as usize)) {
            self.unreadable.is_met = true;
            if !self.bears {
                return Err(Error::Device { context: "read the journal", errno: libc::EIO });
            }
        }
        Ok(slot)
    }

    /// The first slot and the count of the record that starts at `position`, if it is whole.
    pub(super) fn record(&mut self, position: Position) -> Result<Option<(Slot, u64)>> {
        self.record_with_crc(position, &mut 0)
    }

    /// As `record`; the checksums of its slots are appended to `crc`.
    fn record_with_crc(&mut self, position: Position, crc: &mut u32) -> Result<Option<(Slot, u64)>> {
        let Some(first) = self.slot(position)? else { return Ok(None) };
        let count = u64::from(first.count);
        if first.index != 0 || position + count > self.scan.limit() {
            return Ok(None);
        }
        *crc = crc32c::crc32c_append(*crc, &first.crc.to_le_bytes());
        for index in 1..first.count {
            match self.slot(position + u64::from(index))? {
                Some(s) if (s.kind, s.index, s.count) == (first.kind, index, first.count) => {
                    *crc = crc32c::crc32c_append(*crc, &s.crc.to_le_bytes());
                }
                _ => return Ok(None),
            }
        }
        Ok(Some((first, count)))
    }

    fn commit(&mut self, position: Position) -> Result<Option<CommitPayload>> {
        let bytes = self.raw(position)?;
        Ok(CommitPayload::read_from_prefix(&bytes[SLOT_HEADER_SIZE..]).ok().map(|(commit, _)| commit))
    }
}

/// The records of a scan. An error ends it.
pub struct Records<'s> {
    scan: &'s Scan,
    reader: Reader<'s>,
    at: Position,
    until: Position,
}

impl Records<'_> {
    fn step(&mut self) -> Result<Option<(Position, Vec<u8>)>> {
        while self.at < self.until {
            let first = self.at;
            let Some((slot, count)) = self.reader.record(first)? else {
                if first < self.scan.end && self.scan.last_commit.is_some_and(|commit| first < commit) {
                    return Err(Error::Corrupt {
                        what: "journal",
                        place: format!("slot {first}"),
                        detail: "verified in the scan and does so no longer, or no record starts there"
                            .into(),
                    });
                }
                self.at += 1;
                continue;
            };
            self.at += count;
            if slot.kind != SlotKind::Operation {
                continue;
            }
            let mut payload = Vec::new();
            for position in first..first + count {
                let Some(slot) = self.reader.slot(position)? else { continue };
                let bytes = self.reader.raw(position)?;
                payload.extend_from_slice(&bytes[SLOT_HEADER_SIZE..SLOT_HEADER_SIZE + slot.len]);
            }
            return Ok(Some((first, payload)));
        }
        Ok(None)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<(Position, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.step().transpose();
        if matches!(item, Some(Err(_))) {
            self.at = self.until;
        }
        item
    }
}
