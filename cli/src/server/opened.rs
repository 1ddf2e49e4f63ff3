//! A file system that is to be served: its image or spill space opened, what is not needed given up, its threads started; and
//! all of it back again.

use super::settings::{
    assemble_options, emulation_costs, fit_heap, image_options, kernel_options, scratch_options,
};
use crate::args::Mount;
use crate::broker::{Broker, Entered};
use crate::failure::{Failure, Status};
use crate::harden::{self, Needs};
use crate::holder::{self, PATIENCE};
use crate::options::{OptionList, Transport};
use crate::utab;
use narufs_engine::Error;
use narufs_engine::device::open_temporary_ahead;
use narufs_engine::takeover::Takeover;
use narufs_engine::volume::{self, AssembleOptions, Media, Mounted, Running, scratch};
use narufs_fuse::binding::{self, EngineOperations, Process};
use narufs_fuse::mount::process::{Hardening, allow_locked_memory, bound_heap, protect_from_reclaim};
use narufs_fuse::server::Server;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A file system that is to be served.
pub struct Opened {
    /// What errors are about.
    pub about: PathBuf,
    /// What the mount is known by.
    pub source: PathBuf,
    pub running: Running,
    mounted: Mounted,
    is_read_only: bool,
    pub warnings: Vec<String>,
    broker: Option<Arc<Broker>>,
    hardening: Hardening,
}

impl Opened {
    /// Opens and starts what these arguments say, for what a server before this one has left or anew; what is not needed
    /// is given up on the way, where there is a broker. `place` is the image, where it was found before.
    pub fn new(
        args: &Mount,
        options: &OptionList,
        takeover: Option<&Arc<Takeover>>,
        place: Option<Arc<OwnedFd>>,
        broker: Option<&Arc<Broker>>,
    ) -> Result<Opened, Failure> {
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
        let source = source_of(given)?;
        let mut hardening = Hardening::default();
        let mut give_up = |needs: Needs| {
            if let Some(broker) = broker
                && options.harden
                && !hardening.asked
            {
                hardening = harden::give_up(&needs, broker.pid());
            }
        };
        let (mounted, running, files) = match given {
            Some(_) => {
                let place = place.map_or_else(|| find(&source), Ok)?;
                let image = Image { path: &source, place };
                let mut kept = None;
                let mut begin = |damage| start(&image, options, takeover, damage, &mut kept, &mut give_up);
                let started = begin(None).or_else(|e| match e {
                    // Whoever has files open can read what is whole.
                    Error::Corrupt { .. } if takeover.is_some_and(|takeover| takeover.incarnation() > 0) => {
                        begin(Some(e.to_string()))
                    }
                    e => Err(e),
                });
                started.map_err(|e| refused(&source, &e))?
            }
            None => {
                let scratch_options = scratch_options(options);
                let opened = scratch::open(&scratch_options).map_err(|e| refused(&about, &e))?;
                give_up(needs_of(options));
                let (mounted, files) = opened.make().map_err(|e| refused(&about, &e))?;
                let running = Running::start(mounted.checkpointer(), &files);
                let running = running.map_err(|e| refused(&about, &e))?;
                (mounted, running, files)
            }
        };
        if let Some(why) = mounted.store().failed().filter(|_| !options.read_only) {
            warnings.push(format!("{}: mounted read-only: {why}", about.display()));
        }
        if let Some(absence) = mounted.new_journal() {
            let about = about.display();
            warnings.push(format!("{about}: {absence}; the image is clean and gets a new one"));
        }
        Ok(Opened {
            about,
            source,
            running,
            mounted,
            is_read_only: files.fs.read_only,
            warnings,
            broker: broker.cloned(),
            hardening,
        })
    }

    /// Serves it, at a new mount or, for a supervisor, at one that is left.
    pub fn serve(
        &self,
        args: &Mount,
        options: &OptionList,
        process: Process,
    ) -> Result<Server<EngineOperations>, Failure> {
        let mut kernel = kernel_options(&self.source, options);
        kernel.read_only = self.is_read_only;
        let broker = self.broker.clone().map(|broker| broker as Arc<dyn narufs_fuse::mount::Broker>);
        let process = Process { broker, hardening: self.hardening.clone(), ..process };
        let served = binding::serve_alone(self.running.fs().clone(), args.dir(), &kernel, process);
        harden::close(&self.hardening);
        served.map_err(|e| mount_failed(args.dir(), e))
    }

