//! The pages of one step of a write: made ready, which may fail, and then changed, which may not.

use crate::Result;
use crate::cache::{Found, FrameState, Fresh, Use};
use crate::device::IoBuf;
use crate::file::data_path::{DataPath, page_id};
use crate::file::write::joining::Joining;
use crate::file::write::reservation::FrameReservation;
use crate::inode::InodeObj;
use crate::meta::{Mapping, Meta};
use crate::pages::{Delayed, PAGE, page_of};
use crate::planted::{self, Spot};
use crate::sync::Arc;
use std::ops::Range;

/// A page of a step, ready for the copy.
pub(in crate::file) enum Ready<'p> {
    Cached(Found<'p>),
    Fresh { frame: Fresh<'p>, base: Option<IoBuf>, flags: FrameState },
}

/// All pages of a step, with the blocks that were set aside for them.
pub(in crate::file) struct ReadyPages<'p> {
    /// None: nothing is to be done to the page.
    pub pages: Vec<Option<Ready<'p>>>,
    delayed: Option<Delayed>,
    meta: &'p Meta,
}

impl Drop for ReadyPages<'_> {
    fn drop(&mut self) {
        if let Some(delayed) = &self.delayed {
            self.meta.unreserve(delayed.blocks(), delayed.nodes());
        }
    }
}

/// A page to be made dirty: which bytes of it, and from where they come (none: zeros).
pub(in crate::file) struct Edit {
    pub page: u64,
    pub within: Range<usize>,
    pub part: Range<usize>,
}

impl Edit {
    /// `len` bytes at `offset`, which lie in one page.
    pub fn within_page(offset: u64, len: usize) -> Edit {
        let start = (offset % PAGE) as usize;
        Edit { page: page_of(offset), within: start..start + len, part: 0..len }
    }
}

/// What a step writes.
#[derive(Clone, Copy)]
pub(in crate::file) enum Content<'a> {
    Bytes(&'a [u8]),
    Zeros(usize),
}

impl Content<'_> {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Zeros(len) => *len,
        }
    }
}

impl DataPath {
    /// Step (3): all that can fail. The number of frames that are missing, if some are.
    pub(in crate::file) fn make_ready<'p>(
        &'p self,
        inode: &Arc<InodeObj>,
        edits: &[Edit],
        content: Content<'_>,
        size: u64,
        frames: &mut FrameReservation<'p>,
    ) -> Result<std::result::Result<ReadyPages<'p>, usize>> {
        let data = inode.data();
        data.pool.get_or_init(|| Arc::clone(&self.pool));
        // All that is cached is pinned before anything is mapped: a page that is dirty without a block may be recorded, and
        // leave, at any moment before. What is mapped afterwards of the others stays, for they have nothing to record.
        let cached = |edit: &Edit| {
            let found = data.index.get(edit.page).and_then(|slot| self.pool.find(slot, Use::Yes));
            found.map(Ready::Cached)
        };
        let mut ready: Vec<_> = edits.iter().map(cached).collect();
        let (mut reserve, mut holes) = (0, 0..0);
        let mut known: Option<(u64, Mapping)> = None;
        for (i, edit) in edits.iter().enumerate() {
            if ready[i].is_some() {
                continue;
            }
            let (at, mapping) = match known {
                Some((at, mapping)) if edit.page < at + mapping.len() => (at, mapping),
                _ => (edit.page, self.meta.map(inode, edit.page)?),
            };
            known = Some((at, mapping));
            let tail_only = edit.part.is_empty();
            let zeros_over_nothing = tail_only || matches!(content, Content::Zeros(_));
            let mapped = matches!(mapping, Mapping::Mapped { unwritten: false, .. });
            if !mapped && zeros_over_nothing {
                continue;
            }
            let Some(frame) = frames.pop().or_else(|| self.pool.take()) else {
                let have = ready.iter().filter(|r| matches!(r, Some(Ready::Fresh { .. }))).count();
                let missing = ready[i..].iter().filter(|r| r.is_none()).count();
                return Ok(Err(missing + have));
            };
            let valid = size.saturating_sub(edit.page * PAGE).min(PAGE) as usize;
            let partial = edit.within.start.min(valid) > 0 || edit.within.end < valid;
            let mut base = None;
            let mut flags = FrameState::DIRTY;
            match mapping {
                Mapping::Mapped { block, unwritten: false, .. } => {
                    flags |= FrameState::MAPPED;
                    if partial {
                        base = Some(self.fetch_page(edit.page, block + (edit.page - at), size)?);
                    }
                }
                Mapping::Mapped { .. } => {}
                Mapping::Hole { .. } => {
                    flags |= FrameState::RESERVED;
                    holes = if reserve == 0 { edit.page } else { holes.start }..edit.page + 1;
                    reserve += 1;
                }
            }
            ready[i] = Some(Ready::Fresh { frame, base, flags });
        }
        let mut delayed = None;
        if reserve > 0 {
            let new = Delayed::new(holes, reserve, inode.lock.read().extent_depth);
            self.reserve(&new)?;
            delayed = Some(new);
        }
        Ok(Ok(ReadyPages { pages: ready, delayed, meta: &self.meta }))
    }

    /// Step (4): nothing here fails.
    pub(in crate::file) fn copy_in(
        &self,
        inode: &Arc<InodeObj>,
        edits: &[Edit],
        content: Content<'_>,
        mut ready: ReadyPages<'_>,
    ) {
        let data = inode.data();
        let delayed = ready.delayed.take();
        let ready = std::mem::take(&mut ready.pages);
        let mut joining = Joining::begin(self.write_back.queue(), &self.meta, inode, delayed);
        for (edit, ready) in edits.iter().zip(ready) {
            let source = match content {
                Content::Bytes(bytes) => Some(&bytes[edit.part.clone()]),
                Content::Zeros(_) => None,
            };
            let source = source.filter(|bytes| !bytes.is_empty());
            match ready {
                None => {}
                Some(Ready::Cached(found)) => {
                    let mut latched = found.latch();
                    match source {
                        Some(bytes) => latched.write(edit.within.start, bytes),
                        None => latched.zero(edit.within.clone()),
                    }
                    if found.mark_dirty(&latched, edit.within.clone()) {
                        joining.pages.push(edit.page);
                    }
                }
                Some(Ready::Fresh { mut frame, base, flags }) => {
                    let bytes = frame.bytes();
                    match base {
                        Some(base) => bytes.copy_from_slice(&base),
                        None => {
                            bytes[..edit.within.start].fill(0);
                            bytes[edit.within.end..].fill(0);
                        }
                    }
                    match source {
                        Some(source) => bytes[edit.within.clone()].copy_from_slice(source),
                        None => bytes[edit.within.clone()].fill(0),
                    }
                    let page = page_id(inode.as_ref(), edit.page);
                    let slot = data.index.slot(edit.page, &self.pool);
                    let published = frame.publish(slot, page, flags, edit.within.clone());
                    assert!(published.is_ok(), "the range keeps everybody else from the page");
                    joining.pages.push(edit.page);
                }
            }
            if source.is_some() {
                joining.upto = edit.page * PAGE + edit.within.end as u64;
                planted::panic_at(Spot::Joining);
            }
        }
        joining.join();
    }
}
