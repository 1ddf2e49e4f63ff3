//! The block device: 4 KiB blocks, batches of requests, many in flight.
//!
//! This module knows nothing of what the blocks mean. Ordering is the caller's: a completed write is on
//! media that survive the machine's loss of power only after a flush that *began* after its completion.

use crate::sync::Arc;
use crate::{Error, Result};

mod buffer;
mod chunk;
mod counters;
mod done;
mod erase;
mod file;
mod flush;
mod identity;
mod loops;
mod memory;
mod overlay;
mod plain;
mod slab;
mod spill;
mod unnamed;
mod unordered;
mod uring;
mod whole;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use buffer::IoBuf;
pub use chunk::keep_buffers;
pub(crate) use counters::Counters;
pub(crate) use done::DoneBatches;
pub use erase::Erased;
pub use file::ImageFile;
pub(crate) use file::{PROBED, path_of, probe};
pub(crate) use file::{device_error, in_use, io_error, lock};
pub(crate) use flush::GroupFlush;
pub use identity::Identity;
pub use memory::MemoryDevice;
pub(crate) use overlay::Overlay;
pub use plain::PlainDevice;
pub use spill::open_ahead as open_temporary_ahead;
pub(crate) use unnamed::directory_of;
pub(crate) use unordered::Unordered;
pub use uring::UringDevice;

pub use crate::format::BLOCK_SIZE;

/// Why a request was made; every device read and write is counted under its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[repr(usize)]
pub enum Cause {
    /// Superblock and mount-time reads and writes.
    Superblock,
    /// File data going home: background write-back and fsync.
    DataWriteBack,
    /// The journal's stream to the ring region of the image.
    Journal,
    /// Metadata pages going home.
    Checkpoint,
    /// Metadata images going to the double-write area.
    DoubleWrite,
    /// Dirty data written because its frames were needed.
    Eviction,
    /// File data read because it was asked for.
    ReadMiss,
    /// File data read in expectation.
    ReadAhead,
    /// Metadata pages read.
    Metadata,
    /// Reads and writes of recovery.
    Recovery,
    /// Reads and writes of fsck.
    Fsck,
}

impl Cause {
    /// Every cause, in the order of the discriminants.
    pub const ALL: [Cause; 11] = [
        Cause::Superblock,
        Cause::DataWriteBack,
        Cause::Journal,
        Cause::Checkpoint,
        Cause::DoubleWrite,
        Cause::Eviction,
        Cause::ReadMiss,
        Cause::ReadAhead,
        Cause::Metadata,
        Cause::Recovery,
        Cause::Fsck,
    ];
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer from `block` on.
    Read,
    /// Write the buffer from `block` on.
    Write,
    /// Tell the device that `count` blocks from `block` on hold nothing of use.
    Discard {
        /// Number of blocks.
        count: u32,
    },
}

/// One request of a batch. The buffer's length is a multiple of [`BLOCK_SIZE`] (empty for a discard).
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// First block.
    pub block: u64,
    /// Source or destination; handed back with the completion.
    pub buf: IoBuf,
    /// What it is counted under.
    pub cause: Cause,
}

impl Request {
    /// A read that fills `buf` from `block` on.
    pub fn read(block: u64, buf: IoBuf, cause: Cause) -> Self {
        Self { op: Op::Read, block, buf, cause }
    }

    /// A write of `buf` from `block` on.
    pub fn write(block: u64, buf: IoBuf, cause: Cause) -> Self {
        Self { op: Op::Write, block, buf, cause }
    }

    /// A discard of `count` blocks from `block` on.
    pub fn discard(block: u64, count: u32, cause: Cause) -> Self {
        Self { op: Op::Discard { count }, block, buf: IoBuf::empty(), cause }
    }

