//! Crashes of a whole file system on simulated media: blocks that are reused, and work that recovery finishes.

use super::*;
use crate::format::{Intent, JournalKind};
use crate::journal::ring_bytes;
use crate::pmem::DurabilityLevel;
use crate::sim::{Crash, CrashState, PmemSpec, SimMedia};
use crate::takeover::Takeover;
use crate::volume::{AssembleOptions, ImageOptions, Media, Mounted, RingMedia, Running, mount};

const SLOTS: u64 = 4096;
/// Extents that a step of a long operation touches: few, for it to have many.
const STEP: u32 = 2;

/// A file system on simulated media. Dropped, it is left as the end of its process leaves it.
pub(super) struct Simulated {
    running: Running,
    mounted: Mounted,
}

impl Simulated {
    pub fn fs(&self) -> &Arc<Vfs> {
        self.running.fs()
    }
    pub(super) fn store(&self) -> &Arc<Store> {
        self.mounted.store()
    }
    /// Unmounts.
    pub fn end(self) {
        self.try_end().expect("memory");
    }

    /// The same where that may fail.
    pub(super) fn try_end(self) -> Result<()> {
        self.running.stop()?;
        self.mounted.unmount()
    }
}

fn spec(kind: JournalKind) -> PmemSpec {
    let durability =
        if kind == JournalKind::Pmem { DurabilityLevel::Power } else { DurabilityLevel::Process };
    PmemSpec { len: ring_bytes(SLOTS).expect("small"), durability }
}

pub(super) fn media(kind: JournalKind, blocks: u64) -> SimMedia {
    media_of(kind, blocks, None)
}

/// A device of so many blocks, and a file system that may have fewer.
pub(super) fn media_of(kind: JournalKind, device: u64, blocks: Option<u64>) -> SimMedia {
    let sim = SimMedia::new(device, &[spec(kind)]);
    let options = FormatOptions {
        blocks,
        journal_slots: Some(SLOTS),
        double_write_blocks: Some(8),
        journal: kind,
        ..FormatOptions::default()
    };
    format(sim.device().as_ref(), &options).expect("large enough");
    sim
}

/// What is mounted, or checked.
pub(super) fn idle(kind: JournalKind, sim: &SimMedia) -> Media {
    let memory = sim.pmem(sim.pmems() - 1).unwrap_or_else(|| {
        let number = sim.add_pmem(spec(kind));
        sim.pmem(number).expect("just added")
    });
    let ring = if kind == JournalKind::Pmem { RingMedia::Mapped(memory) } else { RingMedia::Ssd(memory) };
    Media { device: sim.device(), ring, staging_file: None, owner: None }
}

/// Mounts, which recovers what is to be recovered.
pub(super) fn begin(kind: JournalKind, sim: &SimMedia) -> Simulated {
    begin_with(kind, sim, None)
}

/// The same by a server that others have come before, or may come after.
pub(super) fn begin_with(kind: JournalKind, sim: &SimMedia, takeover: Option<&Arc<Takeover>>) -> Simulated {
    let takeover = takeover.cloned();
    let options = ImageOptions { takeover: takeover.clone(), ..ImageOptions::default() };
    begin_as(kind, sim, options, takeover, VfsOptions::default(), STEP)
}

/// The same where a step of a long operation touches so many extents.
pub(super) fn begin_in_steps(kind: JournalKind, sim: &SimMedia, step: u32) -> Simulated {
    begin_as(kind, sim, ImageOptions::default(), None, VfsOptions::default(), step)
}

/// The same where each change is durable when it returns.
pub(super) fn begin_synchronous(kind: JournalKind, sim: &SimMedia) -> Simulated {
    begin_as(
        kind,
        sim,
        ImageOptions::default(),
        None,
        VfsOptions { sync: true, ..VfsOptions::default() },
        STEP,
    )
}

/// The same with some things done in the old way.
#[cfg(feature = "baselines")]
pub(super) fn begin_on(
    kind: JournalKind,
    sim: &SimMedia,
    baselines: crate::baseline::Baselines,
) -> Simulated {
    let store = StoreOptions { baselines, ..StoreOptions::default() };
    begin_as(kind, sim, ImageOptions { store, ..ImageOptions::default() }, None, VfsOptions::default(), STEP)
}

fn begin_as(
    kind: JournalKind,
    sim: &SimMedia,
    options: ImageOptions,
    takeover: Option<Arc<Takeover>>,
    fs: VfsOptions,
    step: u32,
) -> Simulated {
    let media = idle(kind, sim);
    let options = ImageOptions { background: false, lanes: 1, ..options };
    let mounted = mount(media, &options).expect("whole");
    assert_eq!(mounted.store().failed(), None);
    let options = AssembleOptions {
        fs,
        data: DataOptions::with_memory(1 << 20),
        inodes: 256,
        background: false,
        step,
        takeover,
        ..AssembleOptions::default()
    };
    Simulated { running: Running::start(mounted.checkpointer(), &options).expect("whole"), mounted }
}

