//! A thread panics with something in its hands, and is served on after that: the next fsync tells, or what it covers is
//! down; nobody waits for ever; the file works on, or the file system has said that it is read-only. Built with the
//! feature `planted-bugs` only.

#![cfg(feature = "planted-bugs")]

use narufs_engine::device::{BlockDevice, MemoryDevice};
use narufs_engine::format::ROOT_NID;
use narufs_engine::planted::{Spot, plant_panic, take_panic};
use narufs_engine::sim::{Crash, SimMedia};
use narufs_engine::vfs::{Context, FileHandle, OpenFlags, Vfs, WriteFlags};
use narufs_engine::volume::Running;
use narufs_engine::volume::scratch::{ScratchOptions, make_on};
use narufs_testing::lab::{Lab, Live, Ring};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;
/// More than an fsync absorbs.
const LONG: usize = 60 * PAGE;
/// States of a crash that are looked at.
const STATES: usize = 4;

/// What is planted is the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs something that panics at the place.
fn panics<R>(spot: Spot, what: impl FnOnce() -> R) {
    plant_panic(spot);
    let panicked = catch_unwind(AssertUnwindSafe(what)).is_err();
    assert!(!take_panic() && panicked, "{spot:?} is not on the way");
}

fn open(fs: &Vfs, name: &str) -> narufs_engine::Result<FileHandle> {
    let (entry, handle, _) =
        fs.create(&Context::root(), ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE)?;
    fs.forget(entry.nid, 1);
    Ok(handle)
}

fn put(fs: &Vfs, file: &FileHandle, at: usize, bytes: &[u8]) -> narufs_engine::Result<()> {
    fs.write(&Context::root(), file, at as u64, bytes, WriteFlags::empty())
        .map(|len| assert_eq!(len, bytes.len()))
}

fn content(fs: &Vfs, file: &FileHandle, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xAA; len + PAGE];
    let len = fs.read(file, 0, &mut bytes).expect("it can be read");
    bytes.truncate(len);
    bytes
}

/// Whatever a crash leaves now can be mounted and is whole; what the file shows then.
fn after_crashes(lab: &Lab, sim: &SimMedia, mut look: impl FnMut(&[u8])) {
    for state in sim.crash_point(sim.events()).sample(Crash::PowerLoss, 7, STATES) {
        let sim = state.restart();
        let live = lab.mount(&sim).expect("recovered");
        let file = open(live.fs(), "f").expect("it is there");
        look(&content(live.fs(), &file, 2 * LONG));
        live.fs().release(file, None);
        live.unmount().expect("no faults");
        lab.check(&sim).expect("nothing is wrong");
    }
}

/// A file whose old content is down and whose new content is not.
struct Scene {
    lab: Lab,
    sim: SimMedia,
    live: Live,
    file: FileHandle,
    other: FileHandle,
    new: Vec<u8>,
}

impl Scene {
    fn new(ring: Ring, is_long: bool) -> Scene {
        let lab = Lab::roomy(ring);
        let sim = lab.format();
        let live = lab.mount(&sim).expect("a new image");
        let file = open(live.fs(), "f").expect("room");
        let other = open(live.fs(), "f").expect("there");
        let mut new = vec![1; LONG / 2];
        put(live.fs(), &file, 0, &new).expect("room");
        live.fs().fsync(&file, false).expect("no faults");
        let (at, len) = if is_long { (0, LONG) } else { (PAGE, 300) };
        put(live.fs(), &file, at, &vec![2; len]).expect("room");
        new.resize(new.len().max(at + len), 0);
        new[at..at + len].fill(2);
        Scene { lab, sim, live, file, other, new }
    }

    /// Overwrites the beginning, and the last page.
    fn writes(&mut self, fill: u8, len: usize) {
        let end = self.new.len();
        for range in [0..len, end - 1..end] {
            put(self.live.fs(), &self.file, range.start, &vec![fill; range.len()]).expect("room");
            self.new.resize(self.new.len().max(range.end), 0);
            self.new[range].fill(fill);
        }
    }

