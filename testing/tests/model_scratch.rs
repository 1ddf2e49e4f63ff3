//! Random sequences on scratch file systems, against the reference model: with so little memory that everything
//! spills, with memory for all, without spill space, and through a mount.
//!
//! `NARUFS_SEED=n` replays one seed; `NARUFS_TEST_SCALE=n` runs n times as many.

use narufs_engine::device::{BLOCK_SIZE, BlockDevice, MemoryDevice};
use narufs_engine::vfs::AtimePolicy;
use narufs_engine::volume::Mounted;
use narufs_engine::volume::Running;
use narufs_engine::volume::scratch::{ScratchOptions, make_on};
use narufs_fuse::mount::{Atime, FuseOptions, IfBusy, mountinfo, unmount};
use narufs_fuse::{Caching, serve};
use narufs_testing::dir_target::DirTarget;
use narufs_testing::lib_target::LibTarget;
use narufs_testing::model::Model;
use narufs_testing::op::{Falloc, Generator, Op};
use narufs_testing::place::require_mounts;
use narufs_testing::settings;
use narufs_testing::target::{Target, compare};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Sizes of a file system under test, in bytes.
#[derive(Debug, Clone, Copy)]
struct Shape {
    memory: u64,
    spill: Option<u64>,
    background: bool,
    #[cfg(feature = "baselines")]
    baselines: narufs_engine::baseline::Baselines,
}

impl Shape {
    fn new(memory: u64, spill: Option<u64>, background: bool) -> Shape {
        Shape {
            memory,
            spill,
            background,
            #[cfg(feature = "baselines")]
            baselines: Default::default(),
        }
    }
}

/// A new file system, and its spill space if it has any.
fn make(shape: Shape) -> Result<(Option<Arc<MemoryDevice>>, Mounted, Running), String> {
    let device = shape.spill.map(|bytes| Arc::new(MemoryDevice::new(bytes / BLOCK_SIZE as u64)));
    let mut options = ScratchOptions::with_memory(shape.memory);
    options.files.background = shape.background;
    #[cfg(feature = "baselines")]
    {
        options.baselines = shape.baselines;
    }
    options.files.fs.atime = AtimePolicy::Never;
    let spill = device.clone().map(|device| device as Arc<dyn BlockDevice>);
    let (mounted, files) = make_on(&options, spill).map_err(|e| e.to_string())?;
    let running = Running::start(mounted.checkpointer(), &files).map_err(|e| e.to_string())?;
    Ok((device, mounted, running))
}

/// One file system, `steps` operations, everything removed in the end. Gives the bytes that were spilled.
fn run(shape: Shape, seed: u64, steps: usize) -> Result<u64, String> {
    let (device, mounted, running) = make(shape)?;
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
    let written = |count: &narufs_engine::device::CauseCount| count.write_bytes;
    Ok(device.map_or(0, |device| device.counters().iter().map(written).sum()))
}

/// A directory to mount at; what is mounted there is taken away when it goes.
struct Point(TempDir);

impl Point {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        while let Ok(Some(_)) = mountinfo::find(self.path()) {
            if let Err(e) = unmount(self.path(), IfBusy::Abort) {
                eprintln!("{} stays mounted: {e}", self.path().display());
                return;
            }
        }
    }
}

/// The same through a mount.
fn run_mounted(shape: Shape, seed: u64, steps: usize) -> Result<u64, String> {
    let point = Point(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?);
    let (device, mounted, running) = make(shape)?;
    let mut kernel = FuseOptions::new("scratch");
    kernel.atime = Atime::Never;
    let server = serve(running.fs().clone(), point.path(), &kernel, Caching::Exclusive)
        .map_err(|e| format!("serve: {e}"))?;
    let mut target = DirTarget::new(point.path()).map_err(|e| format!("the mount: {e}"))?;
    target.sync_all = Some(narufs_fuse::control::sync);
    let (mut model, mut generator) = (Model::default(), Generator::new(seed));
    for step in 0..steps {
        let op = generator.next_op();
        let moves = matches!(op, Op::Fallocate { mode: Falloc::Collapse | Falloc::Insert, .. });
        // Not every kernel passes nameless files on.
        if moves || matches!(op, Op::Tmpfile { .. }) {
            continue;
        }
        let (want, got) = (model.apply(&op), target.apply(&op));
        if got != want {
            return Err(format!("step {step}: {op:?} answered {got:?}, expected {want:?}"));
        }
    }
    compare(&model.tree(), &target.tree()?)?;
    drop(target);
    server.unmount(IfBusy::Refuse).map_err(|e| format!("umount: {e}"))?;
    server.wait();
    drop(server);
    running.stop().and_then(|()| mounted.unmount()).map_err(|e| format!("last words: {e}"))?;
    let written = |count: &narufs_engine::device::CauseCount| count.write_bytes;
    Ok(device.map_or(0, |device| device.counters().iter().map(written).sum()))
}

type Run = fn(Shape, u64, usize) -> Result<u64, String>;

fn run_all(what: &str, run: Run, shape: Shape, seeds: u64, steps: usize) -> u64 {
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
        let shape = Shape::new(256 << 10, Some(32 << 20), background);
        let spilled = run_all("all spills", run, shape, 30, 800);
        assert!(spilled > 1 << 20, "hardly anything has spilled");
    }
}

#[test]
fn scratch_in_memory_agrees_with_the_model() {
    run_all("in memory", run, Shape::new(64 << 20, None, false), 20, 800);
}

#[test]
fn scratch_that_need_not_spill_agrees_with_the_model() {
    let shape = Shape::new(64 << 20, Some(16 << 20), true);
    run_all("room for all", run, shape, 10, 800);
}

/// Each of the needless requests of tmpfs with swap, and all of them, with locks and ids of others.
#[cfg(feature = "baselines")]
#[test]
fn baselines_of_scratch_agree_with_the_model() {
    use narufs_engine::baseline::{NAMES, SpillBaseline};
    let kinds = NAMES.into_iter().filter(|(_, one)| one.spill != SpillBaseline::default());
    let all =
        kinds.clone().fold("lock-tree+ids-scan+checkpoint-one".to_owned(), |all, (name, _)| all + "+" + name);
    for names in kinds.map(|(name, _)| name.to_owned()).chain([all]) {
        for background in [false, true] {
            let mut shape = Shape::new(256 << 10, Some(32 << 20), background);
            shape.baselines = names.parse().expect("known");
            let spilled = run_all(&names, run, shape, 4, 600);
            assert!(spilled > 1 << 18, "{names}: hardly anything has spilled");
        }
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn scratch_agrees_with_the_model_through_a_mount() {
    require_mounts();
    let shape = Shape::new(256 << 10, Some(32 << 20), true);
    let spilled = run_all("mounted", run_mounted, shape, 10, 500);
    assert!(spilled > 1 << 20, "hardly anything has spilled");
}
