//! Making and ending the mount.
//!
//! [`options`] says what is asked for; [`direct`] mounts by mount(2), which takes root; [`helper`] mounts by
//! `fusermount3` otherwise; [`mountinfo`] reads what is mounted; [`process`] prepares the server's process.
//!
//! [`broker`] is how a process has all of this done that has given up doing it, [`guard`] cuts off what a killed one
//! serves, [`waiting`] are those who wait on where a stopped one serves.
//!
//! What it leaves to others: everything that is said over the descriptor.
//!
//! Invariants: a dead mount left by a killed server is detached before a new one is made; a [`Mount`] unmounts
//! when it drops, but only what it has mounted itself.

pub mod broker;
pub mod direct;
pub mod guard;
pub mod helper;
pub mod mountinfo;
pub mod options;
pub mod process;
pub mod waiting;

pub use broker::{Broker, Made, Setting};
pub use options::{Atime, FuseOptions, Idle, Io, Permissions, Transport};

use crate::control;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to do with a mount that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum IfBusy {
    /// Leave it (EBUSY).
    Refuse,
    /// Take its name away now; it ends when its last user does.
    Detach,
    /// End it now: whoever uses it gets errors.
    Abort,
}

const UNREACHED: &str = "the control file system of FUSE (/sys/fs/fuse/connections) could not be reached";

/// A mount that this process has made.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    /// The device number that stat(2) shows, which tells it from another mount at the same place.
    device: (u32, u32),
    /// Cuts this connection and no other. Kept open, for the kernel gives the number of a connection that has ended
    /// to the next mount of anybody.
    control: Option<OwnedFd>,
    /// Who acts for this process.
    broker: Option<Arc<dyn Broker>>,
    /// The kernel has given the connection up. Relaxed: it is looked at by the thread that has set it.
    is_over: AtomicBool,
}

impl Mount {
    /// Mounts at `dir`, by way of the broker if there is one; gives the descriptor that the kernel speaks over.
    pub fn new(
        dir: &Path,
        options: &FuseOptions,
        broker: Option<Arc<dyn Broker>>,
    ) -> io::Result<(Mount, OwnedFd)> {
        let point = place(dir)?;
        let Made { device, descriptor, abort } = match &broker {
            Some(broker) => broker.mount(options.read_only)?,
            None => make(&point, options)?,
        };
        Ok((Mount { point, device, control: abort, broker, is_over: AtomicBool::new(false) }, descriptor))
    }

    /// One that an earlier server has made, at this place and with this number; `abort` cuts it.
    pub fn inherited(
        point: &Path,
        device: (u32, u32),
        abort: Option<OwnedFd>,
        broker: Option<Arc<dyn Broker>>,
    ) -> Mount {
        Mount { point: point.to_owned(), device, control: abort, broker, is_over: AtomicBool::new(false) }
    }

    /// The kernel has given its connection up: from now on a mount at its place that answers is another one, whatever its
    /// number.
    pub(crate) fn has_ended(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_replaced(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
            && is_at(&self.point, self.device).is_ok_and(|is_at| is_at)
            && control::server_pid(&self.point).is_ok()
    }

    /// Its device number, as stat(2) shows it.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// The file that cuts it, if that could be opened.
    pub fn abort_file(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Sets how far the kernel reads ahead, in bytes. Takes root; the kernel's own 128 KiB stay if it fails.
    pub fn set_readahead(&self, bytes: u32) -> io::Result<()> {
        self.set(Setting::ReadAhead, u64::from(bytes / 1024))
    }

    /// Sets how much the kernel keeps of what was written, at the most, before it holds writers back, in bytes. Takes
    /// root and Linux 6.2; the kernel's own limit, a hundredth of what it keeps of all file systems, stays if it fails.
    pub fn set_dirty_limit(&self, bytes: u64) -> io::Result<()> {
        self.set(Setting::DirtyLimit, bytes)
    }

    fn set(&self, what: Setting, value: u64) -> io::Result<()> {
        match &self.broker {
            Some(broker) => broker.set(self.device, what, value),
            None => what.set(self.device, value),
        }
    }

    /// Ends the mount, if it is still there. After [`IfBusy::Abort`] nobody uses it any more, even if it had been
    /// detached before.
    pub fn unmount(&self, busy: IfBusy) -> io::Result<()> {
        if self.is_replaced() {
            return Ok(());
        }
        let aborted = if busy == IfBusy::Abort { self.abort() } else { Ok(()) };
        // As root this aborts as well.
        let ended = match &self.broker {
            // One that is gone is missed where there is something to unmount.
            Some(broker) => {
                broker.unmount(self.device, busy).or_else(|e| match mountinfo::find(&self.point) {
                    Ok(found) if found.as_ref().is_none_or(|entry| entry.device != self.device) => Ok(false),
                    _ => Err(e),
                })
            }
            None => unmount_device(&self.point, self.device, busy),
        };
        if ended? { Ok(()) } else { aborted }
    }

    /// Nothing, if the connection has ended.
    pub(crate) fn abort(&self) -> io::Result<()> {
        let Some(control) = &self.control else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, UNREACHED));
        };
        rustix::io::write(control, b"1")?;
        Ok(())
    }
}

