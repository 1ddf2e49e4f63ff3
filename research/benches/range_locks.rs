//! What taking and giving back a range costs, for each design of the range lock and 1 to 64 threads.
//!
//! `cargo bench -p narufs-research --features baselines --bench range_locks` prints the tables of experiment 1; with a
//! design's name, that one alone; `-- --count DESIGN WORKLOAD` runs one thread a million times, for an instruction
//! counter.

use narufs_engine::lock::{Access, FileLock, RangeLock};
use narufs_research::locks::{ListLock, ShardLock, TreeLock};
use std::hint::black_box;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Long enough for 64 threads on two cores to have some turns each.
const TIME: Duration = Duration::from_millis(300);
const DESIGNS: [&str; 4] = ["tree", "list", "shards", "narufs"];
const WORKLOADS: [(&str, &str); 4] = [
    ("private", "each thread writes a page of its own, 8 MiB from the next"),
    ("readers", "all threads read the same page"),
    ("mixed", "random runs of 1 to 4 pages among 64, one in four written"),
    ("one", "all threads write the same page"),
];

/// The range of a step, and how it is used.
fn step(workload: &str, thread: usize, random: &mut u64) -> (Range<u64>, Access) {
    match workload {
        "private" => {
            let start = thread as u64 * (8 << 20);
            (start..start + PAGE, Access::Write)
        }
        "readers" => (0..PAGE, Access::Read),
        "mixed" => {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (first, pages) = ((*random >> 33) % 61, 1 + (*random >> 45) % 4);
            let access = if (*random >> 50).is_multiple_of(4) { Access::Write } else { Access::Read };
            (first * PAGE..(first + pages) * PAGE, access)
        }
        _ => (0..PAGE, Access::Write),
    }
}

fn pair<L: FileLock>(lock: &L, workload: &str, thread: usize, random: &mut u64) {
    let (range, access) = step(workload, thread, random);
    match access {
        Access::Read => drop(black_box(lock.read(range))),
        Access::Write => drop(black_box(lock.write(range))),
    }
}

/// Nanoseconds of processor time for a pair, with the fewest that a thread did of the mean.
fn measure<L: FileLock>(workload: &str, threads: usize) -> (f64, f64) {
    let lock = L::for_file(1);
    let (begin, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let (pairs, took) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (lock, begin, stop) = (&lock, &begin, &stop);
                scope.spawn(move || {
                    let (mut pairs, mut random) = (0_u64, thread as u64 + 1);
                    begin.wait();
                    let began = Instant::now();
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..16 {
                            pair(lock, workload, thread, &mut random);
                        }
                        pairs += 16;
                    }
                    (pairs, began, Instant::now())
                })
            })
            .collect();
        begin.wait();
        std::thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
        // From the first to begin to the last to end: this thread may be late itself.
        let began = done.iter().map(|(_, began, _)| *began).min().expect("there are threads");
        let ended = done.iter().map(|(_, _, ended)| *ended).max().expect("there are threads");
        (done.into_iter().map(|(pairs, _, _)| pairs).collect::<Vec<u64>>(), ended - began)
    });
    let cores = std::thread::available_parallelism().map_or(1, Into::into).min(threads);
    let sum = pairs.iter().sum::<u64>() as f64;
    let fewest = pairs.iter().copied().min().unwrap_or(0) as f64;
    (took.as_nanos() as f64 * cores as f64 / sum, fewest * threads as f64 / sum)
}

fn measure_named(design: &str, workload: &str, threads: usize) -> (f64, f64) {
    match design {
        "tree" => measure::<TreeLock>(workload, threads),
        "list" => measure::<ListLock>(workload, threads),
        "shards" => measure::<ShardLock>(workload, threads),
        _ => measure::<RangeLock>(workload, threads),
    }
}

fn count(design: &str, workload: &str) {
    fn run<L: FileLock>(workload: &str) {
        let (lock, mut random) = (L::for_file(1), 1);
        // A conflict first: what is counted is the way of a file that threads share.
        let held = lock.try_write(0..1);
        drop((lock.try_write(0..1), held));
        (0..1_000_000).for_each(|_| pair(&lock, workload, 0, &mut random));
    }
    match design {
        "tree" => run::<TreeLock>(workload),
        "list" => run::<ListLock>(workload),
        "shards" => run::<ShardLock>(workload),
        _ => run::<RangeLock>(workload),
    }
}

fn main() {
    // cargo passes --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [flag, design, workload] = args.as_slice()
        && flag == "--count"
    {
        return count(design, workload);
    }
    let chosen: Vec<&str> =
        DESIGNS.into_iter().filter(|d| args.is_empty() || args.iter().any(|a| a == d)).collect();
    for (workload, what) in WORKLOADS {
        println!("\n{workload}: {what}; ns of processor time a pair (fewest pairs of a thread / mean)");
        let heads = THREADS.map(|threads| format!("{threads} thr"));
        println!("| design | {} |", heads.join(" | "));
        println!("| --- |{}", " ---: |".repeat(THREADS.len()));
        for &design in &chosen {
            let cells = THREADS.map(|threads| {
                let mut runs = [(); 3].map(|()| measure_named(design, workload, threads));
                runs.sort_by(|a, b| a.0.total_cmp(&b.0));
                format!("{:.0} ({:.2})", runs[1].0, runs[1].1)
            });
            println!("| {design} | {} |", cells.join(" | "));
        }
    }
}
