//! Frames that a writer takes before it waits for its range.
//!
//! Who has the range of a long write may have to wait for frames. Were all of them held by writers that wait
//! for that range, nobody would ever go on; so those are *counted*, and are half of the pool at the most. The other
//! half is cached (and can be written home by anybody), or held by who waits for nothing but the device.
//!
//! What this leaves to others: how frames come free (`writeback::flusher`).

use crate::cache::Fresh;
use crate::file::write::Fit;
use crate::sync::WaitQueue;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::{Error, Result};

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

/// How a long write goes on: in steps of so many pages, fewer once as many did not fit, so that what fits is written.
#[derive(Debug)]
pub(in crate::file) struct Steps<'p> {
    /// Frames for the next.
    pub frames: FrameReservation<'p>,
    pages: u64,
    fit: Fit,
    /// Write-back has freed all that it can for the next, which is less than it asked for.
    is_drained: bool,
}

impl<'p> Steps<'p> {
    /// Steps of so many pages at the most.
    pub fn of(pages: u64, fit: Fit) -> Steps<'p> {
        Steps { frames: FrameReservation::default(), pages, fit, is_drained: false }
    }

    /// Pages of the next at the most.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Frames for the next were taken, or are not to be had: then it is to have fewer pages.
    pub fn or_fewer(&mut self, taken: Result<()>) -> Result<()> {
        match taken {
            Err(e) if is_full(&e) && self.shorten() => self.is_drained = true,
            taken => return taken,
        }
        Ok(())
    }

    /// So many frames are missing: whether fewer pages are to be tried before anybody is asked for them.
    pub fn takes_what_is_there(&mut self) -> bool {
        self.is_drained && self.shorten()
    }

    /// There is room for so many pages: has the next have no more, and half as many at the most. False if it was a single
    /// page, or is to be whole.
    pub fn shorten_to_fit(&mut self, room: u64) -> bool {
        if self.fit == Fit::Whole || !self.shorten() {
            return false;
        }
        self.pages = self.pages.min(room).max(1);
        true
    }

    /// Has the next be half as long; false if it was a single page.
    fn shorten(&mut self) -> bool {
        let was = self.pages;
        self.pages = (was / 2).max(1);
        was > 1
    }

    /// One is over: what it wrote can be written home for the next.
    pub fn went(&mut self) {
        self.is_drained = false;
    }
}

/// Whether something did not fit.
pub(in crate::file) fn is_full(e: &Error) -> bool {
    *e == Error::Errno(libc::ENOSPC)
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `count`.
        self.of.counted.fetch_sub(self.count, Ordering::Release);
        self.of.less.wake_all();
    }
}
