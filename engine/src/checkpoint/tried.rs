//! Writes that are tried again: a request that fails is submitted anew, with those that failed beside it, before its
//! error counts.

use crate::Result;
use crate::device::{BlockDevice, IoBuf, Request};

/// Tries of a request that fails.
const TRIES: usize = 3;

/// Runs a batch of writes; their buffers, in its order.
///
/// # Errors
/// Of a request that failed at each try.
pub(super) fn write(device: &dyn BlockDevice, batch: Vec<Request>) -> Result<Vec<IoBuf>> {
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