/// A mount that may fail, and that may write or not.
pub(super) fn tried(kind: JournalKind, sim: &SimMedia, read_only: bool) -> Result<Simulated> {
    tried_with(kind, sim, read_only, None)
}

/// The same by a server that others have come before, or may come after.
pub(super) fn tried_with(
    kind: JournalKind,
    sim: &SimMedia,
    read_only: bool,
    takeover: Option<&Arc<Takeover>>,
) -> Result<Simulated> {
    let takeover = takeover.cloned();
    let options = ImageOptions {
        background: false,
        lanes: 1,
        read_only,
        takeover: takeover.clone(),
        ..ImageOptions::default()
    };
    let mounted = mount(idle(kind, sim), &options)?;
    let options = AssembleOptions {
        data: DataOptions::with_memory(1 << 20),
        background: false,
        fs: VfsOptions { read_only, ..VfsOptions::default() },
        takeover,
        ..AssembleOptions::default()
    };
    Ok(Simulated { running: Running::start(mounted.checkpointer(), &options)?, mounted })
}

/// What a file in the root holds, if that may be read.
pub(super) fn read_of(fs: &Vfs, name: &str) -> Result<Vec<u8>> {
    let nid = fs.lookup(&root(), ROOT_NID, name.as_bytes())?.nid;
    let handle = fs.open(&root(), nid, OpenFlags::empty())?;
    let mut bytes = vec![0; fs.getattr(nid)?.size as usize];
    let read = fs.read(&handle, 0, &mut bytes);
    fs.release(handle, None);
    read.map(|_| bytes)
}

/// Some states that a crash of either kind after each `step`th event from `from` on may leave.
pub(super) fn after(
    sim: &SimMedia,
    from: usize,
    step: usize,
    take: usize,
    mut check: impl FnMut(&CrashState, Crash),
) {
    let mut points = sim.crash_points();
    for events in (from..=sim.events()).step_by(step) {
        points.skip_to(events);
        let point = points.next().expect("in the log");
        for crash in [Crash::PowerLoss, Crash::ProcessKill] {
            point.states(crash, events as u64).take(take).for_each(|state| check(&state, crash));
        }
    }
}

pub(super) fn content(fs: &Vfs, nid: Nid) -> Vec<u8> {
    let handle = fs.open(&root(), nid, OpenFlags::empty()).expect("there");
    let mut bytes = vec![0; fs.getattr(nid).expect("there").size as usize];
    assert_eq!(fs.read(&handle, 0, &mut bytes).expect("readable"), bytes.len());
    fs.release(handle, None);
    bytes
}

/// Writes and syncs as much as there is room for; the number of bytes.
pub(super) fn fill(fs: &Vfs, handle: &FileHandle, byte: u8) -> usize {
    let mut size = 0;
    while let Ok(written) = fs.write(&root(), handle, size as u64, &[byte; 4096], WriteFlags::empty()) {
        size += written;
    }
    fs.fsync(handle, false).expect("memory");
    size
}

/// The blocks of a directory's buckets hold file data only once no record about the buckets is redone.
#[test]
fn blocks_of_a_removed_directory_become_file_data_without_harm() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let d = dir(fs, &root(), ROOT_NID, "d");
        let linked = file(fs, &root(), ROOT_NID, "linked");
        let name = |i: usize| format!("{i:0>200}").into_bytes();
        for i in 0..400 {
            fs.link(&root(), linked.nid, d.nid, &name(i)).expect("room");
        }
        let new = fs.create(&root(), ROOT_NID, b"new", 0o644, OpenFlags::READ_WRITE).expect("room").1;
        let filler = fs.create(&root(), ROOT_NID, b"filler", 0o644, OpenFlags::READ_WRITE).expect("room").1;
        fill(fs, &filler, 1);
        run.fs().checkpointer().checkpoint().expect("the buckets are home, and the head past what made them");
        let unused = || fs.meta().alloc.unused();
        let (before, buckets) = (unused(), fs.getattr(d.nid).expect("there").size / 4096);
        for i in 0..400 {
            fs.unlink(&root(), d.nid, &name(i)).expect("there");
        }
        fs.rmdir(&root(), ROOT_NID, b"d").expect("empty");
        fs.forget(d.nid, 1);
        run.store().commit_upto(run.store().tail(), Durability::Power).expect("memory");
        assert!(unused() <= before, "the head has not passed what freed them");
        let size = fill(fs, &new, 0xdd);
        assert!(size as u64 / 4096 + 8 >= buckets, "{size} bytes in the place of {buckets} buckets");
        let written = sim.events();
        file(fs, &root(), ROOT_NID, "later");
        run.store().commit_upto(run.store().tail(), Durability::Power).expect("memory");
        after(&sim, written, 5, 3, |state, _| {
            let again = state.restart();
            let run = begin(kind, &again);
            let found = run.fs().lookup(&root(), ROOT_NID, b"new").expect("synced");
            assert!(content(run.fs(), found.nid) == vec![0xdd; size], "{kind:?}: {state}");
            assert_eq!(errno(run.fs().lookup(&root(), ROOT_NID, b"d")), libc::ENOENT);
        });
    }
}

