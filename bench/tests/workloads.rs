//! The workloads as they come out: exact counts, the mix of calls, the same stream on every target, a check that
//! finds what was lost, and nothing left behind.

mod support;

use narufs_bench::target::{Reopened, Survives};
use narufs_bench::{Error, Params, Record};
use support::*;

/// Operations of all phases.
fn ops(records: &[Record]) -> Vec<u64> {
    records.iter().map(|r| r.ops).collect()
}

fn is_empty(at: &tempfile::TempDir) -> bool {
    std::fs::read_dir(at.path()).expect("it is there").next().is_none()
}

#[test]
fn every_workload_runs_on_a_directory_and_leaves_nothing() {
    let at = memory();
    for spec in all() {
        let params = Params { ops: Some(40), ..small() };
        let records = run(&mut directory(&at), &plan(spec.name, 3, params)).expect(spec.name);
        assert_eq!(records.len(), spec.phases.len(), "{}", spec.name);
        let last = records.last().expect("there is a phase");
        let check = last.check.expect("it was checked");
        assert_eq!(check.reopened, Reopened::Synced);
        assert!(last.ops > 0 && last.ops <= 120, "{}: {} operations", spec.name, last.ops);
        assert_eq!((last.survives, last.filesystem.as_str()), (Survives::Nothing, "tmpfs"));
        assert!(is_empty(&at), "{} leaves something", spec.name);
    }
}

#[test]
fn every_workload_runs_on_the_library() {
    let at = memory();
    let mut library = library(&at);
    for spec in all() {
        let params = Params { ops: Some(40), ..small() };
        let records = run(&mut library, &plan(spec.name, 3, params)).expect(spec.name);
        let last = records.last().expect("there is a phase");
        assert_eq!(last.check.expect("it was checked").reopened, Reopened::Synced);
        assert_eq!((last.survives, last.note.as_deref()), (Survives::Process, Some("no system calls")));
        assert!(last.laps.is_some() && last.nvm_fences.is_some());
    }
    library.unmount().expect("nothing is open");
}

#[test]
fn work_that_ends_is_done_exactly() {
    let at = memory();
    for threads in [1, 3, 4] {
        for (name, wanted) in
            [("MWCL", 90), ("MWCM", 90), ("MWUL", 90), ("MWUM", 90), ("MWRM", 90), ("tokubench", 90)]
        {
            let records = run(&mut directory(&at), &plan(name, threads, small())).expect(name);
            assert_eq!(ops(&records), [wanted], "{name} with {threads} threads");
            assert!(records[0].done, "{name} says that it is not done");
        }
        // 1 MiB in pages; a quarter of 1 MiB in records, in each of six phases.
        let cut = run(&mut directory(&at), &plan("DWTL", threads, small())).expect("DWTL");
        assert_eq!(ops(&cut), [256 / threads as u64 * threads as u64]);
        let passes = run(&mut directory(&at), &plan("iozone", threads, small())).expect("iozone");
        assert_eq!(ops(&passes), [64 / threads as u64 * threads as u64; 6]);
        let names: Vec<_> = passes.iter().filter_map(|r| r.phase.as_deref()).collect();
        assert_eq!(names, ["write", "rewrite", "read", "reread", "random-read", "random-write"]);
    }
    let many = Params { files: Some(1000), ..small() };
    let records = run(&mut directory(&at), &plan("tokubench", 3, many)).expect("tokubench");
    assert_eq!((ops(&records), records[0].check.expect("checked").bytes), (vec![1000], 4_096_000));
}

#[test]
fn a_number_of_operations_is_each_threads_own() {
    let at = memory();
    for name in ["DWOL", "DWOM", "DRBH", "MWRL", "MRPM", "MRDM", "varmail", "oltp"] {
        let params = Params { ops: Some(26), ..small() };
        let records = run(&mut directory(&at), &plan(name, 3, params)).expect(name);
        assert_eq!(ops(&records), [78], "{name}");
    }
}

/// The calls of each kind that the threads themselves made.
fn mix(name: &str, threads: usize, params: Params) -> impl Fn(&str) -> usize {
    let at = memory();
    let mut target = Recording::new(directory(&at));
    let mut plan = plan(name, threads, params);
    plan.check = false;
    run(&mut target, &plan).expect("it runs");
    // The first session prepares, the others are the threads'.
    let streams = target.streams();
    move |word| streams[1..].iter().flatten().filter(|call| call.split(' ').next() == Some(word)).count()
}

