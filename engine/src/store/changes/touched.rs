//! What the changes touch, for journals that log images.

use std::ops::Range;

use super::{Changes, Staged};
use crate::device::BLOCK_SIZE;
use crate::format::BLOCK_HEADER_SIZE;
use crate::journal::MountRecord;
use crate::journal::baseline::{Buffer, Logical, Touch, Touches, UNIT};
use crate::store::delta::{Delta, Encoder};
use crate::store::page::PageRef;
use crate::sync::Arc;

impl Changes {
    /// What [`Changes::encode`] has made, and what it stands for.
    pub fn record(&self) -> MountRecord<'_> {
        MountRecord { payload: &self.payload, touches: Some(self) }
    }
}

/// The bit of each unit that a range of a block has bytes in.
fn units(range: Range<usize>) -> u16 {
    (range.start / UNIT..range.end.min(BLOCK_SIZE).div_ceil(UNIT)).fold(0, |units, unit| units | 1 << unit)
}

fn touch(blocks: &mut Vec<Touch>, page: &PageRef, units: u16) {
    match blocks.iter_mut().find(|touch| touch.buffer.block() == page.block()) {
        Some(touch) => touch.units |= units,
        None => {
            let buffer: Arc<dyn Buffer> = Arc::clone(page) as _;
            blocks.push(Touch { buffer, units, made: Vec::new() });
        }
    }
}

impl Changes {
    fn is_gone(&self, page: usize) -> bool {
        self.forgotten.iter().any(|gone| Arc::ptr_eq(gone, &self.pages[page]))
    }
}

impl Touches for Changes {
    fn blocks(&self) -> Vec<Touch> {
        let mut blocks = Vec::with_capacity(self.fresh.len() + self.pages.len());
        for (page, owner, generation) in &self.fresh {
            let (block, kind, mut made) = (page.block(), page.kind(), Vec::new());
            let init = Delta::Init { block, kind, owner: *owner, generation: *generation };
            Encoder::new(&mut made).add(&init);
            blocks.push(Touch { buffer: Arc::clone(page) as _, units: 0, made });
        }
        for run in &self.runs {
            touch(&mut blocks, &self.pages[run.page], units(run.offset..run.offset + run.len));
        }
        for staged in &self.staged {
            match staged {
                Staged::Bits { page, .. } | Staged::IfNewer { page, .. } if self.is_gone(*page) => {}
                Staged::Bits { page, first, count, .. } => {
                    let (first, end) = (*first as usize, (first + count) as usize);
                    let bytes = BLOCK_HEADER_SIZE + first / 8..BLOCK_HEADER_SIZE + end.div_ceil(8);
                    touch(&mut blocks, &self.pages[*page], units(bytes));
                }
                Staged::IfNewer { page, offset, bytes } => {
                    touch(&mut blocks, &self.pages[*page], units(*offset..offset + bytes.len()));
                }
                Staged::Data { .. } | Staged::Supersede { .. } => {}
            }
        }
        blocks
    }

    fn logical(&self) -> Logical {
        let mut all = Logical::default();
        let mut encoder = Encoder::new(&mut all.bytes);
        for staged in &self.staged {
            if matches!(staged, Staged::Data { .. } | Staged::Supersede { .. }) {
                encoder.add(&self.delta(staged));
            }
        }
        for page in &self.forgotten {
            encoder.add(&Delta::Forget { block: page.block() });
            all.forgotten.push(page.block());
        }
        all
    }
}
