//! Whole requests by calls that may do less than they are asked for.
//!
//! A call that did a part is followed by one for the rest, from the last whole block on: direct I/O cannot go on in the
//! midst of a block, and to do a part of one again is harmless.

use std::fs::File;

use rustix::io::Errno;

use super::BLOCK_SIZE;
use super::file::device_error;
use crate::blocking::deeply;
use crate::{Error, Result};

/// How often in a row a call may get no further before it counts as failed.
pub(super) const MAX_RETRIES: u8 = 8;

/// Whole blocks of what a call has done.
pub(super) fn blocks_of(bytes: usize) -> usize {
    bytes - bytes % BLOCK_SIZE
}

/// A call that moved nothing: it met the end of the file, for someone cut the image off.
pub(super) const CUT_OFF: Error = Error::Device { context: "the image has been truncated", errno: libc::EIO };

/// Calls until `len` bytes are done, a whole number of blocks; each call is told how many are, and says how many more it
/// did.
pub(super) fn whole(
    context: &'static str,
    len: usize,
    mut call: impl FnMut(usize) -> Result<usize, Errno>,
) -> Result<()> {
    let (mut done, mut retries) = (0, 0);
    while done < len {
        let why = match call(done) {
            Ok(0) => return Err(CUT_OFF),
            Ok(bytes) if bytes >= BLOCK_SIZE => {
                done += blocks_of(bytes);
                retries = 0;
                continue;
            }
            Ok(_) => Errno::IO,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Errno::AGAIN,
            Err(e) => return Err(device_error(context, e)),
        };
        retries += 1;
        if retries > MAX_RETRIES {
            return Err(device_error(context, why));
        }
    }
    Ok(())
}

/// Reads all of `buf`; the end of the file inside it is an error of the device.
pub(super) fn read_whole(file: &File, buf: &mut [u8], offset: u64) -> Result<()> {
    whole("read", buf.len(), |done| {
        let rest = &mut buf[done..];
        deeply(|| rustix::io::pread(file, rest, offset + done as u64))
    })
}

/// Writes all of `buf`.
pub(super) fn write_whole(file: &File, buf: &[u8], offset: u64) -> Result<()> {
    whole("write", buf.len(), |done| deeply(|| rustix::io::pwrite(file, &buf[done..], offset + done as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the calls began that were answered so, and the end.
    fn answered(blocks: usize, answers: &[Result<usize, Errno>]) -> (Vec<usize>, Result<()>) {
        let (mut begun, mut next) = (Vec::new(), answers.iter().copied().cycle());
        let end = whole("read", blocks * BLOCK_SIZE, |done| {
            begun.push(done);
            next.next().expect("there is another")
        });
        (begun, end)
    }

    #[test]
    fn a_call_that_did_less_is_followed_by_one_from_the_last_whole_block_on() {
        const B: usize = BLOCK_SIZE;
        let answers = [Ok(B + 512), Ok(100), Err(Errno::INTR), Ok(B), Err(Errno::AGAIN), Ok(2 * B)];
        assert_eq!(answered(4, &answers), (vec![0, B, B, B, 2 * B, 2 * B], Ok(())));
    }

    #[test]
    fn calls_that_get_no_further_fail_and_so_does_the_end_of_the_file() {
        let (begun, end) = answered(2, &[Ok(BLOCK_SIZE - 1)]);
        assert_eq!(begun.len(), usize::from(MAX_RETRIES) + 1);
        assert_eq!(end, Err(Error::Device { context: "read", errno: libc::EIO }));
        let (_, end) = answered(2, &[Err(Errno::AGAIN)]);
        assert_eq!(end, Err(Error::Device { context: "read", errno: libc::EAGAIN }));
        assert_eq!(answered(2, &[Ok(BLOCK_SIZE), Ok(0)]), (vec![0, BLOCK_SIZE], Err(CUT_OFF)));
        let (begun, end) = answered(2, &[Ok(BLOCK_SIZE), Err(Errno::NOSPC)]);
        assert_eq!((begun.len(), end), (2, Err(Error::Device { context: "read", errno: libc::ENOSPC })));
    }
}
