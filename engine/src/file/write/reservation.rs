//! Frames that a writer takes before it waits for its range.
//!
//! Who has the range of a long write may have to wait for frames. Were all of them in the hands of writers that wait
//! for that range, nobody would ever go on; so those are *counted*, and are half of the pool at the most. The other
//! half is cached (and can be written home by anybody), or in the hands of who waits for nothing but the device.
//!
//! What this leaves to others: how frames come free (`writeback::flusher`).

use crate::Result;
use crate::cache::Fresh;
use crate::file::data_path::DataPath;
use crate::sync::WaitQueue;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Frames that are counted.
#[derive(Debug, Default)]
pub(in crate::file) struct Counted {
    frames: AtomicUsize,
    less: WaitQueue,
}

/// Frames of one writer.
#[derive(Debug, Default)]
pub(in crate::file) struct Stash<'p> {
    pub frames: Vec<Fresh<'p>>,
    /// What is counted for them until this is dropped, whether they are used by then or not.
    _share: Option<Share<'p>>,
}

#[derive(Debug)]
struct Share<'p> {
    of: &'p Counted,
    count: usize,
}

impl Counted {
    /// Waits until so many may be counted beside the others; one writer always may.
    fn count(&self, count: usize, most: usize) -> Share<'_> {
        self.less.wait_until(|| {
            // Acquire: pairs with the Release of who counts less: his frames are in the pool again, or used.
            let counted = self.frames.fetch_update(Ordering::Acquire, Ordering::Relaxed, |counted| {
                (counted == 0 || counted + count <= most).then_some(counted + count)
            });
            counted.is_ok()
        });
        Share { of: self, count }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `count`.
        self.of.frames.fetch_sub(self.count, Ordering::Release);
        self.of.less.wake_all();
    }
}

impl DataPath {
    /// `count` frames instead of `old` ones, for one who waits for his range with them. Called with no lock held.
    pub(in crate::file) fn stash<'p>(&'p self, old: Stash<'p>, count: usize) -> Result<Stash<'p>> {
        drop(old);
        let share = self.stashed.count(count, self.pool.len() / 2);
        Ok(Stash { frames: self.frames(count)?, _share: Some(share) })
    }
}
