//! The requests of a write-back: pieces of dirty pages are copied and written.
//!
//! What this leaves to others: which pages, where they go (`place`), and what is recorded afterwards.

use super::place::{Piece, Place};
use crate::cache::FrameState;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, Completion, IoBuf, Op, Request, Ticket};
use crate::file::data_path::DataPath;
use crate::pages::readahead::REQUEST_PAGES;
use crate::planted::{self, Bug, Spot};
use std::collections::VecDeque;

/// Pages that are copied before the device is told of them: it begins while the next are copied.
const SUBMITTED_PAGES: usize = 256;
/// Pages of one write-back that the device has at the most, as copies in memory, where there is memory for so many
/// ([`bounce`](super::bounce)): 40 requests, so that never fewer than 32 are in flight before the end of a long batch.
const IN_FLIGHT_PAGES: usize = 40 * REQUEST_PAGES as usize;

impl DataPath {
    /// Copies and writes. Pieces that lie one behind the other on the device share a request; the device works on
    /// some while the next are copied, and so many are in flight that it never waits. A piece that fails where
    /// nothing is recorded yet is tried once more elsewhere, one that shared its request once more alone.
    pub(in crate::file) fn write_pieces(&self, pieces: &mut [&mut Piece<'_>], cause: Cause) {
        let device = self.meta.device();
        let share = self.bounce.share(pages_of(pieces).min(IN_FLIGHT_PAGES));
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
            let in_place = together.iter().any(|group| group[0].place == Place::Mapped);
            if in_place
                && !planted::is(Bug::HomeBeforePromised)
                && let Err(e) = self.meta.keep_promises()
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
            let Ok(blocks) = self.meta.allocate_spare(want) else { continue };
            let request = Request { op: Op::Write, block: blocks.start, buf, cause };
            if blocks.len < want || device.run(vec![request]).is_err() {
                // Where everything fails the blocks are not to blame, and all of them are wanted later.
                self.meta.release_spare(blocks);
                continue;
            }
            // The failed ones stay taken until the next mount: nobody is to meet them again.
            piece.block = blocks.start;
            piece.run = usize::MAX;
            piece.result = Ok(());
        }
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

/// Requests that the device has, in order, each with what is to be done when it is over. Dropped by a panic it waits for
/// the device, lest a later request write over what is written to its blocks.
struct InFlight<'d, T> {
    device: &'d dyn BlockDevice,
    requests: VecDeque<(Ticket, T)>,
}

impl<'d, T> InFlight<'d, T> {
    /// None.
    fn new(device: &'d dyn BlockDevice) -> InFlight<'d, T> {
        InFlight { device, requests: VecDeque::new() }
    }

    fn push(&mut self, ticket: Ticket, with: T) {
        self.requests.push_back((ticket, with));
    }

    /// Waits for the oldest.
    fn wait(&mut self) -> Option<(Vec<Completion>, T)> {
        let (ticket, with) = self.requests.pop_front()?;
        Some((self.device.wait(ticket), with))
    }
}

impl<T> Drop for InFlight<'_, T> {
    fn drop(&mut self) {
        // None are left but by unwinding.
        while self.wait().is_some() {}
    }
}
