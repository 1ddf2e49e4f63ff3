//! The process behind a mount: opens the image, serves it, and writes everything down at the end.
//!
//! Where the mount outlives it, it is a supervisor's (`supervisor`): the first one mounts, each other
//! goes on where the one before was ended.

use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::heap::{self, Pages};
use crate::holder::{self, PATIENCE};
use crate::metrics::serving::{METRICS, Serving};
use crate::options::{AtimePolicy, OptionList};
use crate::pause;
use crate::supervised::{Heard, Link, Start, not_supervised};
use crate::supervisor::channel::{ToServer, ToSupervisor};
use crate::utab;
use narufs_engine::Error;
use narufs_engine::cache::available_memory;
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::file::DataOptions;
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::store::StoreOptions;
use narufs_engine::takeover::{Takeover, now};
use narufs_engine::vfs::{self, Vfs, VfsOptions};
use narufs_engine::volume::scratch::{self, ScratchOptions, SpillOptions};
use narufs_engine::volume::{self, Mounted};
use narufs_engine::volume::{AssembleOptions, Running};
use narufs_fuse::binding::{self, Caching, EngineOperations};
use narufs_fuse::mount::process::{allow_locked_memory, bound_heap, protect_from_reclaim};
use narufs_fuse::mount::{Atime, IfBusy};
use narufs_fuse::server::Server;
use narufs_fuse::supervision::{Inherited, Keeper, MEMORY, Supervision};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// Serves until the unmount. `ready` is called once, when the mount works, with what the user should know.
pub fn serve(args: &Mount, options: &OptionList, ready: impl FnOnce(&[String])) -> Result<(), Failure> {
    let metrics = Serving::wanted(options, None, false)?;
    let opened = Opened::new(args, options, None)?;
    let server = opened.serve(args, options, None)?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|e| failed(&opened.about, e))?;
    let handle = signals.handle();
    let entry = utab::enter(&opened.source, server.mount().point());
    ready(&opened.warnings);
    std::thread::scope(|scope| {
        scope.spawn(|| unmount_each(&server, signals.forever().map(|_| ())));
        let _watched = metrics.as_ref().and_then(|metrics| metrics.start(scope, &server));
        server.wait();
        handle.close();
    });
    metrics.into_iter().for_each(Serving::end);
    drop(entry);
    drop(server);
    opened.finish()
}

/// The same for a supervisor: a mount that outlives this process, or the one of a server that is gone.
pub fn serve_supervised(args: &Mount, options: &OptionList, arguments: Vec<OsString>) -> Result<(), Failure> {
    let (link, start) = Link::open(arguments).map_err(not_supervised)?;
    let outcome = serve_for(args, options, &link, start);
    match &outcome {
        Ok(()) => {}
        // What could not be written down was said, and the mount has ended.
        Err(failure) if failure.status == Status::Failed => {}
        Err(failure) => link.fail(failure),
    }
    outcome
}

fn serve_for(args: &Mount, options: &OptionList, link: &Link, mut start: Start) -> Result<(), Failure> {
    let dir = args.dir();
    let memory = match start.memory.take() {
        Some(left) => Takeover::adopt(left),
        None => Takeover::create(assemble_options(options, false).data.frames),
    };
    let memory = memory.map_err(|e| refused(dir, &e))?;
    if let Some((_, died_at)) = start.death {
        memory.follows_end_at(died_at);
    }
    if start.left.is_none() {
        link.keep(MEMORY, memory.descriptor()).map_err(|e| failed(dir, e))?;
    }
    let metrics = Serving::wanted(options, start.metrics.take(), start.left.is_some())?;
    if let Some(metrics) = metrics.as_ref().filter(|metrics| metrics.is_new()) {
        link.keep(METRICS, metrics.descriptor()).map_err(|e| failed(dir, e))?;
    }
    let mut opened = Opened::new(args, options, Some(&memory))?;
    if start.left.is_none() {
        opened.warnings.extend(pause::warning());
    }
    let supervision = link.supervision(&start, Arc::clone(&memory));
    let server = opened.serve(args, options, Some((&supervision, start.left.take())))?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|e| failed(dir, e))?;
    let handle = signals.handle();
    let entry = utab::enter(&opened.source, server.mount().point());
    if let Some((_, died_at)) = start.death {
        memory.note_pause(now().saturating_sub(died_at));
    }
    let survives = server.is_supervised();
    let supervisor = link.ready(survives, opened.warnings.clone()).map_err(|e| failed(dir, e))?;
    if survives {
        supervision.is_supervised_by(supervisor);
    }
    let (ask, asked) = mpsc::channel();
    std::thread::scope(|scope| {
        let by_signal = ask.clone();
        scope.spawn(move || {
            // The kernel hangs up a stopped process whose parent has ended: that is the supervisor's end, and no wish.
            let wishes = signals.forever().filter(|signal| *signal != SIGHUP);
            wishes.map(|_| by_signal.send(Some(()))).take_while(Result::is_ok).for_each(drop);
        });
        scope.spawn(|| unmount_each(&server, asked.into_iter().map_while(|ask| ask)));
        let end = ask.clone();
        // Not waited for: it ends with the supervisor, or with this process.
        let (link, fs) = (link.clone(), opened.running.fs().clone());
        std::thread::spawn(move || obey(&link, &supervision, &ask, &fs));
        let _watched = metrics.as_ref().and_then(|metrics| metrics.start(scope, &server));
        server.wait();
        handle.close();
        // Nobody asks any more, if anybody still hears it.
        let _ = end.send(None);
    });
    metrics.into_iter().for_each(Serving::end);
    drop(entry);
    drop(server);
    let outcome = opened.finish();
    link.say(&ToSupervisor::Ended);
    outcome
}