/// What was appended, went home and has its size recorded is all there or not at all: what was synced before, of the same
/// page, does not put zeros in its place.
#[test]
fn an_append_behind_absorbed_bytes_is_there_or_not_and_never_zeros() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let handle = fs.create(&root(), ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("room").1;
        fs.write(&root(), &handle, 0, &[7; 300], WriteFlags::empty()).expect("room");
        fs.fsync(&handle, false).expect("memory");
        let from = sim.events();
        fs.write(&root(), &handle, 300, &[8; 300], WriteFlags::DIRECT).expect("room");
        run.store().commit_upto(run.store().tail(), Durability::Power).expect("memory");
        let mut longer = 0;
        after(&sim, from, 1, 4, |state, crash| {
            let again = state.restart();
            let run = begin(kind, &again);
            let found = run.fs().lookup(&root(), ROOT_NID, b"f").expect("synced");
            let bytes = content(run.fs(), found.nid);
            assert!(bytes[..300] == [7; 300], "{kind:?} {crash:?}: {state}");
            assert!(bytes[300..].iter().all(|byte| *byte == 8), "{kind:?} {crash:?}: {state}: {bytes:?}");
            longer += usize::from(bytes.len() == 600);
        });
        assert!(longer > 0);
    }
}

fn blocks(numbers: &[u8]) -> Vec<u8> {
    numbers.iter().flat_map(|n| vec![*n; 4096]).collect()
}

/// A file whose blocks are numbered from 1 (after 250 once more) and lie in pieces of a block each, synced.
pub(super) fn scattered(fs: &Vfs, name: &str, count: u64) -> FileHandle {
    let flags = OpenFlags::READ_WRITE;
    let handle = fs.create(&root(), ROOT_NID, name.as_bytes(), 0o644, flags).expect("made").1;
    let other = fs.create(&root(), ROOT_NID, b"other", 0o644, flags).expect("made").1;
    // From the last page to the first, for none to have a block behind which it could go.
    for n in (0..count).rev() {
        for (file, byte) in [(&handle, (n % 250) as u8 + 1), (&other, 0xee)] {
            fs.write(&root(), file, n * 4096, &[byte; 4096], WriteFlags::empty()).expect("room");
            fs.fsync(file, false).expect("memory");
        }
    }
    fs.release(other, None);
    handle
}

/// What a mount that may not write shows of the file.
fn seen_by_a_reader(kind: JournalKind, sim: &SimMedia) -> Result<Vec<u8>> {
    let run = tried(kind, sim, true)?;
    let read = read_of(run.fs(), "f");
    run.running.stop()?;
    read
}

