//! Blocks of a ring that the device fails to read, among those that are read together.

use super::ring::BLOCK_SLOTS;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::format::SLOT_SIZE;
use crate::{Error, Result};

/// What a reader has met that cannot be read.
#[derive(Default)]
pub(super) struct Unreadable {
    /// Indices of the first slots of such blocks of the window.
    pub blocks: Vec<usize>,
    /// A slot was asked for that lies in one.
    pub is_met: bool,
}

impl Unreadable {
    /// So many slots from one on, in blocks from one on: zeros, where a block cannot be read.
    pub fn read_by_blocks(
        &mut self,
        device: &dyn BlockDevice,
        start: u64,
        first: usize,
        count: usize,
    ) -> Result<IoBuf> {
        let mut bytes = IoBuf::zeroed(count * SLOT_SIZE);
        for ((block, into), first) in
            (start..).zip(bytes.chunks_mut(BLOCK_SIZE)).zip((first..).step_by(BLOCK_SLOTS as usize))
        {
            match device.run(vec![Request::read(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Recovery)]) {
                Ok(read) => read.iter().for_each(|buf| into.copy_from_slice(&buf[..into.len()])),
                Err(Error::Device { .. }) => self.blocks.push(first),
                Err(e) => return Err(e),
            }
        }
        Ok(bytes)
    }
}