#[test]
fn varmail_has_filebenchs_mix() {
    let params = Params { ops: Some(13 * 20), files: Some(60), ..small() };
    let count = mix("varmail", 2, params);
    let loops = 2 * 20;
    // Sixty files were made beforehand: created, written and closed.
    assert_eq!(count("unlink"), loops);
    assert_eq!(count("create"), loops + 60);
    assert_eq!(count("open"), 2 * loops);
    assert_eq!(count("append"), 2 * loops);
    assert_eq!(count("fsync"), 2 * loops);
    assert_eq!(count("close"), 3 * loops + 60);
    assert!(count("read") >= 2 * loops, "whole files may take more than one");
}

#[test]
fn oltp_has_its_mix() {
    let count = mix("oltp", 2, Params { ops: Some(15), ..small() });
    for (call, each) in [("read", 6), ("write", 4), ("append", 1), ("fdatasync", 1)] {
        assert_eq!(count(call), 30 * each, "{call}");
    }
}

#[test]
fn spread_pages_are_everywhere() {
    let at = memory();
    for (name, threads) in [("DWOL", 1), ("DWOM", 2), ("DRBH", 1)] {
        let mut target = Recording::new(directory(&at));
        let params = Params { spread: true, ops: Some(2000), ..small() };
        run(&mut target, &plan(name, threads, params)).expect(name);
        let pages = 256 / threads;
        for thread in &target.streams()[1..=threads] {
            let calls = thread.iter().rev().take(2000);
            let offsets: Vec<u64> =
                calls.filter_map(|c| c.split(' ').nth(1)?.parse().ok()).map(|o: u64| o / 4096).collect();
            let mut hits = std::collections::HashMap::new();
            offsets.iter().for_each(|page| *hits.entry(page).or_insert(0_usize) += 1);
            assert!(hits.len() * 100 >= pages * 99, "{name}: {} pages of {pages}", hits.len());
            let most = hits.values().max().copied().unwrap_or(0);
            assert!(most < 5 * 2000 / pages + 5, "{name}: one page {most} times");
        }
    }
}

#[test]
fn all_targets_see_the_same_stream_for_one_seed() {
    let (on_directory, on_library) = (memory(), memory());
    let mut library = Recording::new(library(&on_library));
    for spec in all() {
        for seed in [1, 2] {
            let params = Params { seed, ops: Some(60), spread: true, ..small() };
            let mut directory = Recording::new(directory(&on_directory));
            run(&mut directory, &plan(spec.name, 3, params.clone())).expect(spec.name);
            library.logs.lock().expect("no panic").clear();
            run(&mut library, &plan(spec.name, 3, params)).expect(spec.name);
            // Of the session that prepares and those of the three threads; the last one only checks.
            let first = |streams: Vec<Vec<String>>| streams.into_iter().take(4).collect::<Vec<_>>();
            let (a, b) = (first(directory.streams()), first(library.streams()));
            assert!(a.iter().map(Vec::len).sum::<usize>() > 60);
            assert!(a == b, "{} with seed {seed}", spec.name);
        }
    }
    library.inner.unmount().expect("nothing is open");
}

#[test]
fn another_seed_is_another_stream() {
    let at = memory();
    for name in ["varmail", "oltp", "MRPM", "iozone"] {
        let streams = [1, 2].map(|seed| {
            let mut target = Recording::new(directory(&at));
            run(&mut target, &plan(name, 1, Params { seed, ops: Some(100), ..small() })).expect(name);
            target.streams()
        });
        assert!(streams[0] != streams[1], "{name}");
    }
}

#[test]
fn the_check_finds_what_was_lost() {
    let at = memory();
    let lost = [
        ("DWOL", Lie::Write, true),
        ("DWOM", Lie::Write, true),
        ("DWAL", Lie::Append, false),
        ("DWTL", Lie::Truncate, false),
        ("MWUL", Lie::Unlink, false),
        ("MWUM", Lie::Unlink, false),
        ("MWRM", Lie::Rename, false),
        ("varmail", Lie::Append, false),
        ("tokubench", Lie::Write, false),
        ("iozone", Lie::Write, false),
        ("oltp", Lie::Append, false),
        ("oltp", Lie::Write, false),
    ];
    for (name, lie, spread) in lost {
        let mut target = Recording::new(directory(&at));
        target.lie = Some(lie);
        // DWTL shows its last call alone: with this number it is one that is not carried out.
        let ops = match name {
            "DWTL" => 37,
            "varmail" => 260,
            _ => 38,
        };
        let params = Params { ops: Some(ops), spread, ..small() };
        let found = run(&mut target, &plan(name, 1, params)).expect_err(name);
        assert!(matches!(found, Error::Wrong(_) | Error::Refused(_)), "{name}: {found}");
        assert!(is_empty(&at), "{name} leaves something");
    }
}
