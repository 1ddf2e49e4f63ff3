//! The process behind a mount: opens the image, serves it, and writes everything down at the end.

use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::heap::{self, Pages};
use crate::options::{AtimePolicy, OptionList};
use crate::utab;
use narufs_engine::Error;
use narufs_engine::cache::available_memory;
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::file::DataOptions;
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::store::StoreOptions;
use narufs_engine::vfs::{self, VfsOptions};
use narufs_engine::volume::scratch::{self, ScratchOptions, SpillOptions};
use narufs_engine::volume::{self, Mounted};
use narufs_engine::volume::{AssembleOptions, Running};
use narufs_fuse::binding::{self, Caching};
use narufs_fuse::mount::process::{bound_heap, protect_from_reclaim};
use narufs_fuse::mount::{Atime, IfBusy};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Serves until the unmount. `ready` is called once, when the mount works, with what the user should know.
pub fn serve(args: &Mount, options: &OptionList, ready: impl FnOnce(&[String])) -> Result<(), Failure> {
    protect_from_reclaim();
    bound_heap();
    fit_heap(options);
    let mut warnings = Vec::new();
    // What errors are about, and what the mount is known by.
    let given = args.image(options.scratch).map_err(|e| Failure::new(Status::MountUsage, e))?;
    let spill = options.spill.as_deref().unwrap_or(Path::new("scratch"));
    let about = given.unwrap_or(spill);
    let (source, mounted, files) = match given {
        Some(image) => {
            let image = std::path::absolute(image).map_err(|e| failed(image, e))?;
            let mounted = open(&image, options)?;
            let read_only = options.read_only || mounted.store().failed().is_some();
            (image, mounted, assemble_options(options, read_only))
        }
        None => {
            let made = scratch::make(&scratch_options(options));
            let (mounted, files) = made.map_err(|e| refused(about, &e))?;
            (PathBuf::from("scratch"), mounted, files)
        }
    };
    if let Some(why) = mounted.store().failed().filter(|_| !options.read_only) {
        warnings.push(format!("{}: mounted read-only: {why}", about.display()));
    }
    if let Some(absence) = mounted.new_journal() {
        warnings.push(format!("{}: {absence}; the image is clean and gets a new one", about.display()));
    }
    let running = Running::start(mounted.checkpointer(), &files).map_err(|e| refused(about, &e))?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|e| failed(about, e))?;

    let mut kernel = kernel_options(&source, options);
    kernel.read_only = files.fs.read_only;
    let server = binding::serve(running.fs().clone(), args.dir(), &kernel, Caching::Exclusive)
        .map_err(|e| mount_failed(args.dir(), e))?;
    let entry = utab::enter(&source, server.mount().point());
    ready(&warnings);
    let handle = signals.handle();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first signal detaches the mount and lets its users finish, the next one cuts them off.
            for how in signals.forever().map(|_| ()).zip([IfBusy::Detach, IfBusy::Abort]).map(|(_, how)| how)
            {
                if let Err(e) = server.unmount(how) {
                    tracing::error!("unmount: {e}");
                }
            }
        });
        server.wait();
        handle.close();
    });
    drop(entry);
    drop(server);
    finish(about, running, mounted)
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

fn open(image: &Path, options: &OptionList) -> Result<Mounted, Failure> {
    let failed = |e| refused(image, &e);
    let image_options = image_options(options);
    let media = volume::open(image, None, emulation_costs(options), &image_options).map_err(failed)?;
    if !options.read_only {
        media.check_durability(options.durability).map_err(failed)?;
    }
    volume::mount(media, &image_options).map_err(failed)
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
