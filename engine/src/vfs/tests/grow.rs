//! A file system that becomes larger while it is used, and while it crashes.

use super::crash::{begin, content, idle, media_of};
use super::*;
use crate::format::{BLOCKS_PER_GROUP, JournalKind};
use crate::fsck;
use crate::sim::{Crash, CrashState, Fault, SimMedia};

const FLAGS: OpenFlags = OpenFlags::READ_WRITE;
const BLOCK: u64 = 4096;

fn clean(kind: JournalKind, sim: &SimMedia, about: &str) {
    let report = fsck::check(&idle(kind, sim), &fsck::Options::default()).expect("memory does not fail");
    assert!(report.issues.is_empty(), "{kind:?}: {about}: {:?}", report.issues);
}

/// Writes and syncs a file of so many blocks of one byte.
fn file_of(fs: &Vfs, name: &str, byte: u8, blocks: usize) -> Result<Nid> {
    let (entry, handle, _) = fs.create(&root(), ROOT_NID, name.as_bytes(), 0o644, FLAGS)?;
    let written = fs.write(&root(), &handle, 0, &vec![byte; blocks * BLOCK as usize], WriteFlags::empty());
    let synced = written.and_then(|_| fs.fsync(&handle, false));
    fs.release(handle, None);
    synced.map(|()| entry.nid)
}

#[test]
fn files_go_on_while_it_grows_and_all_of_the_new_room_is_used() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        // Within a group, over its end, to where a bitmap alone would be, and over several at once.
        let whole = |sim: &SimMedia, groups: u64| {
            let run = begin(kind, sim);
            let start = run.fs().meta().store.superblock().groups_start.get();
            run.end();
            start + groups * BLOCKS_PER_GROUP
        };
        let sim = media_of(kind, 4 * BLOCKS_PER_GROUP, Some(3000));
        let sizes = [3001, 3063, 5000, whole(&sim, 1), whole(&sim, 1) + 1, whole(&sim, 3) + 700];
        let run = begin(kind, &sim);
        let fs = run.fs();
        assert_eq!(fs.size(), 3000 * BLOCK);
        let mut had = fs.statfs().expect("counted");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..60 {
                    let nid = file_of(fs, &format!("meanwhile-{n}"), n, 8).expect("there is room");
                    fs.forget(nid, 1);
                }
            });
            for blocks in sizes {
                assert_eq!(fs.resize(Some(blocks * BLOCK), false), Ok(blocks * BLOCK));
            }
        });
        let now = fs.statfs().expect("counted");
        let bitmaps = 3;
        assert_eq!(now.blocks - had.blocks, sizes[5] - 3000 - bitmaps, "{kind:?}");
        had = now;
        // All of it can be had, and nothing is given out twice.
        let (_, large, _) = fs.create(&root(), ROOT_NID, b"large", 0o644, FLAGS).expect("room");
        let most = had.blocks_available * BLOCK * 99 / 100;
        let mode = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(&root(), &large, mode, 0, most).expect("it was free");
        fs.release(large, None);
        assert!(fs.statfs().expect("counted").blocks_available < had.blocks_available / 50);
        run.end();
        clean(kind, &sim, "grown and filled");
        let run = begin(kind, &sim);
        assert_eq!(run.fs().size(), sizes[5] * BLOCK);
        for n in 0..60 {
            let name = format!("meanwhile-{n}");
            let nid = run.fs().lookup(&root(), ROOT_NID, name.as_bytes()).expect("there").nid;
            assert!(content(run.fs(), nid).iter().all(|b| *b == n), "{name}");
        }
        run.end();
    }
}

