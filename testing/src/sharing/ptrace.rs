//! Threads of another process, one instruction at a time.

#![allow(unsafe_code, reason = "a leaf module: each call is wrapped here and nowhere else")]

use std::io;

/// A thread, as its tracer knows it.
pub type Tid = libc::pid_t;

/// What became of a traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It ended with this status.
    Ended(i32),
    /// It was stopped by this signal, which it has not got yet.
    Stopped(i32),
}

/// Has this thread traced by the process that started this process.
pub fn trace_me() -> io::Result<()> {
    // SAFETY: the call takes no address. Guarded by the test that traces.
    answer(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) })
}

/// Waits for a traced thread, or for any with -1.
pub fn wait(tid: Tid) -> io::Result<(Tid, Event)> {
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call, which writes it alone. Guarded by the test that traces.
        let who = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
        if who < 0 {
            let e = io::Error::last_os_error();
            if e.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(e);
        }
        return Ok(match () {
            () if libc::WIFSTOPPED(status) => (who, Event::Stopped(libc::WSTOPSIG(status))),
            () if libc::WIFSIGNALED(status) => (who, Event::Ended(128 + libc::WTERMSIG(status))),
            () => (who, Event::Ended(libc::WEXITSTATUS(status))),
        });
    }
}

/// The registers of a thread that is stopped.
pub fn registers(tid: Tid) -> io::Result<libc::user_regs_struct> {
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: the kernel writes one structure of this type, which has room for it. Guarded by the test that traces.
    answer(unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0, registers.as_mut_ptr()) })?;
    // SAFETY: zeros are valid for a structure of integers, and the call has written it. Guarded as above.
    Ok(unsafe { registers.assume_init() })
}

/// Lets a stopped thread carry out one instruction, with a signal or none (0).
pub fn step(tid: Tid, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes no address. Guarded by the test that traces.
    answer(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, tid, 0, i64::from(signal)) })
}

/// Lets a stopped thread go on, with a signal or none (0).
pub fn go_on(tid: Tid, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes no address. Guarded by the test that traces.
    answer(unsafe { libc::ptrace(libc::PTRACE_CONT, tid, 0, i64::from(signal)) })
}

fn answer(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
