//! The process behind a mount: opens the image, serves it, and writes everything down at the end.

use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::options::{AtimePolicy, Durability, MountOptions};
use narufs::Error;
use narufs::file::DataOptions;
use narufs::journal::Wanted;
use narufs::mount::{self, Mounted};
use narufs::pmem::EmulationCosts;
use narufs::store::StoreOptions;
use narufs::vfs::{self, AssembleOptions, FsOptions, Running};
use narufs_fuse::binding::{self, Caching};
use narufs_fuse::mount::process::{bound_heap, protect_from_reclaim};
use narufs_fuse::mount::{Atime, IfBusy};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::Path;

/// Serves until the unmount. `ready` is called once, when the mount works, with what the user should know.
pub fn serve(args: &Mount, options: &MountOptions, ready: impl FnOnce(&[String])) -> Result<(), Failure> {
    protect_from_reclaim();
    bound_heap();
    let image = std::path::absolute(&args.image).map_err(|e| failed(&args.image, e))?;
    let mut warnings = Vec::new();
    let mounted = open(&image, options)?;
    if let Some(why) = mounted.store().failed().filter(|_| !options.read_only) {
        warnings.push(format!("{}: mounted read-only: {why}", args.image.display()));
    }
    if let Some(absence) = mounted.new_journal() {
        warnings.push(format!("{}: {absence}; the image is clean and gets a new one", args.image.display()));
    }
    let read_only = options.read_only || mounted.store().failed().is_some();
    let running = Running::start(mounted.store(), &assemble_options(options, read_only))
        .map_err(|e| refused(&args.image, &e))?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|e| failed(&args.image, e))?;

    let mut kernel = kernel_options(&image, options);
    kernel.read_only = read_only;
    let server = binding::serve(running.fs().clone(), &args.dir, &kernel, Caching::Exclusive)
        .map_err(|e| mount_failed(&args.dir, e))?;
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
    drop(server);
    finish(&args.image, running, mounted)
}

/// The engine's options for the image.
pub(crate) fn image_options(options: &MountOptions) -> mount::MountOptions {
    let mut wanted = mount::MountOptions {
        commit_interval: options.commit,
        read_only: options.read_only,
        ..mount::MountOptions::default()
    };
    wanted.store = StoreOptions::with_memory(usize::try_from(pages_share(options)).unwrap_or(usize::MAX / 2));
    wanted
}

fn open(image: &Path, options: &MountOptions) -> Result<Mounted, Failure> {
    let wanted = image_options(options);
    let media =
        mount::open(image, None, EmulationCosts::default(), &wanted).map_err(|e| refused(image, &e))?;
    mount::mount(media, &wanted).map_err(|e| refused(image, &e))
}

/// Bytes of metadata pages: five eighths of the memory for metadata, the rest is for inodes.
fn pages_share(options: &MountOptions) -> u64 {
    options.metadata_memory / 8 * 5
}

/// The engine's options for the files.
pub(crate) fn assemble_options(options: &MountOptions, read_only: bool) -> AssembleOptions {
    let atime = match options.atime {
        AtimePolicy::Relative => vfs::AtimePolicy::Relative,
        AtimePolicy::Never => vfs::AtimePolicy::Never,
        AtimePolicy::Strict => vfs::AtimePolicy::Strict,
    };
    AssembleOptions {
        fs: FsOptions { read_only, atime, lazytime: options.lazytime, sync: options.sync },
        data: options.memory.map_or_else(DataOptions::default, DataOptions::with_memory),
        wanted: match options.durability {
            Durability::Power => Wanted::Power,
            Durability::Process => Wanted::Process,
        },
        inodes: AssembleOptions::inodes_within(options.metadata_memory - pages_share(options)),
        ..AssembleOptions::default()
    }
}

fn kernel_options(image: &Path, options: &MountOptions) -> narufs_fuse::mount::MountOptions {
    let mut kernel = narufs_fuse::mount::MountOptions::new(&image.display().to_string());
    kernel.default_permissions = options.default_permissions;
    if let Some(allow) = options.allow_other {
        kernel.allow_other = allow;
    }
    kernel.suid = options.suid;
    kernel.dev = options.dev;
    kernel.exec = options.exec;
    kernel.sync = options.sync;
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
    let stopped = running.stop();
    stopped.and_then(|()| mounted.unmount()).map_err(|e| {
        let why =
            format!("{}: not everything could be written: {e}; the next mount recovers it", image.display());
        tracing::error!("{why}");
        Failure::new(Status::Failed, why)
    })
}

fn failed(path: &Path, e: std::io::Error) -> Failure {
    Failure::about(Status::MountFailed, path, e)
}

fn refused(image: &Path, e: &Error) -> Failure {
    Failure::about(Status::MountFailed, image, e)
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
