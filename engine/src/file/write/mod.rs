//! Writes into the cache.
//!
//! A write (1) throttles and gets frames with no lock held, (2) takes its range, (3) pins what is cached, asks
//! what is mapped, sets blocks aside, fetches pages it overwrites in part; only then, when nothing can fail any
//! more, (4) copies, and makes the pages dirty. If frames run out in (3) it lets go of everything and starts
//! again with enough of them, so that write-back is seldom waited for with a range in hand.
//!
//! A long write goes in steps of (3) and (4). It keeps its whole range from the first to the last, so that reads see
//! all of it or nothing; later steps wait for frames with the range in hand. That ends: write-back takes no range,
//! and frames held by those who wait for a range are a part of the pool ([`FrameReservation`]).
//!
//! A step for which there is no room, or too few frames, has changed nothing. It is tried again with fewer pages, down to
//! one ([`Steps`]): what fits is written.

pub(in crate::file) mod edits;
pub(in crate::file) mod joining;
pub(in crate::file) mod reservation;

use crate::cache::FrameState;
use crate::device::BLOCK_SIZE;
use crate::file::data_path::{DataPath, check_size, step_pages};
use crate::file::read::overlap;
use crate::file::write::edits::{Content, Edit};
use crate::file::write::reservation::{FrameReservation, Steps, is_full};
use crate::format::MAX_FILE_SIZE;
use crate::inode::InodeObj;
use crate::pages::{Delayed, FileData};
use crate::pages::{PAGE, PAGES_END, page_after, page_of};
use crate::planted::kill::{self, Step};
use crate::planted::{self, Bug};
use crate::sync::Arc;
use crate::takeover::requests;
use crate::{Error, Result};
use std::ops::Range;

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// To this byte.
    Offset(u64),
    /// To the end of the file, wherever that is when its turn comes.
    Append,
}

/// What becomes of a write for which there is too little room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// What fits is written.
    Part,
    /// Of each step all is written, or nothing.
    Whole,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// First byte written.
    pub offset: u64,
    /// Bytes written; less than asked for if a later part failed.
    pub len: usize,
}

impl DataPath {
    /// Writes all of `bytes`, or a part if a later part fails. Other reads and writes see all of what was written, or
    /// nothing; the size may be seen to grow meanwhile.
    pub fn write(&self, inode: &Arc<InodeObj>, at: At, bytes: &[u8]) -> Result<Written> {
        self.write_fit(inode, at, bytes, Fit::Part)
    }

    /// The same, or as a whole.
    pub fn write_fit(&self, inode: &Arc<InodeObj>, at: At, bytes: &[u8], fit: Fit) -> Result<Written> {
        self.write_and(inode, at, bytes, fit, || inode.touch_content())
    }

    /// The same for one who changes the times by himself.
    pub fn write_keeping_times(&self, inode: &Arc<InodeObj>, at: At, bytes: &[u8]) -> Result<Written> {
        self.write_and(inode, at, bytes, Fit::Part, || ())
    }

    /// The same, and has the times changed before the range is given back.
    fn write_and(
        &self,
        inode: &Arc<InodeObj>,
        at: At,
        bytes: &[u8],
        fit: Fit,
        touch: impl Fn(),
    ) -> Result<Written> {
        if bytes.is_empty() {
            return Ok(Written { offset: 0, len: 0 });
        }
        let data = inode.data();
        self.flusher.throttle(inode, bytes.len())?;
        let mut steps = self.steps(fit);
        loop {
            let size = data.size();
            let offset = match at {
                At::Offset(offset) => offset,
                At::Append => size,
            };
            if offset >= MAX_FILE_SIZE {
                return Err(Error::Errno(libc::EFBIG));
            }
            let bytes = &bytes[..bytes.len().min((MAX_FILE_SIZE - offset) as usize)];
            let end = offset + bytes.len() as u64;
            let grows = end > size;
            let start = if grows { offset.min(size) } else { offset };
            let until = if grows { u64::MAX } else { page_after(end) * PAGE };
            let range = page_of(start) * PAGE..until;
            #[cfg(feature = "baselines")]
            let range = self.swap_range(range);
            let guard = data.write_range(range);
            data.check_usable()?;
            let now = data.size();
            if now != size && (grows || end > now) {
                continue;
            }
            let mut len = match self.write_step(inode, offset, bytes, &mut steps)? {
                Ok(len) => len,
                Err(count) => {
                    drop(guard);
                    let old = std::mem::take(&mut steps.frames);
                    let taken = self.reserve_frames(old, count).map(|frames| steps.frames = frames);
                    steps.or_fewer(taken)?;
                    continue;
                }
            };
            steps.frames = FrameReservation::default();
            while len < bytes.len() {
                match self.write_further(inode, offset + len as u64, &bytes[len..], &mut steps) {
                    Ok(step) => len += step,
                    Err(_) => break,
                }
            }
            touch();
            self.keep(inode);
            kill::step(Step::Copied);
            if !planted::is(Bug::NotedAfterUnlock) {
                requests::wrote(len);
            }
            kill::step(Step::Wrote);
            return Ok(Written { offset, len });
        }
    }

