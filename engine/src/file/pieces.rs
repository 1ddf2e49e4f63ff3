//! The pieces of a write-back: dirty pages get places, are copied and written.
//!
//! What this leaves to others: which pages, and what is recorded afterwards.

use super::growth::room_ahead;
use super::in_hands::InFlight;
use super::path::DataPath;
use super::read::REQUEST_PAGES;
use super::{Blocks, Change, DataInode, FileData, Home, Insert, Mapping};
use crate::cache::{Found, FrameState, Use};
use crate::device::{BLOCK_SIZE, Cause, Completion, IoBuf, Op, Request};
use crate::planted::{self, Bug, Spot};
use crate::sync::Arc;
use crate::{Error, Result};

/// Pages that are copied before the device is told of them: it begins while the next are copied.
const SUBMITTED_PAGES: usize = 256;
/// Pages of one write-back that the device has at the most, as copies in memory, where there is memory for so many
/// ([`super::staging`]): 40 requests, so that never fewer than 32 are in flight before the end of a long batch.
const IN_FLIGHT_PAGES: usize = 40 * REQUEST_PAGES as usize;

/// How a piece of consecutive pages gets its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It has one: nothing to record.
    Home,
    /// It has one that reads as zeros until a record says otherwise.
    Unwritten,
    /// It gets one.
    New,
}

/// Consecutive pages that go to consecutive blocks in one request.
pub(super) struct Piece<'p> {
    pub page: u64,
    pub block: u64,
    pub place: Place,
    /// Which run of blocks it is a piece of; a new one is an allocation of its own.
    run: usize,
    pub frames: Vec<Found<'p>>,
    /// Pages whose copy is newer than what is absorbed, by index.
    pub unsynced: Vec<bool>,
    pub result: Result<()>,
}

/// What became of picked pages.
#[derive(Default)]
pub(super) struct Arranged<'p> {
    pub pieces: Vec<Piece<'p>>,
    /// They do not fit one record, or come after an error.
    pub left: Vec<u64>,
    /// There is no block for them: they stay in memory, where room was promised to them.
    pub stays: Vec<u64>,
    pub error: Option<Error>,
}

