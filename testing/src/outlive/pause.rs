//! How long a client waits when a server is killed: `narufs-outlive pause NARUFS [kills=200] [states=empty,full,files]
//! [files=1000000] [options=noatime] [under=/var/tmp]`.
//!
//! A client looks at a file, makes one, writes to it and removes it, over and over; of each kill the longest of its calls
//! counts. States of the mount: `empty`, as it was made; `full`, its cache filled with files, some of which are written to
//! before each kill and are dirty then; `files`, with so many files, each of which the client has made and looked at. The
//! median time of each step is told beside: until the successor opens the image (`start`: the end is noticed, the process
//! starts, the image's lock is free), recovery, taking over what runs ahead of the journal, requests that are sent again.
//! What is left of the wait is the killed process's end and the first requests after it.

use super::Outcome;
use super::mounted::Mounted;
use super::settings::Settings;
use crate::demand;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The names of what can be asked for.
pub const KNOWN: [&str; 5] = ["kills", "states", "files", "options", "under"];

const SLOTS: u64 = 1 << 20;
const FILE: u64 = 64 << 20;
/// Bytes that are dirtied before each kill of a full mount.
const DIRTIED: u64 = 16 << 20;
const FILES_IN_A_DIRECTORY: u64 = 10_000;

/// Measures each state.
///
/// # Errors
/// What went wrong.
pub fn run(settings: &Settings) -> Outcome {
    let kills = settings.number("kills", 200)?;
    println!("| state | kills | p50 | p99 | worst | start | recovery | adoption | drain |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for state in settings.text("states", "empty,full,files").split(',') {
        measure(settings, state, kills)?;
    }
    Ok(())
}

fn measure(settings: &Settings, state: &str, kills: u64) -> Outcome {
    let under = Path::new(settings.text("under", "/var/tmp"));
    let options = settings.text("options", "noatime");
    let mounted = Mounted::new(&settings.narufs, under, 48 << 30, SLOTS, options)?;
    let full = match state {
        "empty" => Vec::new(),
        "full" => fill(&mounted)?,
        "files" => make_files(&mounted, settings.number("files", 1_000_000)?).map(|()| Vec::new())?,
        _ => return Err(format!("{state}: none of empty, full, files").into()),
    };
    let client = Client::new(mounted.point());
    let (mut waits, mut steps) = (Vec::new(), vec![Vec::new(); 4]);
    let mut random = StdRng::seed_from_u64(1);
    std::thread::scope(|scope| -> Outcome {
        let works = scope.spawn(|| client.work());
        let killed = (0..kills).try_for_each(|_| -> Outcome {
            dirty(&full, &mut random)?;
            // Kills do not keep step with what goes on in the background.
            std::thread::sleep(Duration::from_millis(random.random_range(100..500)));
            let (wait, stats) = client.longest_over(|| mounted.restart())?;
            waits.push(wait);
            for (all, ms) in steps.iter_mut().zip(phases(&stats)) {
                all.push(ms);
            }
            Ok(())
        });
        client.over.store(true, Ordering::Relaxed);
        works.join().map_err(|_| "a panic")?.and(killed)
    })?;
    let [p50, p99, worst] = [50, 99, 100].map(|part| at(&mut waits, part));
    let medians: Vec<String> = steps.iter_mut().map(|all| format!("{:.0}", at(all, 50))).collect();
    println!("| {state} | {kills} | {p50:.0} | {p99:.0} | {worst:.0} | {} |", medians.join(" | "));
    drop(full);
    mounted.end()
}

/// Milliseconds of the phases before a server serves.
fn phases(stats: &Value) -> Vec<f64> {
    let all = stats["servers"]["phases"].as_array();
    all.into_iter().flatten().map(|phase| phase["ns"].as_u64().unwrap_or(0) as f64 / 1e6).take(4).collect()
}

/// What so many in a hundred are at the most.
fn at(all: &mut [f64], part: usize) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get((all.len() * part).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0)
}

fn frames(mounted: &Mounted) -> Outcome<u64> {
    Ok(mounted
        .stats()?
        .pointer("/data/cache/frames")
        .and_then(Value::as_u64)
        .ok_or("stats without a cache")?)
}

fn fill(mounted: &Mounted) -> Outcome<Vec<File>> {
    let bytes = frames(mounted)? * 4096;
    let piece = vec![5; 1 << 20];
    let mut files = Vec::new();
    for number in 0..bytes.div_ceil(FILE) {
        let path = mounted.point().join(format!("full-{number}"));
        let file = File::options().create_new(true).read(true).write(true).open(path)?;
        for at in (0..FILE).step_by(piece.len()) {
            file.write_all_at(&piece, at)?;
        }
        files.push(file);
    }
    Ok(files)
}

fn dirty(files: &[File], random: &mut StdRng) -> Outcome {
    let piece = vec![random.random(); 64 << 10];
    for _ in 0..if files.is_empty() { 0 } else { DIRTIED / piece.len() as u64 } {
        let file = &files[random.random_range(0..files.len())];
        file.write_all_at(&piece, random.random_range(0..FILE / piece.len() as u64) * piece.len() as u64)?;
    }
    Ok(())
}

fn make_files(mounted: &Mounted, count: u64) -> Outcome {
    for number in 0..count {
        let dir = mounted.point().join(format!("dir-{}", number / FILES_IN_A_DIRECTORY));
        if number.is_multiple_of(FILES_IN_A_DIRECTORY) {
            fs::create_dir(&dir)?;
        }
        let path = dir.join(number.to_string());
        File::create_new(&path)?;
        fs::metadata(&path)?;
    }
    Ok(())
}

/// One who works, and knows how long each call has taken.
struct Client {
    dir: PathBuf,
    over: AtomicBool,
    calls: AtomicU64,
    longest_ns: AtomicU64,
}

impl Client {
    fn new(dir: PathBuf) -> Client {
        Client { dir, over: AtomicBool::new(false), calls: AtomicU64::new(0), longest_ns: AtomicU64::new(0) }
    }

    fn work(&self) -> Outcome {
        let outcome = self.work_on();
        // Nobody is to wait for another call.
        self.over.fetch_or(outcome.is_err(), Ordering::Relaxed);
        outcome
    }

    fn work_on(&self) -> Outcome {
        fs::write(self.dir.join("steady"), "steady")?;
        for number in 0_u64.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let path = self.dir.join(format!("made-{number}"));
            self.timed(|| fs::metadata(self.dir.join("steady")))?;
            let file = self.timed(|| File::create_new(&path))?;
            self.timed(|| file.write_all_at(&[1; 4096], 0))?;
            self.timed(|| fs::remove_file(&path))?;
        }
        Ok(())
    }

    fn timed<T>(&self, call: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
        let begin = Instant::now();
        let outcome = call();
        self.longest_ns.fetch_max(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Release);
        outcome
    }

    /// The longest call, in milliseconds, while something is done and until some calls afterwards.
    fn longest_over<T>(&self, what: impl FnOnce() -> Outcome<T>) -> Outcome<(f64, T)> {
        self.longest_ns.store(0, Ordering::Relaxed);
        let done = what()?;
        let enough = self.calls.load(Ordering::Acquire) + 8;
        while self.calls.load(Ordering::Acquire) < enough {
            demand!(!self.over.load(Ordering::Relaxed), "the client has failed");
            std::thread::yield_now();
        }
        Ok((self.longest_ns.load(Ordering::Relaxed) as f64 / 1e6, done))
    }
}
