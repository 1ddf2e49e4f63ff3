//! Batches that no record has room for: what crashes leave, what they cost, and what the next mount finds.

use super::batch::{FILES, KINDS, Writes, apply, contents, file, many, old, some, staged, torn_by};
use super::crash::{Simulated, after, begin, idle, media, read_of, tried};
use super::*;
use crate::file::encode_manifest;
use crate::format::{BatchRun, Incompat, Intent, JournalKind, U32, U64};
use crate::fsck::{IssueKind, Options, Report, check};
#[cfg(feature = "planted-bugs")]
use crate::planted::Bug;
use crate::sim::{Crash, Event, SimMedia};
use crate::superblock;

const PAGE: u64 = 4096;

fn three(fs: &Vfs) -> Vec<FileHandle> {
    FILES.iter().zip(old()).map(|(name, bytes)| file(fs, name, &bytes)).collect()
}

fn bits(sim: &SimMedia) -> u64 {
    superblock::read(sim.device().as_ref()).expect("whole").incompat.get()
}

fn checked(kind: JournalKind, sim: &SimMedia, repair: bool) -> Report {
    check(&idle(kind, sim), &Options { repair, ..Options::default() }).expect("memory")
}

#[test]
fn a_crash_leaves_all_of_a_large_batch_or_none() {
    for kind in KINDS {
        // Over what another has left in the journal.
        assert!(!torn_by(kind, &some(), &many(), None), "{kind:?}");
        // Over what another has moved there.
        let more = vec![(0, 2 * 4096, 33 * 4096, 41), (1, 0, 3 * 4096, 42), (2, 0, 1, 43)];
        assert!(!torn_by(kind, &many(), &more, None), "{kind:?}");
    }
}

#[test]
#[cfg(feature = "planted-bugs")]
fn a_page_of_a_large_batch_that_is_moved_early_is_noticed() {
    for kind in KINDS {
        let bug = Some(Bug::BatchPageHomeEarly);
        // A page that was moved is missed by the mover of the next mount.
        let seen = std::panic::catch_unwind(|| torn_by(kind, &vec![], &many(), bug));
        assert!(!matches!(seen, Ok(false)), "{kind:?}");
    }
}

/// The mount that goes on is cut short as well, wherever it can be.
#[test]
fn a_second_crash_leaves_what_the_first_has_left() {
    for kind in KINDS {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let handles = three(run.fs());
        run.fs().checkpointer().checkpoint().expect("memory");
        let batch = staged(run.fs(), &handles, &many());
        let from = sim.events();
        run.fs().commit_batch(&root(), batch, BatchDurability::Synced).expect("memory");
        let upto = sim.events();
        drop((handles, run));
        let (was, mut is) = (old(), old());
        apply(&mut is, &many());
        let mut found = [0, 0];
        after(&sim, from, ((upto - from) / 12).max(1), 1, |state, crash| {
            let again = state.restart();
            let before = again.events();
            let run = begin(kind, &again);
            let first = contents(run.fs());
            found[usize::from(first == is)] += 1;
            assert!(first == is || first == was, "{kind:?}: {state}");
            run.end();
            let took = again.events() - before;
            after(&again, before, (took / 10).max(1), 1, |second, _| {
                let third = begin(kind, &second.restart());
                let now = contents(third.fs());
                // What the first has left in the caches of processors, and nobody was answered for, may go with the second.
                let may_go = crash == Crash::ProcessKill && now == was;
                assert!(now == first || may_go, "{kind:?}: {state}, then {second}");
                assert!(third.fs().meta().space.entries().is_empty());
            });
        });
        assert!(found.iter().all(|count| *count > 0), "{kind:?}: {found:?}");
    }
}

/// From the call of the commit to its return, with the moves, and without what staging has cost before.
#[test]
fn the_commit_of_a_large_batch_waits_for_one_flush() {
    for kind in KINDS {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let handles = three(run.fs());
        let batch = staged(run.fs(), &handles, &many());
        let from = sim.events();
        run.fs().commit_batch(&root(), batch, BatchDurability::Power).expect("memory");
        let flushes =
            (from..sim.events()).filter(|event| matches!(sim.event(*event), Event::FlushBegan)).count();
        assert_eq!(flushes, 1, "{kind:?}");
        drop(handles);
        run.end();
    }
}

#[test]
fn nothing_of_a_batch_is_left_on_the_image() {
    // Another lane would get blocks of its own.
    crate::lane::pin(Some(0));
    for kind in KINDS {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let handles = three(run.fs());
        let mut free = 0;
        // The first of all gets a table for orphans, which stays.
        for _ in 0..2 {
            run.fs().drop_batch(staged(run.fs(), &handles, &many()));
            run.fs().syncfs().expect("memory");
            run.fs().checkpointer().checkpoint().expect("memory");
            let now = run.fs().statfs().expect("counted").blocks_free;
            assert!(free == 0 || free == now, "{kind:?}: {free} blocks, then {now}");
            free = now;
        }
        let batch = staged(run.fs(), &handles, &many());
        assert_eq!(
            bits(&sim),
            Incompat::BATCHES.bits(),
            "{kind:?}: an older build would drop what is to come"
        );
        assert_eq!(run.fs().meta().space.entries().len(), 1);
        run.fs().commit_batch(&root(), batch, BatchDurability::Ordered).expect("memory");
        drop(handles);
        run.end();
        assert_eq!(bits(&sim), 0, "{kind:?}: nothing is pending");
        assert!(checked(kind, &sim, false).issues.is_empty());
        let run = begin(kind, &sim);
        assert!(run.fs().meta().space.entries().is_empty());
        let mut is = old();
        apply(&mut is, &many());
        assert!(contents(run.fs()) == is);
    }
    crate::lane::pin(None);
}

