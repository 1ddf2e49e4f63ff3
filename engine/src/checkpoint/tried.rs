//! Writes that are tried again: a request that fails is submitted anew, with those that failed beside it, before its
//! error counts.
//!
//! A batch is submitted whole, many requests under way at a time, unless the store is to do as those whom narufs is
//! measured against (`-o baseline=checkpoint-one`, `checkpoint-64`): each request by itself, or 64 buffers at a time, as jbd2 plugs and unplugs
//! its queue (`__flush_batch`), which waits for all of them only at the end.

use crate::Result;
#[cfg(feature = "baselines")]
use crate::baseline::CheckpointBaseline;
#[cfg(feature = "baselines")]
use crate::device::BLOCK_SIZE;
use crate::device::{BlockDevice, IoBuf, Request};
use crate::store::Store;

/// Tries of a request that fails.
const TRIES: usize = 3;

/// Buffers of a batch of jbd2: `JBD2_NR_BATCH`.
#[cfg(feature = "baselines")]
const BUFFERS: usize = 64;

/// Runs a batch of writes; their buffers, in its order.
///
/// # Errors
/// Of a request that failed at each try.
pub(super) fn write(store: &Store, batch: Vec<Request>) -> Result<Vec<IoBuf>> {
    let device = store.device().as_ref();
    #[cfg(feature = "baselines")]
    match store.baselines().checkpoint {
        CheckpointBaseline::Ours => {}
        CheckpointBaseline::One => {
            let mut one_by_one = batch.into_iter().map(|request| write_whole(device, vec![request]));
            return one_by_one.try_fold(Vec::new(), |mut bufs, one| {
                bufs.extend(one?);
                Ok(bufs)
            });
        }
        CheckpointBaseline::Batched => return write_plugged(device, batch),
    }
    write_whole(device, batch)
}

/// Submits 64 buffers after 64, then waits for all.
#[cfg(feature = "baselines")]
fn write_plugged(device: &dyn BlockDevice, batch: Vec<Request>) -> Result<Vec<IoBuf>> {
    let places: Vec<_> = batch.iter().map(|request| (request.block, request.cause)).collect();
    let mut tickets = Vec::new();
    let mut plugged = Vec::new();
    let mut buffers = 0;
    for request in batch {
        buffers += request.buf.len().div_ceil(BLOCK_SIZE);
        plugged.push(request);
        if buffers >= BUFFERS {
            tickets.push(device.submit(std::mem::take(&mut plugged)));
            buffers = 0;
        }
    }
    if !plugged.is_empty() {
        tickets.push(device.submit(plugged));
    }
    let done: Vec<_> = tickets.into_iter().flat_map(|ticket| device.wait(ticket)).collect();
    let mut bufs = Vec::new();
    let mut outcome = Ok(());
    for (done, (block, cause)) in done.into_iter().zip(places) {
        match done.result {
            Ok(()) => bufs.push(done.buf),
            Err(_) => match write_whole(device, vec![Request::write(block, done.buf, cause)]) {
                Ok(buf) => bufs.extend(buf),
                Err(e) => outcome = outcome.and(Err(e)),
            },
        }
    }
    outcome.map(|()| bufs)
}

/// Has the batch under way at once.
fn write_whole(device: &dyn BlockDevice, batch: Vec<Request>) -> Result<Vec<IoBuf>> {
    let mut bufs: Vec<IoBuf> = batch.iter().map(|_| IoBuf::empty()).collect();
    let mut left: Vec<usize> = (0..batch.len()).collect();
    let mut batch = batch;
    for attempt in 1.. {
        let places: Vec<_> = batch.iter().map(|request| (request.block, request.cause)).collect();
        let mut failed = Vec::new();
        let mut again = Vec::new();
        let mut outcome = Ok(());
        let done = device.wait(device.submit(std::mem::take(&mut batch)));
        for ((done, (block, cause)), at) in done.into_iter().zip(places).zip(left) {
            match done.result {
                Ok(()) => bufs[at] = done.buf,
                Err(e) => {
                    outcome = Err(e);
                    again.push(Request::write(block, done.buf, cause));
                    failed.push(at);
                }
            }
        }
        if attempt == TRIES || outcome.is_ok() {
            return outcome.map(|()| bufs);
        }
        (batch, left) = (again, failed);
    }
    unreachable!("the last try returns")
}
