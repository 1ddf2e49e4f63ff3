//! The process behind a mount, for who waits for its end.
//!
//! A mount without `allow_other` lets nobody in but its owner, not even root. Root then asks in the owner's name, from
//! a thread that takes it on and ends. What a server of another user says is checked: it names a process of that user.

use super::open;
use crate::mount::mountinfo::{self, Entry};
use crate::mount::place;
use crate::mount::process::exit_status;
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Mode, OFlags, Uid, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open, pidfd_send_signal};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// The process id of the server of the mount at `dir`. ENOTTY: it is not a mount of narufs.
pub fn server_pid(dir: &Path) -> io::Result<u32> {
    ask_pid(dir, sys::server_pid)
}

/// Asks the mount at `dir` for a process. Whose word must do names none but its own.
fn ask_pid(dir: &Path, question: fn(OwnedFd) -> io::Result<u32>) -> io::Result<u32> {
    let (pid, owner) = ask(dir, question)?;
    let is_of = |uid| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == uid);
    match owner {
        Some(uid) if !is_of(uid) => Err(io::Error::other("it names a process that is not its own")),
        _ => Ok(pid),
    }
}

/// Asks the mount at `dir`; its answer, and the user whom it was asked as, if that was another.
fn ask(dir: &Path, question: fn(OwnedFd) -> io::Result<u32>) -> io::Result<(u32, Option<u32>)> {
    match open(dir).and_then(question) {
        Err(e) if e.raw_os_error() == Some(libc::EACCES) && geteuid().is_root() => {
            match mountinfo::find(&place(dir)?)?.as_ref().and_then(Entry::owner) {
                Some((0, _)) | None => Err(e),
                Some((uid, gid)) => Ok((ask_as(dir, uid, gid, question)?, Some(uid))),
            }
        }
        answer => Ok((answer?, None)),
    }
}

fn ask_as(dir: &Path, uid: u32, gid: u32, question: fn(OwnedFd) -> io::Result<u32>) -> io::Result<u32> {
    // Root may reach it where the owner may not.
    let root = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let ask = || -> io::Result<u32> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        question(openat(&root, ".", flags, Mode::empty())?)
    };
    let answer = std::thread::scope(|scope| scope.spawn(ask).join());
    answer.unwrap_or_else(|_| Err(io::Error::other("it could not be asked")))
}

/// Kills who serves the mount at `dir` and who would start another server: what it has not written down is lost, as by a
/// failure of the machine, and the mount stays where it is, dead. ENOTTY: it is not a mount of narufs.
pub fn kill(dir: &Path) -> io::Result<()> {
    let pid = |number: u32| i32::try_from(number).ok().and_then(Pid::from_raw);
    let server =
        pid(ask_pid(dir, sys::server_pid)?).ok_or_else(|| io::Error::other("the mount names no process"))?;
    let supervisor = pid(ask_pid(dir, sys::last_pid)?).filter(|supervisor| *supervisor != server);
    // Of the two each would replace the other. It is not the server that is stopped: the kernel hangs up a stopped process
    // whose parent has ended.
    supervisor.map_or(Ok(()), |supervisor| kill_process(supervisor, Signal::STOP))?;
    for pid in [server].into_iter().chain(supervisor) {
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        pidfd_send_signal(&descriptor, Signal::KILL)?;
        wait_until(&descriptor, None)?;
    }
    Ok(())
}

/// The server of a live mount, or who starts servers for it: what goes on until the mount has ended.
#[derive(Debug)]
pub struct ServerProcess {
    /// Its process id.
    pub pid: Pid,
    /// Whether it is another user's, whose word for it must do.
    pub is_foreign: bool,
    /// Whether it is there for more than the mount: it goes on, and nobody waits for its end.
    pub stays: bool,
    descriptor: OwnedFd,
    /// The server, where another process starts servers: that may be killed, and the server's end be the last.
    server: Option<OwnedFd>,
    /// A file of sysfs that can be read for as long as the file system is mounted anywhere.
    mounted: Option<File>,
}

impl ServerProcess {
    /// Asks the mount at `dir` who serves it. ENOTTY: it is not a mount of narufs.
    pub fn of(dir: &Path) -> io::Result<ServerProcess> {
        let pid = i32::try_from(ask_pid(dir, sys::last_pid)?).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the mount names no process"))?;
        let server = server_pid(dir).ok().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let server = server.filter(|server| *server != pid);
        let entry = mountinfo::find(&place(dir)?)?;
        let owner = entry.as_ref().and_then(Entry::owner);
        let mounted = entry.and_then(|Entry { device: (major, minor), .. }| {
            File::open(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).ok()
        });
        Ok(ServerProcess {
            pid,
            is_foreign: owner.is_some_and(|(uid, _)| uid != geteuid().as_raw()),
            // An earlier version does not know the question.
            stays: ask(dir, sys::server_stays).is_ok_and(|(stays, _)| stays != 0),
            descriptor: pidfd_open(pid, PidfdFlags::empty())?,
            // One that has ended meanwhile is not waited for.
            server: server.and_then(|server| pidfd_open(server, PidfdFlags::empty()).ok()),
            mounted,
        })
    }

    /// Whether the file system is still mounted: elsewhere, if the mount that was asked is gone. Its server then goes
    /// on. False where the kernel does not say.
    pub fn is_mounted(&self) -> bool {
        self.mounted.as_ref().is_some_and(|file| file.read_at(&mut [0], 0).is_ok())
    }

    /// Whether it has ended as one does that has written everything down, once it has ended; `None`: the kernel does not
    /// say.
    pub fn has_ended_well(&self) -> Option<bool> {
        let descriptors = [Some(&self.descriptor), self.server.as_ref()].into_iter().flatten();
        // Either may have been killed: what the other has seen to its end is well.
        descriptors
            .filter_map(|process| exit_status(process.as_fd()))
            .map(|status| status.success())
            .reduce(|one, other| one || other)
    }

    /// Waits until it has ended.
    pub fn wait(&self) -> io::Result<()> {
        self.wait_until(None).map(|_| ())
    }

    /// Waits until it has ended, so long at the most. False: it goes on.
    pub fn wait_for(&self, most: Duration) -> io::Result<bool> {
        self.wait_until(Some(most))
    }

    fn wait_until(&self, most: Option<Duration>) -> io::Result<bool> {
        let begin = std::time::Instant::now();
        let left = || most.map(|most| most.saturating_sub(begin.elapsed()));
        if !wait_until(&self.descriptor, left())? {
            return Ok(false);
        }
        self.server.as_ref().map_or(Ok(true), |server| wait_until(server, left()))
    }
}

/// Waits until a process has ended, so long at the most. False: it goes on.
fn wait_until(process: &OwnedFd, most: Option<Duration>) -> io::Result<bool> {
    let begin = std::time::Instant::now();
    loop {
        let left = most.map(|most| most.saturating_sub(begin.elapsed()));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref()) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
