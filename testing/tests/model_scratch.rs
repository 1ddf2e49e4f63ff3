//! Random sequences on scratch file systems, against the reference model: with so little memory that everything
//! spills, with spill space that is nearly full, and without any.
//!
//! `NARUFS_SEED=n` replays one seed; `NARUFS_TEST_SCALE=n` runs n times as many.

use narufs::device::{BLOCK_SIZE, BlockDevice, MemoryDevice};
use narufs::scratch::{ScratchOptions, make_on};
use narufs::vfs::{AtimePolicy, Running};
use narufs_testing::lib_target::LibTarget;
use narufs_testing::model::Model;
use narufs_testing::op::{Falloc, Generator, Op};
use narufs_testing::settings;
use narufs_testing::target::{Target, compare};
use std::sync::Arc;

/// Sizes of a file system under test, in bytes.
#[derive(Debug, Clone, Copy)]
struct Shape {
    memory: u64,
    spill: Option<u64>,
    background: bool,
}

/// One file system, `steps` operations, everything removed in the end. Gives the bytes that were spilled.
fn run(shape: Shape, seed: u64, steps: usize) -> Result<u64, String> {
    let device = shape.spill.map(|bytes| Arc::new(MemoryDevice::new(bytes / BLOCK_SIZE as u64)));
    let mut options = ScratchOptions::with_memory(shape.memory);
    options.files.background = shape.background;
    options.files.fs.atime = AtimePolicy::Never;
    let spill = device.clone().map(|device| device as Arc<dyn BlockDevice>);
    let (mounted, files) = make_on(&options, spill).map_err(|e| e.to_string())?;
    let running = Running::start(mounted.store(), &files).map_err(|e| e.to_string())?;
    let room = || running.fs().statfs().map(|room| room.blocks_free).map_err(|e| e.to_string());
    let at_first = room()?;
    let (mut model, mut generator) = (Model::default(), Generator::new(seed));
    let mut target = LibTarget::new(running.fs());
    for step in 0..steps {
        let op = generator.next_op();
        if matches!(op, Op::Fallocate { mode: Falloc::Collapse | Falloc::Insert, .. }) {
            let refused = target.apply(&op).is_err_and(|e| e != libc::EIO);
            if !refused {
                return Err(format!("step {step}: {op:?} was not refused"));
            }
            continue;
        }
        let (want, got) = (model.apply(&op), target.apply(&op));
        if got != want {
            return Err(format!("step {step}: {op:?} answered {got:?}, expected {want:?}"));
        }
    }
    compare(&model.tree(), &target.tree()?)?;
    target.remove_all().map_err(|e| format!("removing all: {e}"))?;
    // What metadata has grown to stays; that is little beside what was written.
    let (free, lost) = (room()?, at_first / 4);
    if free + lost < at_first {
        return Err(format!("{free} blocks are free after everything was removed, {at_first} before"));
    }
    drop(target);
    running.stop().and_then(|()| mounted.unmount()).map_err(|e| format!("unmount: {e}"))?;
    let written = |count: &narufs::device::CauseCount| count.write_bytes;
    Ok(device.map_or(0, |device| device.counters().iter().map(written).sum()))
}

fn run_all(what: &str, shape: Shape, seeds: u64, steps: usize) -> u64 {
    let seeds = settings::seeds(seeds);
    let (mut failures, mut spilled) = (Vec::new(), 0);
    for seed in seeds.clone() {
        match run(shape, seed, steps) {
            Ok(bytes) => spilled += bytes,
            Err(e) => failures.push(format!("{what}, NARUFS_SEED={seed}: {}", &e[..e.len().min(400)])),
        }
    }
    println!("{what}: seeds {seeds:?}, {steps} operations each, {} MiB spilled", spilled >> 20);
    let shown = &failures[..failures.len().min(5)];
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), shown.join("\n"));
    spilled
}

#[test]
fn scratch_that_spills_everything_agrees_with_the_model() {
    for background in [false, true] {
        let shape = Shape { memory: 256 << 10, spill: Some(32 << 20), background };
        let spilled = run_all("all spills", shape, 30, 800);
        assert!(spilled > 1 << 20, "hardly anything has spilled");
    }
}

#[test]
fn scratch_in_memory_agrees_with_the_model() {
    run_all("in memory", Shape { memory: 64 << 20, spill: None, background: false }, 20, 800);
}

#[test]
fn scratch_that_need_not_spill_agrees_with_the_model() {
    let shape = Shape { memory: 64 << 20, spill: Some(16 << 20), background: true };
    run_all("room for all", shape, 10, 800);
}
