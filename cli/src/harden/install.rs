//! The installing of a filter of system calls for all threads, what it refuses being logged if that is wanted.

#![allow(
    unsafe_code,
    reason = "a leaf module: seccomp(2), with a flag that the crate of the filters does not know"
)]

use seccompiler::BpfProgram;
use std::io;

/// Installs it. What the process is already refused stays so; it must have given up new privileges.
///
/// # Errors
/// Those of the call; or another thread has filters of its own.
pub fn install(filter: &BpfProgram, logged: bool) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut().cast() };
    let mut flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
    if logged {
        flags |= libc::SECCOMP_FILTER_FLAG_LOG;
    }
    // SAFETY: the kernel copies `len` instructions from `filter`, which outlives the call, and writes nothing; both crates
    // declare an instruction as the kernel does. Guarded by the test of what a server is refused.
    let outcome =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match outcome {
        0 => Ok(()),
        thread if thread > 0 => Err(io::Error::other(format!("thread {thread} has filters of its own"))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether memory can be had that programs may be put into.
#[cfg(test)]
pub fn maps_executable() -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let rights = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
    // SAFETY: the kernel chooses a place where nothing is, and nothing points there when it goes.
    unsafe {
        let mapped = mmap_anonymous(std::ptr::null_mut(), 4096, rights, MapFlags::PRIVATE);
        mapped.is_ok_and(|place| munmap(place, 4096).is_ok())
    }
}
