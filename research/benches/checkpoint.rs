//! What checkpoint rounds bring home in a second by 1, 2, 4 and 8 threads, beside random writes of 4 KiB on the same
//! device; where their time goes; what creations lose to rounds without a pause.
//!
//! `cargo bench -p narufs-research --bench checkpoint` prints the tables of experiment 12; `-- DIR` has the image in
//! that directory, in place of the one for temporary files, `-- --plain` serves it by pread and pwrite, `-- --short`
//! makes rough figures in a few seconds, `-- --creations` measures creations alone. Nothing is left behind: the image is
//! in a directory that goes with the run, and its ring is staged in memory.

use narufs_engine::checkpoint::Phase;
use narufs_engine::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use narufs_engine::format::Nid;
use narufs_engine::store::WriteHome;
use narufs_research::checkpoint::rounds::{self, Found};
use narufs_research::checkpoint::volume::{How, Volume};
use narufs_research::checkpoint::{creates, random};
use std::path::{Path, PathBuf};
use std::time::Duration;

const THREADS: [usize; 4] = [1, 2, 4, 8];
const DEPTH: usize = 32;
const MB: f64 = 1e6;

/// How much is measured.
struct Size {
    blocks: u64,
    slots: u64,
    /// Node blocks, and those of them that are dirty in a round.
    nodes: usize,
    dirty: usize,
    /// Turns that all configurations have, and rounds of each turn.
    turns: usize,
    rounds: u32,
    device_time: Duration,
    creates: usize,
    create_turns: usize,
}

const FULL: Size = Size {
    blocks: 1 << 20,
    slots: 1 << 20,
    nodes: 10_000,
    dirty: 5000,
    turns: 5,
    rounds: 4,
    device_time: Duration::from_secs(2),
    creates: 30_000,
    create_turns: 9,
};
const SHORT: Size = Size {
    blocks: 1 << 18,
    slots: 1 << 18,
    nodes: 2000,
    dirty: 1000,
    turns: 1,
    rounds: 2,
    device_time: Duration::from_millis(300),
    creates: 5000,
    create_turns: 3,
};

struct Bed {
    image: PathBuf,
    /// For random writes, as long as the node blocks are.
    file: PathBuf,
    how: How,
    size: Size,
    files: Vec<Nid>,
}