/// Mounts at `point`.
pub fn make(point: &Path, options: &FuseOptions) -> io::Result<Made> {
    detach_dead(point)?;
    let descriptor = if rustix::process::geteuid().is_root() {
        direct::mount(point, options)?
    } else {
        helper::mount(point, options)?
    };
    let entry = mountinfo::find(point)?.ok_or_else(|| io::Error::other("the mount vanished at once"))?;
    let abort = of_connection(entry.device.1, "abort", OFlags::WRONLY)
        .inspect_err(|e| tracing::debug!("a detached mount could not be aborted: {e}"))
        .ok();
    Ok(Made { device: entry.device, descriptor, abort })
}

/// A file of FUSE's control file system for the connection of this number.
pub(crate) fn of_connection(connection: u32, file: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let file = format!("{connection}/{file}");
    let flags = flags | OFlags::CLOEXEC;
    match rustix::fs::open(format!("/sys/fs/fuse/connections/{file}"), flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            // Not mounted there: a mount without a place does as well.
            let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
            Ok(rustix::fs::openat(root, file, flags, Mode::empty())?)
        }
        control => Ok(control?),
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(e) = self.unmount(IfBusy::Detach) {
            tracing::warn!("{} stays mounted: {e}", self.point.display());
        }
    }
}

/// Whether the topmost mount at `point` is the one of ours with this number.
pub fn is_at(point: &Path, device: (u32, u32)) -> io::Result<bool> {
    let found = mountinfo::find(point)?;
    Ok(found.is_some_and(|entry| entry.device == device && entry.is_ours()))
}

/// Ends the topmost mount at `point` if it is the one of ours with this number; false: it is not.
pub fn unmount_device(point: &Path, device: (u32, u32), busy: IfBusy) -> io::Result<bool> {
    let is_it = is_at(point, device)?;
    if is_it {
        unmount(point, busy)?;
    }
    Ok(is_it)
}

/// Ends the topmost mount at `point`.
pub fn unmount(point: &Path, busy: IfBusy) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        // The helper cuts nobody off. Before the place is another's.
        let abort = (busy == IfBusy::Abort).then(|| abort_file_at(point));
        helper::unmount(point, busy != IfBusy::Refuse)?;
        if let Some(abort) = abort {
            rustix::io::write(abort?, b"1")?;
        }
        return Ok(());
    }
    let flags = match busy {
        IfBusy::Refuse => UnmountFlags::empty(),
        IfBusy::Detach => UnmountFlags::DETACH,
        IfBusy::Abort => UnmountFlags::DETACH | UnmountFlags::FORCE,
    };
    Ok(rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW)?)
}

/// The number of the connection of the topmost mount at `point`; EINVAL: that is not ours.
fn connection_at(point: &Path) -> io::Result<u32> {
    let found = mountinfo::find(point)?.filter(mountinfo::Entry::is_ours);
    Ok(found.ok_or(Errno::INVAL)?.device.1)
}

/// The file that cuts off the topmost mount at `point`: it is of the user who has mounted that.
fn abort_file_at(point: &Path) -> io::Result<OwnedFd> {
    of_connection(connection_at(point)?, "abort", OFlags::WRONLY).map_err(|e| {
        let why = format!("it is detached, but who uses it is not cut off: {UNREACHED}: {e}");
        io::Error::new(io::ErrorKind::Unsupported, why)
    })
}

/// The absolute path of a mount point, found without touching what is mounted there (it may be dead).
pub fn place(dir: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            let found = parent.canonicalize()?.join(name);
            // A link is followed as mount(8) does; on a dead mount this look fails and the name stands.
            match std::fs::read_link(&found) {
                Ok(_) => found.canonicalize(),
                Err(_) => Ok(found),
            }
        }
        _ => absolute.canonicalize(),
    }
}

/// Whether the server of what is mounted at `point` is gone.
///
/// Asked by a call that no kernel answers by itself: stat(2) of a dead mount goes on succeeding for as long as the
/// kernel may trust what it was told of the root.
pub fn is_dead(point: &Path) -> bool {
    control::server_pid(point).is_err_and(|e| is_gone(&e))
}

/// Whether a call on a mount failed because its server is gone.
pub fn is_gone(e: &io::Error) -> bool {
    // The last two are for a request that found its io_uring gone, and for what went before it had answered anything, as
    // Linux 7.3 says it.
    let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::CONNREFUSED];
    Errno::from_io_error(e).is_some_and(|e| gone.contains(&e))
}

/// Detaches mounts of ours at `point` whose server is gone.
fn detach_dead(point: &Path) -> io::Result<()> {
    while is_dead(point) {
        match mountinfo::find(point)? {
            Some(entry) if entry.is_ours() => {
                tracing::info!("{}: detaching the mount of a server that is gone", point.display());
                unmount(point, IfBusy::Detach)?;
            }
            _ => return Err(Errno::NOTCONN.into()),
        }
    }
    Ok(())
}