    /// Nothing that was left behind comes back over what follows.
    fn works_on(mut self) {
        for (fill, len) in [(3, LONG), (4, 700), (5, LONG)] {
            self.writes(fill, len);
            self.syncs();
            self.live.checkpoint().expect("no faults");
        }
        assert!(content(self.live.fs(), &self.file, 2 * LONG) == self.new);
        let Scene { lab, sim, live, file, other, .. } = self;
        live.fs().release(file, None);
        live.fs().release(other, None);
        live.unmount().expect("no faults");
        lab.check(&sim).expect("nothing is wrong");
    }

    /// What an fsync covers that succeeds is there after a crash.
    fn syncs(&self) {
        self.live.fs().fsync(&self.file, false).expect("no faults, and all was told");
        after_crashes(&self.lab, &self.sim, |seen| assert!(seen == self.new, "an fsync has lied"));
    }
}

/// The next fsync comes at once, or after more was written.
#[test]
fn after_a_panic_in_an_fsync_the_next_tells_and_the_file_works_on() {
    let _alone = alone();
    let home = [Spot::Picked, Spot::InFlight, Spot::Written, Spot::Recorded].map(|spot| (spot, true));
    let absorbed = [Spot::Taken, Spot::Absorbed].map(|spot| (spot, false));
    for ring in [Ring::Ssd, Ring::Nvm] {
        for ((spot, is_long), at_once) in
            home.into_iter().chain(absorbed).flat_map(|way| [(way, true), (way, false)])
        {
            let mut scene = Scene::new(ring, is_long);
            panics(spot, || scene.live.fs().fsync(&scene.file, false));
            scene.live.sound().expect("one file alone was met");
            if !at_once {
                scene.writes(3, LONG);
            }
            assert!(scene.live.fs().fsync(&scene.file, false).is_err(), "{ring:?}, {spot:?}: nobody is told");
            scene.syncs();
            assert!(scene.live.fs().fsync(&scene.other, false).is_err(), "{spot:?}: each open file is told");
            scene.live.fs().fsync(&scene.other, false).expect("once");
            scene.works_on();
        }
    }
}

/// The write may have come as far as it did. Later writes to its pages are not taken for written.
#[test]
fn after_a_panic_in_a_write_nothing_that_is_written_is_forgotten() {
    let _alone = alone();
    for ring in [Ring::Ssd, Ring::Nvm] {
        let mut scene = Scene::new(ring, true);
        // An end within a page.
        put(scene.live.fs(), &scene.file, LONG, &[2; 1000]).expect("room");
        scene.new.resize(LONG + 1000, 2);
        scene.live.fs().fsync(&scene.file, false).expect("no faults");
        let (fs, at) = (scene.live.fs(), scene.new.len() - 100);
        panics(Spot::Joining, || put(fs, &scene.file, at, &[9; 3 * PAGE]));
        let seen = content(fs, &scene.file, 2 * LONG);
        assert!(seen.len() < at + 3 * PAGE && seen.starts_with(&scene.new[..at]));
        assert!(seen[at..].iter().all(|byte| *byte == 9), "what lies behind the old end is what was written");
        scene.new = seen;
        // What is skipped reads as zeros.
        scene.new.resize(scene.new.len() + 51, 0);
        scene.writes(4, 0);
        scene.syncs();
        scene.works_on();
    }
}

/// Where nobody knows what memory would have to say the file system goes read-only; what was promised stays.
#[test]
fn after_a_panic_that_others_may_not_go_on_from_nothing_is_promised() {
    let _alone = alone();
    let old = |seen: &[u8]| assert!(seen[..PAGE] == [1; PAGE] || seen[..PAGE] == [2; PAGE]);
    for (ring, spot) in [
        (Ring::Ssd, Spot::Leading),
        (Ring::Ssd, Spot::Committed),
        (Ring::Nvm, Spot::Committed),
        (Ring::Ssd, Spot::Claimed),
    ] {
        let scene = Scene::new(ring, true);
        let fs = scene.live.fs();
        match spot {
            Spot::Claimed => panics(spot, || scene.live.checkpoint()),
            _ => panics(spot, || fs.fsync(&scene.file, false)),
        }
        assert!(fs.fsync(&scene.file, false).is_err(), "{spot:?}: an fsync promises what nobody knows");
        assert!(scene.live.sound().is_err() && open(fs, "g").is_err(), "{spot:?}");
        after_crashes(&scene.lab, &scene.sim, old);
    }
    let scene = Scene::new(Ring::Ssd, false);
    panics(Spot::Committed, || open(scene.live.fs(), "g"));
    assert!(scene.live.sound().is_err() && open(scene.live.fs(), "h").is_err());
    after_crashes(&scene.lab, &scene.sim, old);
}