/// A bitmap there would have nothing to speak of: there is none, neither made by mkfs nor by a growth.
#[test]
fn a_lone_block_behind_the_last_group_belongs_to_no_group() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let groups_start = |blocks| {
            let sim = media_of(kind, 4 * BLOCKS_PER_GROUP, Some(blocks));
            crate::superblock::read(sim.device().as_ref()).expect("just made").groups_start.get()
        };
        let start = groups_start(groups_start(BLOCKS_PER_GROUP) + BLOCKS_PER_GROUP + 1);
        let sim = media_of(kind, 4 * BLOCKS_PER_GROUP, Some(start + BLOCKS_PER_GROUP + 1));
        let sb = crate::superblock::read(sim.device().as_ref()).expect("just made");
        assert_eq!((sb.groups_start.get(), sb.groups.get()), (start, 1));
        let run = begin(kind, &sim);
        file_of(run.fs(), "before", 1, 8).expect("there is room");
        let larger = (start + 2 * BLOCKS_PER_GROUP + 1) * BLOCK;
        assert_eq!(run.fs().resize(Some(larger), false), Ok(larger));
        file_of(run.fs(), "after", 2, 8).expect("there is room");
        run.end();
        clean(kind, &sim, "grown to one block behind a group");
        let run = begin(kind, &sim);
        for (name, byte) in [("before", 1), ("after", 2)] {
            let nid = run.fs().lookup(&root(), ROOT_NID, name.as_bytes()).expect("there").nid;
            assert!(content(run.fs(), nid).iter().all(|b| *b == byte), "{name}");
        }
        run.end();
    }
}

#[test]
fn what_cannot_be_is_refused_in_words_and_changes_nothing() {
    let sim = media_of(JournalKind::Pmem, 4000, Some(3000));
    let run = begin(JournalKind::Pmem, &sim);
    let refused = |bytes: Option<u64>| match run.fs().resize(bytes, false) {
        Err(Error::Refused(why)) => why,
        other => panic!("{bytes:?}: {other:?}"),
    };
    assert!(refused(Some(2999 * BLOCK)).contains("it can grow, not shrink"));
    assert!(refused(Some(0)).contains("it can grow, not shrink"));
    assert!(refused(Some(4001 * BLOCK)).contains("cannot grow"));
    assert!(refused(Some(u64::MAX)).contains("cannot grow"));
    assert_eq!(run.fs().size(), 3000 * BLOCK);
    assert_eq!(run.fs().resize(Some(3000 * BLOCK), false), Ok(3000 * BLOCK));
    assert_eq!(run.fs().resize(None, false), Ok(4000 * BLOCK), "all that the device has");
    run.end();
    clean(JournalKind::Pmem, &sim, "grown");
}

#[test]
fn a_crash_leaves_the_old_size_or_the_new_one_and_what_was_answered_stays() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = media_of(kind, 2 * BLOCKS_PER_GROUP, Some(2000));
        let run = begin(kind, &sim);
        file_of(run.fs(), "before", 1, 20).expect("room");
        let (old, new) = (2000 * BLOCK, 2 * BLOCKS_PER_GROUP * BLOCK);
        let from = sim.events();
        assert_eq!(run.fs().resize(Some(new), false), Ok(new));
        let grown = sim.events();
        // More than the old size has room for.
        file_of(run.fs(), "after", 2, 2500).expect("room");
        let mut sizes = [0, 0];
        let mut judge = |events: usize, state: &CrashState| {
            let about = state.to_string();
            let again = state.restart();
            clean(kind, &again, &about);
            let run = begin(kind, &again);
            let size = run.fs().size();
            assert!(size == new || size == old && events < grown, "{kind:?}: {about}: {size}");
            sizes[usize::from(size == new)] += 1;
            let nid = run.fs().lookup(&root(), ROOT_NID, b"before").expect("synced").nid;
            assert!(content(run.fs(), nid).iter().all(|b| *b == 1), "{about}");
            // Whatever a growth that was cut off has left, the next one goes through.
            assert_eq!(run.fs().resize(Some(new), false), Ok(new), "{about}");
            file_of(run.fs(), "again", 3, 2100).expect("room");
            run.end();
            clean(kind, &again, &about);
        };
        let mut points = sim.crash_points();
        // What follows is of interest only as far as it lies in the new room.
        for events in (from..=grown).chain((grown..=sim.events()).step_by(7)) {
            points.skip_to(events);
            let point = points.next().expect("in the log");
            for crash in [Crash::PowerLoss, Crash::ProcessKill] {
                point.states(crash, events as u64).take(2).for_each(|state| judge(events, &state));
            }
        }
        assert!(sizes[0] > 5 && sizes[1] > 5, "{sizes:?}");
    }
}

