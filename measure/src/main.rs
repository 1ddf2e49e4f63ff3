//! The small benchmark behind the figures in docs/SPEED.md: a few workloads on a directory of a mounted file
//! system, or on an image that this process opens as a library.
//!
//! It prints one line a run: workload, threads, operations per second, p50 and p99 in microseconds. The
//! comparison itself (devices, interleaving, medians) is `scripts/bench.sh`.

use narufs::format::{Nid, ROOT_NID};
use narufs::mount::{self, MountOptions, Mounted};
use narufs::pmem::EmulationCosts;
use narufs::vfs::{AssembleOptions, Context, FileHandle, Fs, OpenFlags, Running, WriteFlags};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: narufs-measure WORKLOAD DIR|lib:IMAGE THREADS SECONDS
workloads: fsync      pwrite 4 KiB + fsync, a file a thread, random blocks of 4 MiB
           create     create + close of empty files, a directory a thread
           overwrite  pwrite 4 KiB, a file a thread, one block
lib:IMAGE opens the image in this process, without a mount";

type Outcome<T> = Result<T, String>;

/// What the workloads do: on a directory through the kernel, or on the library.
trait Place: Send {
    /// Makes the one file of this place, with content that is down.
    fn open(&mut self, content: &[u8]) -> Outcome<()>;
    /// Makes an empty file and closes it.
    fn create(&self, name: &str) -> Outcome<()>;
    /// Writes into the one file.
    fn write(&self, at: u64, bytes: &[u8]) -> Outcome<()>;
    /// Returns once it is durable.
    fn sync(&self) -> Outcome<()>;
    /// Removes what was made: the one file, or so many by name.
    fn clear(&mut self, names: &mut dyn Iterator<Item = String>) -> Outcome<()>;
}

/// A directory.
struct Directory {
    path: PathBuf,
    file: Option<File>,
}

