//! What the journal's part of an operation costs, phase by phase, and what follows for more cores.
//!
//! `cargo bench -p narufs-bench --bench journal` prints the tables of docs/JOURNAL.md; `-- model WORK` only the last,
//! for a creation that takes WORK ns on a core of its own, the add to the tail not counted.

use narufs::pmem::{MappedMemory, Medium};
use narufs_bench::journal::model::{self, MACHINES, TRANSFERS};
use narufs_bench::journal::{phases, word};
use std::sync::Arc;
use std::time::Duration;

/// Records of a thread in each loop: long enough for threads that begin together to meet.
const BATCH: usize = 8192;
const ROUNDS: usize = 15;
const WORD_THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const WORD_TIME: Duration = Duration::from_millis(300);
/// A creation in the library, on a core of its own.
const WORK: f64 = 2500.0;

fn main() {
    // cargo passes --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.as_slice() {
        [] => {
            print_phases();
            print_word();
            print_model(WORK);
        }
        [what, work] if what == "model" => print_model(work.parse().expect("WORK is a number of ns")),
        _ => panic!("usage: [model WORK]"),
    }
}

fn print_phases() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a place for the journal");
    let found = [1, 2].map(|threads| {
        let path = dir.path().join(format!("{threads}"));
        let len = phases::ring_bytes(threads, BATCH);
        let memory = MappedMemory::create(&path, len, Medium::Emulated(Default::default()));
        let memory = Arc::new(memory.expect("the ring is mapped"));
        phases::measure(memory, threads, BATCH, ROUNDS).expect("an image in memory does not fail")
    });
    println!("\n| phase | ns, 1 thread | ns, 2 threads | what |\n| --- | ---: | ---: | --- |");
    for (phase, (name, what)) in phases::PHASES.iter().enumerate() {
        println!("| {name} | {:.0} | {:.0} | {what} |", found[0][phase], found[1][phase]);
    }
    let [one, two] = found.map(|found| found.iter().sum::<f64>());
    println!("| all | {one:.0} | {two:.0} | |");
}

fn print_word() {
    println!("\n| threads |{}", WORD_THREADS.map(|threads| format!(" {threads} |")).concat());
    println!("| --- |{}", " ---: |".repeat(WORD_THREADS.len()));
    let found = WORD_THREADS.map(|threads| format!(" {:.1} |", word::measure(threads, WORD_TIME)));
    println!("| ns of processor time an add |{}", found.concat());
}

fn print_model(work: f64) {
    println!("\nmillions of creations a second, {work:.0} ns each on a core of its own:");
    println!("\n| cores | sockets | one word | one word and a flag | a ring for each lane |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for machine in MACHINES {
        let shared = |lines| {
            let [fast, slow] = TRANSFERS.map(|t| model::with_shared_lines(machine, work, lines, t) / 1e6);
            format!("{slow:.1} - {fast:.1}")
        };
        let lanes = model::with_lanes(machine, work) / 1e6;
        let (cores, sockets) = (machine.cores, machine.sockets);
        println!("| {cores} | {sockets} | {} | {} | {lanes:.1} |", shared(1), shared(2));
    }
}
