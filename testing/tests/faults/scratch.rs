//! Scratch space whose device fails, or is full: nothing is lost that was accepted, all room comes back, and once the
//! device works again so does the file system.

use super::Tally;
use super::plan::{Armed, Extent, Lasts, Place, Plan};
use narufs_engine::Error;
use narufs_engine::format::ROOT_NID;
use narufs_engine::sim::SimMedia;
use narufs_engine::vfs::{Context, FallocateMode, FileHandle, OpenFlags, SetAttr, Vfs, WriteFlags};
use narufs_engine::volume::Mounted;
use narufs_engine::volume::Running;
use narufs_engine::volume::scratch::{ScratchOptions, make_on};
use narufs_testing::content::Content;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

const FILES: usize = 3;
const PAGE: usize = 4096;
const MEMORY: u64 = 512 << 10;
const STEPS: usize = 80;

/// How large things are.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Blocks of the spill space.
    pub blocks: u64,
    /// Pages of a file at the most.
    pub pages: usize,
}

/// All files together are twice the memory, and have room.
pub const ROOMY: Sizes = Sizes { blocks: 1024, pages: 96 };
/// They are twice of what memory and spill space have together.
pub const FULL: Sizes = Sizes { blocks: 256, pages: 256 };

struct Scratch {
    sim: SimMedia,
    sizes: Sizes,
    running: Running,
    mounted: Mounted,
    files: Vec<(FileHandle, Content)>,
    armed: Option<Armed>,
    told: u64,
}

/// Runs a life that follows from the seed, with faults of one kind.
pub fn run(sizes: Sizes, kind: (Place, i32, Lasts), seed: u64, tally: &mut Tally) -> Result<(), String> {
    narufs_engine::lane::pin(Some(0));
    let mut rng = StdRng::seed_from_u64(seed);
    let sim = SimMedia::new(sizes.blocks, &[]);
    let mut options = ScratchOptions::with_memory(MEMORY);
    options.files.background = false;
    let said = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let (mounted, files) = make_on(&options, Some(sim.device())).map_err(said("make"))?;
    let running = Running::start(mounted.checkpointer(), &files).map_err(said("start"))?;
    let mut scratch = Scratch { sim, sizes, running, mounted, files: Vec::new(), armed: None, told: 0 };
    for file in 0..FILES {
        let handle = scratch.create(file).map_err(said("create"))?;
        scratch.files.push((handle, Content::durable(Vec::new())));
    }
    // The inodes' own block stays taken.
    let free = scratch.fs().statfs().map_err(said("statfs"))?.blocks_free;
    let (place, errno, lasts) = kind;
    let extent = if rng.random() { Extent::Part } else { Extent::Nothing };
    let plan = Plan { place, errno, lasts, extent, spared: rng.random_range(0..6) };
    let (begins, mends) = (rng.random_range(0..STEPS / 2), rng.random_range(STEPS / 2..STEPS * 2));
    for step in 0..STEPS {
        if step == begins {
            scratch.armed = Some(Armed::arm(&scratch.sim, plan));
        }
        if step == mends {
            Armed::pause(&scratch.sim);
        }
        scratch.step(&mut rng).map_err(|e| format!("step {step}: {e}"))?;
    }
    Armed::pause(&scratch.sim);
    tally.requests += scratch.armed.as_ref().map_or(0, Armed::failed);
    tally.told += scratch.told;
    scratch.end((lasts == Lasts::Long).then_some(free))
}

/// Files are made until no more metadata fits memory and none can be spilled; then the device works again.
pub fn fill_with_metadata(errno: i32, background: bool) -> Result<(), String> {
    let sim = SimMedia::new(2048, &[]);
    let mut options = ScratchOptions::with_memory(MEMORY);
    options.files.background = background;
    let said = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let (mounted, files) = make_on(&options, Some(sim.device())).map_err(said("make"))?;
    let running = Running::start(mounted.checkpointer(), &files).map_err(said("start"))?;
    let (fs, ctx) = (running.fs(), Context::root());
    let make = |number: usize| {
        let name = format!("{number:0>200}");
        let made = fs.create(&ctx, ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE);
        made.map(|(entry, handle, _)| {
            fs.forget(entry.nid, 1);
            fs.release(handle, None);
        })
    };
    let (place, lasts, extent) = (Place::Checkpoint, Lasts::Long, Extent::Nothing);
    let armed = Armed::arm(&sim, Plan { place, errno, lasts, extent, spared: 0 });
    let mut made = 0;
    let refused = loop {
        match make(made) {
            Ok(()) if made < 10_000 => made += 1,
            Ok(()) => return Err("all metadata fits memory".into()),
            Err(e) => break e,
        }
    };
    if refused.errno() != libc::EIO {
        return Err(format!("told {refused}"));
    }
    // Each one who needs it has it tried again, and is told.
    let before = armed.failed();
    for _ in 0..3 {
        match make(made) {
            Err(e) if e.errno() == libc::EIO => {}
            other => return Err(format!("{other:?} while the device fails")),
        }
    }
    if armed.failed() < before + 3 {
        return Err("it was not tried again".into());
    }
    Armed::pause(&sim);
    let all = made + 200;
    (made..all).try_for_each(make).map_err(said("create on a device that works again"))?;
    for number in 0..all {
        let name = format!("{number:0>200}");
        fs.unlink(&ctx, ROOT_NID, name.as_bytes()).map_err(said("unlink of what was made"))?;
    }
    running.stop().map_err(said("the end"))?;
    mounted.unmount().map_err(said("unmount"))
}

