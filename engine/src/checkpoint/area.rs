//! The double-write area while a round runs: a part for each thread, and the order in which a part is used.
//!
//! # Why a torn home write can always be mended
//! The area is cut into as many *parts* as threads write home, before the first of them begins; no two share a block.
//! A part belongs to one thread, which has one batch in it at a time:
//! 1. the batch's images are written to the part, with headers that name the round, and a flush that began after that
//!    has returned ([`Part::double`]): only then there is a [`Doubled`], and nothing else writes home;
//! 2. its home writes are issued, all have ended, and a flush that began after that has returned ([`Doubled::home`]);
//! 3. only then the part takes the next batch: until then the [`Doubled`] has it borrowed.
//!
//! A home can be torn from the moment its write is issued until the flush of 2 has returned. All that time its image
//! lies whole and durable in the part of its batch, under a header of the round that did not finish: by 1 it was there
//! before, by 3 nothing of that part is overwritten, and by the cut no other thread writes there. So recovery, which
//! puts every whole image of that round home, finds it, however many batches were under way: what it needs of one part
//! depends on no other.
//!
//! What else recovery may find there does no harm:
//! - *A part of a batch that was never finished there*: its header or images do not verify. By 1 none of its home
//!   writes was issued.
//! - *A batch of this round that is home already*, all of it or the segments that a shorter batch has left: each block
//!   goes home once in a round of a mount, so the image is what its home holds. Recovery itself may write a block
//!   several times under one round's number, and what it restores may be older then than what was there; redo, which
//!   follows, leads from any mixture of states to the same bytes.
//! - *Segments of earlier rounds*, wherever their parts lay (there may be another number of parts in each round): the
//!   number in the header says so. A header may stand in any block of the area, and says by its checksum that it was
//!   written for that block. One whose images were overwritten by a later segment is void by their checksums.
//!
//! The flush is the device's: one that another thread began after this thread's writes had ended serves as well.

use super::RoundId;
use super::images::{Images, SEGMENT_IMAGES};
use super::stats::{Counters, Phase};
use super::tried;
use crate::Result;
use crate::planted::{self, Bug};
use crate::store::Store;

/// The least that a batch takes: a header and an image.
const LEAST: u64 = 2;

/// A thread's own part of the area.
pub(super) struct Part<'s> {
    store: &'s Store,
    stats: &'s Counters,
    id: RoundId,
    start: u64,
    blocks: u64,
}

/// Cuts the area into up to `count` parts, none of them too small for an image.
pub(super) fn parts<'s>(store: &'s Store, stats: &'s Counters, id: RoundId, count: usize) -> Vec<Part<'s>> {
    let sb = store.superblock();
    let (start, blocks) = (sb.dw_start.get(), sb.dw_blocks.get());
    let count = (count as u64).clamp(1, (blocks / LEAST).max(1));
    let part = |n: u64| {
        let at = if planted::is(Bug::PartShared) { 0 } else { n };
        let (from, to) = (blocks * at / count, blocks * (at + 1) / count);
        Part { store, stats, id, start: start + from, blocks: to - from }
    };
    (0..count).map(part).collect()
}

/// Images that fit into a part of so many blocks.
pub(super) fn capacity(blocks: u64) -> usize {
    let segment = SEGMENT_IMAGES as u64 + 1;
    (blocks / segment * (segment - 1) + (blocks % segment).saturating_sub(1)) as usize
}

/// A batch whose images are durable in its part, which it has to itself.
#[must_use = "images that are not written home are lost"]
pub(super) struct Doubled<'p, 's> {
    part: &'p mut Part<'s>,
    images: Images,
}

impl<'s> Part<'s> {
    /// Images that fit.
    pub fn capacity(&self) -> usize {
        capacity(self.blocks)
    }

    /// Step 5: images, as many as fit, lie in the part durably on return.
    pub fn double(&mut self, sequence: u64, mut images: Images) -> Result<Doubled<'_, 's>> {
        let requests = images.area_writes(self.start, self.store.seed(), self.id, sequence);
        let bytes = requests.iter().map(|request| request.buf.len()).sum();
        let written = self.stats.time(Phase::DoubleWrite, || tried::write(self.store, requests));
        images.returned(written?);
        self.stats.moved(Phase::DoubleWrite, bytes);
        if !planted::is(Bug::NoDoubleWriteFlush) {
            self.stats.time(Phase::AreaFlush, || self.store.device().flush())?;
        }
        Ok(Doubled { part: self, images })
    }
}

impl Doubled<'_, '_> {
    /// Step 6: the images are durable at home on return.
    pub fn home(self, most: usize) -> Result<()> {
        write_home(self.part.store, self.part.stats, self.images, most)
    }
}

/// Writes images home, requests of up to `most` neighbours, and flushes.
pub(super) fn write_home(store: &Store, stats: &Counters, images: Images, most: usize) -> Result<()> {
    let bytes = images.bytes();
    let requests = images.into_home_writes(most);
    stats.home_requests.add(requests.len() as u64);
    // The buffers go back while the next batch is not yet copied.
    stats.time(Phase::WriteHome, || tried::write(store, requests).map(drop))?;
    stats.moved(Phase::WriteHome, bytes);
    if planted::is(Bug::HeadMovedBeforeFlush) || planted::is(Bug::AreaReusedEarly) {
        return Ok(());
    }
    stats.time(Phase::HomeFlush, || store.device().flush())
}