#[test]
fn who_wants_what_another_was_reading_when_it_panicked_reads_it() {
    let _alone = alone();
    let lab = Lab::roomy(Ring::Nvm);
    let sim = lab.format();
    let live = lab.mount(&sim).expect("a new image");
    put(live.fs(), &open(live.fs(), "f").expect("room"), 0, &[1; LONG]).expect("room");
    live.unmount().expect("no faults");
    let live = lab.mount(&sim).expect("a good image");
    let file = open(live.fs(), "f").expect("there");
    panics(Spot::Fetching, || content(live.fs(), &file, LONG));
    assert!(content(live.fs(), &file, LONG) == [1; LONG]);
    put(live.fs(), &file, 0, &[2; LONG]).expect("nobody has its range");
}

/// A scratch file system so small that everything spills, with its threads.
fn scratch() -> (narufs_engine::volume::Mounted, Running) {
    let mut options = ScratchOptions::with_memory(256 << 10);
    options.files.background = true;
    let spill: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(32 << 8));
    let (mounted, files) = make_on(&options, Some(spill)).expect("large enough");
    let running = Running::start(mounted.store(), &files).expect("a new file system");
    (mounted, running)
}

#[test]
fn a_panic_in_the_background_ends_its_turn_and_nobody_waits_for_ever() {
    let _alone = alone();
    for spot in [Spot::Background, Spot::Picked, Spot::InFlight, Spot::Written, Spot::Recorded] {
        let (mounted, running) = scratch();
        let fs = running.fs();
        let file = open(fs, "f").expect("room");
        let (mut bytes, mut met) = (Vec::new(), 0);
        for turn in 0..400_u32 {
            if turn % 16 == 0 {
                plant_panic(spot);
            }
            let piece = vec![turn as u8; 4 * PAGE];
            let at = bytes.len();
            // The writer itself may meet it, where it helps to write: then it comes again.
            let written = catch_unwind(AssertUnwindSafe(|| put(fs, &file, at, &piece)));
            if !matches!(written, Ok(Ok(()))) {
                put(fs, &file, at, &piece).expect("room");
            }
            bytes.extend(piece);
            if turn % 16 < 8 {
                // It waits for the background.
                fs.fsync(&file, false).ok();
            }
            if turn % 16 == 15 {
                met += usize::from(!take_panic());
            }
        }
        assert!(met > 0, "{spot:?} is not on the way");
        let mut seen = vec![0; bytes.len()];
        let mut at = 0;
        while at < seen.len() {
            at += fs.read(&file, at as u64, &mut seen[at..]).expect("it can be read");
        }
        assert!(seen == bytes, "{spot:?}: bytes are lost");
        fs.release(file, None);
        running.stop().and_then(|()| mounted.unmount()).expect("no faults");
    }
}

#[test]
fn a_panic_in_the_thread_that_runs_rounds_is_told_to_those_who_wait_for_them() {
    let _alone = alone();
    for spot in [Spot::RoundDue, Spot::Claimed] {
        let (_mounted, running) = scratch();
        plant_panic(spot);
        let failed = (0..10_000).find_map(|n| open(running.fs(), &format!("f{n}")).err());
        assert!(
            !take_panic() && matches!(failed, Some(narufs_engine::Error::ReadOnly(_))),
            "{spot:?}: {failed:?}"
        );
    }
}
