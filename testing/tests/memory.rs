//! What memory the process really takes, against what it was told: anonymous memory at its highest, as the kernel
//! counts it, of the library under loads that each strain another part of the budget.
//!
//! Each load runs in a process of its own (this program again, told by `NARUFS_MEMORY_LOAD` what to do), because the
//! highest mark of a process never goes down. `NARUFS_MEMORY_SHOW=1` prints a table.

use narufs_engine::Fs;
use narufs_engine::path::File;
use narufs_engine::volume::scratch::{ScratchOptions, SpillOptions};
use std::process::Command;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// What a load does with how much memory, and whether it may spill.
struct Load {
    name: &'static str,
    memory: u64,
    spills: bool,
    run: fn(&Fs, u64),
}

const LOADS: [Load; 10] = [
    Load {
        name: "one huge file, written and read in order",
        memory: 128 * MIB,
        spills: true,
        run: sequential,
    },
    Load { name: "one huge file, pages at random", memory: 128 * MIB, spills: true, run: random },
    Load { name: "a page here and there in a sparse file", memory: 128 * MIB, spills: true, run: sparse },
    Load { name: "tiny files without spill space, until full", memory: 256 * MIB, spills: false, run: tiny },
    Load { name: "tiny files in the place of data", memory: 256 * MIB, spills: false, run: tiny_after_data },
    Load { name: "data in the place of tiny files", memory: 256 * MIB, spills: false, run: data_after_tiny },
    Load { name: "tiny files that spill", memory: 128 * MIB, spills: true, run: tiny_beyond },
    Load { name: "files opened, written and removed", memory: 128 * MIB, spills: false, run: churn },
    Load { name: "empty files made and removed", memory: 128 * MIB, spills: false, run: empty },
    Load { name: "eight writers of files of their own", memory: 128 * MIB, spills: true, run: writers },
];

fn write(file: &File, bytes: &[u8], at: u64) {
    assert_eq!(file.write_at(bytes, at).expect("room"), bytes.len());
}

fn sequential(fs: &Fs, memory: u64) {
    let file = fs.create("/a").expect("room");
    let bytes = vec![7; MIB as usize];
    for at in 0..8 * memory / MIB {
        write(&file, &bytes, at * MIB);
    }
    let mut read = bytes.clone();
    for at in 0..8 * memory / MIB {
        assert_eq!(file.read_at(&mut read, at * MIB).expect("it is there"), read.len());
        assert!(read == bytes);
    }
}

fn random(fs: &Fs, memory: u64) {
    let file = fs.create("/a").expect("room");
    let pages = 3 * memory / PAGE;
    let mut at = 7u64;
    for round in 0..2 * pages {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (at >> 16) % pages;
        let mut page = [round as u8; PAGE as usize];
        if round % 2 == 0 {
            write(&file, &page, at * PAGE);
        } else {
            file.read_at(&mut page, at * PAGE).expect("it works");
        }
    }
}

fn sparse(fs: &Fs, memory: u64) {
    let file = fs.create("/a").expect("room");
    for page in 0..2 * memory / PAGE {
        write(&file, &[1; 64], page * 97 * PAGE);
    }
}

fn fill(fs: &Fs, most: u64) -> u64 {
    let mut bytes = 0;
    for number in 0..most {
        if number % 1000 == 0 && fs.create_dir(format!("/{}", number / 1000)).is_err() {
            return bytes;
        }
        let Ok(file) = fs.create(format!("/{}/{number}", number / 1000)) else { return bytes };
        if file.write_at(&[1; 100], 0).is_err() {
            return bytes;
        }
        bytes += PAGE;
    }
    bytes
}

fn tiny(fs: &Fs, memory: u64) {
    let bytes = fill(fs, u64::MAX);
    assert!(bytes >= memory / 2, "{bytes} bytes of {memory} are full");
}

fn tiny_after_data(fs: &Fs, memory: u64) {
    fill_one(fs);
    fs.remove_file("/a").expect("it is there");
    tiny(fs, memory);
}

