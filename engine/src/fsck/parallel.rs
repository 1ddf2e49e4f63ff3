//! Work on many blocks by several threads, whose outcome does not depend on how many there are.
//!
//! Threads only look: they read a chunk of what is to be checked and say of each part of it either that it is
//! sound, and what the others need to know of it, or nothing. The thread that checks takes what they say chunk by
//! chunk in order, settles what belongs to whom, and looks again itself, more closely, at each part that nothing
//! was said of: so it alone finds and mends issues, in the order in which one thread would.
//!
//! What was looked at may be mended before its turn comes: it counts only if nothing was written since
//! ([`Base::is_as_after`]).
//!
//! Chunks go through in groups. While the threads look at one group, what they have said of the one before is
//! taken; a group is over when all of its threads are. So memory is bounded by two groups, and threads share
//! nothing but the device.

use super::image::Base;
use crate::Result;
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use crate::scoped;

/// Blocks of a chunk; of the small images of tests, few.
pub(super) const CHUNK: usize = if cfg!(test) { 2 } else { 256 };
/// Chunks that a thread looks at in a group.
const CHUNKS: usize = 8;
/// Blocks of a request at the most.
const ROW: u64 = 16;

/// Looks at chunks with so many threads. `feed` says what there is to look at in a chunk, `look` looks, `take` is
/// told of the chunks in order. The first error ends it.
pub(super) fn in_order<S, C, I: Sync, O: Send>(
    threads: usize,
    state: &mut S,
    mut chunks: impl Iterator<Item = C>,
    feed: impl Fn(&S, &C) -> I,
    look: impl Fn(&I) -> O + Sync,
    mut take: impl FnMut(&mut S, C, O) -> Result<()>,
) -> Result<()> {
    let mut before: Vec<(C, O)> = Vec::new();
    loop {
        let group: Vec<C> = chunks.by_ref().take(threads * CHUNKS).collect();
        if group.is_empty() && before.is_empty() {
            return Ok(());
        }
        let inputs: Vec<I> = group.iter().map(|chunk| feed(state, chunk)).collect();
        let own = |thread| inputs.iter().skip(thread).step_by(threads).map(&look).collect::<Vec<O>>();
        let count = threads.min(inputs.len());
        let (looked, taken) = if before.is_empty() {
            // There is nothing to take meanwhile: the caller looks, too. Where all is one chunk, no thread is started.
            let (mut looked, last) = scoped::beside(count - 1, own, || own(count - 1));
            looked.push(last);
            (looked, Ok(()))
        } else {
            scoped::beside(count, own, || {
                before.drain(..).try_for_each(|(chunk, output)| take(state, chunk, output))
            })
        };
        taken?;
        let mut looked: Vec<_> = looked.into_iter().map(Vec::into_iter).collect();
        for (at, chunk) in group.into_iter().enumerate() {
            // Each thread has an output for each of its inputs.
            before.extend(looked[at % threads].next().map(|output| (chunk, output)));
        }
    }
}

/// Blocks that were read, neighbours together.
pub(super) struct Rows {
    /// First blocks, in order, and what lies from there on.
    rows: Vec<(u64, IoBuf)>,
}

impl Rows {
    /// Reads blocks; what cannot be read is left out.
    pub fn read(base: &Base, mut blocks: Vec<u64>) -> Rows {
        blocks.sort_unstable();
        blocks.dedup();
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for block in blocks {
            match wanted.last_mut() {
                Some((first, len)) if *first + *len == block && *len < ROW => *len += 1,
                _ => wanted.push((block, 1)),
            }
        }
        let request = |(first, len): &(u64, u64)| {
            Request::read(*first, IoBuf::zeroed(*len as usize * BLOCK_SIZE), Cause::Fsck)
        };
        let done = base.device.wait(base.device.submit(wanted.iter().map(request).collect()));
        let read = wanted.into_iter().zip(done);
        Rows { rows: read.filter(|(_, d)| d.result.is_ok()).map(|((at, _), d)| (at, d.buf)).collect() }
    }

    /// A block of them.
    pub fn get(&self, block: u64) -> Option<&[u8]> {
        let row = self.rows.partition_point(|(first, _)| *first <= block).checked_sub(1)?;
        let (first, bytes) = self.rows.get(row)?;
        bytes.chunks_exact(BLOCK_SIZE).nth((block - first) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn chunks_are_taken_in_order_whoever_looked_at_them() {
        for threads in 1..6 {
            for count in [0, 1, 7, 100, 1000] {
                let mut seen: Vec<(u32, u32)> = Vec::new();
                let take = |seen: &mut Vec<_>, chunk, output| {
                    seen.push((chunk, output));
                    Ok(())
                };
                in_order(threads, &mut seen, 0..count, |_, chunk| *chunk, |input| input * 2, take)
                    .expect("nothing fails");
                assert_eq!(seen, (0..count).map(|chunk| (chunk, chunk * 2)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut taken = 0;
        let take = |taken: &mut u32, chunk, ()| {
            *taken += 1;
            if chunk == 20 { Err(Error::Errno(libc::EIO)) } else { Ok(()) }
        };
        assert!(in_order(2, &mut taken, 0..1000, |_, _| (), |()| (), take).is_err());
        assert_eq!(taken, 21);
    }
}
