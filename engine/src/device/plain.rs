//! A device served by pread and pwrite, for kernels that offer no io_uring, and for images on FUSE.
//!
//! A batch is carried out by the thread that submits it, one request after the other.

use std::io::IoSlice;

use rustix::io::ReadWriteFlags;

use super::counters::Counters;
use super::done::DoneBatches;
use super::flush::GroupFlush;
use super::whole::{read_whole, whole, write_whole};
use super::{
    BLOCK_SIZE, BlockDevice, Cause, CauseCount, Completion, Erased, ImageFile, IoBuf, Op, Request, Ticket,
    check_blocks, read_copied,
};
use crate::{Error, Result, blocking};

/// A device served by pread and pwrite.
#[derive(Debug)]
pub struct PlainDevice {
    image: ImageFile,
    done: DoneBatches,
    counters: Counters,
    group: GroupFlush,
}

impl PlainDevice {
    /// A device over an open image.
    pub fn new(image: ImageFile) -> Self {
        Self {
            image,
            done: DoneBatches::default(),
            counters: Counters::default(),
            group: GroupFlush::default(),
        }
    }

    fn carry_out(&self, request: &mut Request) -> Result<()> {
        request.check(self.image.blocks())?;
        self.counters.count(request);
        let offset = request.block * BLOCK_SIZE as u64;
        match request.op {
            Op::Read => read_whole(self.image.file(), &mut request.buf, offset),
            Op::Write => {
                self.image.note(request.block, request.buf.len());
                write_whole(self.image.file(), &request.buf, offset)?;
                self.group.write_completed();
                Ok(())
            }
            Op::Discard { count } => {
                self.image.discard(request.block, u64::from(count));
                Ok(())
            }
        }
    }
}

/// Writes blocks of an image and has them on durable media, by one call where that is the quickest way.
pub(super) fn write_durably(
    image: &ImageFile,
    counters: &Counters,
    group: &GroupFlush,
    block: u64,
    buf: &[u8],
    cause: Cause,
) -> Result<()> {
    check_blocks(block, buf.len() as u64, image.blocks())?;
    group.check()?;
    counters.count_write(cause, buf.len() as u64);
    image.note(block, buf.len());
    blocking::about_to_block();
    let offset = block * BLOCK_SIZE as u64;
    let and_flush = |rest: &[u8], offset| {
        write_whole(image.file(), rest, offset)?;
        flush_all(image, group)
    };
    // Of a block device that knows no forced unit access the kernel makes two flushes of such a call, one for the
    // request and one for the file; and flushes of our own are shared by all that wait for one. Where the kernel keeps
    // pages of the image it tells once of what it has lost, and such a call would take that from the flush that is to be told.
    if image.is_block_device() || !image.is_direct() {
        return and_flush(buf, offset);
    }
    let mut reached = 0;
    let written = whole("write", buf.len(), |done| {
        reached = done;
        let rest = [IoSlice::new(&buf[done..])];
        let from = offset + done as u64;
        blocking::deeply(|| rustix::io::pwritev2(image.file(), &rest, from, ReadWriteFlags::DSYNC))
    });
    match written {
        Err(Error::Device { errno: libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL, .. }) => {
            and_flush(&buf[reached..], offset + reached as u64)
        }
        written => written.inspect_err(|error| group.write_through_failed(error.clone())),
    }
}

/// Makes durable what was changed of an image, its length too: one of the flushes that all wait for, for what it is told of
/// lost writes nobody else is told.
pub(super) fn flush_all(image: &ImageFile, group: &GroupFlush) -> Result<()> {
    group.write_completed();
    group.flush_upto(group.completed(), || image.flush())
}

/// What is free where an image lies in a file, if that file system says.
pub(super) fn room_for(image: &ImageFile) -> Option<u64> {
    let below =
        rustix::fs::fstatvfs(image).ok().filter(|below| !image.is_block_device() && below.f_blocks > 0)?;
    Some(below.f_bavail.saturating_mul(below.f_frsize))
}

/// Reads blocks of an image into memory that direct I/O can reach; false, and nothing is done, if it cannot.
pub(super) fn read_straight(
    image: &ImageFile,
    counters: &Counters,
    block: u64,
    into: &mut [u8],
    cause: Cause,
) -> Result<bool> {
    if image.is_direct() && !into.as_ptr().addr().is_multiple_of(BLOCK_SIZE) {
        return Ok(false);
    }
    check_blocks(block, into.len() as u64, image.blocks())?;
    counters.count_read(cause, into.len() as u64);
    blocking::about_to_block();
    read_whole(image.file(), into, block * BLOCK_SIZE as u64).map(|()| true)
}

impl BlockDevice for PlainDevice {
    fn blocks(&self) -> u64 {
        self.image.blocks()
    }

    fn read_into(&self, block: u64, into: &mut [u8], cause: Cause) -> Result<()> {
        if read_straight(&self.image, &self.counters, block, into, cause)? {
            return Ok(());
        }
        read_copied(self, block, into, cause)
    }

    fn write_durably(&self, block: u64, buf: IoBuf, cause: Cause) -> Result<()> {
        write_durably(&self.image, &self.counters, &self.group, block, &buf, cause)
    }

    fn measure(&self) -> Result<u64> {
        self.image.measured()
    }

    fn erase(&self) -> Result<Erased> {
        self.image.erase()
    }

    fn grow(&self, blocks: u64, sparse: bool) -> Result<()> {
        self.image.grow(blocks, sparse, || flush_all(&self.image, &self.group))
    }

    fn room(&self) -> Option<u64> {
        room_for(&self.image)
    }

    fn ungrow(&self, blocks: u64) {
        self.image.cut(blocks);
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        blocking::about_to_block();
        let done = batch.into_iter().map(|mut request| {
            let result = self.carry_out(&mut request);
            Completion { buf: request.buf, result }
        });
        self.done.put(done.collect())
    }

    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.done.take(ticket)
    }

    /// Each has one request in flight.
    fn submitters(&self) -> usize {
        8
    }

    fn writes_completed(&self) -> u64 {
        self.group.completed()
    }

    fn flush_upto(&self, upto: u64) -> Result<()> {
        self.group.flush_upto(upto, || self.image.flush())
    }

    fn when_flush_fails(&self, tell: Box<dyn Fn() + Send + Sync>) {
        self.group.when_it_fails(tell);
    }

    fn writes_flushed(&self) -> u64 {
        self.group.flushed()
    }

    fn flushes(&self) -> u64 {
        self.group.flushes()
    }

    fn counters(&self) -> Vec<CauseCount> {
        self.counters.snapshot()
    }
}