impl<H: Home> DataPath<H> {
    /// Turns picked pages into pieces with places, new ones from `goal` on if that can be.
    pub(super) fn arrange<'p>(
        &'p self,
        inode: &Arc<H::Inode>,
        picked: &[u64],
        most_runs: usize,
        mut goal: Option<u64>,
    ) -> Arranged<'p> {
        let data = inode.data();
        let mut arranged = Arranged::default();
        let mut runs = 0;
        let mut i = 0;
        while i < picked.len() {
            let page = picked[i];
            let run = picked[i..].iter().zip(page..).take_while(|(p, q)| **p == *q).count() as u64;
            let mapping = match self.map(inode, page) {
                Ok(mapping) => mapping,
                Err(e) => {
                    return Arranged { left: picked[i..].to_vec(), error: Some(e), ..arranged };
                }
            };
            let (place, block, frames, len) = match mapping {
                Mapping::Mapped { block, len, unwritten } => {
                    let place = if unwritten { Place::Unwritten } else { Place::Home };
                    let len = len.min(run);
                    (place, block, self.found(data, page, len), len)
                }
                Mapping::Hole { .. } if runs >= most_runs => {
                    return Arranged { left: picked[i..].to_vec(), ..arranged };
                }
                Mapping::Hole { len } => {
                    if arranged.pieces.is_empty() {
                        goal = self.block_behind(inode, page).or(goal);
                    }
                    let mut frames = self.found(data, page, len.min(run).min(1 << 20));
                    if frames.is_empty() {
                        // The page left the cache by truncation: it needs no block now.
                        i += 1;
                        continue;
                    }
                    let blocks = match self.home.allocate(frames.len() as u32, room_ahead(page), goal) {
                        Ok(blocks) => blocks,
                        Err(Error::Errno(libc::ENOSPC)) if !self.keeps() => {
                            arranged.stays.extend(page..page + frames.len() as u64);
                            i += frames.len();
                            continue;
                        }
                        Err(e) => {
                            return Arranged { left: picked[i..].to_vec(), error: Some(e), ..arranged };
                        }
                    };
                    frames.truncate(blocks.len as usize);
                    (Place::New, blocks.start, frames, u64::from(blocks.len))
                }
            };
            if place != Place::Home {
                if runs >= most_runs {
                    return Arranged { left: picked[i..].to_vec(), ..arranged };
                }
                runs += 1;
                goal = Some(block + len);
            }
            let mut at = page;
            let mut frames = frames.into_iter().peekable();
            while frames.peek().is_some() {
                let part: Vec<_> = frames.by_ref().take(REQUEST_PAGES as usize).collect();
                let count = part.len() as u64;
                arranged.pieces.push(Piece {
                    page: at,
                    block: block + (at - page),
                    place,
                    run: runs,
                    frames: part,
                    unsynced: Vec::new(),
                    result: Ok(()),
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

    /// Copies and writes. Pieces that lie one behind the other on the device share a request; the device works on
    /// some while the next are copied, and so many are in flight that it never waits. A piece that fails where
    /// nothing is recorded yet is tried once more elsewhere, one that shared its request once more alone.
    pub(super) fn write_pieces(&self, pieces: &mut [&mut Piece<'_>], cause: Cause) {
        let device = self.home.device();
        let share = self.staging.share(pages_of(pieces).min(IN_FLIGHT_PAGES));
        // With a small share the device has half of it while the other half is copied.
        let submitted = SUBMITTED_PAGES.min(share.pages() / 2);
        let mut groups = in_rounds(pieces, REQUEST_PAGES as usize, |one, next| {
            one.place == next.place && one.place != Place::Unwritten && one.end() == next.block
        })
        .into_iter()
        .peekable();
        let mut in_flight = InFlight::new(device);
        let mut pages_in_flight = 0;
        let mut again = Vec::new();
        while groups.peek().is_some() {
            let mut pages = 0;
            let mut together = Vec::new();
            while let Some(group) = groups.next_if(|group| pages == 0 || pages + pages_of(group) <= submitted)
            {
                pages += pages_of(group);
                together.push(group);
            }
            while pages_in_flight + pages > share.pages()
                && let Some((done, (pages, groups))) = in_flight.wait()
            {
                pages_in_flight -= pages;
                landed(done, groups, &mut again);
                self.landed(pages);
            }
            let batch = together
                .iter_mut()
                .map(|group| Request { op: Op::Write, block: group[0].block, buf: copy_out(group), cause })
                .collect();
            // What was copied may be younger than an fsync that was answered already. Elsewhere the record tells.
            let in_place = together.iter().any(|group| group[0].place == Place::Home);
            if in_place
                && !planted::is(Bug::HomeBeforePromised)
                && let Err(e) = self.home.keep_promises()
            {
                together.into_iter().flatten().for_each(|piece| piece.result = Err(e.clone()));
                continue;
            }
            in_flight.push(device.submit(batch), (pages, together));
            planted::panic_at(Spot::InFlight);
            pages_in_flight += pages;
        }
        while let Some((done, (pages, groups))) = in_flight.wait() {
            landed(done, groups, &mut again);
            self.landed(pages);
        }
        for (piece, buf) in again {
            if piece.place != Place::New {
                let request = Request { op: Op::Write, block: piece.block, buf, cause };
                piece.result = device.run(vec![request]).map(|_| ());
                continue;
            }
            // What is set aside for others stays theirs.
            let want = piece.frames.len() as u32;
            let Ok(blocks) = self.home.allocate_spare(want) else { continue };
            let request = Request { op: Op::Write, block: blocks.start, buf, cause };
            if blocks.len < want || device.run(vec![request]).is_err() {
                // Where everything fails the blocks are not to blame, and all of them are wanted later.
                self.home.release_spare(blocks);
                continue;
            }
            // The failed ones stay taken until the next mount: nobody is to meet them again.
            piece.block = blocks.start;
            piece.run = usize::MAX;
            piece.result = Ok(());
        }
    }
}

impl Piece<'_> {
    /// The block after its last.
    pub fn end(&self) -> u64 {
        self.block + self.frames.len() as u64
    }
}

fn pages_of(pieces: &[&mut Piece<'_>]) -> usize {
    pieces.iter().map(|piece| piece.frames.len()).sum()
}

/// Files what became of requests with their pieces, which follow one another in the requests' buffers. Those that are
/// to be tried once more are added to `again`, with their bytes.
fn landed<'m, 'p>(
    done: Vec<Completion>,
    groups: Vec<&'m mut [&mut Piece<'p>]>,
    again: &mut Vec<(&'m mut Piece<'p>, IoBuf)>,
) {
    for (group, done) in groups.into_iter().zip(done) {
        let mut from = 0;
        let shared = group.len() > 1;
        for piece in group {
            let bytes = from..from + piece.frames.len() * BLOCK_SIZE;
            from = bytes.end;
            piece.result = done.result.clone();
            if piece.result.is_err() && (piece.place == Place::New || shared) {
                again.push((piece, IoBuf::from_slice(&done.buf[bytes])));
            }
        }
    }
}

/// Copies the pages of pieces under their latches, and puts them under write-back.
fn copy_out(pieces: &mut [&mut Piece<'_>]) -> IoBuf {
    let mut buf = IoBuf::unwiped(pages_of(pieces) * BLOCK_SIZE);
    let mut into = buf.chunks_exact_mut(BLOCK_SIZE);
    for piece in pieces {
        for (found, into) in piece.frames.iter().zip(&mut into) {
            let latched = found.latch();
            latched.copy(0, into);
            piece.unsynced.push(!found.flags().contains(FrameState::SYNCED));
            found.start_write_back(&latched);
        }
    }
    buf
}

/// The record of what was written.
pub(super) fn change_of(pieces: &[Piece<'_>]) -> Change {
    let mut change = Change::default();
    let mut last_run = usize::MAX;
    for piece in pieces.iter().filter(|piece| piece.result.is_ok()) {
        let pages = piece.page..piece.page + piece.frames.len() as u64;
        match piece.place {
            Place::Home => {}
            Place::Unwritten => match change.mark_written.last_mut() {
                Some(last) if last.end == pages.start => last.end = pages.end,
                _ => change.mark_written.push(pages),
            },
            Place::New => {
                let len = piece.frames.len() as u32;
                let same = piece.run == last_run && last_run != usize::MAX;
                last_run = piece.run;
                match change.insert.last_mut() {
                    // A piece between the two may have failed.
                    Some(last) if same && last.page + u64::from(last.blocks.len) == piece.page => {
                        last.blocks.len += len;
                    }
                    _ => change.insert.push(Insert {
                        page: piece.page,
                        blocks: Blocks { start: piece.block, len },
                        unwritten: false,
                    }),
                }
            }
        }
    }
    change
}

/// Splits pieces into groups of at most so many pages, each with at least one piece, and with neighbours only that
/// may follow one another.
fn in_rounds<'s, 'm, 'p>(
    pieces: &'s mut [&'m mut Piece<'p>],
    pages: usize,
    follows: impl Fn(&Piece<'p>, &Piece<'p>) -> bool,
) -> Vec<&'s mut [&'m mut Piece<'p>]> {
    let mut groups = Vec::new();
    let mut rest = pieces;
    while let Some(first) = rest.first() {
        let mut sum = first.frames.len();
        let joins = |pair: &[&'m mut Piece<'p>]| {
            sum += pair[1].frames.len();
            sum <= pages && follows(pair[0], pair[1])
        };
        let count = 1 + rest.windows(2).map(joins).take_while(|joins| *joins).count();
        let (group, others) = rest.split_at_mut(count);
        groups.push(group);
        rest = others;
    }
    groups
}
