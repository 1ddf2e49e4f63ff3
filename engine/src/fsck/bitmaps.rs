//! The bitmaps against what is owned. Comes last, when nothing else is left to mend.

use super::image;
use super::issue::{IssueKind, Location};
use super::state::{State, is_marked};
use super::{Counts, Stage};
use crate::Result;
use crate::format::{BLOCKS_PER_GROUP, BlockKind};
use crate::store::fill_bits;
use crate::superblock::{group_blocks, group_start};

/// Compares, mends, and counts.
pub(super) fn check(state: &mut State<'_>, counts: &mut Counts) -> Result<()> {
    let groups = state.image.sb.groups.get();
    state.bitmaps(|state, group, bytes| {
        state.at(Stage::Bitmaps, group, groups);
        let (first, blocks) = (group_start(&state.image.sb, group), group_blocks(&state.image.sb, group));
        let place = Location::block(first);
        // Whatever lies beyond the image counts as taken.
        let owned = |at: u64| at >= blocks || state.claims.has(first + at);
        counts.blocks += blocks;
        counts.used += (0..blocks).filter(|at| owned(*at)).count() as u64;
        let (mut missing, mut leaked) = (Rows::default(), Rows::default());
        if let Ok(bytes) = bytes {
            // What a growth that a crash cut off has freed beyond the image is nobody's concern.
            for at in 0..blocks {
                match (owned(at), is_marked(bytes, at)) {
                    (true, false) => missing.add(first + at),
                    (false, true) => leaked.add(first + at),
                    _ => {}
                }
            }
        }
        let bad = bytes.err().map(str::to_string);
        if bad.is_none() && missing.count + leaked.count == 0 {
            return Ok(());
        }
        let mut fresh = image::fresh(BlockKind::Bitmap, group, 0);
        if let Ok(page) = <&mut [u8; crate::device::BLOCK_SIZE]>::try_from(&mut fresh[..]) {
            (0..BLOCKS_PER_GROUP).filter(|at| owned(*at)).for_each(|at| fill_bits(page, at as u32, 1, true));
        }
        if let Some(why) = bad {
            state.found(IssueKind::BitmapBlock, place, format!("group {group}: {why}"));
        }
        if missing.count > 0 {
            let detail = format!("group {group}: {} are in use and marked as free", missing.shown());
            state.found(IssueKind::BlockNotMarked, Location::block(missing.first), detail);
        }
        if leaked.count > 0 {
            let detail =
                format!("group {group}: {} are marked as in use and belong to nothing", leaked.shown());
            state.found(IssueKind::BlockLeaked, Location::block(leaked.first), detail);
        }
        state.image.put(first, BlockKind::Bitmap, fresh)
    })
}

/// Blocks of a group, to be spoken of.
#[derive(Default)]
struct Rows {
    first: u64,
    last: u64,
    count: u64,
}

impl Rows {
    fn add(&mut self, block: u64) {
        if self.count == 0 {
            self.first = block;
        }
        self.last = block;
        self.count += 1;
    }

    fn shown(&self) -> String {
        format!("{} blocks between {} and {}", self.count, self.first, self.last)
    }
}
