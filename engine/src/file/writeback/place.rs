//! Where selected pages go: extents of consecutive pages that have a place, or get one.
//!
//! What this leaves to others: which pages (`select`), how the extents are written (`submit`), and what is recorded
//! afterwards.

use super::preallocation::{block_behind, room_ahead};
use crate::cache::{Found, FrameState, Use};
use crate::file::writeback::WriteBack;
use crate::inode::InodeObj;
use crate::meta::{Blocks, Change, Insert, Mapping};
use crate::pages::FileData;
use crate::pages::readahead::REQUEST_PAGES;
use crate::sync::Arc;
use crate::unwinding::Unwinding;
use crate::{Error, Result};

/// How a extent of consecutive pages gets its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::file) enum Place {
    /// It has one: nothing to record.
    Mapped,
    /// It has one that reads as zeros until a record says otherwise.
    Unwritten,
    /// It gets one.
    New,
}

/// Consecutive pages that go to consecutive blocks in one request.
pub(in crate::file) struct WriteExtent<'p> {
    pub page: u64,
    pub block: u64,
    pub place: Place,
    /// Which run of blocks it is a extent of; a new one is an allocation of its own.
    pub(super) run: usize,
    pub frames: Vec<Found<'p>>,
    /// Pages whose copy is newer than what is absorbed, by index.
    pub unsynced: Vec<bool>,
    pub result: Result<()>,
    pub(super) unwinding: Unwinding,
}

/// What became of selected pages.
#[derive(Default)]
pub(super) struct Arranged<'p> {
    pub extents: Vec<WriteExtent<'p>>,
    /// They do not fit one record, or come after an error.
    pub left: Vec<u64>,
    /// There is no block for them: they stay in memory, where room was promised to them.
    pub stays: Vec<u64>,
    pub error: Option<Error>,
}

impl WriteExtent<'_> {
    /// The block after its last.
    pub fn end(&self) -> u64 {
        self.block + self.frames.len() as u64
    }
}

/// Ends the write-back of its frames, which are wholly dirty again, when a panic unwinds.
impl Drop for WriteExtent<'_> {
    fn drop(&mut self) {
        if !self.unwinding.has_begun() {
            return;
        }
        for found in self.frames.iter().filter(|found| found.flags().contains(FrameState::WRITEBACK)) {
            found.fail_write_back();
        }
    }
}

impl WriteBack {
    /// Turns selected pages into extents with places, new ones from `goal` on if that can be.
    pub(super) fn arrange<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        selected: &[u64],
        most_runs: usize,
        mut goal: Option<u64>,
    ) -> Arranged<'p> {
        let data = inode.data();
        let mut arranged = Arranged::default();
        let mut runs = 0;
        let mut i = 0;
        while i < selected.len() {
            let page = selected[i];
            let run = selected[i..].iter().zip(page..).take_while(|(p, q)| **p == *q).count() as u64;
            let mapping = match self.meta.map(inode, page) {
                Ok(mapping) => mapping,
                Err(e) => {
                    return Arranged { left: selected[i..].to_vec(), error: Some(e), ..arranged };
                }
            };
            let (place, block, frames, len) = match mapping {
                Mapping::Mapped { block, len, unwritten } => {
                    let place = if unwritten { Place::Unwritten } else { Place::Mapped };
                    let len = len.min(run);
                    (place, block, self.found(data, page, len), len)
                }
                Mapping::Hole { .. } if runs >= most_runs => {
                    return Arranged { left: selected[i..].to_vec(), ..arranged };
                }
                Mapping::Hole { len } => {
                    if arranged.extents.is_empty() {
                        goal = block_behind(&self.meta, inode, page).or(goal);
                    }
                    let mut frames = self.found(data, page, len.min(run).min(1 << 20));
                    if frames.is_empty() {
                        // The page left the cache by truncation: it needs no block now.
                        i += 1;
                        continue;
                    }
                    let blocks = match self.meta.allocate(frames.len() as u32, room_ahead(page), goal) {
                        Ok(blocks) => blocks,
                        Err(Error::Errno(libc::ENOSPC)) if !self.keeps() => {
                            arranged.stays.extend(page..page + frames.len() as u64);
                            i += frames.len();
                            continue;
                        }
                        Err(e) => {
                            return Arranged { left: selected[i..].to_vec(), error: Some(e), ..arranged };
                        }
                    };
                    frames.truncate(blocks.len as usize);
                    (Place::New, blocks.start, frames, u64::from(blocks.len))
                }
            };
            if place != Place::Mapped {
                if runs >= most_runs {
                    return Arranged { left: selected[i..].to_vec(), ..arranged };
                }
                runs += 1;
                goal = Some(block + len);
            }
            let mut at = page;
            let mut frames = frames.into_iter().peekable();
            while frames.peek().is_some() {
                let part: Vec<_> = frames.by_ref().take(REQUEST_PAGES as usize).collect();
                let count = part.len() as u64;
                arranged.extents.push(WriteExtent {
                    page: at,
                    block: block + (at - page),
                    place,
                    run: runs,
                    frames: part,
                    unsynced: Vec::new(),
                    result: Ok(()),
                    unwinding: Unwinding::watch(),
                });
                at += count;
            }
            i += (at - page).max(1) as usize;
        }
        arranged
    }

    /// The frames of dirty pages from `page` on, up to the first that is not.
    fn found<'p>(&'p self, data: &FileData, page: u64, len: u64) -> Vec<Found<'p>> {
        (page..page + len)
            .map_while(|page| {
                let found = self.pool.find(data.index.get(page)?, Use::No)?;
                found.flags().contains(FrameState::DIRTY).then_some(found)
            })
            .collect()
    }
}

/// The record of what was written.
pub(super) fn change_of(extents: &[WriteExtent<'_>]) -> Change {
    let mut change = Change::default();
    let mut last_run = usize::MAX;
    for extent in extents.iter().filter(|extent| extent.result.is_ok() && extent.place != Place::Mapped) {
        let pages = extent.page..extent.page + extent.frames.len() as u64;
        let same = extent.run == last_run && last_run != usize::MAX;
        last_run = extent.run;
        match extent.place {
            Place::Mapped => {}
            Place::Unwritten => match change.mark_written.last_mut() {
                // Each lies in one run.
                Some(last) if same && last.end == pages.start => last.end = pages.end,
                _ => change.mark_written.push(pages),
            },
            Place::New => {
                let len = extent.frames.len() as u32;
                match change.insert.last_mut() {
                    // A extent between the two may have failed.
                    Some(last) if same && last.page + u64::from(last.blocks.len) == extent.page => {
                        last.blocks.len += len;
                    }
                    _ => change.insert.push(Insert {
                        page: extent.page,
                        blocks: Blocks { start: extent.block, len },
                        unwritten: false,
                    }),
                }
            }
        }
    }
    change
}
