//! The list that all lanes share, and how often it is looked for.

use super::*;

pub fn options(name: &str) -> StoreOptions {
    StoreOptions { baselines: name.parse().expect("known"), ..StoreOptions::default() }
}

const NAMES: [&str; 2] = ["ids-global", "ids-scan"];

#[test]
fn ids_come_back_once_they_are_durable_and_a_mount_goes_on_with_them() {
    for name in NAMES {
        let f = fixture_with(2000, &options(name));
        let inodes: Vec<_> = (0..600).map(|_| f.create().expect("room")).collect();
        let blocks = nat_blocks(&f.nat);
        let nids: HashSet<Nid> = inodes.iter().map(|inode| inode.nid).collect();
        assert_eq!(nids.len(), 600);
        let gone: HashSet<Nid> = inodes[100..300].iter().map(|inode| inode.nid).collect();
        let ends = inodes[100..300].iter().map(|inode| f.delete(inode).expect("in use"));
        let end = ends.max().expect("some");
        let more: Vec<_> = (0..161).map(|_| f.create().expect("room")).collect();
        assert!(more.iter().all(|inode| !nids.contains(&inode.nid)), "{name}: given out too early");
        f.nat.durable(end);
        for again in (0..50).map(|_| f.create().expect("room")) {
            assert!(gone.contains(&again.nid) && again.generation == 2, "{name}: {}", again.nid);
        }
        assert_eq!(nat_blocks(&f.nat), blocks);
        f.nat.save_hints().expect("a good table");
        let nat = f.remount();
        let f = Fixture { nat, ..f };
        let left: HashSet<Nid> = (0..150).map(|_| f.create().expect("room").nid).collect();
        assert!(left.len() == 150 && left.is_subset(&gone), "{name}: free ids of known blocks are used up");
        f.create().expect("room");
        assert_eq!(nat_blocks(&f.nat), blocks + 1, "{name}");
    }
}

#[test]
fn threads_share_the_list_and_nothing_is_left_behind() {
    for name in NAMES {
        let f = fixture_with(20_000, &options(name));
        let mut expected = None;
        for _ in 0..3 {
            let made = std::thread::scope(|scope| {
                let make = || (0..1000).map(|_| f.create().expect("room")).collect::<Vec<_>>();
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
                threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
            });
            let nids: HashSet<Nid> = made.iter().map(|inode| inode.nid).collect();
            assert_eq!(nids.len(), made.len(), "{name}: an id was given twice");
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (f, made) = (&f, &made);
                    scope.spawn(move || {
                        for inode in made.iter().skip(thread).step_by(4) {
                            f.nat.durable(f.delete(inode).expect("in use"));
                        }
                    });
                }
            });
            end_quarantine(&f.alloc);
            f.nat.durable(u64::MAX - 1);
            // What stays are the NAT blocks; they serve the next round.
            assert_eq!(bits_set(&f.store), nat_blocks(&f.nat), "{name}");
            assert_eq!(*expected.get_or_insert(nat_blocks(&f.nat)), nat_blocks(&f.nat), "{name}");
        }
    }
}

/// A table of 200 blocks of ids, all in use; and files, of which nothing is durable.
fn full_table_with(files: u64, name: &str) -> Fixture {
    let f = fixture_with(2000, &options(name));
    let first = f.create().expect("room");
    f.nat.fill(200, NatEntry::new(first.node.block(), first.slot, 1)).expect("room");
    (1..files).for_each(|_| drop(f.create().expect("room")));
    f
}

#[test]
fn with_little_free_and_much_changed_each_operation_scans_all_of_the_table() {
    lane::pin(Some(0));
    for (files, scans) in [(1000, true), (500, false)] {
        let f = full_table_with(files, "ids-scan");
        let before = f.nat.work();
        let inodes: Vec<_> = (0..50).map(|_| f.create().expect("room")).collect();
        let ends = inodes.iter().map(|inode| f.delete(inode).expect("in use"));
        let end = ends.max().expect("some");
        let work = f.nat.work();
        assert_eq!((work.taken - before.taken, work.freed - before.freed), (50, 50));
        let (done, passed) = (work.scans - before.scans, work.passed - before.passed);
        // Where the list is empty there is one more, for a block's worth of ids.
        let wanted = if scans { 100..=101 } else { 0..=1 };
        assert!(wanted.contains(&done) && passed >= done * 200, "{files}: {done} scans, {passed} blocks");
        f.nat.durable(end);
        let before = f.nat.work().scans;
        (0..50).for_each(|_| drop(f.create().expect("room")));
        assert!(f.nat.work().scans - before <= 2, "a checkpoint lets entries go");
    }
    lane::pin(None);
}

#[test]
fn where_a_tenth_of_the_table_is_less_a_scan_serves_a_block_of_ids() {
    lane::pin(Some(0));
    let f = fixture_with(4000, &options("ids-scan"));
    (0..8000).for_each(|_| drop(f.create().expect("room")));
    // One where the list is empty, and up to two where a block's worth of entries was let go.
    let blocks = 8000 / NAT_PER_BLOCK;
    let scans = f.nat.work().scans;
    assert!((blocks..=3 * blocks + 3).contains(&scans), "{scans}");
    lane::pin(None);
}

#[test]
fn ours_looks_at_nothing_however_large_the_table_is() {
    lane::pin(Some(0));
    let f = full_table_with(2000, "ours");
    let before = f.nat.work();
    let end = (0..500).map(|_| f.delete(&f.create().expect("room")).expect("in use")).max();
    f.nat.durable(end.expect("some"));
    (0..500).for_each(|_| drop(f.create().expect("room")));
    let work = f.nat.work();
    assert_eq!((work.scans, work.passed, work.read, work.waits), (0, before.passed, before.read, 0));
    assert_eq!((work.taken - before.taken, work.freed - before.freed), (1000, 500));
    lane::pin(None);
}

#[test]
fn clocks_are_read_only_where_that_is_asked_for() {
    for name in ["ours", "ids-global", "ids-scan"] {
        let f = fixture_with(1000, &options(name));
        let pair = || f.delete(&f.create().expect("room")).expect("in use");
        pair();
        let untimed = f.nat.work();
        assert_eq!((untimed.taken_ns, untimed.freed_ns), (0, 0));
        f.nat.time_work(true);
        for _ in 0..200 {
            pair();
        }
        f.nat.time_work(false);
        let timed = f.nat.work();
        assert!(timed.taken_ns > 0 && timed.freed_ns > 0, "{name}: {timed:?}");
        pair();
        let after = f.nat.work();
        assert_eq!((after.taken_ns, after.freed_ns), (timed.taken_ns, timed.freed_ns));
        assert_eq!((after.taken, after.freed), (202, 202));
    }
}
