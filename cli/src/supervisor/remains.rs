//! Processes of servers that have ended as far as anybody hears of them, and are not gone.
//!
//! A thread of such a one waits in the kernel, where no signal reaches it, for what the next server does first
//! (`narufs_fuse::binding`, `apart`). It has been killed, so it does nothing any more when it comes back.
//!
//! What this leaves to others: when a server counts as ended ([`ends`](super::ends)).

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Their descriptors, each readable when its process is gone.
#[derive(Debug, Default)]
pub struct Remains {
    processes: Vec<OwnedFd>,
}

impl Remains {
    /// One more.
    pub fn add(&mut self, process: OwnedFd) {
        self.processes.push(process);
    }

    /// What to wait for.
    pub fn events(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.processes.iter().map(|process| PollFd::new(process, PollFlags::IN))
    }

    /// For who takes the place of this process's program, which stays their parent.
    pub fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.iter().map(AsFd::as_fd)
    }

    /// Waits for nobody: who is gone is forgotten, by the kernel too, and who is another's child.
    pub fn bury(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let stays = |process: &OwnedFd| {
            matches!(waitid(WaitId::PidFd(process.as_fd()), options), Ok(None) | Err(Errno::INTR))
        };
        self.processes.retain(stays);
    }
}

impl FromIterator<OwnedFd> for Remains {
    fn from_iter<I: IntoIterator<Item = OwnedFd>>(all: I) -> Remains {
        Remains { processes: all.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::poll;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::process::{Command, Stdio};

    #[test]
    fn who_is_gone_is_buried_and_who_is_not_is_waited_for_without_waiting() {
        let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().expect("it starts");
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("it lives");
        let mut remains: Remains = [process].into_iter().collect();
        remains.bury();
        assert_eq!(remains.all().count(), 1);
        drop(child.stdin.take());
        let mut events: Vec<_> = remains.events().collect();
        poll(&mut events, None).expect("a process");
        remains.bury();
        assert_eq!(remains.all().count(), 0);
        assert!(child.wait().is_err(), "it has been waited for");
        // Another's child.
        let init = pidfd_open(Pid::INIT, PidfdFlags::empty()).expect("it lives");
        remains.add(init);
        remains.bury();
        assert_eq!(remains.all().count(), 0);
    }
}
