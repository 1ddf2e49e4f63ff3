//! The process that a mount lives by, for tests that kill its servers.

use narufs_fuse::control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The supervisor of a mount. It goes with this, and its server: who has the mount cuts it off first.
#[derive(Debug)]
pub struct Supervisor {
    /// Its process.
    pub pid: Pid,
    /// Readable when it has ended.
    ended: OwnedFd,
}

impl Supervisor {
    /// Of the mount at `point`, as soon as a server serves.
    ///
    /// # Errors
    /// Those of the calls; there is none where the kernel cannot send requests again.
    pub fn of(point: &Path) -> io::Result<Supervisor> {
        let pid = control::supervisor_pid(point)?.and_then(|pid| Pid::from_raw(pid as i32));
        let missing = || io::Error::other("missing: a kernel that sends requests again (Linux 6.9)");
        let pid = pid.ok_or_else(missing)?;
        Ok(Supervisor { pid, ended: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Sends the server that there is now a signal, whatever it is doing; false: there is none.
    pub fn signal_server(&self, signal: Signal) -> bool {
        signal_children(self.pid, signal)
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&none)).is_ok_and(|ready| ready > 0)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Those of the call.
    pub fn wait(&self) -> io::Result<()> {
        Ok(poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], None).map(drop)?)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.signal_server(Signal::KILL);
        let _ = kill_process(self.pid, Signal::KILL);
    }
}

/// The processes that the first thread of this one has started, or that were left to it.
///
/// # Errors
/// It is gone.
pub fn children_of(parent: Pid) -> io::Result<Vec<Pid>> {
    let pid = parent.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let process = |word: &str| {
        let number = word.parse().map_err(io::Error::other)?;
        Pid::from_raw(number).ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    children.split_whitespace().map(process).collect()
}

/// Sends the children of a process a signal; false: none of them was there.
pub fn signal_children(parent: Pid, signal: Signal) -> bool {
    let children = children_of(parent).unwrap_or_default().into_iter();
    children.map(|child| kill_process(child, signal)).fold(false, |any, sent| any | sent.is_ok())
}