/// Pages far apart of a file in many pieces, so that every move takes entries of its own; with less and less room.
#[test]
fn without_room_for_the_moves_nothing_has_happened() {
    let kind = JournalKind::Ssd;
    let (pages, mut seen) = (150, [0, 0]);
    for room in (0..420).step_by(35) {
        let sim = media(kind, 2048);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let handles = [file(fs, "a", &[1; 10]), file(fs, "b", &[1; 10]), file(fs, "c", &[1; 10])];
        for page in 0..pages {
            fs.write(&root(), &handles[0], 4 * page * PAGE, &[2; 3 * 4096], WriteFlags::empty())
                .expect("room");
        }
        fs.fsync(&handles[0], false).expect("memory");
        let mut size = 0;
        while let Ok(written) = fs.write(&root(), &handles[1], size, &[3; 4096], WriteFlags::empty()) {
            size += written as u64;
        }
        fs.fsync(&handles[1], false).expect("memory");
        let set = SetAttr { size: Some(size.saturating_sub(room * PAGE)), ..SetAttr::default() };
        fs.setattr(&root(), handles[1].nid(), Some(&handles[1]), &set).expect("open");
        fs.checkpointer().checkpoint().expect("memory");
        let was = contents(fs);
        let writes: Writes = (0..pages as usize).map(|n| (0, (4 * n as u64 + 1) * PAGE, 4096, 9)).collect();
        let mut batch = Batch::default();
        let staged = writes.iter().try_for_each(|(_, offset, len, byte)| {
            fs.stage(&mut batch, &handles[0], *offset, &vec![*byte; *len])
        });
        let done = match staged {
            Ok(()) => fs.commit_batch(&root(), batch, BatchDurability::Synced),
            Err(e) => {
                fs.drop_batch(batch);
                Err(e)
            }
        };
        let mut want = was;
        match done {
            Ok(()) => apply(&mut want, &writes),
            Err(Error::Errno(libc::ENOSPC)) => {}
            Err(e) => panic!("room for {room}: {e}"),
        }
        seen[usize::from(done.is_ok())] += 1;
        assert!(contents(fs) == want, "room for {room}");
        drop(handles);
        run.end();
        assert!(checked(kind, &sim, false).issues.is_empty(), "room for {room}");
    }
    assert!(seen.iter().all(|count| *count > 1), "{seen:?}");
}

/// A batch that is committed and not moved, of these runs, over what else there is; its staging file.
fn pending(run: &Simulated, runs: &[BatchRun], spoil: impl FnOnce(&mut Vec<u8>, &mut [u64; 2])) -> Nid {
    let fs = run.fs();
    fs.meta().note_batches().expect("memory");
    let (entry, staging) = fs.tmpfile(&Context::root(), ROOT_NID, 0, OpenFlags::READ_WRITE).expect("room");
    let mut bytes = encode_manifest(runs);
    let mut place = [4 * PAGE, bytes.len() as u64];
    spoil(&mut bytes, &mut place);
    fs.write(&root(), &staging, 0, &[7; 4 * 4096], WriteFlags::empty()).expect("room");
    fs.write(&root(), &staging, 4 * PAGE, &bytes, WriteFlags::empty()).expect("room");
    fs.fsync(&staging, false).expect("memory");
    fs.meta().log_batch(&staging.inode, place).expect("memory");
    fs.syncfs().expect("memory");
    std::mem::forget(staging);
    entry.nid
}

fn run_to(target: &FileHandle, page: u64, source: u64, pages: u32) -> BatchRun {
    BatchRun {
        nid: U64::new(target.nid()),
        generation: U32::new(target.inode.generation()),
        pages: U32::new(pages),
        target: U64::new(page),
        source: U64::new(source),
        size: U64::new((page + u64::from(pages)) * PAGE),
    }
}

/// Whether a mount that may write, or may not, can be had.
fn mounts(kind: JournalKind, sim: &SimMedia, read_only: bool) -> Result<Vec<Vec<u8>>> {
    let run = tried(kind, sim, read_only)?;
    let read = FILES.iter().map(|name| read_of(run.fs(), name)).collect();
    run.try_end()?;
    read
}