fn main() {
    // cargo passes --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let known = ["--plain", "--short", "--creations"];
    if let Some(unknown) = args.iter().find(|arg| arg.starts_with("--") && !known.contains(&arg.as_str())) {
        panic!("{unknown}: there is {}", known.join(", "));
    }
    let how = if args.iter().any(|arg| arg == "--plain") { How::Plain } else { How::Usual };
    let size = if args.iter().any(|arg| arg == "--short") { SHORT } else { FULL };
    let place = args.iter().find(|arg| !arg.starts_with("--")).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(place).expect("a place for the image");
    let bed = Bed::make(dir.path(), how, size);
    if !args.iter().any(|arg| arg == "--creations") {
        bed.print_rounds();
    }
    bed.print_creates();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Bed {
    fn make(dir: &Path, how: How, size: Size) -> Bed {
        let (image, file) = (dir.join("image"), dir.join("random"));
        Volume::format(&image, how, size.blocks, size.slots).expect("the image is made");
        let volume = Volume::mount(&image, how, WriteHome::default(), false).expect("it is mounted");
        let files = rounds::scattered(volume.fs(), size.nodes).expect("files are made");
        volume.unmount().expect("it is unmounted");
        let blocks = size.nodes as u64;
        drop(narufs_engine::device::ImageFile::create(&file, blocks).expect("a file"));
        let device = how.open(&file).expect("a file");
        // Blocks that were written before, as those of the rounds were.
        for first in (0..blocks).step_by(64) {
            let buf = IoBuf::zeroed((blocks - first).min(64) as usize * BLOCK_SIZE);
            device.run(vec![Request::write(first, buf, Cause::DataWriteBack)]).expect("room");
        }
        device.flush().expect("the device flushes");
        Bed { image, file, how, size, files }
    }

    fn round(&self, write_home: WriteHome, seed: &mut u64) -> Found {
        let volume = Volume::mount(&self.image, self.how, write_home, false).expect("it is mounted");
        // Once, so that all is in memory.
        let warm = rounds::measure(&volume, &self.files, self.size.dirty, 1, seed);
        let found =
            warm.and_then(|_| rounds::measure(&volume, &self.files, self.size.dirty, self.size.rounds, seed));
        volume.unmount().expect("it is unmounted");
        found.expect("rounds do not fail")
    }

    /// All configurations in turn, and the device by itself before each turn: it may be faster at one time than at
    /// another.
    fn print_rounds(&self) {
        let ways =
            [1, 64].map(|neighbours| THREADS.map(|threads| WriteHome { threads: Some(threads), neighbours }));
        let mut seed = 1;
        let (mut by_fio, mut by_us) = (Vec::new(), Vec::new());
        let mut found: Vec<Vec<Found>> = ways.iter().flatten().map(|_| Vec::new()).collect();
        for _ in 0..self.size.turns {
            by_fio.extend(random::fio(&self.file, DEPTH, self.size.device_time));
            let device = self.how.open(&self.file).expect("a file");
            let blocks = 0..self.size.nodes as u64;
            by_us.push(random::writes(&*device, blocks, DEPTH, self.size.device_time).expect("writes"));
            drop(device);
            for (way, found) in ways.iter().flatten().zip(&mut found) {
                found.push(self.round(*way, &mut seed));
            }
        }
        let by_us = median(by_us);
        let device = if by_fio.is_empty() { by_us } else { median(by_fio.clone()) };
        println!("\nrandom writes of 4 KiB, {DEPTH} in flight:\n");
        println!("| by | MB/s |\n| --- | ---: |");
        match by_fio.is_empty() {
            true => println!("| fio | there is none |"),
            false => println!("| fio | {:.0} |", device / MB),
        }
        println!("| the device layer alone | {:.0} |", by_us / MB);
        println!(
            "\nrounds over {} dirty pages of {}, at random; beside {:.0} MB/s:\n",
            self.size.dirty,
            self.size.nodes,
            device / MB
        );
        println!(
            "| threads | neighbours share a request | home MB/s | of random writes | KiB a home write |"
        );
        println!("| ---: | --- | ---: | ---: | ---: |");
        for (way, found) in ways.iter().flatten().zip(&found) {
            let speed = median(found.iter().map(Found::bytes_per_second).collect());
            let (bytes, requests) =
                found.iter().fold((0, 0), |sum, one| (sum.0 + one.home_bytes, sum.1 + one.requests));
            println!(
                "| {} | {} | {:.0} | {:.2} | {:.1} |",
                way.threads.unwrap_or(0),
                if way.neighbours > 1 { "yes" } else { "no" },
                speed / MB,
                speed / device,
                bytes as f64 / requests.max(1) as f64 / 1024.0
            );
        }
        println!("\nwhere threads are, % of their time in rounds (no requests shared):\n");
        println!("| phase |{}", THREADS.map(|threads| format!(" {threads} |")).concat());
        println!("| --- |{}", " ---: |".repeat(THREADS.len()));
        for phase in Phase::ALL {
            let share = |found: &Vec<Found>| {
                let of = |phase: usize| found.iter().map(|one| one.phases[phase].0).sum::<u64>() as f64;
                format!(" {:.1} |", 100.0 * of(phase as usize) / (0..Phase::ALL.len()).map(of).sum::<f64>())
            };
            println!("| {phase:?} |{}", found[..THREADS.len()].iter().map(share).collect::<String>());
        }
    }

    fn print_creates(&self) {
        println!("\ncreations beside rounds without a pause:\n");
        println!(
            "| threads that create | that write home | thousands a second without rounds | beside rounds | ratio |"
        );
        println!("| ---: | ---: | ---: | ---: | ---: |");
        for (threads, writers) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let write_home = WriteHome { threads: Some(writers), ..WriteHome::default() };
            let volume = Volume::mount(&self.image, self.how, write_home, true).expect("it is mounted");
            let (mut without, mut beside, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for turn in 0..self.size.create_turns {
                let [alone, with] = [false, true].map(|rounds| {
                    creates::measure(&volume, threads, self.size.creates, rounds).expect("creations")
                });
                // The first have memory mapped that the others find.
                if turn > 0 {
                    without.push(alone / 1e3);
                    beside.push(with / 1e3);
                    ratios.push(with / alone);
                }
            }
            volume.unmount().expect("it is unmounted");
            println!(
                "| {threads} | {writers} | {:.0} | {:.0} | {:.2} |",
                median(without),
                median(beside),
                median(ratios)
            );
        }
    }
}
