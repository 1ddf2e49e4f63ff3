//! Who cuts a mount off when the process that serves it is killed.
//!
//! A process ends when all of its threads have. One that waits in the kernel for an answer that the process itself was to
//! give (it tells of a change, and somebody's request has that page or directory locked; or it has made a call in its own
//! directory) does not end, and keeps `/dev/fuse` open, so that the kernel waits on: for ever, and everybody else there with
//! it. Nothing in that process can help any more. So a program that serves beside other work has a guard: a process of its
//! own, which waits for the end of one thread, and then cuts the connection off.
//!
//! - *How it learns of that end.* The thread has a table of descriptors of its own, in which is the one end of a pipe.
//!   Where all the threads of a process have one table, it stays as long as the last of them.
//! - *What it is.* A shell, for a fork of a large process would keep all of its memory. It takes no signals and has a group of
//!   processes of its own, so that what is meant for the program's does not end it. The shell that was started ends at once and
//!   leaves another behind, which is nobody's child, but where the program is the first process of its container or takes
//!   orphans in (PR_SET_CHILD_SUBREAPER): elsewhere who waits for all of its children does not wait for a guard.
//! - *Where there is none* (no shell, or a sandbox that lets none be started) a process that is killed so hangs until
//!   `umount -f`. It does so too where the guard is killed with it, or where it dumps its core, which all threads wait for.

use crate::sys;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A word is read where the mount was ended in order. What is written is written to the file that cuts it off.
const SCRIPT: &str = "cd /; exec 3<&0; (read -r word <&3 || echo) &";

/// Ends with the mount, in order.
#[derive(Debug)]
pub struct Guard {
    /// Dropped when it is over; `None` only then.
    until: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Has the connection cut off by `abort` when this process is killed.
    ///
    /// # Errors
    /// Those of starting it.
    pub fn begin(abort: BorrowedFd<'_>) -> io::Result<Guard> {
        let abort = Arc::new(abort.try_clone_to_owned()?);
        let ((until, is_over), (ready, begun)) = (channel(), channel());
        let theirs = Arc::clone(&abort);
        let stand = move || stand(theirs, &is_over, &ready);
        let thread =
            std::thread::Builder::new().name("naru-guard".into()).stack_size(128 << 10).spawn(stand)?;
        begun.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has ended")))?;
        Ok(Guard { until: Some(until), thread: Some(thread) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.until.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that a mount's guard waits for has panicked");
        }
    }
}

/// The life of the thread whose end is waited for. It logs nothing: the log's file is not in its table.
fn stand(abort: Arc<OwnedFd>, is_over: &Receiver<()>, ready: &Sender<io::Result<()>>) {
    // It takes no signals either: a guard that was killed is no reason to end.
    // Who waits for `ready` has the descriptor too, and closes it for all others.
    let alone = sys::alone_with(abort.as_fd());
    drop(abort);
    let begun = match alone.and_then(start) {
        Ok(pipe) => ready.send(Ok(())).map(|()| pipe).ok(),
        Err(e) => {
            // Nobody listens who is not told otherwise.
            let _ = ready.send(Err(e));
            None
        }
    };
    let Some(mut pipe) = begun else { return };
    // It never says anything.
    let _ = is_over.recv();
    // A guard that was killed hears nothing.
    let _ = pipe.write_all(b"over\n");
}

/// Starts the guard; gives the end of its pipe.
fn start(abort: OwnedFd) -> io::Result<File> {
    let (heard, said) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", SCRIPT, "narufs-guard"]).env_clear().process_group(0);
    let mut shell = shell.stdin(heard).stdout(abort).stderr(Stdio::null()).spawn()?;
    match shell.wait() {
        Ok(status) if !status.success() => Err(io::Error::other(format!("/bin/sh: {status}"))),
        Ok(_) => Ok(said.into()),
        // Somebody here waits for all children, or for none.
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(said.into()),
        Err(e) => Err(e),
    }
}