/// Does what the supervisor says.
fn obey(link: &Link, supervision: &Supervision, ask: &mpsc::Sender<Option<()>>, fs: &Vfs) {
    loop {
        match link.hear() {
            Heard::Said(ToServer::Unmount) => drop(ask.send(Some(()))),
            Heard::Said(ToServer::Stop) => {
                // The less is left to recover the shorter is the pause; nothing hangs on it.
                if let Err(e) = fs.syncfs() {
                    tracing::debug!("sync before another server: {e}");
                }
                if !link.is_over() {
                    std::process::exit(0);
                }
            }
            Heard::Said(_) => {}
            Heard::Unknown(e) => tracing::warn!("the supervisor says what nobody understands: {e}"),
            Heard::Replaced(supervisor) => supervision.is_supervised_by(supervisor),
            Heard::Alone(why) => {
                supervision.is_left_alone();
                tracing::warn!("the supervisor is gone: the mount ends with this server: {why}");
                return;
            }
        }
    }
}

/// The first time the mount is detached, and its users may finish; the next time they are cut off.
fn unmount_each(server: &Server<EngineOperations>, asked: impl Iterator<Item = ()>) {
    for how in asked.zip([IfBusy::Detach, IfBusy::Abort]).map(|(_, how)| how) {
        if let Err(e) = server.unmount(how) {
            tracing::error!("unmount: {e}");
        }
    }
}

/// A file system that is to be served.
struct Opened {
    /// What errors are about.
    about: PathBuf,
    /// What the mount is known by.
    source: PathBuf,
    running: Running,
    mounted: Mounted,
    is_read_only: bool,
    warnings: Vec<String>,
}

impl Opened {
    fn new(args: &Mount, options: &OptionList, takeover: Option<&Arc<Takeover>>) -> Result<Opened, Failure> {
        protect_from_reclaim();
        bound_heap();
        fit_heap(options);
        if takeover.is_some() {
            allow_locked_memory();
        }
        let mut warnings = Vec::new();
        let given = args.image(options.scratch).map_err(|e| Failure::new(Status::MountUsage, e))?;
        let spill = options.spill.as_deref().unwrap_or(Path::new("scratch"));
        let about = given.unwrap_or(spill).to_owned();
        let (source, (mounted, running, files)) = match given {
            Some(image) => {
                let image = std::path::absolute(image).map_err(|e| failed(image, e))?;
                let started = start(&image, options, takeover, None).or_else(|e| match e {
                    // Whoever has files open can read what is whole.
                    Error::Corrupt { .. } if takeover.is_some_and(|takeover| takeover.incarnation() > 0) => {
                        start(&image, options, takeover, Some(e.to_string()))
                    }
                    e => Err(e),
                });
                let started = started.map_err(|e| refused(&image, &e))?;
                (image, started)
            }
            None => {
                let made = scratch::make(&scratch_options(options));
                let (mounted, files) = made.map_err(|e| refused(&about, &e))?;
                let running = Running::start(mounted.checkpointer(), &files);
                let running = running.map_err(|e| refused(&about, &e))?;
                (PathBuf::from("scratch"), (mounted, running, files))
            }
        };
        if let Some(why) = mounted.store().failed().filter(|_| !options.read_only) {
            warnings.push(format!("{}: mounted read-only: {why}", about.display()));
        }
        if let Some(absence) = mounted.new_journal() {
            let about = about.display();
            warnings.push(format!("{about}: {absence}; the image is clean and gets a new one"));
        }
        Ok(Opened { about, source, running, mounted, is_read_only: files.fs.read_only, warnings })
    }

