//! The requests of a write-back: extents of dirty pages are copied and written.
//!
//! What this leaves to others: which pages, where they go (`place`), and what is recorded afterwards.

use super::place::{Place, WriteExtent};
use crate::cache::FrameState;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, Completion, IoBuf, Op, Request, Ticket};
use crate::file::writeback::WriteBack;
use crate::format::Position;
use crate::pages::readahead::REQUEST_PAGES;
use crate::planted::{self, Bug, Spot};
use std::collections::VecDeque;

/// Pages that are copied before the device is told of them: it begins while the next are copied.
const SUBMITTED_PAGES: usize = 256;
/// Pages of one write-back that the device has at the most, as copies in memory, where there is memory for so many
/// ([`bounce`](super::bounce)): 40 requests, so that never fewer than 32 are under way before the end of a long batch.
const MOST_SUBMITTED_PAGES: usize = 40 * REQUEST_PAGES as usize;

impl WriteBack {
    /// Requests for so many pages have ended: throttled writers may go on.
    fn grant(&self, pages: usize) {
        if self.throttle.is_on() {
            self.throttle.grant(self.levels().grant(pages, self.pool.dirty()));
        }
    }

    /// Copies and writes. Extents that lie one behind the other on the device share a request; the device works on
    /// some while the next are copied, and so many are under way that it never waits. A extent that fails where
    /// nothing is recorded yet is tried once more elsewhere, one that shared its request once more alone. What a record of
    /// a batch may hold lies below `batched_upto`: of that no page is in place before the record is durable.
    pub(in crate::file) fn submit(
        &self,
        extents: &mut [&mut WriteExtent<'_>],
        batched_upto: Position,
        cause: Cause,
    ) {
        let device = &**self.meta.store().device();
        let share = self.bounce.share(pages_of(extents).min(MOST_SUBMITTED_PAGES));
        // With a small share the device has half of it while the other half is copied.
        let submitted = SUBMITTED_PAGES.min(share.pages() / 2);
        let mut groups = in_rounds(extents, REQUEST_PAGES as usize, |one, next| {
            one.place == next.place && one.place != Place::Unwritten && one.end() == next.block
        })
        .into_iter()
        .peekable();
        let mut requests = Submitted::new(device);
        let mut pages_submitted = 0;
        let mut again = Vec::new();
        while groups.peek().is_some() {
            let mut pages = 0;
            let mut batch = Vec::new();
            while let Some(group) = groups.next_if(|group| pages == 0 || pages + pages_of(group) <= submitted)
            {
                pages += pages_of(group);
                batch.push(group);
            }
            while pages_submitted + pages > share.pages()
                && let Some((done, (pages, groups))) = requests.wait()
            {
                pages_submitted -= pages;
                file_results(done, groups, &mut again);
                self.grant(pages);
            }
            let copies = batch
                .iter_mut()
                .map(|group| Request { op: Op::Write, block: group[0].block, buf: copy_out(group), cause })
                .collect();
            // What was copied may be younger than an fsync that was answered already. Elsewhere the record tells.
            let in_place = batch.iter().any(|group| group[0].place == Place::Mapped);
            if in_place
                && !planted::is(Bug::HomeBeforePromised)
                && let Err(e) = self.meta.store().keep_promises_briefly(batched_upto)
            {
                batch.into_iter().flatten().for_each(|extent| extent.result = Err(e.clone()));
                continue;
            }
            requests.push(device.submit(copies), (pages, batch));
            planted::panic_at(Spot::Submitted);
            pages_submitted += pages;
        }
        while let Some((done, (pages, groups))) = requests.wait() {
            file_results(done, groups, &mut again);
            self.grant(pages);
        }
        for (extent, buf) in again {
            if extent.place != Place::New {
                let request = Request { op: Op::Write, block: extent.block, buf, cause };
                extent.result = device.run(vec![request]).map(|_| ());
                continue;
            }
            // What is set aside for others stays theirs.
            let want = extent.frames.len() as u32;
            let Ok(blocks) = self.meta.allocate_spare(want) else { continue };
            let request = Request { op: Op::Write, block: blocks.start, buf, cause };
            if blocks.len < want || device.run(vec![request]).is_err() {
                // Where everything fails the blocks are not to blame, and all of them are wanted later.
                self.meta.release_spare(blocks);
                continue;
            }
            // The failed ones stay taken until the next mount: nobody is to meet them again.
            extent.block = blocks.start;
            extent.run = usize::MAX;
            extent.result = Ok(());
        }
    }
}

fn pages_of(extents: &[&mut WriteExtent<'_>]) -> usize {
    extents.iter().map(|extent| extent.frames.len()).sum()
}

/// Files what became of requests with their extents, which follow one another in the requests' buffers. Those that are
/// to be tried once more are added to `again`, with their bytes.
fn file_results<'m, 'p>(
    done: Vec<Completion>,
    groups: Vec<&'m mut [&mut WriteExtent<'p>]>,
    again: &mut Vec<(&'m mut WriteExtent<'p>, IoBuf)>,
) {
    for (group, done) in groups.into_iter().zip(done) {
        let mut from = 0;
        let shared = group.len() > 1;
        for extent in group {
            let bytes = from..from + extent.frames.len() * BLOCK_SIZE;
            from = bytes.end;
            extent.result = done.result.clone();
            if extent.result.is_err() && (extent.place == Place::New || shared) {
                again.push((extent, IoBuf::from_slice(&done.buf[bytes])));
            }
        }
    }
}

/// Copies the pages of extents under their latches, and puts them under write-back.
fn copy_out(extents: &mut [&mut WriteExtent<'_>]) -> IoBuf {
    let mut buf = IoBuf::unwiped(pages_of(extents) * BLOCK_SIZE);
    let mut into = buf.chunks_exact_mut(BLOCK_SIZE);
    for extent in extents {
        for (found, into) in extent.frames.iter().zip(&mut into) {
            let latched = found.latch();
            latched.copy(0, into);
            extent.unsynced.push(!found.flags().contains(FrameState::SYNCED));
            found.start_write_back(&latched);
        }
    }
    buf
}

/// Splits extents into groups of at most so many pages, each with at least one extent, and with neighbours only that
/// may follow one another.
fn in_rounds<'s, 'm, 'p>(
    extents: &'s mut [&'m mut WriteExtent<'p>],
    pages: usize,
    follows: impl Fn(&WriteExtent<'p>, &WriteExtent<'p>) -> bool,
) -> Vec<&'s mut [&'m mut WriteExtent<'p>]> {
    let mut groups = Vec::new();
    let mut rest = extents;
    while let Some(first) = rest.first() {
        let mut sum = first.frames.len();
        let joins = |pair: &[&'m mut WriteExtent<'p>]| {
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
struct Submitted<'d, T> {
    device: &'d dyn BlockDevice,
    requests: VecDeque<(Ticket, T)>,
}

impl<'d, T> Submitted<'d, T> {
    /// None.
    fn new(device: &'d dyn BlockDevice) -> Submitted<'d, T> {
        Submitted { device, requests: VecDeque::new() }
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

impl<T> Drop for Submitted<'_, T> {
    fn drop(&mut self) {
        // None are left but by unwinding.
        while self.wait().is_some() {}
    }
}
