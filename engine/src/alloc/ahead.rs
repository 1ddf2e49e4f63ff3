//! Room kept ahead of files that grow side by side.
//!
//! Files that grow by turns and are synced by turns would get blocks by turns, a run of blocks for each sync. So
//! a thread that goes on with a run of blocks has room kept right behind it: a *window*, free blocks that are given to
//! nobody else as long as there are others. (Reservation windows of ext3 and XFS's speculative preallocation are the
//! same idea.)
//!
//! A window is known by its first block: only the file that ends before it asks for that one, or one that is written
//! together with it. So it has no owner to be told, and need not be given back. It is a hint in memory and nothing
//! more: its blocks count as free, a full group gives them out, and of many windows the oldest is forgotten.

use std::ops::Range;

/// Windows of a group: sixteen of the longest, 8 MiB, fill it.
const WINDOWS: usize = 16;

/// The windows of one group, oldest first. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct Windows {
    list: Vec<Range<u32>>,
}

impl Windows {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The first part of a free run that lies in no window; failing that, where to look on.
    pub fn outside(&self, run: Range<u32>) -> Result<Range<u32>, u32> {
        match self.list.iter().filter(|window| window.end > run.start).min_by_key(|window| window.start) {
            Some(window) if window.start <= run.start => Err(window.end),
            Some(window) => Ok(run.start..run.end.min(window.start)),
            None => Ok(run),
        }
    }

    /// Whether a block lies in a window and is not its first.
    pub fn is_within(&self, block: u32) -> bool {
        self.list.iter().any(|window| window.start < block && block < window.end)
    }

    /// Forgets the window that begins at a block: it is used, or cannot be.
    pub fn forget(&mut self, first: u32) {
        self.list.retain(|window| window.start != first);
    }

    /// Keeps a free run that lies in no other window.
    pub fn keep(&mut self, run: Range<u32>) {
        if !run.is_empty() {
            if self.list.len() == WINDOWS {
                self.list.remove(0);
            }
            self.list.push(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_known_by_its_first_block() {
        let mut windows = Windows::default();
        windows.keep(10..20);
        windows.keep(30..40);
        windows.keep(50..50);
        assert_eq!(windows.outside(0..15), Ok(0..10));
        assert_eq!(windows.outside(12..35), Err(20));
        assert_eq!(windows.outside(20..100), Ok(20..30));
        assert_eq!(windows.outside(40..100), Ok(40..100));
        assert!(!windows.is_within(10) && windows.is_within(11) && !windows.is_within(20));
        windows.forget(10);
        assert_eq!(windows.outside(0..15), Ok(0..15));
        windows.forget(30);
        assert!(windows.is_empty());
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut windows = Windows::default();
        for first in (0..=WINDOWS as u32).map(|n| n * 10) {
            windows.keep(first..first + 5);
        }
        assert_eq!(windows.outside(0..5), Ok(0..5));
        assert_eq!(windows.outside(10..15), Err(15));
    }
}
