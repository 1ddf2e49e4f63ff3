//! Emptying a file or a device: nothing of what was written to it can be read from it afterwards.
//!
//! A discard is a wish that a medium may leave unheard. Here what cannot be freed goes in another way. A file is cut off, and
//! made as long again. A device may be of any size, and zeros over all of it would take hours: so what a process writes to one
//! is noted in chunks of 1 MiB, and these are written over. What was there before it came stays then, and that is told.
//!
//! The first block goes last, and behind a flush: it may say that there is something.

use super::file::device_error;
use super::whole::write_whole;
use super::{BLOCK_SIZE, ImageFile, IoBuf};
use crate::sync::Arc;
use crate::{Result, blocking};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Blocks of a chunk.
const CHUNK: u64 = 256;
/// Blocks that are freed by one call.
const AT_ONCE: u64 = 1 << 20;

/// What was made of a file or device that was to hold nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// All of it reads as zeros.
    All,
    /// What this process has written does. It may hold what was there before.
    Written,
}

/// Which chunks have been written.
#[derive(Debug)]
pub(super) struct Written(Vec<AtomicU64>);

impl Written {
    fn of(blocks: u64) -> Written {
        let words = blocks.div_ceil(CHUNK * u64::from(u64::BITS));
        Written((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn note(&self, block: u64, blocks: u64) {
        for chunk in block / CHUNK..(block + blocks).div_ceil(CHUNK) {
            let bit = 1 << (chunk % u64::from(u64::BITS));
            if let Some(word) = self.0.get((chunk / u64::from(u64::BITS)) as usize)
                // Relaxed: whoever asks has waited for the writes.
                && word.load(Relaxed) & bit == 0
            {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    pub(super) fn chunks(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let bits = u64::from(u64::BITS);
        let has = move |chunk: u64| self.0[(chunk / bits) as usize].load(Relaxed) >> (chunk % bits) & 1 == 1;
        (0..self.0.len() as u64 * bits).filter(move |chunk| has(*chunk))
    }
}

impl ImageFile {
    /// From now on it is noted what is written.
    pub(crate) fn note_writes(&mut self) {
        self.written = Some(Arc::new(Written::of(self.blocks())));
    }

    /// So many bytes are about to be written from a block on.
    pub(super) fn note(&self, block: u64, bytes: usize) {
        if let Some(written) = &self.written {
            written.note(block, (bytes / BLOCK_SIZE) as u64);
        }
    }

    /// [`BlockDevice::erase`](super::BlockDevice::erase).
    pub(super) fn erase(&self) -> Result<Erased> {
        blocking::about_to_block();
        self.erase_with(|offset, len| self.punch(offset, len), |blocks| self.write_zeros(blocks))
    }

    /// The same with a call that frees a range of bytes, which read as zeros then, and one that writes zeros to blocks.
    fn erase_with(
        &self,
        free: impl Fn(u64, u64) -> Result<(), Errno>,
        write: impl Fn(Range<u64>) -> Result<()>,
    ) -> Result<Erased> {
        const BYTES: u64 = BLOCK_SIZE as u64;
        let blocks = self.blocks();
        let first = 0..blocks.min(1);
        let free = |range: &Range<u64>| match range.is_empty() {
            true => Ok(()),
            false => {
                let len = (range.end - range.start) * BYTES;
                rustix::io::retry_on_intr(|| free(range.start * BYTES, len))
            }
        };
        let parts = (0..blocks.div_ceil(AT_ONCE)).rev().map(|part| part * AT_ONCE);
        let mut parts = parts.map(|at| at.max(1)..(at + AT_ONCE).min(blocks));
        let freed = match parts.try_for_each(|part| free(&part)) {
            Ok(()) => {
                self.flush()?;
                free(&first)
            }
            failed => failed,
        };
        let Err(e) = freed else { return Ok(Erased::All) };
        tracing::debug!(path = %self.path.display(), "what it holds cannot be freed in place: {e}");
        if !self.is_block_device() {
            let cut = rustix::fs::ftruncate(&self.file, 0);
            cut.and_then(|()| rustix::fs::ftruncate(&self.file, blocks * BYTES))
                .map_err(|e| device_error("empty the file", e))?;
            return Ok(Erased::All);
        }
        for at in self.written.iter().flat_map(|written| written.chunks()).rev().map(|chunk| chunk * CHUNK) {
            write(at.max(1)..(at + CHUNK).min(blocks))?;
        }
        self.flush()?;
        write(first)?;
        Ok(Erased::Written)
    }

    fn write_zeros(&self, blocks: Range<u64>) -> Result<()> {
        let zeros = IoBuf::zeroed(blocks.end.saturating_sub(blocks.start) as usize * BLOCK_SIZE);
        write_whole(&self.file, &zeros, blocks.start * BLOCK_SIZE as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::unix::fs::{FileExt, MetadataExt};

    const BLOCKS: u64 = 3 * CHUNK + 7;

    /// An image of which each byte is 7, and what it holds.
    fn full() -> (tempfile::TempDir, ImageFile, impl Fn() -> Vec<u8>) {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("image");
        let image = ImageFile::create(&path, BLOCKS).expect("room");
        let there = std::fs::File::options().write(true).open(&path).expect("it is there");
        there.write_all_at(&vec![7; BLOCKS as usize * BLOCK_SIZE], 0).expect("room");
        (dir, image, move || std::fs::read(&path).expect("it is there"))
    }

    fn refuses(_: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    #[test]
    fn a_file_holds_nothing_whether_its_blocks_can_be_freed_or_not() {
        let (_dir, image, holds) = full();
        let never = |_| panic!("a file is cut off");
        assert_eq!(image.erase_with(refuses, never), Ok(Erased::All));
        assert!(holds() == vec![0; BLOCKS as usize * BLOCK_SIZE], "all zeros, as long as before");
        let (_dir, image, holds) = full();
        let before = image.file.metadata().expect("it is open").ino();
        assert_eq!(image.erase(), Ok(Erased::All));
        assert!(holds() == vec![0; BLOCKS as usize * BLOCK_SIZE]);
        assert_eq!(image.file.metadata().expect("it is open").ino(), before);
    }

    /// It may say that something is there.
    #[test]
    fn the_first_block_goes_last() {
        let (_dir, mut image, holds) = full();
        let block = BLOCK_SIZE as u64;
        let calls = RefCell::new(Vec::new());
        let free = |at, len| {
            calls.borrow_mut().push((at, len));
            Ok(())
        };
        let never = |_| panic!("it frees");
        assert_eq!(image.erase_with(free, never), Ok(Erased::All));
        assert_eq!(calls.into_inner(), [(block, (BLOCKS - 1) * block), (0, block)]);
        image.block_device = true;
        image.note_writes();
        for at in [0, BLOCKS - 1] {
            image.note(at, BLOCK_SIZE);
        }
        let calls = RefCell::new(Vec::new());
        let write = |blocks| {
            calls.borrow_mut().push(blocks);
            Ok(())
        };
        assert_eq!(image.erase_with(refuses, write), Ok(Erased::Written));
        assert_eq!(calls.into_inner(), [3 * CHUNK..BLOCKS, 1..CHUNK, 0..1]);
        assert_eq!(holds()[0], 7);
    }

    /// The file stands for a device here: neither can it be cut off, nor is its size a bound.
    #[test]
    fn of_a_device_that_frees_nothing_what_was_written_goes() {
        let (_dir, mut image, holds) = full();
        image.block_device = true;
        image.note_writes();
        image.note(CHUNK - 1, 2 * BLOCK_SIZE);
        image.note(BLOCKS - 1, BLOCK_SIZE);
        assert_eq!(image.erase_with(refuses, |blocks| image.write_zeros(blocks)), Ok(Erased::Written));
        let chunk = CHUNK as usize * BLOCK_SIZE;
        let expected = [vec![0; 2 * chunk], vec![7; chunk], vec![0; 7 * BLOCK_SIZE]].concat();
        assert!(holds() == expected);
        assert_eq!(image.erase_with(|_, _| Ok(()), |_| panic!("it frees")), Ok(Erased::All));
    }
}
