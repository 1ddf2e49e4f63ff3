//! Where things lie, how a slot is encoded and how it is recognised.
//!
//! A slot is valid for one position of one lane in one epoch: the header names the position, the checksum is seeded
//! with lane and epoch. A slot of an earlier lap and a torn one do not verify. Nothing here trusts what it reads.

/// When a record happened: lower before higher, of records that do not commute. Below 2^63.
pub type Stamp = u64;

/// Bytes of a slot, as many as the engine's.
pub(super) const SLOT: usize = 256;
const HEADER: usize = 32;
/// Bytes of a record in one slot.
pub(super) const PAYLOAD: usize = SLOT - HEADER;
const CRC: std::ops::Range<usize> = 16..20;
const LINE: usize = narufs_engine::pmem::LINE;

/// How many lanes, how many slots in each, and which mount.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Lanes.
    pub lanes: u16,
    /// Slots of each.
    pub slots: u64,
    /// The mount; slots of another do not verify.
    pub epoch: u64,
}

/// What a valid slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) stamp: Stamp,
    pub(super) index: u16,
    pub(super) count: u16,
    pub(super) len: usize,
}

impl Shape {
    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        4 * self.table() + usize::from(self.lanes) * self.slots as usize * SLOT
    }

    /// Cache lines that a commit writes.
    pub fn commit_lines(&self) -> usize {
        self.table() / LINE
    }

    /// Number of slots of a record of so many bytes.
    pub fn slots_for(bytes: usize) -> u16 {
        u16::try_from(bytes.div_ceil(PAYLOAD).max(1)).unwrap_or(u16::MAX)
    }

    /// Bytes of a table of all lanes.
    pub(super) fn table(&self) -> usize {
        (super::table::HEADER + 8 * usize::from(self.lanes)).next_multiple_of(LINE)
    }

    /// Where the slot of a lane's position lies.
    pub(super) fn offset(&self, lane: usize, position: u64) -> usize {
        4 * self.table() + (lane * self.slots as usize + (position % self.slots) as usize) * SLOT
    }

    fn seed(&self, lane: usize) -> u32 {
        crc32c::crc32c_append(lane as u32, &self.epoch.to_le_bytes())
    }

    /// Encodes slot `index` of the `count` of a record that begins at position `first`.
    pub(super) fn encode(
        &self,
        lane: usize,
        first: u64,
        stamp: Stamp,
        (index, count): (u16, u16),
        payload: &[u8],
    ) -> [u8; SLOT] {
        let mut bytes = [0; SLOT];
        bytes[..8].copy_from_slice(&(first + u64::from(index)).to_le_bytes());
        bytes[8..16].copy_from_slice(&stamp.to_le_bytes());
        bytes[20..22].copy_from_slice(&(payload.len() as u16).to_le_bytes());
        bytes[22..24].copy_from_slice(&index.to_le_bytes());
        bytes[24..26].copy_from_slice(&count.to_le_bytes());
        bytes[HEADER..HEADER + payload.len()].copy_from_slice(payload);
        let crc = crc32c::crc32c_append(self.seed(lane), &bytes);
        bytes[CRC].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What the slot says, if it is the valid slot of a lane's position; `torn` takes it without its checksum.
    pub(super) fn verify(&self, lane: usize, position: u64, bytes: &[u8; SLOT], torn: bool) -> Option<Slot> {
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        let half = |at: usize| u16::from_le_bytes(*bytes[at..].first_chunk().expect("inside the header"));
        let slot = Slot { stamp: word(8), index: half(22), count: half(24), len: usize::from(half(20)) };
        let mut blank = *bytes;
        blank[CRC].fill(0);
        let crc = crc32c::crc32c_append(self.seed(lane), &blank).to_le_bytes();
        (word(0) == position
            && slot.index < slot.count
            && u64::from(slot.count) <= self.slots
            && slot.len <= PAYLOAD
            && (bytes[CRC] == crc || torn))
            .then_some(slot)
    }

    /// The bytes of a record in such a slot.
    pub(super) fn payload<'b>(&self, slot: &Slot, bytes: &'b [u8; SLOT]) -> &'b [u8] {
        &bytes[HEADER..HEADER + slot.len]
    }
}
