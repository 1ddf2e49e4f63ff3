//! The small benchmark behind the figures in docs/SPEED.md: a few workloads on a directory.
//!
//! It prints one line a run: workload, threads, operations per second, p50 and p99 in microseconds. The
//! comparison itself (devices, interleaving, medians) is `scripts/bench.sh`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: narufs-measure WORKLOAD DIR THREADS SECONDS
workloads: fsync      pwrite 4 KiB + fsync, a file a thread, random blocks of 4 MiB
           create     create + close of empty files, a directory a thread
           overwrite  pwrite 4 KiB, a file a thread, one block";

type Step = fn(&mut Worker) -> std::io::Result<()>;

struct Worker {
    dir: PathBuf,
    file: Option<File>,
    block: [u8; 4096],
    count: u64,
}

impl Worker {
    fn new(root: &Path, workload: &str, thread: usize) -> std::io::Result<Worker> {
        let dir = root.join(format!("measure-{thread}"));
        std::fs::create_dir_all(&dir)?;
        let mut file = None;
        if workload != "create" {
            let f =
                OpenOptions::new().read(true).write(true).create(true).truncate(true).open(dir.join("f"))?;
            f.write_all_at(&vec![1u8; 4 << 20], 0)?;
            f.sync_all()?;
            file = Some(f);
        }
        Ok(Worker { dir, file, block: [thread as u8; 4096], count: 0 })
    }

    fn file(&self) -> std::io::Result<&File> {
        self.file.as_ref().ok_or_else(|| std::io::Error::other("the workload has no file"))
    }
}

fn fsync(w: &mut Worker) -> std::io::Result<()> {
    // A multiplicative step visits all 1024 blocks in a scattered order.
    let at = (w.count * 389 % 1024) * 4096;
    w.block[..8].copy_from_slice(&w.count.to_le_bytes());
    w.file()?.write_all_at(&w.block, at)?;
    w.file()?.sync_all()
}

fn create(w: &mut Worker) -> std::io::Result<()> {
    File::create_new(w.dir.join(format!("f{}", w.count))).map(drop)
}

fn overwrite(w: &mut Worker) -> std::io::Result<()> {
    w.file()?.write_all_at(&w.block, 0)
}

fn run(step: Step, mut worker: Worker, length: Duration) -> std::io::Result<Vec<u32>> {
    let mut nanos = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    let mut last = start;
    while last - start < length {
        step(&mut worker)?;
        worker.count += 1;
        let now = Instant::now();
        nanos.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
        last = now;
    }
    std::fs::remove_dir_all(&worker.dir)?;
    Ok(nanos)
}

fn measure(args: &[String]) -> Result<(), String> {
    let [workload, dir, threads, seconds] = args else { return Err(USAGE.into()) };
    let step: Step = match workload.as_str() {
        "fsync" => fsync,
        "create" => create,
        "overwrite" => overwrite,
        other => return Err(format!("no workload {other}\n{USAGE}")),
    };
    let threads: usize = threads.parse().map_err(|e| format!("THREADS: {e}"))?;
    let seconds: f64 = seconds.parse().map_err(|e| format!("SECONDS: {e}"))?;
    let mut workers = Vec::new();
    for t in 0..threads {
        workers.push(Worker::new(Path::new(dir), workload, t).map_err(|e| format!("{dir}: {e}"))?);
    }
    let results: Vec<std::io::Result<Vec<u32>>> = std::thread::scope(|s| {
        let handles: Vec<_> = workers
            .into_iter()
            .map(|w| s.spawn(move || run(step, w, Duration::from_secs_f64(seconds))))
            .collect();
        handles
            .into_iter()
            .map(|h| h.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread died"))))
            .collect()
    });
    let mut all = Vec::new();
    for r in results {
        all.extend(r.map_err(|e| format!("{dir}: {e}"))?);
    }
    all.sort_unstable();
    let at = |q: f64| f64::from(all[((all.len() - 1) as f64 * q) as usize]) / 1000.0;
    println!(
        "{workload} threads={threads} ops_per_s={:.0} p50_us={:.1} p99_us={:.1}",
        all.len() as f64 / seconds,
        at(0.5),
        at(0.99)
    );
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match measure(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("narufs-measure: {e}");
            ExitCode::from(2)
        }
    }
}
