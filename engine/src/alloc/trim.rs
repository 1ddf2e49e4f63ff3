//! Telling the device which blocks hold nothing: on request, group by group, never on an operation's way.

use super::{Alloc, Extent};
use crate::Result;
use crate::device::{BlockDevice, Cause, IoBuf, Op, Request};
use std::ops::Range;

/// Discards in one batch; the blocks of a batch cannot be allocated while it is under way.
const BATCH: usize = 64;

impl Alloc {
    /// Discards every free run of at least `least` blocks that lies in `range`, a range of the device's blocks, and
    /// gives the number of blocks discarded. Blocks in quarantine are left alone.
    ///
    /// # Errors
    /// Those of the device.
    pub fn trim(&self, device: &dyn BlockDevice, range: Range<u64>, least: u32) -> Result<u64> {
        let mut discarded = 0;
        for group in self.shared.groups.iter() {
            let within = |block: u64| block.saturating_sub(group.start).min(u64::from(group.blocks())) as u32;
            let (mut from, end) = (within(range.start), within(range.end));
            loop {
                // A thread that has a promise but finds no block waits for this lock, then looks again.
                let _trimming = self.shared.trimming.lock();
                let mut taken: Vec<Extent> = Vec::new();
                while taken.len() < BATCH
                    && let Some(extent) = group.take_run(from, end)
                {
                    from = (extent.end() - group.start) as u32;
                    if extent.len >= least {
                        taken.push(extent);
                    } else {
                        group.give(extent);
                    }
                }
                let result = device.run(taken.iter().map(discard).collect());
                for extent in &taken {
                    group.give(*extent);
                }
                result?;
                discarded += taken.iter().map(|extent| u64::from(extent.len)).sum::<u64>();
                if taken.len() < BATCH {
                    break;
                }
            }
        }
        Ok(discarded)
    }
}

fn discard(extent: &Extent) -> Request {
    Request {
        op: Op::Discard { count: extent.len },
        block: extent.start,
        buf: IoBuf::default(),
        cause: Cause::DataWriteBack,
    }
}