    /// Bytes that it reads, writes or discards.
    pub fn bytes(&self) -> u64 {
        match self.op {
            Op::Read | Op::Write => self.buf.len() as u64,
            Op::Discard { count } => u64::from(count) * BLOCK_SIZE as u64,
        }
    }

    /// Whether it is made of whole blocks that a device of `blocks` blocks has. Block numbers may come from
    /// damaged media, so a request beyond the end is an error like any other.
    pub(crate) fn check(&self, blocks: u64) -> Result<()> {
        check_blocks(self.block, self.bytes(), blocks)
    }
}

/// The same of so many bytes from `block` on.
fn check_blocks(block: u64, bytes: u64, blocks: u64) -> Result<()> {
    let end = block.checked_add(bytes / BLOCK_SIZE as u64);
    if !bytes.is_multiple_of(BLOCK_SIZE as u64) || end.is_none_or(|end| end > blocks) {
        return Err(Error::Device { context: "request beyond the end of the device", errno: libc::EINVAL });
    }
    Ok(())
}

/// A finished request, in the order of submission.
#[derive(Debug)]
pub struct Completion {
    /// The buffer of the request.
    pub buf: IoBuf,
    /// Whether it was done whole.
    pub result: Result<()>,
}

/// A submitted batch, to be waited for.
#[derive(Debug)]
#[must_use = "a batch owns its buffers until it is waited for"]
pub struct Ticket(pub u64);

/// A device of 4 KiB blocks.
pub trait BlockDevice: Send + Sync {
    /// Number of blocks.
    fn blocks(&self) -> u64;

    /// Starts a batch; its requests may run in any order and side by side.
    fn submit(&self, batch: Vec<Request>) -> Ticket;

    /// Waits for a batch: one completion a request, in the order of submission.
    fn wait(&self, ticket: Ticket) -> Vec<Completion>;

    /// Number of writes completed so far. Take it *after* the completion of the write in question. Opening
    /// counts as one, for what an earlier process wrote may not be on durable media yet.
    fn writes_completed(&self) -> u64;

    /// Returns once every write counted in `upto` is on durable media. One flush serves all that wait: a
    /// call that finds a flush which began late enough waits for it, or returns at once when it is over. A
    /// failed flush fails all it would have served, and every later one too: the writes may be lost.
    fn flush_upto(&self, upto: u64) -> Result<()>;

    /// Has this called once a flush fails, on whatever thread, before who waits for it is answered: the writes that it was to
    /// cover may be lost, and another process that opens the device would not hear of it.
    fn when_flush_fails(&self, _tell: Box<dyn Fn() + Send + Sync>) {}

    /// Number of writes that completed flushes have covered.
    fn writes_flushed(&self) -> u64;

    /// Number of flushes that the device was asked for.
    fn flushes(&self) -> u64;

    /// Bytes and requests so far by cause.
    fn counters(&self) -> Vec<CauseCount>;

    /// Submits one batch and waits for it; the first error is returned.
    fn run(&self, batch: Vec<Request>) -> Result<Vec<IoBuf>> {
        let ticket = self.submit(batch);
        let mut bufs = Vec::new();
        let mut first = Ok(());
        for done in self.wait(ticket) {
            if first.is_ok() {
                first = done.result;
            }
            bufs.push(done.buf);
        }
        first.map(|()| bufs)
    }

    /// Reads blocks into memory of the caller's, for one that needs nothing else until they are there; counted like a
    /// request. `into` is a whole number of blocks; after an error it holds anything.
    fn read_into(&self, block: u64, into: &mut [u8], cause: Cause) -> Result<()> {
        read_copied(self, block, into, cause)
    }

    /// Writes blocks for one that needs nothing else until they are on durable media. No flush need cover it: it leaves no
    /// more writes to be flushed than there were. Of those it says nothing. After an error the blocks hold anything.
    fn write_durably(&self, block: u64, buf: IoBuf, cause: Cause) -> Result<()> {
        self.run(vec![Request::write(block, buf, cause)])?;
        self.flush()
    }