fn data_after_tiny(fs: &Fs, memory: u64) {
    tiny(fs, memory);
    for listed in fs.read_dir("/").expect("it is there") {
        let directory = format!("/{}", String::from_utf8_lossy(&listed.name));
        for listed in fs.read_dir(&directory).expect("it is there") {
            fs.remove_file(format!("{directory}/{}", String::from_utf8_lossy(&listed.name))).expect("there");
        }
        fs.remove_dir(directory).expect("it is empty");
    }
    fill_one(fs);
}

/// One file that takes all there is.
fn fill_one(fs: &Fs) {
    let file = fs.create("/a").expect("room");
    let bytes = vec![7; MIB as usize];
    let mut at = 0;
    while let Ok(written @ 1..) = file.write_at(&bytes, at) {
        at += written as u64;
    }
}

fn tiny_beyond(fs: &Fs, memory: u64) {
    let files = 2 * memory / PAGE;
    assert_eq!(fill(fs, files), files * PAGE);
    for number in (0..files).step_by(3) {
        let bytes = fs.read(format!("/{}/{number}", number / 1000)).expect("it is there");
        assert!(bytes == [1; 100]);
    }
}

fn churn(fs: &Fs, memory: u64) {
    let bytes = vec![3; 64 << 10];
    for number in 0..40 * memory / bytes.len() as u64 {
        let name = format!("/{number}");
        let file = fs.create(&name).expect("room");
        write(&file, &bytes, 0);
        if number >= 100 {
            fs.remove_file(format!("/{}", number - 100)).expect("it is there");
        }
    }
}

/// Each is the only one in its block of inodes.
fn empty(fs: &Fs, memory: u64) {
    for _ in 0..3 * memory / 2 / PAGE {
        fs.create("/a").expect("room");
        fs.remove_file("/a").expect("it is there");
    }
}

fn writers(fs: &Fs, memory: u64) {
    std::thread::scope(|scope| {
        for me in 0..8 {
            let file = fs.create(format!("/{me}")).expect("room");
            scope.spawn(move || {
                let bytes = vec![me as u8; 128 << 10];
                for at in 0..memory / 4 / bytes.len() as u64 {
                    write(&file, &bytes, at * bytes.len() as u64);
                }
            });
        }
    });
}

/// Bytes of a line of `/proc/self/status`.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("a process has one");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel tells");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

/// The most anonymous memory so far: file-backed memory hardly changes.
fn anonymous_peak() -> u64 {
    status("VmHWM") - status("RssFile") - status("RssShmem")
}

/// In the process of its own. Prints the bytes taken beyond those of the process before.
#[test]
fn load() {
    let Ok(name) = std::env::var("NARUFS_MEMORY_LOAD") else { return };
    let load = LOADS.iter().find(|load| load.name == name).expect("a load");
    let dir = tempfile::tempdir_in("/var/tmp").expect("room");
    let before = anonymous_peak();
    let spill = SpillOptions { path: dir.path().to_owned(), size: Some(10 * load.memory), force: false };
    let options =
        ScratchOptions { spill: load.spills.then_some(spill), ..ScratchOptions::with_memory(load.memory) };
    let fs = Fs::scratch(&options).expect("room");
    (load.run)(&fs, load.memory);
    println!("took {}", anonymous_peak() - before);
}

#[test]
fn memory_stays_within_a_twentieth_of_what_was_told() {
    let show = std::env::var_os("NARUFS_MEMORY_SHOW").is_some();
    let mut over = Vec::new();
    for load in &LOADS {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "load", "--nocapture"])
            .env("NARUFS_MEMORY_LOAD", load.name)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{}: {said}{}", load.name, String::from_utf8_lossy(&child.stderr));
        let took = said.split("took ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let took: u64 = took.and_then(|number| number.parse().ok()).expect("it tells");
        let of = took as f64 / load.memory as f64;
        let line = format!("{:<45} {:>4} MiB of {:>4}: {of:.3}", load.name, took >> 20, load.memory >> 20);
        if show {
            println!("{line}");
        }
        if of > 1.05 {
            over.push(line);
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}