#[test]
fn a_device_that_fails_leaves_the_old_size_and_the_next_call_grows_it() {
    for nth in 0..3 {
        let kind = JournalKind::Pmem;
        let sim = media_of(kind, 2 * BLOCKS_PER_GROUP, Some(2000));
        let run = begin(kind, &sim);
        let mut superblocks = 0;
        sim.set_fault(Some(Box::new(move |fault| match fault {
            Fault::Write { cause: crate::device::Cause::Superblock, .. } => {
                superblocks += 1;
                (superblocks == nth + 1).then_some(libc::EIO)
            }
            _ => None,
        })));
        let outcome = run.fs().resize(None, false);
        sim.set_fault(None);
        match outcome {
            // The bitmap of the new group, or the superblock.
            Err(e) => assert_eq!((e.errno(), run.fs().size()), (libc::EIO, 2000 * BLOCK)),
            Ok(size) => assert!(nth == 2 && size == 2 * BLOCKS_PER_GROUP * BLOCK),
        }
        assert_eq!(run.fs().resize(None, false), Ok(2 * BLOCKS_PER_GROUP * BLOCK));
        file_of(run.fs(), "after", 2, 2500).expect("room");
        run.end();
        clean(kind, &sim, "grown at last");
    }
}

#[test]
fn what_was_removed_is_discarded_and_what_is_there_is_not() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = media_of(kind, 8000, None);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let kept = file_of(fs, "kept", 1, 500).expect("room");
        let gone = file_of(fs, "gone", 2, 500).expect("room");
        fs.trim(0..u64::MAX, 0).expect("memory");
        fs.forget(gone, 1);
        let before = fs.statfs().expect("counted").blocks_free;
        fs.unlink(&root(), ROOT_NID, b"gone").expect("there");
        let trimmed = fs.trim(0..u64::MAX, 0).expect("memory");
        let now = fs.statfs().expect("counted");
        assert!(now.blocks_free >= before + 500 && trimmed >= now.blocks_available * BLOCK);
        assert!(trimmed <= (now.blocks + fs.meta().alloc.kept_back() - 500) * BLOCK);
        let end = fs.size();
        for bad in [0..0, 0..BLOCK - 1, BLOCK..2 * BLOCK - 1, end..u64::MAX, end + BLOCK..end + 2 * BLOCK] {
            assert_eq!(fs.trim(bad.clone(), 0), Err(Error::Errno(libc::EINVAL)), "{bad:?}");
        }
        fs.trim(end - BLOCK..u64::MAX, 0).expect("the last block");
        assert_eq!(fs.trim(0..u64::MAX, u64::MAX), Ok(0), "no run is so long");
        let halves = fs.trim(0..4000 * BLOCK, 0).expect("memory")
            + fs.trim(4000 * BLOCK..u64::MAX, 0).expect("memory");
        assert_eq!(halves, trimmed);
        fs.forget(kept, 1);
        run.end();
        clean(kind, &sim, "trimmed");
        let run = begin(kind, &sim);
        let nid = run.fs().lookup(&root(), ROOT_NID, b"kept").expect("there").nid;
        assert!(content(run.fs(), nid).iter().all(|b| *b == 1));
        run.end();
    }
}

/// An image that has grown may have blocks and no inodes: those of files that were just removed can be had at once.
#[test]
fn where_all_inodes_are_in_use_a_removal_makes_room_for_another() {
    let kind = JournalKind::Ssd;
    let sim = media_of(kind, 24_000, Some(1500));
    let run = begin(kind, &sim);
    let fs = run.fs();
    fs.resize(Some(24_000 * BLOCK), false).expect("larger");
    let make = |n: u64| fs.mknod(&root(), ROOT_NID, n.to_string().as_bytes(), libc::S_IFIFO | 0o600, 0);
    let mut made = 0;
    let refused = loop {
        match make(made) {
            Ok(entry) => fs.forget(entry.nid, 1),
            Err(e) => break e,
        }
        made += 1;
    };
    assert_eq!(refused.errno(), libc::ENOSPC);
    assert!(fs.statfs().expect("counted").blocks_available > 1000, "after {made} inodes");
    for n in 0..3 {
        fs.unlink(&root(), ROOT_NID, n.to_string().as_bytes()).expect("there");
        fs.forget(make(made + n).expect("a number that was just given back").nid, 1);
    }
    run.end();
}