    /// Threads, each with a batch of its own under way, that it takes to keep the device busy.
    fn submitters(&self) -> usize {
        1
    }

    /// Has it hold nothing of what was written to it, or not even of what was there before, whether it can discard or not;
    /// a flush makes that durable. Nobody else uses it meanwhile.
    ///
    /// # Errors
    /// Those of the device: it may hold everything. EOPNOTSUPP where there is no medium that outlives it.
    fn erase(&self) -> Result<Erased> {
        Err(Error::Errno(libc::EOPNOTSUPP))
    }

    /// Flushes everything completed before the call.
    fn flush(&self) -> Result<()> {
        self.flush_upto(self.writes_completed())
    }

    /// Blocks that it has by now: a file or a device may have become larger since it was opened.
    ///
    /// # Errors
    /// Those of the device.
    fn measure(&self) -> Result<u64> {
        Ok(self.blocks())
    }

    /// Makes the device have `blocks` blocks at the least: a file is made longer, its space reserved unless
    /// `sparse`; a block device that has become larger is measured again.
    ///
    /// # Errors
    /// [`Error::Refused`] where it cannot.
    fn grow(&self, blocks: u64, _sparse: bool) -> Result<()> {
        if blocks <= self.blocks() {
            return Ok(());
        }
        Err(Error::Refused(format!("this device has {} blocks of 4 KiB and cannot grow", self.blocks())))
    }

    /// Bytes that writes to what was never written can still take below; `None` where that is not known, or no matter.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Takes back what [`BlockDevice::grow`] has added to the `blocks` blocks there were, and all that was written to it, for
    /// a caller that has nothing under way there: a file is cut, a block device stays as it is.
    fn ungrow(&self, _blocks: u64) {}
}

/// What a device of a test has the one below it do, in this field: all that it must have but `submit` and `wait`.
#[cfg(all(test, not(any(loom, shuttle))))]
macro_rules! forwarded {
    ($below:ident) => {
        fn blocks(&self) -> u64 {
            self.$below.blocks()
        }
        fn writes_completed(&self) -> u64 {
            self.$below.writes_completed()
        }
        fn flush_upto(&self, upto: u64) -> $crate::Result<()> {
            self.$below.flush_upto(upto)
        }
        fn writes_flushed(&self) -> u64 {
            self.$below.writes_flushed()
        }
        fn flushes(&self) -> u64 {
            self.$below.flushes()
        }
        fn counters(&self) -> Vec<$crate::device::CauseCount> {
            self.$below.counters()
        }
    };
}
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use forwarded;

/// [`BlockDevice::read_into`] by a request with a buffer of its own.
fn read_copied(
    device: &(impl BlockDevice + ?Sized),
    block: u64,
    into: &mut [u8],
    cause: Cause,
) -> Result<()> {
    let bufs = device.run(vec![Request::read(block, IoBuf::unwiped(into.len()), cause)])?;
    bufs.iter().for_each(|buf| into.copy_from_slice(buf));
    Ok(())
}

/// Serves an open image by the fastest way that this kernel offers, and that is right: of a file on FUSE io_uring may wait
/// for the other server while it is handed a request, and what that server has done in part it goes on with at the
/// wrong place (seen on Linux 6.18).
pub fn open_device(image: ImageFile) -> Arc<dyn BlockDevice> {
    if image.is_on_fuse() {
        tracing::debug!("the image lies on FUSE; using pread and pwrite");
        return Arc::new(PlainDevice::new(image));
    }
    match UringDevice::new(image) {
        Ok(device) => Arc::new(device),
        Err((image, reason)) => {
            tracing::debug!(%reason, "no io_uring here; using pread and pwrite");
            Arc::new(PlainDevice::new(image))
        }
    }
}

/// What one cause has cost so far.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CauseCount {
    /// The cause.
    pub cause: Cause,
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
}
