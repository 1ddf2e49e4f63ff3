//! Lives of a file system whose device fails: operations, with faults among them; then an end, clean or by a crash;
//! then the next mount, which must find what was promised.

use super::Tally;
use super::plan::{Armed, Extent, Lasts, Place, Plan};
use narufs_engine::Error;
use narufs_engine::format::ROOT_NID;
use narufs_engine::sim::{Crash, SimMedia};
use narufs_engine::vfs::{Context, FallocateMode, FileHandle, OpenFlags, SetAttr, WriteFlags};
use narufs_testing::content::Content;
use narufs_testing::lab::{Lab, Live, Ring};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const FILES: usize = 3;
const PAGE: usize = 4096;
/// Bytes of a file at the most: all of them are many times the page cache.
const SPAN: usize = 24 * PAGE;
const STEPS: usize = 30;
const LIVES: usize = 3;
/// States of a crash that are looked at.
const STATES: usize = 3;

/// A file system, and what its files must show.
struct World {
    lab: Lab,
    crash: Crash,
    sim: SimMedia,
    files: Vec<Content>,
}

/// One mount of it.
struct Life<'w> {
    world: &'w mut World,
    live: Live,
    handles: Vec<FileHandle>,
    /// Files that nobody may use until the next mount.
    stuck: [bool; FILES],
    armed: Option<Armed>,
    /// Whether something has failed in this life.
    failed: bool,
    told: u64,
}

/// What befalls a life.
#[derive(Debug, Clone, Copy)]
struct Course {
    plan: Plan,
    steps: usize,
    /// The step before which it begins, and the one before which it is mended.
    begins: usize,
    mends: usize,
}

/// What an operation on a file leaves.
enum Step {
    Write { at: usize, len: usize, fill: u8, flags: WriteFlags },
    Truncate(usize),
    Punch { at: usize, len: usize },
    Fsync { datasync: bool },
}

fn said(what: &str) -> impl Fn(Error) -> String {
    move |e| format!("{what}: {e}")
}

fn name(file: usize) -> String {
    format!("f{file}")
}

fn open(live: &Live, file: usize) -> Result<FileHandle, Error> {
    let (ctx, flags) = (Context::root(), OpenFlags::READ_WRITE);
    match live.fs().create(&ctx, ROOT_NID, name(file).as_bytes(), 0o644, flags) {
        Ok((entry, handle, _)) => {
            live.fs().forget(entry.nid, 1);
            Ok(handle)
        }
        Err(e) => Err(e),
    }
}

