//! The memory that files' indexes take of the pool.
//!
//! What a file's index takes is counted here: for each page of it one frame is *retired* until the index goes; an
//! eighth of the frames at the most, which the index of a file a hundred times as large as the pool does not reach. Beyond
//! that, indexes of files that nobody uses are to go, inodes and all ([`FramePool::has_much_index`]). Frames
//! that never had memory are held back for it, as long as there are some, up to a 64th of the pool: should huge pages
//! fill them after all, that is as much as the pool takes too much. Others give their memory back to the system, which
//! is a system call and an interrupt of every core: a few frames more or less than indexes take are no reason. A pool
//! whose memory is another's too ([`FramePool::sharing`]) leaves all that to the owner that shares it out.

use super::pool::FramePool;
use crate::device::BLOCK_SIZE;
use crate::sync::atomic::Ordering;

/// The part of the frames that is held back for indexes at the most: one of so many.
pub(super) const MOST_HELD: usize = 64;

/// Frames that indexes have the memory of.
#[derive(Debug, Default)]
pub(super) struct Retired {
    /// Those that gave their memory back.
    numbers: Vec<u32>,
    /// How many free frames are held back.
    held: usize,
}

impl Retired {
    fn len(&self) -> usize {
        self.numbers.len() + self.held
    }
}

/// Bytes of the indexes for which so many frames are retired; no limit where another shares the memory out.
pub(super) fn most_index_bytes(most_retired: usize) -> usize {
    if most_retired == 0 { usize::MAX } else { most_retired * BLOCK_SIZE }
}

// Relaxed, all of it: sums and limits. Nothing follows from them but who does what, which a mutex orders.
impl FramePool {
    /// Bytes of the indexes that name frames.
    pub fn index_bytes(&self) -> usize {
        // Relaxed: as in `len`.
        self.index_bytes.load(Ordering::Relaxed)
    }

    /// An index has grown.
    pub(super) fn charge(&self, bytes: usize) {
        // Relaxed, here and below: a sum; the mutex orders what follows from it.
        self.index_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.adjust_retired();
    }

    /// An index is gone.
    pub fn discharge(&self, bytes: usize) {
        let left = self.index_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        let most = most_index_bytes(self.most_retired);
        if left < most && self.index_mark.load(Ordering::Relaxed) != most {
            self.index_mark.store(most, Ordering::Relaxed);
        }
        self.adjust_retired();
    }

    /// Whether indexes are to go: they take more than is retired for them at the most, and than there was too much to do
    /// about when somebody last tried.
    #[inline]
    pub fn has_much_index(&self) -> bool {
        self.index_bytes() > self.index_mark.load(Ordering::Relaxed)
    }

    /// Bytes of indexes that are to go once it has come to that: somewhat more than need be, for others will come.
    pub fn excess_index(&self) -> usize {
        let most = most_index_bytes(self.most_retired);
        self.index_bytes().saturating_sub(most - most / 64)
    }

    /// What can go has gone. Where that was not enough, for the rest is of files that are in use, nobody tries again before
    /// there is more.
    pub fn settle_for_index(&self) {
        let most = most_index_bytes(self.most_retired);
        let has_gone = self.excess_index() == 0;
        let mark = if has_gone { most } else { most.max(self.index_bytes() + most / 8) };
        self.index_mark.store(mark, Ordering::Relaxed);
    }

    /// Retires frames, or brings them back.
    fn adjust_retired(&self) {
        let want = |pool: &FramePool| (pool.index_bytes() / BLOCK_SIZE).min(pool.most_retired);
        let slack = (self.frames.len() / 4096).min(64);
        let retired = self.retired_count.load(Ordering::Relaxed);
        if (want(self)..=want(self) + slack).contains(&retired) {
            return;
        }
        let mut retired = self.retired.lock();
        let want = want(self);
        let most = (want + slack).min(self.most_retired);
        if retired.len() > most {
            while retired.len() > want
                && let Some(number) = retired.numbers.pop()
            {
                self.free.give_back(number, &self.memory);
            }
            retired.held = self.free.hold(want - retired.numbers.len());
        }
        if retired.len() < want {
            retired.held = self.free.hold((most - retired.numbers.len()).min(self.frames.len() / MOST_HELD));
        }
        let much = self.frames.len() / 32;
        if retired.numbers.len() <= much && want > much + retired.held {
            self.memory.stay_small();
        }
        while retired.len() < want
            // None to be had now: the next node looks again.
            && let Some(fresh) = self.take()
        {
            retired.numbers.push(fresh.retire());
        }
        self.retired_count.store(retired.len(), Ordering::Relaxed);
    }
}