#[test]
fn a_pending_batch_is_no_damage_and_is_read_by_nobody_before_it_is_finished() {
    for kind in KINDS {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let handles = three(run.fs());
        pending(&run, &[run_to(&handles[0], 1, 0, 2), run_to(&handles[2], 0, 2, 2)], |_, _| ());
        handles.into_iter().for_each(std::mem::forget);
        drop(run);
        assert!(checked(kind, &sim, false).issues.is_empty(), "{kind:?}");
        assert!(matches!(mounts(kind, &sim, true), Err(Error::Errno(libc::EIO))), "{kind:?}");
        let read = mounts(kind, &sim, false).expect("it is finished");
        let mut want = old();
        want[0][4096..3 * 4096].fill(7);
        want[2] = vec![7; 2 * 4096];
        assert!(read == want, "{kind:?}");
        assert_eq!(bits(&sim), 0);
        assert!(checked(kind, &sim, false).issues.is_empty(), "{kind:?}");
    }
}

#[test]
fn a_manifest_that_cannot_be_is_refused_and_mended() {
    type Spoil = fn(&mut Vec<u8>, &mut [u64; 2], &mut Vec<BatchRun>);
    let spoils: [Spoil; 8] = [
        |bytes, _, _| bytes[9] ^= 1,
        |_, place, _| place[0] = u64::MAX - 3,
        |_, place, _| place[1] = u64::MAX,
        |_, place, _| place[1] -= 1,
        |_, place, _| place[0] += 4096,
        |bytes, _, runs| {
            runs[0].source.set(3);
            *bytes = encode_manifest(runs);
        },
        |bytes, _, runs| {
            runs[0].target.set(u64::MAX - 1);
            *bytes = encode_manifest(runs);
        },
        |bytes, _, runs| {
            runs[0].pages.set(u32::MAX);
            *bytes = encode_manifest(runs);
        },
    ];
    for (which, spoil) in spoils.into_iter().enumerate() {
        let kind = KINDS[which % 2];
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let handles = three(run.fs());
        let mut runs = vec![run_to(&handles[0], 1, 0, 2), run_to(&handles[2], 0, 2, 2)];
        let staging = pending(&run, &runs.clone(), |bytes, place| spoil(bytes, place, &mut runs));
        handles.into_iter().for_each(std::mem::forget);
        drop(run);
        assert!(matches!(mounts(kind, &sim, false), Err(Error::Corrupt { .. })), "{which}");
        let issues = checked(kind, &sim, false).issues;
        assert_eq!(issues.len(), 1, "{which}: {issues:?}");
        assert_eq!((issues[0].kind, issues[0].place.nid), (IssueKind::OrphanEntry, Some(staging)), "{which}");
        checked(kind, &sim, true);
        assert!(checked(kind, &sim, false).issues.is_empty(), "{which}");
        assert!(mounts(kind, &sim, false).expect("mended") == old(), "{which}");
        let run = begin(kind, &sim);
        let is_batch = |entry: &crate::format::OrphanEntry| entry.what() == Some(Intent::Batch);
        assert!(!run.fs().meta().space.entries().iter().any(is_batch));
    }
}

/// Mounts once, with one read that fails, and unmounts; whether the batch was still to be finished then.
fn mounted_with_a_fault(kind: JournalKind, sim: &SimMedia, failing: u64) -> Result<bool> {
    let mut reads = 0;
    sim.set_fault(Some(Box::new(move |fault| {
        let is_read = matches!(fault, crate::sim::Fault::Read { .. });
        reads += u64::from(is_read);
        (is_read && reads == failing).then_some(libc::EIO)
    })));
    let run = tried(kind, sim, false)?;
    let is_pending = !run.fs().meta().space.entries().is_empty();
    run.try_end()?;
    Ok(is_pending)
}

#[test]
fn a_batch_that_could_not_be_finished_is_there_for_the_mount_after_an_unmount() {
    for kind in KINDS {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let handles = three(fs);
        for page in 0..12 {
            fs.write(&root(), &handles[0], 2 * page * PAGE, &[1; 4096], WriteFlags::empty()).expect("room");
            fs.write(&root(), &handles[1], page * PAGE, &[2; 4096], WriteFlags::empty()).expect("room");
            fs.syncfs().expect("memory");
        }
        fs.checkpointer().checkpoint().expect("memory");
        pending(&run, &[run_to(&handles[2], 0, 2, 2), run_to(&handles[0], 20, 0, 2)], |_, _| ());
        handles.into_iter().for_each(std::mem::forget);
        drop(run);
        let mut left = 0;
        for failing in 1..60 {
            let point = sim.crash_point(sim.events());
            let state = point.states(crate::sim::Crash::ProcessKill, 0).next().expect("one");
            let again = state.restart();
            let was_left = matches!(mounted_with_a_fault(kind, &again, failing), Ok(true));
            again.set_fault(None);
            left += usize::from(was_left);
            let shown = mounts(kind, &again, false).expect("whole");
            assert_eq!(shown[2], [7; 2 * 4096], "{kind:?}, read {failing}");
            assert_eq!(shown[0][20 * 4096..22 * 4096], [7; 2 * 4096], "{kind:?}, read {failing}");
        }
        assert!(left > 0, "{kind:?}: no read stands in the way of the moves alone");
    }
}