    /// Serves it, at a new mount or, for a supervisor, at one that is left.
    fn serve(
        &self,
        args: &Mount,
        options: &OptionList,
        supervised: Option<(&Arc<Supervision>, Option<Inherited>)>,
    ) -> Result<Server<EngineOperations>, Failure> {
        let mut kernel = kernel_options(&self.source, options);
        kernel.read_only = self.is_read_only;
        let fs = self.running.fs().clone();
        let served = match supervised {
            None => binding::serve(fs, args.dir(), &kernel, Caching::Exclusive),
            Some((supervision, left)) => {
                binding::serve_supervised(fs, args.dir(), &kernel, supervision, left)
            }
        };
        served.map_err(|e| mount_failed(args.dir(), e))
    }

    fn finish(self) -> Result<(), Failure> {
        finish(&self.about, self.running, self.mounted)
    }
}

/// Memory of which huge pages may waste some.
const PLENTY: u64 = 1 << 30;

/// Says to the heap how much memory there is for files and metadata.
pub fn fit_heap(options: &OptionList) {
    let metadata = if options.scratch { 0 } else { metadata_memory(options) };
    let is_plenty = memory(options).saturating_add(metadata) >= PLENTY;
    heap::use_pages(if is_plenty { Pages::Huge } else { Pages::Small });
}

/// Bytes of the page cache; with `scratch`, of metadata too.
fn memory(options: &OptionList) -> u64 {
    options.memory.unwrap_or_else(|| DataOptions::default().frames as u64 * BLOCK_SIZE as u64)
}

/// The engine's options for scratch space.
pub fn scratch_options(options: &OptionList) -> ScratchOptions {
    ScratchOptions {
        memory: memory(options),
        metadata_memory: options.metadata_memory,
        spill: options.spill.clone().map(|path| SpillOptions {
            path,
            size: options.spill_size,
            force: options.force,
        }),
        files: assemble_options(options, false),
    }
}

/// The engine's options for the image.
pub fn image_options(options: &OptionList) -> volume::ImageOptions {
    let mut durability = volume::ImageOptions {
        commit_interval: options.commit,
        read_only: options.read_only,
        ..volume::ImageOptions::default()
    };
    durability.store =
        StoreOptions::with_memory(usize::try_from(pages_share(options)).unwrap_or(usize::MAX / 2));
    durability
}

/// What an emulated journal costs beyond the memory that it stands on.
pub fn emulation_costs(options: &OptionList) -> EmulationCosts {
    EmulationCosts { persist_delay_ns: options.nvm_delay, bytes_per_second: options.nvm_bandwidth }
}

/// Opens an image, and starts what serves it; to be read alone, if `damage` was found.
fn start(
    image: &Path,
    options: &OptionList,
    takeover: Option<&Arc<Takeover>>,
    damage: Option<String>,
) -> Result<(Mounted, Running, AssembleOptions), Error> {
    let mut image_options = image_options(options);
    image_options.takeover = takeover.cloned();
    image_options.read_only |= damage.is_some();
    image_options.damage = damage;
    let is_successor = takeover.is_some_and(|takeover| takeover.incarnation() > 0);
    let begin = Instant::now();
    let media = loop {
        match volume::open(image, None, emulation_costs(options), &image_options) {
            // What a killed server had is let go of when its last requests to the device are over.
            Err(Error::InUse(_)) if is_successor && begin.elapsed() < PATIENCE => {
                holder::wait_for_lock(image, PATIENCE.saturating_sub(begin.elapsed()));
            }
            media => break media?,
        }
    };
    if !image_options.read_only {
        media.check_durability(options.durability)?;
    }
    let mounted = volume::mount(media, &image_options)?;
    let read_only = image_options.read_only || mounted.store().failed().is_some();
    let mut files = assemble_options(options, read_only);
    if let Some(takeover) = takeover {
        // However much memory there is now.
        files.data.frames = takeover.frames();
        files.takeover = Some(Arc::clone(takeover));
    }
    let running = Running::start(mounted.checkpointer(), &files)?;
    Ok((mounted, running, files))
}

/// What metadata takes unless that is told. An inode that leaves memory takes its file's pages along: many small files
/// want more of it than of the page cache.
const USUAL_METADATA: RangeInclusive<u64> = 64 << 20..=1 << 30;

