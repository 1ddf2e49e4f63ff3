//! Who waits for an answer on a connection that is cut off.
//!
//! The kernel ends every request then, but for one kind: what it hands over by io_uring it hands over in a thread of the
//! server's, and that is where it ends. A server that is stopped (SIGSTOP) runs no thread, and whoever has asked waits on, where
//! no signal reaches it. So such a server is to go on: it finds its mount gone, and ends.
//!
//! What this leaves to others: cutting the connection off. A server that cannot be told to go on, in a control group that is
//! frozen for one, is left as it is; and so is any where the kernel does not say who serves (`fuse_connection` in
//! /proc/PID/fdinfo, which Linux 6.18 has and 6.12 has not).
//!
//! Invariant: nothing is done to a process but to one that is stopped and has the connection open.

use super::{connection_at, of_connection};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long those whose request has ended may take to hear of it.
const ENDING: Duration = Duration::from_millis(100);
/// How long a server that goes on may take to end them.
const GOING_ON: Duration = Duration::from_secs(2);

/// Those of one mount.
#[derive(Debug)]
pub struct Waiting {
    connection: u32,
    /// What the kernel shows of the connection: nothing, when it has gone.
    shown: OwnedFd,
}

impl Waiting {
    /// Those of the topmost mount of ours at `point`, before it is taken away.
    ///
    /// # Errors
    /// EINVAL if there is none; those of reaching the control file system of FUSE.
    pub fn at(point: &Path) -> io::Result<Waiting> {
        let connection = connection_at(point)?;
        Ok(Waiting { connection, shown: of_connection(connection, ".", OFlags::PATH | OFlags::DIRECTORY)? })
    }

    /// Sees to it that they wait no more, when their mount has been cut off; how many do all the same.
    ///
    /// # Errors
    /// Those of reading their number.
    pub fn end(&self) -> io::Result<u64> {
        match self.within(ENDING)? {
            0 => Ok(0),
            _ => {
                go_on(self.connection);
                self.within(GOING_ON)
            }
        }
    }

    /// How many there are still after so long.
    fn within(&self, most: Duration) -> io::Result<u64> {
        let begin = Instant::now();
        loop {
            let count = self.count()?;
            if count == 0 || begin.elapsed() > most {
                return Ok(count);
            }
            // The kernel tells nobody when their number changes.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn count(&self) -> io::Result<u64> {
        let file = match openat(&self.shown, "waiting", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(0),
            file => file?,
        };
        let mut digits = String::new();
        File::from(file).read_to_string(&mut digits)?;
        match digits.trim() {
            "" => Ok(0),
            digits => digits.parse().map_err(io::Error::other),
        }
    }
}

/// Has each process go on that has this connection open, and is stopped.
fn go_on(connection: u32) {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for pid in numbers.filter_map(Pid::from_raw) {
        // Before it is looked at: its number may be another's afterwards.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if is_stopped(pid) && has_open(pid, connection) {
            match pidfd_send_signal(&process, Signal::CONT) {
                Ok(()) => tracing::info!("process {}, which was stopped, goes on", pid.as_raw_nonzero()),
                Err(e) => tracing::debug!("process {} stays stopped: {e}", pid.as_raw_nonzero()),
            }
        }
    }
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

fn has_open(pid: Pid, connection: u32) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{}/fdinfo", pid.as_raw_nonzero())) else { return false };
    let is_it = |line: &str| {
        let number = line.strip_prefix("fuse_connection:").map(str::trim);
        number.is_some_and(|number| number.parse() == Ok(connection))
    };
    files
        .flatten()
        .filter_map(|file| fs::read_to_string(file.path()).ok())
        .any(|info| info.lines().any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitOptions, kill_process, waitpid};
    use std::process::Command;

    #[test]
    fn a_process_that_is_stopped_is_told_from_one_that_is_not() {
        let mut child = Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().expect("cat");
        let pid = Pid::from_child(&child);
        assert!(!is_stopped(pid) && !has_open(pid, 0));
        kill_process(pid, Signal::STOP).expect("a child");
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("it stops");
        assert!(is_stopped(pid));
        // It has no connection open, and stays so.
        go_on(0);
        assert!(is_stopped(pid));
        child.kill().expect("a child");
        child.wait().expect("a child");
    }

    #[test]
    fn where_nothing_of_ours_is_mounted_nobody_waits_for_it() {
        let dir = tempfile::tempdir().expect("room");
        assert_eq!(Waiting::at(dir.path()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
