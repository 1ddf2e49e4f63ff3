//! Crash enumeration over sequences of one and two operations, for each ring and kind of crash.
//!
//! Every single operation runs on each of them, crashed at every point that `narufs_testing::crash` names, with all
//! states of a point where `NARUFS_TEST_SCALE` is 10 and more, else with a few of them; so does each inside a
//! checkpoint round, sampled. Every pair runs on one of them, in turn, with a few states of a few points.
//! `NARUFS_CRASH_FULL=1` runs every pair on all of them, with every point and state. `NARUFS_PART=i/n` runs
//! the i-th of n parts of the pairs, `NARUFS_CRASH_PAIRS=n` limits them, `NARUFS_SEED=n` samples others. Of triples
//! `NARUFS_CRASH_TRIPLES=n` are drawn, and run in the same two ways.

use narufs_engine::sim::Crash;
use narufs_testing::crash::{Bench, Effort, Known, Tally, Writers, operations, setup};
use narufs_testing::lab::{Lab, Ring};
use narufs_testing::op::{Durable, Exists, Falloc, Op};
use narufs_testing::settings;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Rings, and the ways in which they are crashed.
const WAYS: [(Ring, Crash); 7] = [
    (Ring::Ssd, Crash::PowerLoss),
    (Ring::Ssd, Crash::ProcessKill),
    (Ring::Nvm, Crash::PowerLoss),
    (Ring::SsdWindow, Crash::PowerLoss),
    (Ring::SsdProcess, Crash::PowerLoss),
    (Ring::SsdWindow, Crash::ProcessKill),
    (Ring::SsdProcess, Crash::ProcessKill),
];
/// So many of them have all points of single operations taken; the others, which differ from those in what fsync
/// waits for alone, a sample.
const EVERY_POINT: usize = 4;
/// States of a point, where not all are taken: other ones of each operation with each seed.
const SOME_STATES: usize = 5;
/// Places in a checkpoint round at which an operation runs, counted in writes.
const PLACES: usize = 14;

fn benches() -> Vec<Bench> {
    benches_of(Lab::tiny)
}

fn benches_of(lab: impl Fn(Ring) -> Lab) -> Vec<Bench> {
    let tree = setup();
    let mut benches: Vec<Bench> = Vec::new();
    for (ring, crash) in WAYS {
        let alike = benches.iter().find(|bench| bench.ring().is_mapped() == ring.is_mapped());
        let new = || Bench::new(lab(ring), crash, &tree).unwrap_or_else(|e| panic!("{ring:?}: {e}"));
        benches.push(alike.map_or_else(new, |bench| bench.with(ring, crash)));
    }
    benches
}

