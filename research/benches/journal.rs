//! What the journal's part of an operation costs, phase by phase, and what follows for more cores.
//!
//! `cargo bench -p narufs-research --bench journal` prints the tables of experiment 11; `-- side` those that compare the
//! word with lanes; `-- model WORK` only the model of creations, for one that takes WORK ns on a core of its own, the
//! add to the tail not counted, with what lanes cost when its figures (docs/perf/experiments) were made.

use narufs_engine::pmem::{MappedMemory, Medium};
use narufs_research::journal::model::{self, LANE_ORDER, MACHINES, TRANSFERS};
use narufs_research::journal::side::{self, Both};
use narufs_research::journal::{phases, word};
use std::sync::Arc;
use std::time::Duration;

/// Records of a thread in each loop: long enough for threads that begin together to meet.
const BATCH: usize = 8192;
const ROUNDS: usize = 15;
const WORD_THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Commits whose median counts.
const COMMITS: usize = 200;
const WORD_TIME: Duration = Duration::from_millis(300);
/// A creation in the library, on a core of its own.
const WORK: f64 = 2500.0;

fn main() {
    // cargo passes --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.as_slice() {
        [] => {
            print_phases();
            print_side();
            print_commits();
        }
        [what] if what == "side" => {
            print_side();
            print_commits();
        }
        [what, work] if what == "model" => {
            print_model(work.parse().expect("WORK is a number of ns"), LANE_ORDER);
        }
        _ => panic!("usage: [side | model WORK]"),
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

/// The word alone, lanes alone, and whole records with both; then the model with what was found.
fn print_side() {
    println!("\n| threads |{}", WORD_THREADS.map(|threads| format!(" {threads} |")).concat());
    println!("| --- |{}", " ---: |".repeat(WORD_THREADS.len()));
    let row = |name: &str, found: &[f64]| {
        println!("| {name} |{}", found.iter().map(|ns| format!(" {ns:.1} |")).collect::<String>());
    };
    let adds = WORD_THREADS.map(|threads| word::measure(threads, WORD_TIME));
    row("an add to the word", &adds);
    row("a stamp, and letting commits pass", &WORD_THREADS.map(|threads| side::stamps(threads, WORD_TIME)));
    let records = WORD_THREADS.map(|threads| {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a place for the rings");
        let batch = BATCH / threads;
        let mut both = Both::new(dir.path(), threads, batch).expect("the rings are mapped");
        both.records(threads, batch, ROUNDS).expect("rings in memory do not fail")
    });
    row("a record, the word", &records.map(|pair| pair.word));
    row("a record, lanes", &records.map(|pair| pair.lanes));
    print_model(WORK, records[0].lanes - records[0].word + adds[0]);
}

/// Commits behind one record of each lane, here and on other machines.
fn print_commits() {
    println!(
        "\n| lanes | word, own lines | lanes, own lines | word, another core's | lanes, another core's |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: |");
    let measure = |lanes, elsewhere| {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a place for the rings");
        let mut both = Both::new(dir.path(), lanes, 8).expect("the rings are mapped");
        both.commits(lanes, COMMITS, elsewhere).expect("rings in memory do not fail")
    };
    let mut predicted = Vec::new();
    for lanes in [1, 2, 8, 24, 40, 72, 120] {
        let (own, other) = (measure(lanes, false), measure(lanes, true));
        println!("| {lanes} | {:.0} | {:.0} | {:.0} | {:.0} |", own.word, own.lanes, other.word, other.lanes);
        for machine in MACHINES.into_iter().filter(|machine| machine.cores == lanes) {
            let [fast, slow] = TRANSFERS.map(|t| model::commits(machine, [own.word, own.lanes], t));
            predicted.push((machine, fast, slow));
        }
    }
    println!("\n| cores | sockets | us of a commit, the word | us of a commit, lanes | times |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for (machine, fast, slow) in predicted {
        let us = |kind: usize| format!("{:.1} - {:.1}", fast[kind] / 1e3, slow[kind] / 1e3);
        let times = [fast, slow].map(|[word, lanes]| lanes / word);
        let (cores, sockets) = (machine.cores, machine.sockets);
        println!("| {cores} | {sockets} | {} | {} | {:.1} - {:.1} |", us(0), us(1), times[0], times[1]);
    }
}

fn print_model(work: f64, order: f64) {
    println!("\nmillions of creations a second, {work:.0} ns each and {order:.1} for the order in a lane:");
    println!("\n| cores | sockets | one word | one word and a flag | a ring for each lane |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for machine in MACHINES {
        let shared = |lines| {
            let [fast, slow] = TRANSFERS.map(|t| model::with_shared_lines(machine, work, lines, t) / 1e6);
            format!("{slow:.1} - {fast:.1}")
        };
        let lanes = model::with_lanes(machine, work, order) / 1e6;
        let (cores, sockets) = (machine.cores, machine.sockets);
        println!("| {cores} | {sockets} | {} | {} | {lanes:.1} |", shared(1), shared(2));
    }
}
