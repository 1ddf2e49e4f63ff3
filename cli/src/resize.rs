//! `narufs resize`: makes a file system larger, through its mount or by itself.

use crate::args::Resize;
use crate::failure::{Failure, Status};
use crate::output::say;
use crate::size::{NewSize, Size};
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::volume;
use narufs_engine::volume::{AssembleOptions, Running};
use narufs_fuse::control::{self, Growth};

/// Grows it, and says the size.
pub fn run(args: &Resize) -> Result<(), Failure> {
    let metadata = std::fs::metadata(&args.place).map_err(|e| failed(args, e))?;
    let size = if metadata.is_dir() { live(args)? } else { unmounted(args)? };
    say!("{}: {}", args.place.display(), Size(size));
    Ok(())
}

fn failed(args: &Resize, why: impl std::fmt::Display) -> Failure {
    Failure::about(Status::Failed, &args.place, why)
}

fn live(args: &Resize) -> Result<u64, Failure> {
    let of_call = |e: std::io::Error| match e.raw_os_error() {
        Some(libc::EPERM) => failed(args, "only root and the user who mounted may resize it"),
        _ => Failure::of_call(&args.place, &e),
    };
    let growth = match args.size {
        None => Growth::ToDevice,
        Some(NewSize::To(bytes)) => Growth::To(bytes),
        Some(NewSize::By(more)) => Growth::By(more),
    };
    control::resize(&args.place, growth, args.sparse).map_err(of_call)?.map_err(|why| failed(args, why))
}

/// The image is mounted by this process alone: recovered if need be, made larger, and clean afterwards.
fn unmounted(args: &Resize) -> Result<u64, Failure> {
    let failed = |e: narufs_engine::Error| failed(args, e);
    let image = std::path::absolute(&args.place).map_err(|e| self::failed(args, e))?;
    let options = volume::ImageOptions::default();
    let media = volume::open(&image, None, EmulationCosts::default(), &options).map_err(failed)?;
    let mounted = volume::mount(media, &options).map_err(failed)?;
    let running = Running::start(mounted.checkpointer(), &AssembleOptions::default()).map_err(failed)?;
    let fs = running.fs();
    let resized = fs.resize(args.size.map(|size| size.of(fs.size())), args.sparse);
    let stopped = running.stop().and_then(|()| mounted.unmount());
    let size = resized.map_err(failed)?;
    stopped.map_err(failed)?;
    Ok(size)
}
