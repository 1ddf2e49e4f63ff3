//! Crash enumeration over sequences of one and two operations, for each ring and kind of crash.
//!
//! Every single operation and every pair of the catalogue runs; their crash points and states are sampled by
//! seed. `NARUFS_CRASH_FULL=1` takes every point and every enumerated state. `NARUFS_CRASH_PAIRS=n` limits the
//! pairs, `NARUFS_SEED=n` samples others.

use narufs::sim::Crash;
use narufs_testing::crash::{Bench, Effort, Tally, operations, setup};
use narufs_testing::lab::{Lab, Ring};
use narufs_testing::op::Op;
use narufs_testing::settings;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Rings, and the ways in which they are crashed.
const WAYS: [(Ring, Crash); 3] =
    [(Ring::Ssd, Crash::PowerLoss), (Ring::Ssd, Crash::ProcessKill), (Ring::Nvm, Crash::PowerLoss)];

fn benches() -> Vec<Bench> {
    let tree = setup();
    let bench =
        |(ring, crash)| Bench::new(Lab::tiny(ring), crash, &tree).unwrap_or_else(|e| panic!("{ring:?}: {e}"));
    WAYS.into_iter().map(bench).collect()
}

/// Runs tasks on two threads; the first failures.
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
        scope.spawn(worker);
        scope.spawn(worker);
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
        let effort = if settings::crash_full() { Effort::FULL } else { Effort::CLOSE };
        bench.run(&ops[task / benches.len()..][..1], &effort, settings::first_seed() + task as u64, tally)
    });
}

#[test]
fn pairs_of_operations_survive_crashes() {
    let benches = benches();
    let (first, second) = (operations(0), operations(1));
    let full = settings::crash_full();
    let pairs = first.len() * second.len();
    let tasks = settings::crash_pairs().unwrap_or(usize::MAX).min(pairs * benches.len());
    run_all("pairs of operations", tasks, |task, tally| {
        let seed = settings::first_seed() + task as u64;
        // Neighbouring tasks differ in everything, so that a limited run samples the pairs.
        let pair = (task / benches.len()).wrapping_mul(2_654_435_761) % pairs;
        let ops: [Op; 2] = [first[pair / second.len()].clone(), second[pair % second.len()].clone()];
        let effort = if full { Effort::FULL } else { Effort::SAMPLE };
        benches[task % benches.len()].run(&ops, &effort, seed, tally)
    });
}
