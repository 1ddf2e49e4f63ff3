//! Directories that become smaller while they are used, and in a crash.

use super::crash::{after, begin, idle, media};
use super::*;
use crate::format::JournalKind;
use crate::fsck;

/// Some threads fill and empty a directory, by removal and by rename; a thread that reads it or asks for a name that
/// stays finds it, once.
#[test]
fn what_stays_is_found_while_threads_fill_and_empty_a_directory() {
    const STAY: u32 = 60;
    let fs = fs();
    let (d, away) = (dir(&fs, &root(), ROOT_NID, "d").nid, dir(&fs, &root(), ROOT_NID, "away").nid);
    let inode = file(&fs, &root(), ROOT_NID, "linked").nid;
    let stays = |n: u32| format!("stays {n:0>100}").into_bytes();
    for n in 0..STAY {
        fs.link(&root(), inode, d, &stays(n)).expect("room");
    }
    let at_work = std::sync::atomic::AtomicU32::new(3);
    std::thread::scope(|s| {
        for t in 0..3u32 {
            let (fs, at_work) = (&fs, &at_work);
            s.spawn(move || {
                let name = |n: u32| format!("{t} {n:0>150}").into_bytes();
                for _ in 0..3 {
                    for n in 0..500 {
                        fs.link(&root(), inode, d, &name(n)).expect("room");
                    }
                    for n in 0..500 {
                        if n % 5 == t {
                            let flags = RenameFlags::empty();
                            fs.rename(&root(), d, &name(n), away, &name(n), flags).expect("there");
                            fs.unlink(&root(), away, &name(n)).expect("there");
                        } else {
                            fs.unlink(&root(), d, &name(n)).expect("there");
                        }
                    }
                }
                at_work.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        while at_work.load(std::sync::atomic::Ordering::Relaxed) > 0 {
            let found = names(&fs, d);
            for n in 0..STAY {
                assert_eq!(found.get(&stays(n)), Some(&inode));
                fs.lookup(&root(), d, &stays(n)).expect("it stays");
            }
        }
    });
    let size = fs.getattr(d).expect("there").size;
    assert!(size <= 32 * 4096, "{size} bytes for {STAY} names");
    for n in 0..STAY {
        fs.unlink(&root(), d, &stays(n)).expect("there");
    }
    assert!(fs.getattr(d).expect("there").size <= 4096);
    fs.rmdir(&root(), ROOT_NID, b"d").expect("empty");
}

/// A crash between or within the records that join buckets leaves the names that were there, and loses no block.
#[test]
fn a_directory_that_shrinks_is_whole_after_a_crash() {
    const NAMES: usize = 150;
    let name = |n: usize| format!("{n:0>200}").into_bytes();
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let d = dir(fs, &root(), ROOT_NID, "d").nid;
        let inode = file(fs, &root(), ROOT_NID, "linked").nid;
        for n in 0..NAMES {
            fs.link(&root(), inode, d, &name(n)).expect("room");
        }
        let store = fs.meta().store();
        fs.checkpointer().checkpoint().expect("memory");
        let (from, before) = (sim.events(), fs.getattr(d).expect("there").size);
        for n in 0..NAMES {
            fs.unlink(&root(), d, &name(n)).expect("there");
            if n % 40 == 39 {
                store.commit_upto(store.tail(), Durability::Power).expect("memory");
                fs.checkpointer().checkpoint().expect("memory");
            }
        }
        store.commit_upto(store.tail(), Durability::Power).expect("memory");
        assert!(before >= 8 * 4096 && fs.getattr(d).expect("there").size == 4096);
        let mut sizes = std::collections::BTreeSet::new();
        after(&sim, from, 9, 2, |state, _| {
            let again = state.restart();
            let run = begin(kind, &again);
            let fs = run.fs();
            let left = names(fs, d);
            assert!(
                left.keys().eq((NAMES - left.len()..NAMES).map(name).collect::<Vec<_>>().iter()),
                "{kind:?}: {state}"
            );
            for name in left.keys() {
                fs.lookup(&root(), d, name).expect("listed");
            }
            sizes.insert(fs.getattr(d).expect("there").size);
            run.end();
            let report = fsck::check(&idle(kind, &again), &fsck::Options::default()).expect("an image");
            assert_eq!(report.issues, [], "{kind:?}: {state}");
        });
        assert!(sizes.len() > 3, "{kind:?}: {sizes:?}");
    }
}