impl Directory {
    fn new(root: &Path, thread: usize) -> Outcome<Directory> {
        let path = root.join(format!("measure-{thread}"));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Directory { path, file: None })
    }

    fn file(&self) -> Outcome<&File> {
        self.file.as_ref().ok_or_else(|| "the workload has no file".into())
    }

    fn said<T>(&self, result: std::io::Result<T>) -> Outcome<T> {
        result.map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

impl Place for Directory {
    fn open(&mut self, content: &[u8]) -> Outcome<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = self.said(options.open(self.path.join("f")))?;
        self.said(file.write_all_at(content, 0).and_then(|()| file.sync_all()))?;
        self.file = Some(file);
        Ok(())
    }

    fn create(&self, name: &str) -> Outcome<()> {
        self.said(File::create_new(self.path.join(name)).map(drop))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Outcome<()> {
        self.said(self.file()?.write_all_at(bytes, at))
    }

    fn sync(&self) -> Outcome<()> {
        self.said(self.file()?.sync_all())
    }

    fn clear(&mut self, _names: &mut dyn Iterator<Item = String>) -> Outcome<()> {
        self.file = None;
        self.said(std::fs::remove_dir_all(&self.path))
    }
}

/// A directory of an image that this process has open.
struct Library {
    fs: Arc<Fs>,
    caller: Context,
    name: String,
    dir: Nid,
    file: Option<(Nid, FileHandle)>,
}

fn told(e: narufs::Error) -> String {
    e.to_string()
}

impl Library {
    fn new(fs: &Arc<Fs>, thread: usize) -> Outcome<Library> {
        let (caller, name) = (Context::root(), format!("measure-{thread}"));
        let dir = fs.mkdir(&caller, ROOT_NID, name.as_bytes(), 0o755).map_err(told)?.nid;
        Ok(Library { fs: Arc::clone(fs), caller, name, dir, file: None })
    }

    fn file(&self) -> Outcome<&FileHandle> {
        self.file.as_ref().map(|(_, file)| file).ok_or_else(|| "the workload has no file".into())
    }

    fn make(&self, name: &str) -> Outcome<(Nid, FileHandle)> {
        let flags = OpenFlags::READ_WRITE | OpenFlags::EXCLUSIVE;
        let made = self.fs.create(&self.caller, self.dir, name.as_bytes(), 0o644, flags);
        made.map(|(entry, handle, _)| (entry.nid, handle)).map_err(told)
    }

    fn close(&self, (nid, handle): (Nid, FileHandle)) {
        self.fs.release(handle, None);
        self.fs.forget(nid, 1);
    }
}

impl Place for Library {
    fn open(&mut self, content: &[u8]) -> Outcome<()> {
        let made = self.make("f")?;
        self.file = Some(made);
        self.write(0, content)?;
        self.sync()
    }

    fn create(&self, name: &str) -> Outcome<()> {
        self.make(name).map(|made| self.close(made))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Outcome<()> {
        match self.fs.write(&self.caller, self.file()?, at, bytes, WriteFlags::empty()) {
            Ok(len) if len == bytes.len() => Ok(()),
            Ok(_) => Err("there is no space left".into()),
            Err(e) => Err(told(e)),
        }
    }

    fn sync(&self) -> Outcome<()> {
        self.fs.fsync(self.file()?, false).map_err(told)
    }

    fn clear(&mut self, names: &mut dyn Iterator<Item = String>) -> Outcome<()> {
        if let Some(file) = self.file.take() {
            self.close(file);
            self.fs.unlink(&self.caller, self.dir, b"f").map_err(told)?;
        } else {
            for name in names {
                self.fs.unlink(&self.caller, self.dir, name.as_bytes()).map_err(told)?;
            }
        }
        self.fs.rmdir(&self.caller, ROOT_NID, self.name.as_bytes()).map_err(told)?;
        self.fs.forget(self.dir, 1);
        Ok(())
    }
}

struct Worker<P> {
    place: P,
    block: [u8; 4096],
    count: u64,
}

fn fsync<P: Place>(w: &mut Worker<P>) -> Outcome<()> {
    // A multiplicative step visits all 1024 blocks in a scattered order.
    let at = (w.count * 389 % 1024) * 4096;
    w.block[..8].copy_from_slice(&w.count.to_le_bytes());
    w.place.write(at, &w.block)?;
    w.place.sync()
}

fn create<P: Place>(w: &mut Worker<P>) -> Outcome<()> {
    w.place.create(&file_name(w.count))
}

fn overwrite<P: Place>(w: &mut Worker<P>) -> Outcome<()> {
    w.place.write(0, &w.block)
}

fn file_name(count: u64) -> String {
    format!("f{count}")
}

/// The length of each operation in ns, for at least `length`.
fn run<P: Place>(
    step: fn(&mut Worker<P>) -> Outcome<()>,
    worker: &mut Worker<P>,
    length: Duration,
) -> Outcome<Vec<u32>> {
    let mut nanos = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    let mut last = start;
    while last - start < length {
        step(worker)?;
        worker.count += 1;
        let now = Instant::now();
        nanos.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
        last = now;
    }
    Ok(nanos)
}

/// Runs a workload in all places at once, and prints its line.
fn measure<P: Place>(workload: &str, places: Vec<P>, seconds: f64) -> Outcome<()> {
    let step = match workload {
        "fsync" => fsync::<P>,
        "create" => create::<P>,
        "overwrite" => overwrite::<P>,
        other => return Err(format!("no workload {other}\n{USAGE}")),
    };
    let threads = places.len();
    let mut workers = Vec::new();
    for (thread, mut place) in places.into_iter().enumerate() {
        if workload != "create" {
            place.open(&vec![1; 4 << 20])?;
        }
        workers.push(Worker { place, block: [thread as u8; 4096], count: 0 });
    }
    let length = Duration::from_secs_f64(seconds);
    let results: Vec<Outcome<Vec<u32>>> = std::thread::scope(|s| {
        let handles: Vec<_> = workers.iter_mut().map(|w| s.spawn(move || run(step, w, length))).collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err("a thread died".into()))).collect()
    });
    let mut all = Vec::new();
    for result in results {
        all.extend(result?);
    }
    for worker in &mut workers {
        worker.place.clear(&mut (0..worker.count).map(file_name))?;
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

/// Opens an image, measures, and unmounts it.
fn measure_library(workload: &str, image: &Path, threads: usize, seconds: f64) -> Outcome<()> {
    let said = |e: narufs::Error| format!("{}: {e}", image.display());
    let options = MountOptions::default();
    let media = mount::open(image, None, EmulationCosts::default(), &options).map_err(said)?;
    let mounted: Mounted = mount::mount(media, &options).map_err(said)?;
    let running = Running::start(mounted.store(), &AssembleOptions::default()).map_err(said)?;
    let places: Outcome<Vec<_>> = (0..threads).map(|t| Library::new(running.fs(), t)).collect();
    let measured = places.and_then(|places| measure(workload, places, seconds));
    running.stop().and_then(|()| mounted.unmount()).map_err(said)?;
    measured
}

fn main_of(args: &[String]) -> Outcome<()> {
    let [workload, target, threads, seconds] = args else { return Err(USAGE.into()) };
    let threads: usize = threads.parse().map_err(|e| format!("THREADS: {e}"))?;
    let seconds: f64 = seconds.parse().map_err(|e| format!("SECONDS: {e}"))?;
    match target.strip_prefix("lib:") {
        Some(image) => measure_library(workload, Path::new(image), threads, seconds),
        None => {
            let places: Outcome<Vec<_>> =
                (0..threads).map(|t| Directory::new(Path::new(target), t)).collect();
            measure(workload, places?, seconds)
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match main_of(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("narufs-measure: {e}");
            ExitCode::from(2)
        }
    }
}
