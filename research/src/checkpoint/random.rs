//! Random writes of 4 KiB: what home writes that share no request are measured against.

use narufs_engine::Result;
use narufs_engine::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, Request};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes a second of writes at random to these blocks, `depth` of them in flight, through the device layer.
///
/// # Errors
/// Those of the device.
pub fn writes(device: &dyn BlockDevice, blocks: Range<u64>, depth: usize, time: Duration) -> Result<f64> {
    let mut random = 1_u64;
    let mut free: Vec<IoBuf> = (0..depth).map(|_| IoBuf::from_slice(&[0x5a; BLOCK_SIZE])).collect();
    let (mut in_flight, mut done) = (VecDeque::new(), 0_u64);
    let began = Instant::now();
    while began.elapsed() < time || !in_flight.is_empty() {
        if began.elapsed() < time
            && let Some(buf) = free.pop()
        {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = blocks.start + (random >> 20) % (blocks.end - blocks.start);
            in_flight.push_back(device.submit(vec![Request::write(block, buf, Cause::DataWriteBack)]));
            continue;
        }
        for completion in in_flight.pop_front().into_iter().flat_map(|ticket| device.wait(ticket)) {
            completion.result?;
            done += 1;
            free.push(completion.buf);
        }
    }
    Ok((done * BLOCK_SIZE as u64) as f64 / began.elapsed().as_secs_f64())
}

/// The same by fio, on a file that is there; none if there is no fio, or it does not say.
pub fn fio(file: &Path, depth: usize, time: Duration) -> Option<f64> {
    let mut command = Command::new("fio");
    command.args(["--name=random", "--rw=randwrite", "--bs=4k", "--ioengine=io_uring", "--direct=1"]);
    command.args(["--overwrite=1", "--time_based", "--output-format=json"]);
    command.arg(format!("--filename={}", file.display()));
    command.arg(format!("--size={}", std::fs::metadata(file).ok()?.len()));
    command.arg(format!("--iodepth={depth}"));
    command.arg(format!("--runtime={}ms", time.as_millis()));
    let output = command.output().ok()?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    said.pointer("/jobs/0/write/bw_bytes")?.as_f64().filter(|bytes| *bytes > 0.0)
}