/// Runs an operation of many records on a file of 12 scattered blocks, crashes it everywhere, and expects the
/// content before it or after it; and in either case nothing to be left to do, and no block to be lost.
fn crash_of(operation: impl Fn(&Vfs, &FileHandle), before_or_after: [&[u8]; 2]) {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let handle = scattered(run.fs(), "f", 12);
        run.fs().checkpointer().checkpoint().expect("memory");
        let from = sim.events();
        operation(run.fs(), &handle);
        run.store().commit_upto(run.store().tail(), Durability::Power).expect("memory");
        let mut seen = [0, 0];
        after(&sim, from, 1, 2, |state, _| {
            match seen_by_a_reader(kind, &state.restart()) {
                Ok(now) => {
                    let is_whole = before_or_after.iter().any(|numbers| now == blocks(numbers));
                    assert!(is_whole, "{kind:?}: {state}: a reader sees a part");
                }
                Err(e) => assert_eq!(e.errno(), libc::EIO, "{kind:?}: {state}: {e}"),
            }
            let again = state.restart();
            let run = begin(kind, &again);
            let fs = run.fs();
            let found = fs.lookup(&root(), ROOT_NID, b"f").expect("there");
            let now = content(fs, found.nid);
            let which = before_or_after.iter().position(|numbers| now == blocks(numbers));
            let Some(which) = which else {
                let heads: Vec<u8> = now.iter().step_by(4096).copied().collect();
                panic!("{kind:?}: {state}: {heads:?}");
            };
            seen[which] += 1;
            assert!(fs.meta().space.entries().is_empty(), "{kind:?}: {state}");
            let mapped = before_or_after[which].iter().filter(|n| **n != 0).count() as u64;
            let extra = fs.getattr(found.nid).expect("there").blocks / 8 - mapped;
            assert!(extra <= 1, "{kind:?}: {state}: {extra} blocks beside the data");
            let grown = fs.setattr(
                &root(),
                found.nid,
                None,
                &SetAttr { size: Some(20 * 4096), ..SetAttr::default() },
            );
            grown.expect("room");
            let numbers = before_or_after[which];
            assert!(
                content(fs, found.nid)[numbers.len() * 4096..].iter().all(|b| *b == 0),
                "{kind:?}: {state}"
            );
        });
        assert!(seen.iter().all(|n| *n > 0), "{kind:?}: {seen:?}");
    }
}

const WHOLE: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

#[test]
fn a_collapse_is_finished_after_a_crash() {
    let collapse = |fs: &Vfs, handle: &FileHandle| {
        fs.fallocate(&root(), handle, FallocateMode::Collapse, 3 * 4096, 4 * 4096).expect("aligned");
    };
    crash_of(collapse, [WHOLE, &[1, 2, 3, 8, 9, 10, 11, 12]]);
}

#[test]
fn an_insertion_is_finished_after_a_crash() {
    let insert = |fs: &Vfs, handle: &FileHandle| {
        fs.fallocate(&root(), handle, FallocateMode::Insert, 2 * 4096, 3 * 4096).expect("aligned");
    };
    crash_of(insert, [WHOLE, &[1, 2, 0, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]]);
}

#[test]
fn a_punch_is_finished_after_a_crash() {
    let punch = |fs: &Vfs, handle: &FileHandle| {
        fs.fallocate(&root(), handle, FallocateMode::PunchHole, 4096, 9 * 4096).expect("aligned");
    };
    crash_of(punch, [WHOLE, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 12]]);
}

#[test]
fn a_truncation_is_finished_after_a_crash() {
    let cut = |fs: &Vfs, handle: &FileHandle| {
        let set = SetAttr { size: Some(2 * 4096), ..SetAttr::default() };
        fs.setattr(&root(), handle.nid(), Some(handle), &set).expect("open for writing");
    };
    crash_of(cut, [WHOLE, &[1, 2]]);
}

/// An editor's save without fsync leaves the old or the new content.
#[test]
fn a_rename_over_a_file_leaves_the_old_or_the_new_content() {
    let save = |fs: &Vfs, _: &FileHandle| {
        let new = fs.create(&root(), ROOT_NID, b"new", 0o644, OpenFlags::READ_WRITE).expect("made").1;
        fs.write(&root(), &new, 0, &blocks(&[9, 9, 9]), WriteFlags::empty()).expect("room");
        fs.release(new, None);
        fs.rename(&root(), ROOT_NID, b"new", ROOT_NID, b"f", RenameFlags::empty()).expect("there");
    };
    crash_of(save, [WHOLE, &[9, 9, 9]]);
}

/// Ranges that no file can have are told, and not walked.
#[test]
fn a_move_over_a_range_that_cannot_be_is_damage() {
    let kind = JournalKind::Ssd;
    for (intent, range) in [
        (Intent::Collapse, [0, 0]),
        (Intent::Collapse, [8192, 4096]),
        (Intent::Collapse, [0, u64::MAX]),
        (Intent::Insert, [0, u64::MAX]),
        (Intent::Insert, [4096, 0]),
    ] {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let handle = scattered(fs, "f", 12);
        let mut h = fs.meta().begin(8).expect("room");
        let (nid, generation) = (handle.nid(), handle.inode.generation());
        fs.meta().space.begin_intent(&mut h, nid, generation, intent, range).expect("room");
        h.commit().expect("memory");
        fs.syncfs().expect("memory");
        drop((handle, run));
        let started = tried(kind, &sim, false).map(drop);
        assert!(matches!(started, Err(Error::Corrupt { .. })), "{intent:?} {range:?}");
        let report = crate::fsck::check(&idle(kind, &sim), &crate::fsck::Options::default()).expect("memory");
        assert!(!report.issues.is_empty(), "{intent:?} {range:?}");
    }
}
