//! `narufs umount`, which umount(8) calls as well: ends a mount and waits for its server.
//!
//! The server is asked who it is before, and waited for after umount(2), which returns when the mount is gone: what
//! the server holds is on its way to the device then. It is not waited for if the file system goes on: detached but in
//! use, mounted elsewhere as well, or served by a program that has it open for itself. One of another user is waited for [`PATIENCE`] at the most, for its word alone says
//! which process it is.

use crate::args::Umount;
use crate::failure::{Failure, Status};
use crate::info;
use crate::output::say;
use crate::remount;
use narufs_engine::format::STATE_MOUNTED;
use narufs_fuse::control::ServerProcess;
use narufs_fuse::mount::mountinfo::{self, Entry};
use narufs_fuse::mount::waiting::Waiting;
use narufs_fuse::mount::{self, IfBusy};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another user's server may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long somebody may still be there before the mount is in use: who looked at it and goes, or a process that has
/// just been forked and has a copy of its parent's files until it executes its program.
const PASSING: Duration = Duration::from_millis(200);

/// Unmounts, and returns when everything is on the device.
pub fn run(args: &Umount) -> Result<(), Failure> {
    if let Some(namespace) = &args.namespace {
        enter(namespace).map_err(|e| Failure::about(Status::MountFailed, namespace, e))?;
    }
    let entry = entry_of(&args.dir).or_else(|failure| mounted_from(&args.dir).unwrap_or(Err(failure)))?;
    let point = entry.point;
    let how = match () {
        () if args.force => IfBusy::Abort,
        () if args.lazy => IfBusy::Detach,
        () => IfBusy::Refuse,
    };
    // Who asks for force may do so because the server does not answer; and who detaches does not wait for it.
    let server = if args.force || args.lazy { None } else { Some(ServerProcess::of(&point)) };
    let (server, how) = match server.transpose() {
        // It was killed: there is nobody to wait for, the image is as it has left it.
        Err(e) if mount::is_gone(&e) => (None, IfBusy::Detach),
        Err(e) => return Err(silent(&args.dir, &e)),
        Ok(server) => (server, how),
    };
    let image = written_image(&point);
    // Found while the mount is there to be found.
    let unknown = |e: &io::Error| tracing::debug!("how many calls wait: {e}");
    let waiting = args.force.then(|| Waiting::at(&point).inspect_err(unknown).ok()).flatten();
    match unmount(&point, entry.device, how) {
        Err(e) if args.read_only && e.raw_os_error() == Some(libc::EBUSY) => {
            let mut options = remount::options_of(&point);
            options.read_only = true;
            remount::set(&args.dir, &point, &options)?.map_err(|_| refused(&args.dir, &e))?;
            return done(args, "in use, and read-only now");
        }
        Err(e) => return Err(refused(&args.dir, &e)),
        Ok(false) => {
            let top = mountinfo::find(&point).ok().flatten();
            let gone = || Failure::about(Status::MountFailed, &args.dir, "somebody else has unmounted it");
            return Err(top.map_or_else(gone, |top| covered(&args.dir, &top)));
        }
        Ok(true) => {}
    }
    if let Some(count @ 1..) = waiting.and_then(|waiting| waiting.end().inspect_err(unknown).ok()) {
        return Err(waited_on(&args.dir, count));
    }
    match server {
        Some(server) if server.is_mounted() => {
            eprintln!(
                "narufs umount: {}: unmounted; it is mounted elsewhere as well, and its server goes on",
                args.dir.display()
            );
            Ok(())
        }
        Some(server) if server.stays => {
            done(args, "unmounted; the program that has served it goes on with the file system")
        }
        Some(server) => {
            wait(&server)?;
            match (server.has_ended_well(), image) {
                (Some(false), None) => {
                    let why = "unmounted, but its server has ended with an error, or was killed";
                    Err(Failure::about(Status::MountFailed, &args.dir, why))
                }
                (Some(false), Some(_)) => Err(left_unclean(&args.dir)),
                (None, Some(image)) if is_unclean(&image) => Err(left_unclean(&args.dir)),
                _ => done(args, "unmounted"),
            }
        }
        None => done(args, "unmounted"),
    }
}

fn done(args: &Umount, what: &str) -> Result<(), Failure> {
    if args.verbose {
        say!("{}: {what}", args.dir.display());
    }
    Ok(())
}

fn wait(server: &ServerProcess) -> Result<(), Failure> {
    let pid = server.pid.as_raw_nonzero();
    let ended = match server.is_foreign {
        true => server.wait_for(PATIENCE),
        false => server.wait().map(|()| true),
    };
    match ended {
        Ok(true) => Ok(()),
        Ok(false) => {
            let seconds = PATIENCE.as_secs();
            let why = format!("unmounted, but its server, process {pid}, did not end within {seconds} s");
            Err(Failure::new(Status::MountFailed, why))
        }
        Err(e) => {
            Err(Failure::new(Status::MountFailed, format!("waiting for its server, process {pid}: {e}")))
        }
    }
}

/// The image that is mounted there, if it is written to.
fn written_image(point: &Path) -> Option<PathBuf> {
    let entry = mountinfo::find(point).ok()??;
    let is_read_only = entry.options.split(',').any(|option| option == "ro");
    let image = PathBuf::from(entry.source);
    (!is_read_only && image.is_absolute()).then_some(image)
}