fn content(live: &Live, handle: &FileHandle) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0xAA; SPAN + PAGE];
    let len = live.fs().read(handle, 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Runs lives that follow from the seed, with faults of one kind.
pub fn run(
    ring: Ring,
    crash: Crash,
    kind: (Place, i32, Lasts),
    seed: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(ring, crash, &mut rng)?;
    for life in 0..LIVES {
        world.live_once(kind, &mut rng, tally).map_err(|e| format!("life {life}: {e}"))?;
    }
    Ok(())
}

/// Runs one life of so many steps, always the same, whose request of that number fails, once or from there on, wholly or
/// after a part of it was done; how many requests there were before its end.
pub fn run_with_request(
    (ring, crash): (Ring, Crash),
    (request, lasts, extent): (u64, Lasts, Extent),
    steps: usize,
    tally: &mut Tally,
) -> Result<u64, String> {
    let mut rng = StdRng::seed_from_u64(1);
    let mut world = World::new(ring, crash, &mut rng)?;
    let plan = Plan { place: Place::Any, errno: libc::EIO, lasts, extent, spared: request };
    world.live(Course { plan, steps, begins: 0, mends: steps }, &mut rng, tally)
}

impl World {
    /// A new one, whose operations run on one lane.
    fn new(ring: Ring, crash: Crash, rng: &mut StdRng) -> Result<World, String> {
        narufs_engine::lane::pin(Some(0));
        let lab = Lab::tiny(ring);
        let files = vec![Content::durable(Vec::new()); FILES];
        let mut world = World { lab, crash, sim: lab.format(), files };
        world.begin(rng)?;
        Ok(world)
    }

    /// Files that are there, with some content.
    fn begin(&mut self, rng: &mut StdRng) -> Result<(), String> {
        let live = self.lab.mount(&self.sim).map_err(said("first mount"))?;
        for file in 0..FILES {
            let handle = open(&live, file).map_err(said("create"))?;
            let bytes = vec![rng.random_range(1..=255_u8); rng.random_range(1..SPAN)];
            live.fs()
                .write(&Context::root(), &handle, 0, &bytes, WriteFlags::empty())
                .map_err(said("write"))?;
            live.fs().release(handle, None);
            self.files[file] = Content::durable(bytes);
        }
        live.unmount().map_err(said("first unmount"))
    }

    /// Mounts what is there; every file must show what it may.
    fn found(&mut self, when: &str) -> Result<Live, String> {
        let live = self.lab.mount(&self.sim).map_err(|e| format!("{when}: mount: {e}"))?;
        for (file, may) in self.files.iter_mut().enumerate() {
            let told = |e: Error| format!("{when}: {}: {e}", name(file));
            let handle = open(&live, file).map_err(told)?;
            let seen = content(&live, &handle).map_err(told)?;
            live.fs().release(handle, None);
            may.may_be(&seen).map_err(|e| format!("{when}: {}: {e}", name(file)))?;
            *may = Content::durable(seen);
        }
        Ok(live)
    }

    fn live_once(
        &mut self,
        kind: (Place, i32, Lasts),
        rng: &mut StdRng,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let (place, errno, lasts) = kind;
        let extent = if rng.random() { Extent::Part } else { Extent::Nothing };
        let plan = Plan { place, errno, lasts, extent, spared: rng.random_range(0..4) };
        let (begins, mends) = (rng.random_range(0..STEPS / 2), rng.random_range(STEPS / 2..STEPS * 2));
        self.live(Course { plan, steps: STEPS, begins, mends }, rng, tally).map(drop)
    }

    /// One life; how many requests it had that the fault might have met.
    fn live(&mut self, course: Course, rng: &mut StdRng, tally: &mut Tally) -> Result<u64, String> {
        let Course { plan, steps, begins, mends } = course;
        let live = self.found("at first")?;
        let handles =
            (0..FILES).map(|file| open(&live, file)).collect::<Result<_, _>>().map_err(said("open"))?;
        let mut life =
            Life { world: self, live, handles, stuck: [false; FILES], armed: None, failed: false, told: 0 };
        for step in 0..steps {
            if step == begins {
                life.armed = Some(Armed::arm(&life.world.sim, plan));
            }
            if step == mends {
                Armed::pause(&life.world.sim);
            }
            life.step(rng).map_err(|e| format!("step {step}: {e}"))?;
            life.failed |= life.armed.as_ref().is_some_and(|armed| armed.failed() > 0);
        }
        Armed::pause(&life.world.sim);
        tally.requests += life.armed.as_ref().map_or(0, Armed::failed);
        tally.told += life.told;
        tally.read_only += u64::from(life.live.sound().is_err());
        let met = life.armed.as_ref().map_or(0, Armed::met);
        life.end(plan.lasts, rng, tally).map(|()| met)
    }

    /// Takes each of some states of a crash now, and goes on with the last.
    fn crash(&mut self, rng: &mut StdRng, tally: &mut Tally) -> Result<(), String> {
        let states: Vec<_> =
            self.sim.crash_point(self.sim.events()).sample(self.crash, rng.random(), STATES).collect();
        let files = self.files.clone();
        for state in &states {
            tally.states += 1;
            self.sim = state.restart();
            self.files.clone_from(&files);
            let live = self.found("after a crash").map_err(|e| format!("{state}: {e}"))?;
            live.unmount().map_err(said("unmount after a crash"))?;
            self.lab.check(&self.sim).map_err(|e| format!("{state}: {e}"))?;
        }
        Ok(())
    }
}

impl Life<'_> {
    /// Whether a failure is what it may be. Nothing may fail before a request has.
    fn allows(&mut self, e: &Error) -> bool {
        self.failed |= self.armed.as_ref().is_some_and(|armed| armed.failed() > 0);
        self.told += 1;
        self.failed && matches!(e.errno(), libc::EIO | libc::ENOSPC | libc::EROFS)
    }

    /// What a file holds, by reads that do not fail.
    fn look(&self, file: usize) -> Result<Vec<u8>, Error> {
        Armed::pause(&self.world.sim);
        let seen = content(&self.live, &self.handles[file]);
        if let Some(armed) = &self.armed {
            armed.resume(&self.world.sim);
        }
        seen
    }

    fn step(&mut self, rng: &mut StdRng) -> Result<(), String> {
        let file = rng.random_range(0..FILES);
        let at = rng.random_range(0..SPAN);
        let at = if rng.random() { at / PAGE * PAGE } else { at };
        let fill = rng.random_range(1..=255);
        let len = match rng.random_range(0..4) {
            0 => rng.random_range(1..300),
            1 => PAGE,
            2 => rng.random_range(1..3 * PAGE),
            _ => rng.random_range(1..SPAN),
        };
        let flags = match rng.random_range(0..8) {
            0 => WriteFlags::DSYNC,
            1 => WriteFlags::SYNC,
            2 => WriteFlags::DIRECT,
            _ => WriteFlags::empty(),
        };
        match rng.random_range(0..20) {
            0..9 => self.change(file, Step::Write { at, len: len.min(SPAN - at), fill, flags }),
            9 => self.change(file, Step::Truncate(if rng.random() { at } else { 0 })),
            10 => self.change(file, Step::Punch { at, len }),
            11..15 => self.change(file, Step::Fsync { datasync: rng.random() }),
            15 => self.sync_all(),
            16 => {
                let done = self.live.checkpoint();
                done.or_else(|e| self.allows(&e).then_some(()).ok_or(format!("checkpoint: {e}")))
            }
            17 => self.names(fill),
            _ => self.read(file),
        }
    }

    fn read(&mut self, file: usize) -> Result<(), String> {
        match content(&self.live, &self.handles[file]) {
            Ok(seen) if self.stuck[file] || seen == self.world.files[file].now() => Ok(()),
            Ok(_) => Err(format!("{} reads what it does not hold", name(file))),
            Err(e) if self.allows(&e) => Ok(()),
            Err(e) => Err(format!("read: {e}")),
        }
    }

    /// Metadata that nobody promised anything of.
    fn names(&mut self, number: u8) -> Result<(), String> {
        let (fs, ctx) = (self.live.fs(), Context::root());
        let name = format!("n{}", number % 8);
        let done = match fs.mkdir(&ctx, ROOT_NID, name.as_bytes(), 0o755) {
            Ok(entry) => {
                fs.forget(entry.nid, 1);
                Ok(())
            }
            Err(Error::Errno(libc::EEXIST)) => fs.rmdir(&ctx, ROOT_NID, name.as_bytes()),
            Err(e) => Err(e),
        };
        done.or_else(|e| self.allows(&e).then_some(()).ok_or(format!("mkdir, rmdir: {e}")))
    }

    fn sync_all(&mut self) -> Result<(), String> {
        match self.live.fs().syncfs() {
            Ok(()) => {
                self.world.files.iter_mut().for_each(Content::synced);
                Ok(())
            }
            Err(e) if self.allows(&e) => Ok(()),
            Err(e) => Err(format!("sync: {e}")),
        }
    }

    fn change(&mut self, file: usize, step: Step) -> Result<(), String> {
        if self.stuck[file] {
            return Ok(());
        }
        let (fs, ctx, handle) = (self.live.fs(), Context::root(), &self.handles[file]);
        let mut after = self.world.files[file].now().to_vec();
        let (what, done) = match &step {
            Step::Write { at, len, fill, flags } => {
                after.resize(after.len().max(at + len), 0);
                after[*at..at + len].fill(*fill);
                ("write", fs.write(&ctx, handle, *at as u64, &vec![*fill; *len], *flags))
            }
            Step::Truncate(size) => {
                after.resize(*size, 0);
                let set = SetAttr { size: Some(*size as u64), ..SetAttr::default() };
                ("truncate", fs.setattr(&ctx, handle.nid(), Some(handle), &set).map(|_| 0))
            }
            Step::Punch { at, len } => {
                let end = (at + len).min(after.len());
                after[(*at).min(end)..end].fill(0);
                let mode = FallocateMode::PunchHole;
                ("punch", fs.fallocate(&ctx, handle, mode, *at as u64, *len as u64).map(|()| 0))
            }
            Step::Fsync { datasync } => ("fsync", fs.fsync(handle, *datasync).map(|()| 0)),
        };
        match (done, &step) {
            // Less than was asked for: a later part failed.
            (Ok(short), Step::Write { len, .. }) if short < *len => {
                self.failed |= self.armed.as_ref().is_some_and(|armed| armed.failed() > 0);
                if self.failed {
                    self.uncertain(file, after, what)
                } else {
                    Err(format!("{what}: {short} bytes"))
                }
            }
            (Ok(_), step) => {
                let known = &mut self.world.files[file];
                known.set(after);
                match step {
                    Step::Write { at, len, flags, .. }
                        if flags.intersects(WriteFlags::SYNC | WriteFlags::DSYNC) =>
                    {
                        known.synced_range(*at, *len);
                    }
                    Step::Fsync { .. } => known.synced(),
                    _ => {}
                }
                Ok(())
            }
            (Err(e), _) if self.allows(&e) => self.uncertain(file, after, what),
            (Err(e), _) => Err(format!("{what}: {e}")),
        }
    }

    /// An operation failed, wholly or in part.
    fn uncertain(&mut self, file: usize, after: Vec<u8>, what: &str) -> Result<(), String> {
        match self.look(file) {
            Ok(seen) => self.world.files[file]
                .failed(after, seen)
                .map_err(|e| format!("{what} of {} failed and left {e}", name(file))),
            // What was begun is finished by the next mount.
            Err(_) if matches!(what, "truncate" | "punch") => {
                self.stuck[file] = true;
                self.world.files[file].set(after);
                Ok(())
            }
            Err(e) => Err(format!("{what} of {} failed, and then reading it: {e}", name(file))),
        }
    }

    /// The device works again, and the life ends.
    fn end(mut self, lasts: Lasts, rng: &mut StdRng, tally: &mut Tally) -> Result<(), String> {
        let flushes = self.armed.take().is_none_or(|armed| !armed.failed_a_flush());
        for file in (0..FILES).filter(|file| !self.stuck[*file]) {
            let seen =
                content(&self.live, &self.handles[file]).map_err(said("a read of a device that works"))?;
            if seen != self.world.files[file].now() {
                return Err(format!("{} does not hold what it did", name(file)));
            }
        }
        let sound = self.live.sound();
        if let (Err(e), false) = (&sound, self.failed) {
            return Err(format!("read-only for no reason: {e}"));
        }
        // A device that has failed a flush fails every one until the next mount: who knows what it forgot.
        let whole = flushes && sound.is_ok() && self.stuck == [false; FILES];
        if whole && rng.random() {
            // Each open file may be told once of what has failed; then everything can be made durable.
            for file in 0..FILES {
                let handle = &self.handles[file];
                let synced =
                    self.live.fs().fsync(handle, false).or_else(|_| self.live.fs().fsync(handle, false));
                synced.map_err(said("the second fsync of a device that works"))?;
                self.world.files[file].synced();
            }
        }
        let handles = std::mem::take(&mut self.handles);
        handles.into_iter().for_each(|handle| self.live.fs().release(handle, None));
        if whole && rng.random() {
            self.live.fs().syncfs().map_err(said("a sync of a device that works"))?;
            let free = self.live.free()?;
            self.live.unmount().map_err(said("unmount of a device that works"))?;
            self.world.files.iter_mut().for_each(Content::synced);
            self.world.lab.check(&self.world.sim)?;
            let live = self.world.found("after the unmount")?;
            let now = live.free()?;
            live.unmount().map_err(said("unmount"))?;
            // Blocks that failed where others did not are set aside until then.
            let same = if lasts == Lasts::Long { now == free } else { now >= free };
            let told = || format!("{free} blocks were free before the unmount, {now} after it");
            return same.then_some(()).ok_or_else(told);
        }
        drop(self.live);
        self.world.crash(rng, tally)
    }
}
