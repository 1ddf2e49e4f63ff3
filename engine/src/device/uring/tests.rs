//! Completions that say less than was asked for: the kernel's are fed by hand, what follows is its own.

use super::*;

const FIRST: u64 = 2;
const BLOCKS: usize = 4;
/// What a buffer holds, or is to write.
const FILL: u8 = 0xEE;

/// A device whose blocks hold their numbers, and one request at its ring that the kernel has not been given.
struct Fed {
    device: UringDevice,
    id: usize,
    slot: usize,
    _dir: tempfile::TempDir,
}

fn fed(op: Op) -> Fed {
    let dir = tempfile::tempdir().expect("tempdir");
    let image = ImageFile::create(&dir.path().join("image"), 16).expect("create");
    let device = UringDevice::new(image).expect("the kernel offers io_uring");
    let numbers = (0..16u8)
        .map(|n| Request::write(u64::from(n), IoBuf::from_slice(&[n; BLOCK_SIZE]), Cause::Checkpoint));
    device.run(numbers.collect()).expect("write");
    let mut state = device.rings[0].state.lock();
    let completions = vec![Completion { buf: IoBuf::empty(), result: Ok(()) }];
    let id = state.batches.insert(Batch { completions, left: 1, done: Arc::new(Condvar::new()) });
    let buf = IoBuf::from_slice(&[FILL; BLOCKS * BLOCK_SIZE]);
    let request = Request { op, block: FIRST, buf, cause: Cause::Checkpoint };
    let slot = state.requests.insert(InFlight { batch: id, index: 0, request, moved: 0, retries: 0 });
    drop(state);
    Fed { device, id, slot, _dir: dir }
}

impl Fed {
    /// The request is answered so, after so many answers that brought it no further.
    fn complete(self, result: i32, retries: u8) -> (UringDevice, Completion, tempfile::TempDir) {
        let ring = &self.device.rings[0];
        let mut state = ring.state.lock();
        state.requests.get_mut(self.slot).retries = retries;
        self.device.complete(ring, &mut state, self.slot, result);
        let done = self.device.wait_for(ring, state, self.id).pop().expect("one was asked for");
        (self.device, done, self._dir)
    }
}

/// The first byte of each block, all of whose bytes are the same.
fn bytes(buf: &[u8]) -> Vec<u8> {
    let of = |block: &[u8]| {
        assert!(block.iter().all(|byte| *byte == block[0]));
        block[0]
    };
    buf.chunks(BLOCK_SIZE).map(of).collect()
}

const PART: i32 = BLOCK_SIZE as i32 + 512;

#[test]
fn a_read_that_did_less_goes_on_from_the_last_whole_block() {
    // The first block is as the caller had it: what was done is not done again.
    let (_device, done, _dir) = fed(Op::Read).complete(PART, 0);
    assert_eq!((done.result, bytes(&done.buf)), (Ok(()), vec![FILL, 3, 4, 5]));
    // Not even one block.
    let (_device, done, _dir) = fed(Op::Read).complete(512, 0);
    assert_eq!((done.result, bytes(&done.buf)), (Ok(()), vec![2, 3, 4, 5]));
}

#[test]
fn a_write_that_did_less_goes_on_from_the_last_whole_block() {
    for (answer, first) in [(PART, 2), (512, FILL), (-libc::EINTR, FILL), (-libc::EAGAIN, FILL)] {
        let fed = fed(Op::Write);
        let before = fed.device.writes_completed();
        let (device, done, _dir) = fed.complete(answer, 0);
        assert_eq!(done.result, Ok(()));
        assert_eq!(device.writes_completed(), before + 1, "one write");
        let buf = IoBuf::zeroed(6 * BLOCK_SIZE);
        let read = device.run(vec![Request::read(1, buf, Cause::Metadata)]).expect("read");
        assert_eq!(bytes(&read[0]), [1, first, FILL, FILL, FILL, 6], "{answer}");
    }
}

#[test]
fn a_request_that_gets_no_further_is_carried_out_without_the_ring() {
    for answer in [512, -libc::EINTR, -libc::ECANCELED] {
        let (device, done, _dir) = fed(Op::Read).complete(answer, MAX_RETRIES);
        assert_eq!((done.result, bytes(&done.buf)), (Ok(()), vec![2, 3, 4, 5]));
        assert_eq!(device.rings[0].state.lock().in_kernel, 0);
    }
    // One that does get further is the ring's again, however often it has not.
    let (_device, done, _dir) = fed(Op::Read).complete(PART, MAX_RETRIES);
    assert_eq!((done.result, bytes(&done.buf)), (Ok(()), vec![FILL, 3, 4, 5]));
}

#[test]
fn nothing_and_errors_end_a_request() {
    let (_device, done, _dir) = fed(Op::Read).complete(0, 0);
    assert_eq!(done.result, Err(CUT_OFF));
    let (_device, done, _dir) = fed(Op::Write).complete(-libc::ENOSPC, 0);
    assert_eq!(done.result, Err(Error::Device { context: "write", errno: libc::ENOSPC }));
}
