//! Bugs that no sequence of operations shows: each has a look of its own.

use narufs_engine::format::ROOT_NID;
use narufs_engine::planted::{Bug, is, plant};
use narufs_engine::pmem::PersistentMemory;
use narufs_engine::sim::{Crash, Event, SimMedia};
use narufs_engine::vfs::{Arrive, Batch, BatchDurability, Context, OpenFlags, Vfs, WriteFlags};
use narufs_engine::volume::{Origin, VolumeOptions};
use narufs_engine::{Error, Fs};
use narufs_testing::lab::{Lab, Ring};
use narufs_testing::place::Place;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

fn told(e: narufs_engine::Error) -> String {
    e.to_string()
}

/// Stops one thread at its first store to the journal: between the reservation and the seal of a record.
#[derive(Default)]
struct Gate {
    thread: OnceLock<ThreadId>,
    ends: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Gate {
    /// Says when the thread stands there, and lets it go on.
    fn set(self: &Arc<Gate>, sim: &SimMedia) -> (Receiver<()>, Sender<()>) {
        let ((reached, stands), (go_on, waits)) = (channel(), channel());
        *self.ends.lock().expect("no panic") = Some((reached, waits));
        let gate = Arc::clone(self);
        sim.set_hook(Some(Arc::new(move |_, event| {
            let here = gate.thread.get() == Some(&std::thread::current().id());
            if here && matches!(event, Event::Store { .. }) {
                let ends = gate.ends.lock().expect("no panic").take();
                if let Some((reached, waits)) = ends {
                    // Whoever has gone wants nothing of it.
                    let _ = reached.send(());
                    let _ = waits.recv();
                }
            }
        })));
        (stands, go_on)
    }
}

/// A thread stands between the reservation and the seal of its record while another's fsync returns; then power
/// is lost. What was synced must be there. With the rule in force no fsync returns before the other goes on.
pub fn commit_beside_an_open_reservation() -> Result<(), String> {
    const CONTENT: [u8; 5000] = [7; 5000];
    let broken = is(Bug::CommitBeforeSeal);
    for ring in [Ring::Ssd, Ring::Nvm] {
        let lab = Lab::tiny(ring);
        let sim = lab.format();
        let live = lab.mount(&sim).map_err(told)?;
        let fs = Arc::clone(live.fs());
        let make = |fs: &Vfs, name: &[u8]| {
            fs.create(&Context::root(), ROOT_NID, name, 0o644, OpenFlags::READ_WRITE).map(|made| made.1)
        };
        let synced = make(&fs, b"synced").and_then(|file| fs.fsync(&file, false).map(|()| file));
        let synced = synced.map_err(told)?;
        let gate = Arc::new(Gate::default());
        let (stands, go_on) = gate.set(&sim);
        let (returned, events) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = gate.thread.set(std::thread::current().id());
                let _ = make(&fs, b"standing");
            });
            let _ = stands.recv();
            if !broken {
                let _ = go_on.send(());
            }
            let (done, returned) = channel();
            let (fs, synced) = (&fs, &synced);
            scope.spawn(move || {
                plant(broken.then_some(Bug::CommitBeforeSeal));
                let written = fs.write(&Context::root(), synced, 0, &CONTENT, WriteFlags::empty());
                let _ = done.send(written.and_then(|_| fs.fsync(synced, false)));
            });
            // Only so that a bug that is none does not hang the test.
            let returned = returned.recv_timeout(Duration::from_secs(600));
            let events = sim.events();
            let _ = go_on.send(());
            (returned, events)
        });
        sim.set_hook(None);
        match returned {
            Err(_) => continue,
            Ok(result) => result.map_err(told)?,
        }
        for state in sim.crash_point(events).states(Crash::PowerLoss, 0) {
            let again = state.restart();
            let said = |e: String| format!("{ring:?}, {state}: {e}");
            let live = lab.mount(&again).map_err(|e| said(told(e)))?;
            live.sound().map_err(|e| said(told(e)))?;
            let found = live.fs().lookup(&Context::root(), ROOT_NID, b"synced").map_err(|e| said(told(e)))?;
            let file = live.fs().open(&Context::root(), found.nid, OpenFlags::empty());
            let mut bytes = [0; CONTENT.len()];
            let read = file.and_then(|file| live.fs().read(&file, 0, &mut bytes));
            if read.map_err(|e| said(told(e)))? != bytes.len() || bytes != CONTENT {
                return Err(said("what was synced is not there".into()));
            }
        }
    }
    Ok(())
}

/// The journal as it was two mounts ago comes back.
pub fn journal_of_an_earlier_mount() -> Result<(), String> {
    let lab = Lab::tiny(Ring::Nvm);
    let sim = lab.format();
    let memory = sim.pmem(0).ok_or("no journal")?;
    let live = lab.mount(&sim).map_err(told)?;
    live.fs().mkdir(&Context::root(), ROOT_NID, b"d", 0o755).map_err(told)?;
    drop(live);
    let mut old = vec![0; memory.len()];
    memory.read(0, &mut old);
    for _ in 0..2 {
        drop(lab.mount(&sim).map_err(told)?);
    }
    memory.write(0, &old);
    match lab.mount(&sim) {
        Err(Error::Refused(_)) => Ok(()),
        Err(e) => Err(told(e)),
        Ok(_) => Err("it was taken for the image's own".into()),
    }
}