/// Whether a server that has ended has left an image for the next one to recover. False where that cannot be seen.
fn is_unclean(image: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(image, flags, Mode::empty()) else { return false };
    // Whoever has it now has marked it.
    flock(&file, FlockOperation::NonBlockingLockShared).is_ok()
        && info::read(image).is_ok_and(|sb| sb.state.get() == STATE_MOUNTED)
}

fn left_unclean(dir: &Path) -> Failure {
    let why = "unmounted, but not everything could be written down, or its server was killed: the image is not to be copied \
               as it is, and the next mount recovers what was synced";
    Failure::about(Status::MountFailed, dir, why)
}

fn waited_on(dir: &Path, count: u64) -> Failure {
    let (calls, wait) = if count == 1 { ("call", "waits") } else { ("calls", "wait") };
    let why = format!(
        "unmounted and cut off, but {count} {calls} of who uses it {wait} on, for its server does not run: they fail when it is \
         continued, thawed or killed"
    );
    Failure::about(Status::MountFailed, dir, why)
}

/// Goes into a mount name space, named by a file or a process.
fn enter(namespace: &Path) -> io::Result<()> {
    let is_number = namespace.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let file = match is_number {
        true => Path::new("/proc").join(namespace).join("ns/mnt"),
        false => namespace.to_path_buf(),
    };
    let file = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount))?)
}

/// The mount point, if a narufs is mounted there.
pub fn point_of(dir: &Path) -> Result<PathBuf, Failure> {
    Ok(entry_of(dir)?.point)
}

/// The narufs that is mounted there.
fn entry_of(dir: &Path) -> Result<Entry, Failure> {
    let not_found = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Failure::about(Status::MountFailed, dir, "no such directory"),
        _ => Failure::about(Status::MountFailed, dir, e),
    };
    let point = mount::place(dir).map_err(not_found)?;
    let all = mountinfo::all();
    let all = all.map_err(|e| Failure::new(Status::MountFailed, format!("/proc/self/mountinfo: {e}")))?;
    // The latest lies on top.
    match all.iter().rev().find(|entry| entry.point == point) {
        Some(entry) if entry.is_ours() => return Ok(entry.clone()),
        Some(entry) => {
            let why = format!(
                "no narufs is mounted here, but a file system of type {}, which umount(8) unmounts",
                entry.kind
            );
            return Err(Failure::about(Status::MountFailed, dir, why));
        }
        None => {}
    }
    let around = all.iter().rev().filter(|entry| point.starts_with(&entry.point));
    match around.max_by_key(|entry| entry.point.as_os_str().len()) {
        Some(entry) if entry.is_ours() => {
            let why =
                format_args!("no narufs is mounted here, it lies in the one at {}", entry.point.display());
            Err(Failure::about(Status::MountFailed, dir, why))
        }
        _ => {
            point.symlink_metadata().map_err(not_found)?;
            Err(Failure { status: Status::MountFailed, ..Failure::not_ours(dir) })
        }
    }
}

/// Unmounts, if this is what lies on top there; false: it is not. Busy is only what is busy for longer than [`PASSING`].
fn unmount(point: &Path, device: (u32, u32), how: IfBusy) -> io::Result<bool> {
    let begin = Instant::now();
    loop {
        match mount::unmount_device(point, device, how) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < PASSING => {
                std::thread::sleep(Duration::from_millis(2));
            }
            outcome => return outcome,
        }
    }
}

/// The mount of an image, as umount(8) takes it. What lies over it is somebody else's, and is not unmounted in its place.
fn mounted_from(image: &Path) -> Option<Result<Entry, Failure>> {
    // Scratch space has a word there, which is no file of the caller's directory.
    let same = |source: &Path| {
        if !source.is_absolute() {
            return None;
        }
        let (image, source) = (image.metadata().ok()?, source.metadata().ok()?);
        (!image.is_dir() && (image.dev(), image.ino()) == (source.dev(), source.ino())).then_some(())
    };
    let all = mountinfo::all().ok()?;
    let mut below = None;
    for entry in all.iter().rev().filter(|entry| entry.is_ours() && same(Path::new(&entry.source)).is_some())
    {
        match all.iter().rev().find(|other| other.point == entry.point) {
            Some(top) if top.device != entry.device => below = below.or(Some(covered(image, top))),
            _ => return Some(Ok(entry.clone())),
        }
    }
    below.map(Err)
}

/// What is to be unmounted lies below this.
fn covered(dir: &Path, top: &Entry) -> Failure {
    let why = format!("{} is mounted over it at {}: unmount that first", top.kind, top.point.display());
    Failure::about(Status::MountFailed, dir, why)
}

fn refused(dir: &Path, e: &io::Error) -> Failure {
    match e.raw_os_error() {
        Some(libc::EBUSY) => {
            let dir = dir.display();
            let why = format!(
                "{dir} is in use: close what is open there (fuser -vm {dir} shows it), or use --lazy"
            );
            Failure::new(Status::MountFailed, why)
        }
        Some(libc::EPERM) => not_allowed(dir),
        _ => Failure::about(Status::MountFailed, dir, e),
    }
}

fn silent(dir: &Path, e: &io::Error) -> Failure {
    match e.raw_os_error() {
        Some(libc::EACCES) => not_allowed(dir),
        _ => {
            let why =
                format_args!("its server does not answer: {e}; --lazy or --force unmounts it all the same");
            Failure::about(Status::MountFailed, dir, why)
        }
    }
}

fn not_allowed(dir: &Path) -> Failure {
    let why = "not allowed: root can unmount it, and the user who has mounted it";
    Failure::about(Status::MountUsage, dir, why)
}