impl Scratch {
    fn fs(&self) -> &Arc<Vfs> {
        self.running.fs()
    }

    fn create(&self, file: usize) -> Result<FileHandle, Error> {
        let (name, flags) = (format!("f{file}"), OpenFlags::READ_WRITE);
        let (entry, handle, _) =
            self.fs().create(&Context::root(), ROOT_NID, name.as_bytes(), 0o644, flags)?;
        self.fs().forget(entry.nid, 1);
        Ok(handle)
    }

    /// Whether a failure is what it may be.
    fn allows(&mut self, e: &Error) -> bool {
        self.told += 1;
        let failed = self.armed.as_ref().is_some_and(|armed| armed.failed() > 0);
        let full = self.sizes.blocks == FULL.blocks && e.errno() == libc::ENOSPC;
        full || failed && matches!(e.errno(), libc::EIO | libc::ENOSPC)
    }

    fn content(&self, file: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0xAA; (self.sizes.pages + 1) * PAGE];
        let len = self.fs().read(&self.files[file].0, 0, &mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn step(&mut self, rng: &mut StdRng) -> Result<(), String> {
        let file = rng.random_range(0..FILES);
        let span = self.sizes.pages * PAGE;
        let at = rng.random_range(0..span);
        let at = if rng.random() { at / PAGE * PAGE } else { at };
        let len = match rng.random_range(0..4) {
            0 => rng.random_range(1..300),
            1 => PAGE,
            _ => rng.random_range(1..span / 2),
        };
        let len = len.min(span - at);
        let fill = rng.random_range(1..=255);
        let (fs, ctx, handle) = (self.fs(), Context::root(), &self.files[file].0);
        let mut after = self.files[file].1.now().to_vec();
        let mut short = false;
        let (what, done) = match rng.random_range(0..20) {
            0..10 => {
                after.resize(after.len().max(at + len), 0);
                after[at..at + len].fill(fill);
                let done = fs.write(&ctx, handle, at as u64, &vec![fill; len], WriteFlags::empty());
                short = done.as_ref().is_ok_and(|written| *written < len);
                ("write", done.map(drop))
            }
            10 => {
                after.resize(at, 0);
                let set = SetAttr { size: Some(at as u64), ..SetAttr::default() };
                ("truncate", fs.setattr(&ctx, handle.nid(), Some(handle), &set).map(drop))
            }
            11 | 12 => {
                let end = (at + len).min(after.len());
                after[at.min(end)..end].fill(0);
                ("punch", fs.fallocate(&ctx, handle, FallocateMode::PunchHole, at as u64, len as u64))
            }
            13 | 14 => ("fsync", fs.fsync(handle, false)),
            15 => ("sync", fs.syncfs()),
            16 => ("checkpoint", self.mounted.checkpointer().checkpoint()),
            _ => match self.content(file) {
                Ok(seen) if seen != after => return Err("a read shows what is not there".into()),
                seen => ("read", seen.map(drop)),
            },
        };
        match done {
            Ok(()) if !short => {
                self.files[file].1 = Content::durable(after);
                Ok(())
            }
            Err(e) if !self.allows(&e) => Err(format!("{what}: {e}")),
            // Wholly or in part it did not happen.
            _ => {
                Armed::pause(&self.sim);
                let seen = self.content(file).map_err(|e| format!("a read after {what} had failed: {e}"))?;
                if let Some(armed) = &self.armed {
                    armed.resume(&self.sim);
                }
                let known = &mut self.files[file].1;
                known.failed(after, seen).map_err(|e| format!("{what} failed and left {e}"))?;
                known.synced();
                Ok(())
            }
        }
    }

    /// The device works again: what was accepted is there, and all room comes back.
    fn end(mut self, free: Option<u64>) -> Result<(), String> {
        let said = |what: &'static str| move |e: Error| format!("{what} of a device that works: {e}");
        for file in 0..FILES {
            if self.content(file).map_err(said("a read"))? != self.files[file].1.now() {
                return Err(format!("f{file} does not hold what it did"));
            }
        }
        self.mounted.store().check_writable().map_err(said("a look"))?;
        for (file, (handle, _)) in std::mem::take(&mut self.files).into_iter().enumerate() {
            self.fs().release(handle, None);
            let name = format!("f{file}");
            self.fs().unlink(&Context::root(), ROOT_NID, name.as_bytes()).map_err(said("unlink"))?;
        }
        self.fs().syncfs().map_err(said("sync"))?;
        // What comes free in one round can be had after the next.
        for _ in 0..2 {
            self.mounted.checkpointer().checkpoint().map_err(said("a checkpoint"))?;
        }
        let now = self.fs().statfs().map_err(said("statfs"))?.blocks_free;
        self.running.stop().map_err(said("the end"))?;
        self.mounted.unmount().map_err(said("unmount"))?;
        match free {
            Some(free) if now < free => Err(format!("{free} blocks were free at first, {now} in the end")),
            _ => Ok(()),
        }
    }
}