/// The id of a file whose removal is not durable yet.
pub fn id_of_an_undurable_removal() -> Result<(), String> {
    narufs_engine::lane::pin(Some(0));
    let lab = Lab::tiny(Ring::Ssd);
    let live = lab.mount(&lab.format()).map_err(told)?;
    let fs = live.fs();
    let make = |name: &[u8]| {
        let entry = fs.mknod(&Context::root(), ROOT_NID, name, libc::S_IFREG | 0o644, 0)?;
        fs.forget(entry.nid, 1);
        Ok(entry.nid)
    };
    let old = make(b"old").map_err(told)?;
    fs.syncfs().map_err(told)?;
    fs.unlink(&Context::root(), ROOT_NID, b"old").map_err(told)?;
    let new = make(b"new").map_err(told)?;
    if new == old { Err(format!("nid {new} was given out again")) } else { Ok(()) }
}

/// A walk to a name that was removed, of a file that has another.
pub fn walk_to_a_removed_name() -> Result<(), String> {
    let live = Lab::tiny(Ring::Ssd).mount(&Lab::tiny(Ring::Ssd).format()).map_err(told)?;
    let (fs, ctx) = (live.fs(), Context::root());
    let entry = fs.mknod(&ctx, ROOT_NID, b"old", libc::S_IFREG | 0o644, 0).map_err(told)?;
    fs.link(&ctx, entry.nid, ROOT_NID, b"other").map_err(told)?;
    fs.forget(entry.nid, 2);
    let walk = || fs.walk(&ctx, fs.root()?, b"old", true, Arrive::Looking).map(drop);
    walk().map_err(told)?;
    fs.unlink(&ctx, ROOT_NID, b"old").map_err(told)?;
    match walk() {
        Err(Error::Errno(libc::ENOENT)) => Ok(()),
        Err(e) => Err(told(e)),
        Ok(()) => Err("a name is found that was removed".into()),
    }
}

/// Of a new page a part is synced, more is written behind it, home, and its size recorded; then power is lost. What is
/// there of that is what was written.
pub fn append_behind_absorbed_bytes() -> Result<(), String> {
    let lab = Lab::tiny(Ring::Nvm);
    let sim = lab.format();
    let live = lab.mount(&sim).map_err(told)?;
    let (fs, root) = (live.fs(), Context::root());
    let file = fs.create(&root, ROOT_NID, b"file", 0o644, OpenFlags::READ_WRITE).map_err(told)?.1;
    fs.write(&root, &file, 0, &[7; 300], WriteFlags::empty()).map_err(told)?;
    fs.fsync(&file, false).map_err(told)?;
    fs.write(&root, &file, 300, &[8; 300], WriteFlags::DIRECT).map_err(told)?;
    for state in sim.crash_point(sim.events()).states(Crash::PowerLoss, 0) {
        let again = state.restart();
        let said = |e: Error| format!("{state}: {}", told(e));
        let live = lab.mount(&again).map_err(said)?;
        let found = live.fs().lookup(&root, ROOT_NID, b"file").map_err(said)?;
        let file = live.fs().open(&root, found.nid, OpenFlags::empty()).map_err(said)?;
        let mut bytes = [0; 600];
        let len = live.fs().read(&file, 0, &mut bytes).map_err(said)?;
        if bytes[300.min(len)..len].iter().any(|byte| *byte != 8) {
            return Err(format!("{state}: of {len} bytes some are others"));
        }
    }
    Ok(())
}

/// An image is copied while it is mounted; its server goes on, and is killed. The copy does without what the original
/// has in shared memory, and is refused where nobody says so.
pub fn copy_of_a_dead_original() -> Result<(), String> {
    let outer = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
    let place = Place::make(outer.path(), Ring::Ssd, 64 << 20, 8192).map_err(told)?;
    let mount = |image: &Path, origin| {
        let mut options = VolumeOptions::default();
        options.image.origin = origin;
        Fs::mount(image, &options)
    };
    let fs = mount(&place.image(), Origin::Unknown).map_err(told)?;
    fs.create_dir_all("/early").map_err(told)?;
    fs.sync_power().map_err(told)?;
    let copy = outer.path().join("copy");
    std::fs::copy(place.image(), &copy).map_err(|e| e.to_string())?;
    fs.create_dir_all("/late").map_err(told)?;
    drop(fs);
    match mount(&copy, Origin::Unknown) {
        Err(Error::Refused(why)) if why.contains("-o copied") => {}
        mounted => return Err(format!("a copy has its original's journal: {:?}", mounted.map(drop))),
    }
    let fs = mount(&copy, Origin::Copied).map_err(told)?;
    let is_its_own = fs.metadata("/early").is_ok() && fs.metadata("/late").is_err();
    fs.unmount().map_err(told)?;
    if is_its_own { Ok(()) } else { Err("a copy is not what it was".into()) }
}