    /// Steps of a write.
    pub(in crate::file) fn steps<'p>(&self, fit: Fit) -> Steps<'p> {
        Steps::of(step_pages(&self.pool), fit)
    }

    /// As many pages as a step has, or there is room for, and the new size; the bytes written, or the number of frames
    /// that are missing. The caller has the range.
    fn write_step<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        offset: u64,
        bytes: &[u8],
        steps: &mut Steps<'p>,
    ) -> Result<std::result::Result<usize, usize>> {
        loop {
            let most = (page_of(offset) + steps.pages()) * PAGE - offset;
            let bytes = &bytes[..bytes.len().min(most as usize)];
            match self.write_pages(inode, offset, bytes, &mut steps.frames) {
                Ok(Outcome::Done) => {
                    steps.went();
                    return Ok(Ok(bytes.len()));
                }
                Ok(Outcome::Frames(_)) if steps.takes_what_is_there() => {}
                Ok(Outcome::Frames(count)) => return Ok(Err(count)),
                // Room was made: where there still is none, no step but one that needs none can go on.
                Err(e) if is_full(&e) && steps.shorten_to_fit(self.meta.alloc.available()) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Steps (3) and (4) of a write, and the new size.
    fn write_pages<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        offset: u64,
        bytes: &[u8],
        frames: &mut FrameReservation<'p>,
    ) -> Result<Outcome> {
        let data = inode.data();
        let size = data.size();
        #[cfg(feature = "baselines")]
        self.swap_in_for_write(inode, offset, bytes.len(), size)?;
        if !self.overwrite(data, offset, size, bytes)
            && let Outcome::Frames(count) = self.edit(inode, offset, Content::Bytes(bytes), size, frames)?
        {
            return Ok(Outcome::Frames(count));
        }
        let end = offset + bytes.len() as u64;
        if end > size {
            data.set_size(end);
            self.write_back.queue().add(inode);
        }
        Ok(Outcome::Done)
    }

    /// A later step of a write: waits for frames with the range in hand.
    pub(in crate::file) fn write_further<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        offset: u64,
        bytes: &[u8],
        steps: &mut Steps<'p>,
    ) -> Result<usize> {
        self.flusher.throttle(inode, bytes.len())?;
        loop {
            match self.write_step(inode, offset, bytes, steps)? {
                Ok(len) => return Ok(len),
                Err(count) => {
                    let taken = steps.frames.replace(|| self.flusher.frames(count));
                    steps.or_fewer(taken)?;
                }
            }
        }
    }

    /// The short way: within one page that is cached and needs no block.
    #[inline]
    fn overwrite(&self, data: &FileData, offset: u64, size: u64, bytes: &[u8]) -> bool {
        let page = page_of(offset);
        let within = (offset % PAGE) as usize..(offset % PAGE) as usize + bytes.len();
        if within.end > BLOCK_SIZE || (size < offset && page_of(size) != page) {
            return false;
        }
        let Some(mut latched) = data.index.get(page).and_then(|slot| self.pool.latch(slot)) else {
            return false;
        };
        // A clean page joins the dirty ones by the long way, which lists the file; so does one that was absorbed.
        let flags = latched.flags();
        if !flags.contains(FrameState::DIRTY) || flags.contains(FrameState::SYNCED) {
            return false;
        }
        latched.write(within.start, bytes);
        latched.stays_dirty(within);
        true
    }

    /// Steps (3) and (4) for `content` at `offset`, of a file of `size` bytes; the caller has the range.
    pub(in crate::file) fn edit<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        offset: u64,
        content: Content<'_>,
        size: u64,
        frames: &mut FrameReservation<'p>,
    ) -> Result<Outcome> {
        let end = offset + content.len() as u64;
        let mut edits = Vec::new();
        if !size.is_multiple_of(PAGE) && page_of(size) < page_of(offset) {
            // Beyond the old end lies whatever was there before: zeros must reach the device before the size.
            let within = (size % PAGE) as usize..BLOCK_SIZE;
            edits.push(Edit { page: page_of(size), within, part: 0..0 });
        }
        for page in page_of(offset)..page_after(end) {
            let (within, part) = overlap(page, offset, content.len());
            edits.push(Edit { page, within, part });
        }
        self.apply(inode, &edits, content, size, frames)
    }

    /// Zeroes parts of a file of `size` bytes, no two of them in one page and in ascending order, where something is
    /// cached or written; the caller has their range.
    pub(in crate::file) fn zero_parts<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        parts: &[Range<u64>],
        size: u64,
        frames: &mut FrameReservation<'p>,
    ) -> Result<Outcome> {
        let mut edits = Vec::new();
        for part in parts {
            let len = (part.end - part.start) as usize;
            for page in page_of(part.start)..page_after(part.end) {
                let (within, part) = overlap(page, part.start, len);
                edits.push(Edit { page, within, part });
            }
        }
        self.apply(inode, &edits, Content::Zeros(0), size, frames)
    }

    /// Steps (3) and (4).
    fn apply<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        edits: &[Edit],
        content: Content<'_>,
        size: u64,
        frames: &mut FrameReservation<'p>,
    ) -> Result<Outcome> {
        match self.make_ready(inode, edits, content, size, frames)? {
            Ok(ready) => self.copy_in(inode, edits, content, ready),
            Err(count) => return Ok(Outcome::Frames(count)),
        }
        Ok(Outcome::Done)
    }

    /// Sets blocks aside. If the image is full, what waits is written, so that what it does not need for its extents is had
    /// by others. It may wait for records of other files, with the range in hand and nothing else.
    pub(in crate::file) fn reserve(&self, delayed: &Delayed) -> Result<()> {
        self.reserve_with(|| self.meta.reserve(delayed.blocks(), delayed.nodes()))
    }

    /// The same for what gets its blocks at once, by one record.
    pub(in crate::file) fn reserve_for_record(&self, blocks: u64) -> Result<()> {
        self.reserve_with(|| self.meta.reserve_for_record(blocks))
    }

    fn reserve_with(&self, reserve: impl Fn() -> Result<()>) -> Result<()> {
        let result = reserve();
        let is_full = result == Err(Error::Errno(libc::ENOSPC));
        if !is_full || !self.write_back.keeps() || self.meta.promised_nodes() == 0 {
            return result;
        }
        self.write_back.need_less();
        self.meta.trim_promises();
        reserve()
    }

    /// Makes the file longer; what is between reads as zeros.
    pub(in crate::file) fn grow(&self, inode: &Arc<InodeObj>, size: u64) -> Result<()> {
        check_size(size)?;
        let data = inode.data();
        let mut frames = FrameReservation::default();
        loop {
            let old = data.size();
            if size <= old {
                return Ok(());
            }
            let guard = data.write_range(page_of(old) * PAGE..u64::MAX);
            data.check_usable()?;
            if data.size() != old {
                continue;
            }
            let beyond = page_after(old).min(PAGES_END) * PAGE;
            match self.edit(inode, beyond, Content::Zeros(0), old, &mut frames)? {
                Outcome::Done => {}
                Outcome::Frames(count) => {
                    drop(guard);
                    frames = self.reserve_frames(frames, count)?;
                    continue;
                }
            }
            data.set_size(size);
            self.keep(inode);
            self.write_back.queue().add(inode);
            return Ok(());
        }
    }
}

/// How far an edit came.
pub(in crate::file) enum Outcome {
    /// All pages are dirty.
    Done,
    /// Nothing happened: so many frames are needed first.
    Frames(usize),
}
