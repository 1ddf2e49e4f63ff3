//! A process that does nothing but mount and unmount, for a service whose own processes may not: they have no capability to,
//! and are in a mount name space of their own, in which what they mounted would be seen by nobody else.
//!
//! It is a service too, with a socket that systemd has made for root alone (`narufs-mount@.socket`) and that outlives it. Who
//! serves is told of the socket by its environment, as of `NOTIFY_SOCKET`: it is of the service and not of the mount, which
//! may have been made before there was a mounter.
//!
//! It knows by its command line where to mount, and with which options, as a broker does; and it keeps nothing between one
//! question and the next. So it may be killed and started again at any time.
//!
//! # Invariants
//! It mounts only where no server of narufs answers, and unmounts nothing but a mount of narufs at its directory. Only root is
//! heard, who could ask the service manager for as much.

use super::acting::Acting;
use super::{Act, Answer};
use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::options::OptionList;
use crate::supervisor::{asked, channel};
use narufs_fuse::control;
use narufs_fuse::mount::{self, IfBusy, mountinfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The variable that says where it is asked.
pub const MOUNTER: &str = "NARUFS_MOUNTER";

/// How long it may take. One that was killed is started again meanwhile.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// What stands for an image where there is none.
const NONE: &str = "none";

/// The way to it.
#[derive(Debug)]
pub struct Mounter {
    socket: PathBuf,
}

impl Mounter {
    /// That of this process's service, if it has one.
    pub fn own() -> Option<Mounter> {
        let socket = std::env::var_os(MOUNTER).filter(|socket| !socket.is_empty())?;
        Some(Mounter { socket: socket.into() })
    }

    pub(super) fn ask(&self, act: &Act) -> io::Result<(Answer, Vec<OwnedFd>)> {
        self.converse(act).map_err(|e| {
            let why = format!("who mounts for this service ({}) does not answer: {e}", self.socket.display());
            io::Error::other(why)
        })
    }

    fn converse(&self, act: &Act) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let socket = asked::socket()?;
        connect(&socket, &SocketAddrUnix::new(&self.socket)?)?;
        channel::send(&socket, act, &[])?;
        // Its socket is there whether it is or not.
        if poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&PATIENCE))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(channel::receive(&socket, false)?.ok_or(io::ErrorKind::UnexpectedEof)?)
    }
}

/// Has a mount of ours at `dir` taken away by whoever may do that here. Where that is done already, what lies below it is
/// another's: another mount of ours is told by its having a server, if a dead one can be asked, or else by its device, if it is
/// known what was `below` before. (A dead mount that was there may be gone, and its number ours by now.)
pub fn detach(dir: &Path, is_dead: bool, below: Option<(u32, u32)>) -> io::Result<()> {
    let point = mount::place(dir)?;
    let is_it = |entry: &mountinfo::Entry| {
        entry.is_ours() && if is_dead { mount::is_dead(&point) } else { below != Some(entry.device) }
    };
    let found = mountinfo::find(&point)?.filter(is_it);
    let Some(found) = found else { return Ok(()) };
    let Some(mounter) = Mounter::own() else {
        return mount::unmount_device(&point, found.device, IfBusy::Detach).map(drop);
    };
    let (answer, _) = mounter.ask(&Act::Unmount { device: found.device, busy: IfBusy::Detach })?;
    answer.or_refusal().map(drop)
}

/// Whether the place of an image is that of none.
pub fn is_none(places: &[PathBuf]) -> bool {
    matches!(places, [image, _] if image.as_os_str() == OsStr::new(NONE))
}

/// Mounts and unmounts for who asks at the socket that systemd has handed to this process.
pub fn run(args: &Mount, options: &OptionList) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::about(Status::MountFailed, args.dir(), e);
    let handed = sd_listen_fds::get().map_err(|e| failed(io::Error::other(e)))?;
    let Some((_, listener)) = handed.into_iter().next() else {
        let why = "--mounter is for a socket of systemd: narufs@.service starts both";
        return Err(Failure::new(Status::MountUsage, why));
    };
    let listener = listener.into_std();
    // What mount(8) is called for is not for it.
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let acting = Acting::new(args, options)?;
    loop {
        let asker = asked::accept(&listener).map_err(failed)?;
        if let Err(e) = answer(&acting, &asker) {
            tracing::warn!("a question is not heard: {e}");
        }
    }
}

fn answer(acting: &Acting<'_>, asker: &OwnedFd) -> io::Result<()> {
    let (act, _) = asked::hear(asker)?;
    let (answer, along) = match act {
        // A broker mounts once, but each server has another.
        Act::Mount { .. } if control::server_pid(acting.point()).is_ok() => {
            Answer::of(Err(Errno::BUSY.into()))
        }
        act => acting.act(&act),
    };
    let along: Vec<BorrowedFd<'_>> = along.iter().map(AsFd::as_fd).collect();
    channel::send(asker, &answer, &along)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, UnmountFlags};
    use std::os::fd::AsRawFd;

    /// Of a first server that has failed its own mount may be gone already.
    #[test]
    #[ignore = "needs root"]
    fn what_lies_below_a_mount_that_is_gone_stays() {
        let dir = tempfile::tempdir().expect("room");
        rustix::mount::mount("none", dir.path(), "tmpfs", MountFlags::empty(), None).expect("root may");
        scopeguard::defer!(rustix::mount::unmount(dir.path(), UnmountFlags::DETACH).expect("it is there"));
        detach(dir.path(), true, None).expect("there is nothing to do");
        let found = mountinfo::find(&mount::place(dir.path()).expect("it is there")).expect("readable");
        assert_eq!(found.expect("it is there").kind, "tmpfs");
        // Nor is the directory one in which nothing is mounted.
        detach(&std::env::temp_dir(), true, None).expect("there is nothing to do");
    }

    /// Where the kernel's control files are not mounted, no connection is known to be dead: what lies below may be asked for
    /// nothing, and is one of ours as well.
    #[test]
    #[ignore = "needs root"]
    fn another_mount_of_ours_below_one_that_is_gone_stays() {
        let dir = tempfile::tempdir().expect("room");
        let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").expect("FUSE");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).expect("no zero");
        rustix::mount::mount("none", dir.path(), "fuse.narufs", MountFlags::empty(), Some(&*options))
            .expect("root may");
        scopeguard::defer!({
            let _ = rustix::mount::unmount(dir.path(), UnmountFlags::DETACH);
        });
        let point = mount::place(dir.path()).expect("it is there");
        let below = mountinfo::find(&point).expect("readable").expect("it is there").device;
        detach(dir.path(), false, Some(below)).expect("there is nothing to do");
        assert_eq!(mountinfo::find(&point).expect("readable").map(|found| found.device), Some(below));
        detach(dir.path(), false, None).expect("root may");
        assert!(mountinfo::find(&point).expect("readable").is_none());
    }
}