    /// Has umount(8) know of the mount at `point`, until what this gives goes.
    pub fn enter<'p>(&'p self, point: &'p Path) -> (Option<utab::Entry<'p>>, Option<Entered<'p>>) {
        match &self.broker {
            Some(broker) => (None, Some(broker.enter())),
            None => (utab::enter(&self.source, point), None),
        }
    }

    /// What has failed before anybody used it, once all is taken down as after an unmount: what was clean is clean again.
    pub fn unused(self, failure: Failure) -> Failure {
        // Which the log has.
        let _ = self.finish();
        failure
    }

    /// Writes everything down.
    pub fn finish(self) -> Result<(), Failure> {
        finish(&self.about, self.running, self.mounted)
    }
}

/// An image that is to be served.
struct Image<'p> {
    /// What it is called.
    path: &'p Path,
    /// What its path has led to.
    place: Arc<OwnedFd>,
}

/// What is at the path of an image.
pub fn find(image: &Path) -> Result<Arc<OwnedFd>, Failure> {
    let place = holder::place(image).map_err(|e| refused(image, &Error::Errno(e.raw_os_error())))?;
    Ok(Arc::new(place))
}

/// Opens an image, and starts what serves it; to be read alone, if `damage` was found: what was opened to be written is
/// `kept` for that, for what may be opened by then is less.
fn start(
    image: &Image<'_>,
    options: &OptionList,
    takeover: Option<&Arc<Takeover>>,
    damage: Option<String>,
    kept: &mut Option<Media>,
    give_up: &mut dyn FnMut(Needs),
) -> Result<(Mounted, Running, AssembleOptions), Error> {
    let mut image_options = image_options(options);
    image_options.takeover = takeover.cloned();
    image_options.read_only |= damage.is_some();
    image_options.damage = damage;
    image_options.place = Some(Arc::clone(&image.place));
    let is_successor = takeover.is_some_and(|takeover| takeover.incarnation() > 0);
    let begin = Instant::now();
    let journal = options.journal.as_deref();
    let mut media = loop {
        if let Some(media) = kept.take() {
            break Media { staging_file: None, ..media };
        }
        match volume::open(image.path, journal, emulation_costs(options), &image_options) {
            // What a killed server had is let go of when its last requests to the device are over.
            Err(Error::InUse(_)) if is_successor && begin.elapsed() < PATIENCE => {
                holder::wait_for_lock(&image.place, PATIENCE.saturating_sub(begin.elapsed()));
            }
            media => break media?,
        }
    };
    if !image_options.read_only {
        media.check_durability(options.durability)?;
    }
    // Which asks how much memory there is.
    let mut files = assemble_options(options, false);
    let needs = Needs {
        image: Some(holder::path_of(&image.place)),
        journal: media.journal_file(),
        removes_journal: media.staging_file.is_some(),
        ..needs_of(options)
    };
    if options.harden {
        media.make_ahead(&image_options)?;
        // For what a reader recovers.
        open_temporary_ahead();
    }
    give_up(needs);
    *kept = is_successor.then(|| media.clone());
    let mounted = volume::mount(media, &image_options)?;
    files.fs.read_only = image_options.read_only || mounted.store().failed().is_some();
    if let Some(takeover) = takeover {
        // However much memory there is now.
        files.data.frames = takeover.frames();
        files.takeover = Some(Arc::clone(takeover));
    }
    let running = Running::start(mounted.checkpointer(), &files)?;
    Ok((mounted, running, files))
}

/// What is needed whatever is mounted.
fn needs_of(options: &OptionList) -> Needs {
    Needs { turns_uring_on: options.transport == Transport::Uring, ..Needs::default() }
}

/// What the mount is known by: the image, by its absolute path, or a word.
pub fn source(args: &Mount, options: &OptionList) -> Result<PathBuf, Failure> {
    source_of(args.image(options.scratch).map_err(|e| Failure::new(Status::MountUsage, e))?)
}

fn source_of(image: Option<&Path>) -> Result<PathBuf, Failure> {
    image.map_or_else(
        || Ok(PathBuf::from("scratch")),
        |image| std::path::absolute(image).map_err(|e| failed(image, e)),
    )
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

/// A mount that has failed, in the words of the system.
pub fn failed(path: &Path, e: std::io::Error) -> Failure {
    Failure::about(Status::MountFailed, path, e)
}

/// A mount that is refused, and what to do.
pub fn refused(image: &Path, e: &Error) -> Failure {
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
