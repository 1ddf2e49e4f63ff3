//! Preparing the process that serves a mount.
//!
//! The kernel may wait for the server in order to free memory, so the server must neither wait for its own mount
//! when it allocates nor be the first to be killed. What here fails for lack of privilege is left as it is.

use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
};
use serde::Serialize;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How much less likely than others the server is killed when memory runs out (-1000 would be never).
const OOM_SCORE: &str = "-900";

/// The same of who keeps a mount for its servers: never.
const OOM_SCORE_OF_KEEPER: &str = "-1000";

/// Makes allocations of the calling thread, and of those it starts from now on, not wait for I/O, and makes the
/// process unlikely to be killed when memory runs out. To be called before threads are started.
pub fn protect_from_reclaim() {
    if let Err(e) = sys::set_io_flusher() {
        tracing::debug!("PR_SET_IO_FLUSHER: {e}");
    }
    if let Err(e) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        tracing::debug!("oom_score_adj: {e}");
    }
}

/// Protects the process that keeps a mount for its servers likewise, and keeps in memory what it has used: the rest of the
/// program is the server's, and would cost the limit of a control group more than the keeper does.
pub fn protect_keeper() {
    if let Err(e) = sys::set_io_flusher() {
        tracing::debug!("PR_SET_IO_FLUSHER: {e}");
    }
    if let Err(e) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_OF_KEEPER) {
        tracing::debug!("oom_score_adj: {e}");
    }
    if let Err(e) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        tracing::debug!("memory is not locked: {e}");
    }
}

/// How long the parent of a process that has ended may take to notice.
const NOTICED: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Has programs that this process starts from now on get no descriptors but those that they are given.
///
/// # Errors
/// Those of a kernel that has no such call.
pub fn keep_descriptors() -> io::Result<()> {
    sys::keep_descriptors()
}

/// How a process has ended that is another's child, by its descriptor; `None`: the kernel does not say (before Linux 6.15),
/// or its parent does not ask.
pub fn exit_status(process: BorrowedFd<'_>) -> Option<ExitStatus> {
    let code = sys::exit_code(process).and_then(|code| match code {
        // It is said from when the parent has asked, which is told as a hang-up.
        None => {
            let _ = poll(&mut [PollFd::from_borrowed_fd(process, PollFlags::empty())], Some(&NOTICED));
            sys::exit_code(process)
        }
        code => Ok(code),
    });
    let code = code.inspect_err(|e| tracing::debug!("how a process has ended: {e}"));
    code.ok().flatten().map(ExitStatus::from_raw)
}

/// Lets buffers be locked in memory, however many there are.
pub fn allow_locked_memory() {
    let limit = Rlimit { current: None, maximum: None };
    if let Err(e) = setrlimit(Resource::Memlock, limit) {
        tracing::debug!("RLIMIT_MEMLOCK: {e}");
    }
}

/// Has the heap return what is freed: large pieces at once, and no more heaps side by side than cores. To be called
/// before threads are started.
pub fn bound_heap() {
    let cores = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
    sys::set_heap_limits(cores);
}

/// Gives up all capabilities of the calling thread, and of those it starts from now on, but `keep`.
pub fn drop_capabilities(keep: CapabilitySet) -> io::Result<()> {
    let now = rustix::thread::capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & keep,
        permitted: now.permitted & keep,
        inheritable: now.inheritable & keep,
    };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// What a process that serves has given up for all of its threads, as it says itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Hardening {
    /// Whether that was asked for.
    pub asked: bool,
    /// No program that it would start gets more rights than it has.
    pub no_new_privileges: bool,
    /// It has no capability, nor will it get one.
    pub no_capabilities: bool,
    /// The version of Landlock that holds its access to files within what it needs; 0: none.
    pub landlock: u32,
    /// The system calls that it does not need are refused.
    pub seccomp: bool,
    /// The process that mounts and unmounts for it; 0: none.
    pub broker_pid: u32,
}

/// Gives up every capability of the calling thread for ever, and of those it starts from now on.
///
/// # Errors
/// Those of giving up what it has: then all may be as it was.
pub fn give_up_capabilities() -> io::Result<()> {
    clear_ambient_capability_set()?;
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel has no more of them.
            Err(Errno::INVAL) => break,
            // Who may not has none that a program could give to it: it gets no new privileges.
            Err(Errno::PERM) => break,
            Err(e) => return Err(e.into()),
        }
    }
    drop_capabilities(CapabilitySet::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_kept_is_left_and_other_threads_are_untouched() {
        let before = rustix::thread::capabilities(None).expect("capabilities").permitted;
        let keep = CapabilitySet::SYS_ADMIN;
        std::thread::spawn(move || {
            drop_capabilities(keep).expect("giving up is always allowed");
            let left = rustix::thread::capabilities(None).expect("capabilities");
            assert_eq!((left.permitted, left.effective), (before & keep, before & keep));
        })
        .join()
        .expect("the thread");
        assert_eq!(rustix::thread::capabilities(None).expect("capabilities").permitted, before);
    }

    #[test]
    fn how_another_s_child_has_ended_is_told_or_not_known() {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        use std::os::fd::AsFd;
        use std::process::Command;
        for (line, status) in [("exit 3", 3 << 8), ("kill -9 $$", 9), ("exit 0", 0)] {
            let mut child = Command::new("/bin/sh").args(["-c", line]).spawn().expect("a shell");
            let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("it is there");
            assert_eq!(child.wait().expect("a child").into_raw(), status, "{line}");
            let told = exit_status(process.as_fd()).map(ExitStatus::into_raw);
            assert!(told.is_none_or(|told| told == status), "{line}: {told:?}");
        }
    }

    #[test]
    fn an_io_flusher_is_one_or_is_told_why_not() {
        std::thread::spawn(|| match sys::set_io_flusher() {
            Ok(()) => {}
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EPERM)),
        })
        .join()
        .expect("the thread");
    }
}