/// What a batch over two files is written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// What lies in its place, durably.
    Durable,
    /// The same, and nobody waits for the batch: its pages go home by a sync.
    DurableUnwaited,
    /// What of it does not change lies in memory alone.
    Unsynced,
    /// The same, in its place without a flush.
    Unflushed,
}

/// A batch over two files that is crashed wherever it can be: both show all of it, or nothing.
pub fn page_of_a_batch_that_goes_home_early() -> Result<(), String> {
    batch_of(3000, Over::Durable)
}

/// The same of one that is moved behind its commit.
pub fn page_of_a_large_batch_that_is_moved_early() -> Result<(), String> {
    batch_of(12_288, Over::Durable)
}

/// The same of one that nobody waits for.
pub fn pages_of_a_batch_that_go_home_before_its_record() -> Result<(), String> {
    batch_of(3000, Over::DurableUnwaited)
}

/// The same of one of which a part was there already, unsynced.
pub fn batch_that_changes_a_part_of_what_is_unsynced() -> Result<(), String> {
    batch_of(4096, Over::Unsynced)
}

/// The same, in its place.
pub fn batch_that_changes_a_part_of_what_is_unflushed() -> Result<(), String> {
    batch_of(4096, Over::Unflushed)
}

fn batch_of(len: usize, over: Over) -> Result<(), String> {
    let root = Context::root();
    // In the place of 1s, of which the first of the files has 2s already where that is unsynced.
    let offset = if len < 4096 { 100 } else { 0 };
    for ring in [Ring::Ssd, Ring::Nvm] {
        let lab = Lab::tiny(ring);
        let sim = lab.format();
        let live = lab.mount(&sim).map_err(told)?;
        let fs = live.fs();
        let mut files = Vec::new();
        for name in [b"a", b"b"] {
            let file = fs.create(&root, ROOT_NID, name, 0o644, OpenFlags::READ_WRITE).map_err(told)?.1;
            fs.write(&root, &file, 0, &[1; 8192], WriteFlags::empty()).map_err(told)?;
            fs.fsync(&file, false).map_err(told)?;
            files.push(file);
        }
        // Records of what the files held would hide what goes home early: a redo writes it once more. The second round
        // finds that the first has left none.
        fs.checkpointer().checkpoint().map_err(told)?;
        fs.mkdir(&root, ROOT_NID, b"d", 0o755).map_err(told)?;
        fs.checkpointer().checkpoint().map_err(told)?;
        let mut bytes = vec![2; len];
        if matches!(over, Over::Unsynced | Over::Unflushed) {
            let direct = if over == Over::Unflushed { OpenFlags::DIRECT } else { OpenFlags::empty() };
            let writer = fs.open(&root, files[0].nid(), OpenFlags::READ_WRITE | direct).map_err(told)?;
            fs.write(&root, &writer, 0, &[2; 4096], WriteFlags::empty()).map_err(told)?;
            fs.release(writer, None);
            bytes[700] = 3;
        }
        let from = sim.events();
        let mut batch = Batch::default();
        for file in &files {
            fs.stage(&mut batch, file, offset, &bytes).map_err(told)?;
        }
        if over == Over::DurableUnwaited {
            fs.commit_batch(&root, batch, BatchDurability::Ordered).map_err(told)?;
            fs.syncfs().map_err(told)?;
        } else {
            fs.commit_batch(&root, batch, BatchDurability::Synced).map_err(told)?;
        }
        let mut points = sim.crash_points();
        points.skip_to(from);
        for (events, point) in (from..).zip(points) {
            for state in point.states(Crash::PowerLoss, events as u64).take(8) {
                let said = |e: String| format!("{ring:?}, {state}: {e}");
                let live = lab.mount(&state.restart()).map_err(|e| said(told(e)))?;
                let mut shown = Vec::new();
                for name in [b"a", b"b"] {
                    let found = live.fs().lookup(&root, ROOT_NID, name).map_err(|e| said(told(e)))?;
                    let file =
                        live.fs().open(&root, found.nid, OpenFlags::empty()).map_err(|e| said(told(e)))?;
                    let mut now = [0; 4096];
                    live.fs().read(&file, offset, &mut now[..len.min(4096)]).map_err(|e| said(told(e)))?;
                    live.fs().release(file, None);
                    let read = &now[..len.min(4096)];
                    let is_new = read == &bytes[..read.len()];
                    shown.push((is_new, read.iter().all(|byte| *byte == 1), read[700]));
                }
                let [(new_a, old_a, changed), (new_b, old_b, _)] = shown[..] else {
                    unreachable!("two files");
                };
                // Of the first what was unsynced may be there without the batch.
                let old_a = old_a || bytes[700] == 3 && changed != 3;
                if !(new_a && new_b || old_a && old_b) {
                    return Err(said(format!("a part of a batch: {shown:?}")));
                }
            }
        }
    }
    Ok(())
}
