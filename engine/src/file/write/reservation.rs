//! Frames that a writer takes before it waits for its range.
//!
//! Who has the range of a long write may have to wait for frames. Were all of them held by writers that wait
//! for that range, nobody would ever go on; so those are *counted*, and are half of the pool at the most. The other
//! half is cached (and can be written home by anybody), or held by who waits for nothing but the device.
//!
//! What this leaves to others: how frames come free (`writeback::flusher`).

use crate::Result;
use crate::cache::Fresh;
use crate::sync::WaitQueue;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The count of frames that are reserved so.
#[derive(Debug)]
pub(in crate::file) struct FrameReservations {
    counted: AtomicUsize,
    /// Of the pool, that may be counted.
    most: usize,
    less: WaitQueue,
}

/// Frames of one writer.
#[derive(Debug, Default)]
pub(in crate::file) struct FrameReservation<'p> {
    frames: Vec<Fresh<'p>>,
    /// What is counted for them until this is dropped, whether they are used by then or not.
    _share: Option<Share<'p>>,
}

#[derive(Debug)]
struct Share<'p> {
    of: &'p FrameReservations,
    count: usize,
}

impl FrameReservations {
    /// None, of a pool of so many frames.
    pub fn of(pool: usize) -> FrameReservations {
        FrameReservations { counted: AtomicUsize::new(0), most: pool / 2, less: WaitQueue::new() }
    }

    /// `count` frames, which `take` gives, for a writer that then waits for its range. Called with no lock held, and no
    /// other reservation.
    pub fn reserve<'p>(
        &'p self,
        count: usize,
        take: impl FnOnce() -> Result<Vec<Fresh<'p>>>,
    ) -> Result<FrameReservation<'p>> {
        let share = self.count(count);
        Ok(FrameReservation { frames: take()?, _share: Some(share) })
    }

    /// Waits until so many may be counted beside the others; one writer always may.
    fn count(&self, count: usize) -> Share<'_> {
        self.less.wait_until(|| {
            // Acquire: pairs with the Release of the drop of a share: its frames are in the pool again, or used.
            let counted = self.counted.fetch_update(Ordering::Acquire, Ordering::Relaxed, |counted| {
                (counted == 0 || counted + count <= self.most).then_some(counted + count)
            });
            counted.is_ok()
        });
        Share { of: self, count }
    }
}

impl<'p> FrameReservation<'p> {
    /// One of the frames.
    pub fn pop(&mut self) -> Option<Fresh<'p>> {
        self.frames.pop()
    }

    /// Gives back what is left of them, and takes others in their place.
    pub fn replace(&mut self, take: impl FnOnce() -> Result<Vec<Fresh<'p>>>) -> Result<()> {
        self.frames.clear();
        self.frames = take()?;
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `count`.
        self.of.counted.fetch_sub(self.count, Ordering::Release);
        self.of.less.wake_all();
    }
}
