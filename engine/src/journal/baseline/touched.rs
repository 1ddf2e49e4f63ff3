//! What an operation changes, as a journal sees it that logs images: blocks, and units within them.

use crate::device::BLOCK_SIZE;
use crate::sync::Arc;

/// Bytes of a unit: an inode's.
pub const UNIT: usize = 256;
/// Units of a block.
pub const UNITS: usize = BLOCK_SIZE / UNIT;

/// A metadata block in memory.
pub trait Buffer: Send + Sync {
    /// Its number.
    fn block(&self) -> u64;
    /// Copies its bytes.
    fn copy(&self, into: &mut [u8; BLOCK_SIZE]);
    /// Appends what redoes the block as it is now, or as `frozen` says; costs [`BLOCK_BYTES`].
    fn log_block(&self, frozen: Option<&[u8; BLOCK_SIZE]>, into: &mut Vec<u8>);
    /// Appends what redoes some of its units, one bit each; costs [`UNIT_BYTES`] each.
    fn log_units(&self, units: u16, frozen: Option<&[u8; BLOCK_SIZE]>, into: &mut Vec<u8>);
}

/// Bytes of the header of a write in a record.
const WRITE_HEADER: usize = size_of::<crate::format::DeltaHeader>();
/// Bytes of the image of a block in a record.
pub(super) const BLOCK_BYTES: usize = WRITE_HEADER + BLOCK_SIZE;
/// Bytes of the image of a unit in a record.
pub(super) const UNIT_BYTES: usize = WRITE_HEADER + UNIT;

/// A block that an operation changes.
pub struct Touch {
    /// The block.
    pub buffer: Arc<dyn Buffer>,
    /// Its units that change, a bit each.
    pub units: u16,
    /// What makes it a fresh block when it is redone; of none that was there before.
    pub made: Vec<u8>,
}

/// What no image says.
#[derive(Default)]
pub struct Logical {
    /// Blocks that hold metadata no more.
    pub forgotten: Vec<u64>,
    /// As it is logged: file data, what counts no more, and the same of blocks that are forgotten.
    pub bytes: Vec<u8>,
}

/// Who can say what an operation changes.
pub trait Touches {
    /// The blocks that it changes, each once.
    fn blocks(&self) -> Vec<Touch>;
    /// The rest.
    fn logical(&self) -> Logical;
}

/// One operation's record: as the engine logs it, and what it stands for.
#[derive(Clone, Copy)]
pub struct MountRecord<'r> {
    /// What the engine's own journal logs.
    pub payload: &'r [u8],
    /// What it changes; of a record that stands for itself alone, none.
    pub touches: Option<&'r dyn Touches>,
}

impl MountRecord<'_> {
    /// Bytes of the payload.
    #[expect(clippy::len_without_is_empty, reason = "it stands for a slice, of which no more is asked")]
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// The blocks that it changes.
    pub(super) fn blocks(&self) -> Vec<Touch> {
        self.touches.map(Touches::blocks).unwrap_or_default()
    }

    /// What it changes beside them.
    pub(super) fn logical(&self) -> Logical {
        match self.touches {
            Some(touches) => touches.logical(),
            None => Logical { bytes: self.payload.to_vec(), ..Logical::default() },
        }
    }
}