/// Runs tasks on all cores, but two threads at the least; the first failures.
fn run_all(what: &str, tasks: usize, run: impl Fn(usize, &mut Tally) -> Result<(), String> + Sync) {
    let began = Instant::now();
    let (next, total, failures) = (AtomicUsize::new(0), Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    let worker = || {
        let mut tally = Tally::default();
        loop {
            // Relaxed: it only hands out numbers.
            let task = next.fetch_add(1, Ordering::Relaxed);
            let failed = failures.lock().expect("no panic").len();
            if task >= tasks || failed >= settings::max_failures() {
                break;
            }
            if let Err(e) = run(task, &mut tally) {
                failures.lock().expect("no panic").push(format!("task {task}: {e}"));
            }
        }
        total.lock().expect("no panic").add(&tally);
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        (0..cores.max(2)).for_each(|_| drop(scope.spawn(worker)));
    });
    let failures = failures.into_inner().expect("no panic");
    let tally = total.into_inner().expect("no panic");
    println!("{what}: {tally}, in {:.1} s", began.elapsed().as_secs_f64());
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_single_operation_survives_every_crash() {
    let benches = benches();
    let ops = operations(0);
    run_all("single operations", ops.len() * benches.len(), |task, tally| {
        let bench = &benches[task % benches.len()];
        let op = &ops[task / benches.len()..][..1];
        let effort = match task % benches.len() {
            _ if settings::crash_full() || settings::scale() >= 10 => Effort::FULL,
            ..EVERY_POINT => Effort { states: SOME_STATES, ..Effort::FULL },
            _ => Effort { points: 12, states: 4, ..Effort::FULL },
        };
        let seed = settings::first_seed() + task as u64;
        bench.run(op, &Effort { open: stays_open(seed), ..effort }, seed, tally)
    });
}

#[test]
fn operations_inside_a_checkpoint_round_survive_crashes() {
    let benches = benches();
    let (before, inside) = (operations(0), operations(1));
    let tasks = inside.len() * PLACES;
    run_all("operations in a checkpoint round", tasks, |task, tally| {
        let (op, place) = (task / PLACES, task % PLACES);
        // Something that the round writes home, another for each place.
        let first = (op * 31 + place * 17) % before.len();
        let ops = [before[first].clone(), inside[op].clone()];
        let effort = Effort { in_round: Some(place), ..Effort::SAMPLE };
        // Each operation on each bench at two places, and each bench at every place.
        let bench = &benches[(op + place) % benches.len()];
        bench.run(&ops, &effort, settings::first_seed() + task as u64, tally)
    });
}

/// What an fsync was answered for before it survives a loss of power, or what makes such an answer.
fn answered(fill: u8) -> Vec<Op> {
    let write =
        |path: &str, offset, len, durable| Op::Write { path: path.into(), offset, len, fill, durable };
    vec![
        // Absorbed; too much for that; in place and superseding.
        write("/a", 4096, 300, Durable::Fsync),
        write("/g", 0, 80_000, Durable::Fsync),
        Op::WriteDirect { path: "/a".into(), block: 1, blocks: 1, fill, durable: Durable::Fsync },
        // Metadata alone, with blocks that come free, or that are taken.
        Op::Create { path: format!("/n{fill}"), exclusive: true },
        Op::SetXattr { path: "/b".into(), name: "user.c".into(), len: 900, fill, exists: Exists::Any },
        Op::Unlink { path: "/g".into() },
        Op::Rename { from: "/a".into(), to: "/b".into(), flags: 0 },
        Op::FsyncDir { path: "/".into() },
        Op::SyncAll,
    ]
}

#[test]
fn what_was_answered_within_the_window_survives_crashes_in_a_checkpoint_round() {
    let benches: Vec<Bench> = benches();
    let lagging = [3, 4];
    assert!(lagging.iter().all(|at| WAYS[*at].0.may_lag() && WAYS[*at].1 == Crash::PowerLoss));
    let (first, second, inside) = (answered(1), answered(2), answered(3));
    // Two that are answered before the round; the third while it runs.
    let mut sequences: Vec<[&Op; 3]> = Vec::new();
    for one in &first {
        for (two, three) in second.iter().zip(inside.iter().cycle().skip(sequences.len() / second.len())) {
            sequences.push([one, two, three]);
        }
    }
    let tasks = sequences.len() * PLACES * lagging.len();
    run_all("answers lost in a checkpoint round", tasks, |task, tally| {
        let (at, place) = (task / lagging.len() / PLACES, task / lagging.len() % PLACES);
        let ops = sequences[at].map(Op::clone);
        let effort = Effort { points: 6, states: 4, in_round: Some(place), ..Effort::SAMPLE };
        let bench = &benches[lagging[task % lagging.len()]];
        bench.run(&ops, &effort, settings::first_seed() + task as u64, tally)
    });
}

#[test]
fn rounds_that_several_threads_write_home_survive_crashes() {
    let mut tasks = Vec::new();
    for ring in [Ring::Ssd, Ring::Nvm] {
        // Several batches in each part; one, of several images, and what is left of it.
        tasks.extend([(2, 3), (2, 5), (3, 4)].map(|(threads, part)| Writers {
            ring,
            threads,
            part,
            states: 6,
        }));
    }
    run_all("rounds by several threads", 2 * tasks.len(), |task, tally| {
        tasks[task / 2].run(settings::first_seed() + task as u64, tally)
    });
}

/// What happens to the second page of a file, as an fsync of it sees it.
fn of_one_page(fill: u8) -> Vec<Op> {
    let path = || "/a".to_string();
    let write = |offset, len, durable| Op::Write { path: path(), offset, len, fill, durable };
    let direct = |durable| Op::WriteDirect { path: path(), block: 1, blocks: 1, fill, durable };
    vec![
        // Absorbed: a part, another that overlaps it, all of it.
        write(4096, 300, Durable::Fsync),
        write(4300, 3000, Durable::Fdatasync),
        write(4096, 4096, Durable::Dsync),
        // Dirty; home and not flushed; home and flushed.
        write(4500, 2000, Durable::No),
        direct(Durable::No),
        direct(Durable::Fsync),
        // Home together with everything else.
        Op::SyncAll,
        // Cut, emptied, punched, moved, replaced.
        Op::Truncate { path: path(), size: 4200 },
        Op::Fallocate { path: path(), mode: Falloc::Punch, offset: 4096, len: 4096 },
        Op::Fallocate { path: path(), mode: Falloc::Collapse, offset: 0, len: 4096 },
        Op::Rewrite { path: path(), len: 6000, fill, direct: false },
    ]
}

#[test]
fn absorbed_data_and_what_supersedes_it_survive_crashes() {
    let benches = benches();
    let (first, second, third) = (of_one_page(1), of_one_page(2), of_one_page(3));
    let triples = first.len() * second.len() * third.len();
    run_all("absorbed and superseded", 2 * triples, |task, tally| {
        let (at, in_round) = (task / 2, task % 2 == 1);
        let (rest, last) = (at / third.len(), at % third.len());
        let ops = [&first[rest / second.len()], &second[rest % second.len()], &third[last]].map(Op::clone);
        // Every other time the last of them runs inside a checkpoint round.
        let in_round = in_round.then_some(rest % PLACES);
        let open = stays_open(at as u64);
        let effort = Effort { points: 4, states: 3, in_round, open, ..Effort::SAMPLE };
        let bench = &benches[(rest + last) % benches.len()];
        bench.run(&ops, &effort, settings::first_seed() + task as u64, tally)
    });
}

#[test]
fn pairs_of_operations_survive_crashes() {
    let benches = benches();
    let (first, second) = (operations(0), operations(1));
    let pairs = first.len() * second.len();
    assert!(pairs >= 20_000, "{pairs} pairs");
    let tasks = settings::crash_pairs().unwrap_or(usize::MAX).min(pairs);
    let (nth, parts) = settings::part();
    run_all("pairs of operations", tasks.saturating_sub(nth - 1).div_ceil(parts), |number, tally| {
        let task = nth - 1 + number * parts;
        let seed = settings::first_seed() + task as u64;
        // Neighbouring tasks differ in everything, so that a limited run samples the pairs.
        let pair = task.wrapping_mul(2_654_435_761) % pairs;
        let ops: [Op; 2] = [first[pair / second.len()].clone(), second[pair % second.len()].clone()];
        crash(&benches, &ops, task, seed, tally)
    });
}

#[test]
fn triples_of_operations_survive_crashes() {
    let benches = benches();
    let operations = [operations(0), operations(1), operations(2)];
    let tasks = settings::crash_triples().unwrap_or(300 * settings::scale() as usize);
    run_all("triples of operations", tasks, |task, tally| {
        let seed = settings::first_seed() + task as u64;
        let mut rng = StdRng::seed_from_u64(seed);
        let ops = operations.each_ref().map(|of| of[rng.random_range(0..of.len())].clone());
        crash(&benches, &ops, task, seed, tally)
    });
}

/// A sequence on all benches, at every point in every state, or a sample of it on one of them.
fn crash(benches: &[Bench], ops: &[Op], task: usize, seed: u64, tally: &mut Tally) -> Result<(), String> {
    if !settings::crash_full() {
        let effort = Effort { open: stays_open(seed), ..Effort::SAMPLE };
        return benches[task % benches.len()].run(ops, &effort, seed, tally);
    }
    let effort = Effort { open: stays_open(seed), ..Effort::FULL };
    let mut known = Known::default();
    benches.iter().try_for_each(|bench| bench.run_knowing(&mut known, ops, &effort, seed, tally))
}

/// Whether somebody else has the files open, so that no close tells of a rewriting's end: every other time.
fn stays_open(seed: u64) -> bool {
    seed % 2 == 1
}

/// What gives `/a` other content, and what goes before or behind that: each is a few operations.
fn replacing(fill: u8) -> Vec<Vec<Op>> {
    let write = |path: &str, len, durable| Op::Write { path: path.into(), offset: 0, len, fill, durable };
    let rename = |from: &str| Op::Rename { from: from.into(), to: "/a".into(), flags: 0 };
    let saved = |len| {
        let new = format!("/n{fill}");
        vec![Op::Create { path: new.clone(), exclusive: true }, write(&new, len, Durable::No), rename(&new)]
    };
    let rewritten = |len| vec![Op::Rewrite { path: "/a".into(), len, fill, direct: false }];
    vec![
        // Little enough to be absorbed, and too much for that.
        saved(100),
        saved(9000),
        saved(80_000),
        rewritten(700),
        rewritten(20_000),
        rewritten(80_000),
        vec![Op::Truncate { path: "/a".into(), size: 0 }],
        // Old content that is absorbed; that is dirty; that has another name; a source that was rewritten.
        vec![write("/a", 5000, Durable::Fsync)],
        vec![write("/a", 12_000, Durable::No)],
        vec![Op::Link { from: "/a".into(), to: format!("/k{fill}") }],
        vec![Op::Rewrite { path: "/d/x".into(), len: 5000, fill, direct: false }, rename("/d/x")],
        // What settles everything, and another file.
        vec![Op::SyncAll],
        vec![write("/b", 300, Durable::Fsync)],
    ]
}

#[test]
fn what_is_replaced_again_and_again_is_old_or_new_after_a_crash() {
    // A rewriting that is larger than the cache is recorded in parts.
    let benches = benches_of(|ring| Lab { frames: 64, ..Lab::tiny(ring) });
    let (first, second, third) = (replacing(1), replacing(2), replacing(3));
    let triples = first.len() * second.len() * third.len();
    run_all("replaced content", triples, |task, tally| {
        let (rest, last) = (task / third.len(), task % third.len());
        let ops = [&first[rest / second.len()], &second[rest % second.len()], &third[last]];
        // Every other time the last operation runs inside a checkpoint round; both with the files open and not.
        let in_round = (task / 2 % 2 == 1).then_some(rest % PLACES);
        let seed = settings::first_seed() + task as u64;
        let effort = Effort { points: 4, states: 3, in_round, open: stays_open(seed), ..Effort::SAMPLE };
        benches[(rest + last) % benches.len()].run(&ops.map(Vec::clone).concat(), &effort, seed, tally)
    });
}

/// A sample, on one ring after the other: what narufs is measured against recovers too.
#[cfg(feature = "baselines")]
#[test]
fn baselines_survive_crashes() {
    for (nth, (name, baselines)) in narufs_testing::baselines_of_images().enumerate() {
        let benches = benches_of(|ring| Lab { baselines, ..Lab::tiny(ring) });
        let ops = operations(0);
        run_all(name, ops.len(), |task, tally| {
            let bench = &benches[(task + nth) % benches.len()];
            let seed = settings::first_seed() + task as u64;
            bench.run(&ops[task..task + 1], &Effort::SAMPLE, seed, tally)
        });
    }
}

/// The journals that narufs is measured against: what they have synced survives, and everything is whole.
#[cfg(feature = "baselines")]
#[test]
fn operations_on_a_baseline_survive_crashes() {
    for name in ["journal-jbd2", "journal-fine", "journal-paper"] {
        let baselines = name.parse().expect("it is one");
        let tree = setup();
        let bench = |(ring, crash)| {
            let lab = Lab { baselines, slots: 8192, blocks: 2048, ..Lab::tiny(ring) };
            Bench::new(lab, crash, &tree).unwrap_or_else(|e| panic!("{name}, {ring:?}: {e}"))
        };
        // Each waits for its commits, whatever a mount asks for.
        let ways = [Ring::Ssd, Ring::Nvm].map(|ring| [(ring, Crash::PowerLoss), (ring, Crash::ProcessKill)]);
        let waits: Vec<Bench> = ways.into_iter().flatten().map(bench).collect();
        let (before, ops) = (operations(0), operations(1));
        run_all(name, ops.len() * waits.len(), |task, tally| {
            let (op, bench) = (task / waits.len(), &waits[task % waits.len()]);
            let pair = [before[(op * 31) % before.len()].clone(), ops[op].clone()];
            let in_round = task.is_multiple_of(2).then_some(op % PLACES);
            let effort = Effort { points: 6, in_round, ..Effort::SAMPLE };
            bench.run(&pair, &effort, settings::first_seed() + task as u64, tally)
        });
    }
}