fn metadata_memory(options: &OptionList) -> u64 {
    options.metadata_memory.unwrap_or_else(|| usual_metadata(available_memory()))
}

/// A sixteenth of the memory that there is, within bounds.
fn usual_metadata(available: u64) -> u64 {
    (available / 16).clamp(*USUAL_METADATA.start(), *USUAL_METADATA.end())
}

/// Bytes of metadata pages: five eighths of the memory for metadata, the rest is for inodes.
fn pages_share(options: &OptionList) -> u64 {
    metadata_memory(options) / 8 * 5
}

/// The engine's options for the files.
pub fn assemble_options(options: &OptionList, read_only: bool) -> AssembleOptions {
    let atime = match options.atime {
        AtimePolicy::Relative => vfs::AtimePolicy::Relative,
        AtimePolicy::Never => vfs::AtimePolicy::Never,
        AtimePolicy::Strict => vfs::AtimePolicy::Strict,
    };
    AssembleOptions {
        fs: VfsOptions { read_only, atime, lazytime: options.lazytime, sync: options.sync },
        data: options.memory.map_or_else(DataOptions::default, DataOptions::with_memory),
        durability: options.durability,
        inodes: AssembleOptions::inodes_within(metadata_memory(options) - pages_share(options)),
        ..AssembleOptions::default()
    }
}

fn kernel_options(image: &Path, options: &OptionList) -> narufs_fuse::mount::FuseOptions {
    let mut kernel = narufs_fuse::mount::FuseOptions::new(&image.display().to_string());
    kernel.permissions = options.permissions;
    if let Some(allow) = options.allow_other {
        kernel.allow_other = allow;
    }
    kernel.suid = options.suid;
    kernel.dev = options.dev;
    kernel.exec = options.exec;
    kernel.sync = options.sync;
    kernel.xattr = options.xattr;
    kernel.io = options.io;
    kernel.transport = options.transport;
    kernel.idle = options.idle;
    kernel.lazytime = options.lazytime;
    kernel.atime = match options.atime {
        AtimePolicy::Relative => Atime::Relative,
        AtimePolicy::Never => Atime::Never,
        AtimePolicy::Strict => Atime::Strict,
    };
    kernel
}

/// Everything goes down; what fails here leaves the image for recovery.
fn finish(image: &Path, running: Running, mounted: Mounted) -> Result<(), Failure> {
    let scratch = !mounted.store().profile().keeps();
    let stopped = running.stop();
    stopped.and_then(|()| mounted.unmount()).map_err(|e| {
        let what = match scratch {
            true => "the spill space could not be emptied",
            false => "not everything could be written",
        };
        let then = if scratch { "" } else { "; the next mount recovers it" };
        let why = format!("{}: {what}: {e}{then}", image.display());
        tracing::error!("{why}");
        Failure::new(Status::Failed, why)
    })
}

fn failed(path: &Path, e: std::io::Error) -> Failure {
    Failure::about(Status::MountFailed, path, e)
}

fn refused(image: &Path, e: &Error) -> Failure {
    let why = match e {
        Error::Errno(libc::ENOENT) => "no such file or device: make a file system first (narufs mkfs)",
        Error::Errno(libc::EACCES) => "no permission to read and write it: mount as its owner, or as root",
        Error::Errno(libc::EISDIR) => "a directory, and no image",
        _ => return Failure::about(Status::MountFailed, image, e),
    };
    Failure::about(Status::MountFailed, image, why)
}

fn mount_failed(dir: &Path, e: std::io::Error) -> Failure {
    let why = match e.raw_os_error() {
        Some(libc::EPERM) => {
            "not allowed: mount as root, or install fusermount3 (apt-get install fuse3)".to_owned()
        }
        Some(libc::ENODEV) => "this kernel has no FUSE: load the module (modprobe fuse)".to_owned(),
        Some(libc::ENOENT) if !Path::new("/dev/fuse").exists() => {
            "/dev/fuse is missing: load the module (modprobe fuse)".to_owned()
        }
        _ => e.to_string(),
    };
    Failure::about(Status::MountFailed, dir, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_takes_a_sixteenth_of_memory_within_bounds() {
        let usual = |mebibytes: u64| usual_metadata(mebibytes << 20) >> 20;
        assert_eq!([0, 256, 1024, 4096, 16384, 1 << 20].map(usual), [64, 64, 64, 256, 1024, 1024]);
        let told = OptionList { metadata_memory: Some(8 << 20), ..OptionList::default() };
        assert_eq!((metadata_memory(&told), pages_share(&told)), (8 << 20, 5 << 20));
    }
}
