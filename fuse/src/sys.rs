//! The system calls that no safe wrapper exists for.

#![allow(unsafe_code, reason = "a leaf module: each call is wrapped here and nowhere else")]

use crate::control::{
    LATENCIES, LATENCIES_SIZE, RESIZE, RESIZE_SIZE, SERVER_PID, SERVER_STAYS, STATS, STATS_SIZE,
    SUPERVISOR_PID, SYNC, SYNC_POWER, TRIM,
};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{self, Opcode};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `FUSE_DEV_IOC_CLONE`
const CLONE: Opcode = ioctl::opcode::read::<u32>(229, 0);

/// The kernel's number of the option; the libc crate lacks it.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// What the kernel tells of a process by its descriptor: `struct pidfd_info`, as far as every kernel that has it knows it.
#[repr(C)]
#[derive(Default)]
struct ProcessInfo {
    mask: u64,
    control_group: u64,
    /// Process, group, parent, and the users and groups that it acts for.
    numbers: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_GET_INFO`
const PROCESS_INFO: Opcode = ioctl::opcode::read_write::<ProcessInfo>(0xff, 11);

/// `PIDFD_INFO_EXIT`: `exit_code` is asked for, and is there.
const EXIT_CODE: u64 = 1 << 3;

/// Opens `/dev/fuse`.
pub fn open_fuse_device() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens `/dev/fuse` and connects it to the mount of `fd`.
pub fn clone_fuse_device(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let clone = open_fuse_device()?;
    let mut source = u32::try_from(fd.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: the call reads one u32 through the pointer, which `source` outlives. Guarded by the tests that
    // mount: every request but the first comes through a cloned descriptor.
    unsafe { ioctl::ioctl(&clone, ioctl::Updater::<CLONE, u32>::new(&mut source)) }?;
    Ok(clone)
}

/// Has programs that this process starts from now on get no descriptors but those that they are given.
pub fn keep_descriptors() -> io::Result<()> {
    // SAFETY: the call takes numbers alone, and closes nothing here. Guarded by the test of the caller's descriptors.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Closes the file of a descriptor, whose number stays open: nothing can be read from it or written to it any more.
pub fn let_go(fd: BorrowedFd<'_>) -> io::Result<()> {
    let (nothing, _) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: the call takes numbers alone, and the one that is replaced stays open, as its owner has it. Guarded by the
    // test of the port that lets its file go.
    match unsafe { libc::dup3(nothing.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Has the calling thread, and what it starts, take no signal. What a write to a pipe without a reader brings is among them.
fn block_signals() -> io::Result<()> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set that the second reads; neither keeps it. Guarded by the test that kills a guard.
    let failed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// Gives the calling thread a table of descriptors of its own, in which are one of the file of `kept`, and `/dev/null` in the
/// place of the standard ones, so that whoever reads from those of the program sees their end; other threads keep theirs. From
/// then on it takes no signal, for handlers of the program's would find its descriptors missing. To be called by a thread that
/// owns no other. Takes Linux 5.9.
pub fn alone_with(kept: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    block_signals()?;
    let number = kept.as_raw_fd();
    let close_range = |first: libc::c_int, last: libc::c_uint, flags: libc::c_uint| {
        // SAFETY: the call takes numbers alone. What it closes it closes for this thread, which owns none of that.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    close_range(number + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    if number > 3 {
        close_range(3, number as libc::c_uint - 1, 0)?;
    }
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    // SAFETY: it is open in the new table, and nobody else has that. Guarded by the tests that kill who serves.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Sets how the C library keeps memory: pieces of half a megabyte are mapped by themselves, and `heaps` heaps serve
/// all threads. Where it is another library, nothing changes.
pub fn set_heap_limits(heaps: usize) {
    #[cfg(target_env = "gnu")]
    {
        let heaps = libc::c_int::try_from(heaps).unwrap_or(libc::c_int::MAX);
        for (parameter, value) in [
            (libc::M_MMAP_THRESHOLD, 512 << 10),
            (libc::M_TRIM_THRESHOLD, 1 << 20),
            (libc::M_ARENA_MAX, heaps),
        ] {
            // SAFETY: the call takes two numbers and changes parameters of the allocator, which locks itself.
            // Guarded by the command's tests, whose servers run so.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = heaps;
}

/// Asks the mount that `fd` is on for its server's process id.
pub fn server_pid(fd: impl AsFd) -> io::Result<u32> {
    // SAFETY: the call's number says that it writes 32 bits, and whoever answers it cannot write more: the
    // kernel sizes the answer by the number. Guarded by the test that asks a live mount.
    Ok(unsafe { ioctl::ioctl(fd, ioctl::Getter::<{ SERVER_PID as Opcode }, u32>::new()) }?)
}

/// Asks the mount that `fd` is on for its supervisor's process id.
pub fn supervisor_pid(fd: impl AsFd) -> io::Result<u32> {
    // SAFETY: as above. Guarded by the tests of mounts that outlive their servers.
    Ok(unsafe { ioctl::ioctl(fd, ioctl::Getter::<{ SUPERVISOR_PID as Opcode }, u32>::new()) }?)
}

/// Asks the mount that `fd` is on whether its server's process goes on when the mount has ended; 0: it does not.
pub fn server_stays(fd: impl AsFd) -> io::Result<u32> {
    // SAFETY: as above. Guarded by the test that asks a program that serves what it uses.
    Ok(unsafe { ioctl::ioctl(fd, ioctl::Getter::<{ SERVER_STAYS as Opcode }, u32>::new()) }?)
}

/// Asks the mount that `fd` is on for the process that goes on until the mount has ended: the supervisor's, or else the
/// server's.
pub fn last_pid(fd: impl AsFd) -> io::Result<u32> {
    match supervisor_pid(&fd) {
        Ok(0) => server_pid(fd),
        // An earlier version does not know the question.
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => server_pid(fd),
        answer => answer,
    }
}

/// How a process has ended that somebody else has waited for, as wait(2) gives it; `None`: nobody has. Takes Linux 6.15.
pub fn exit_code(process: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut info = ProcessInfo { mask: EXIT_CODE, ..ProcessInfo::default() };
    // SAFETY: the call's number says that it reads and writes a structure of this size, and the kernel writes no more than
    // the number says. Guarded by the test of `mount::process`.
    unsafe { ioctl::ioctl(process, ioctl::Updater::<PROCESS_INFO, ProcessInfo>::new(&mut info)) }?;
    Ok((info.mask & EXIT_CODE != 0).then_some(info.exit_code))
}

/// What of some memory stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// All of it, which is there from now on: what cannot be locked is at least filled in.
    Whole,
    /// Each page from its first use on.
    OnceUsed,
    /// Nothing any more.
    No,
}

/// Says what of the pages that hold these bytes is to stay in memory.
pub fn pin(bytes: &mut [u8], stay: Stay) -> io::Result<()> {
    use rustix::mm::{Advice, MlockFlags, madvise, mlock, mlock_with, munlock};
    let page = rustix::param::page_size();
    let start = bytes.as_mut_ptr().map_addr(|address| address & !(page - 1));
    let len = (bytes.as_mut_ptr().addr() + bytes.len()).next_multiple_of(page) - start.addr();
    let start = start.cast();
    // SAFETY: none of the calls changes a byte; the pages are those that hold `bytes`, which are mapped and writable. Guarded
    // by the tests of mounts that outlive their servers.
    unsafe {
        match stay {
            Stay::Whole => {
                madvise(start, len, Advice::LinuxPopulateWrite).and_then(|()| mlock(start, len))?
            }
            Stay::OnceUsed => mlock_with(start, len, MlockFlags::ONFAULT)?,
            Stay::No => munlock(start, len)?,
        }
    }
    Ok(())
}

/// Asks the mount that `fd` is on to make everything durable.
pub fn sync_mount(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: the call passes no argument. Guarded by the test that asks a live mount.
    Ok(unsafe { ioctl::ioctl(fd, ioctl::NoArg::<{ SYNC as Opcode }>::new()) }?)
}

/// Asks the mount that `fd` is on to make what was synced survive a loss of power.
pub fn sync_power_mount(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: the call passes no argument. Guarded by the test that asks a live mount.
    Ok(unsafe { ioctl::ioctl(fd, ioctl::NoArg::<{ SYNC_POWER as Opcode }>::new()) }?)
}

/// Reads the counters of the mount that `fd` is on; zeros follow them.
pub fn stats(fd: impl AsFd) -> io::Result<Box<[u8; STATS_SIZE]>> {
    let mut bytes = Box::new([0; STATS_SIZE]);
    // SAFETY: the call's number says that it writes at most `STATS_SIZE` bytes, and the kernel sizes the answer
    // by the number. Guarded by the test that asks a live mount.
    unsafe { ioctl::ioctl(fd, ioctl::Updater::<{ STATS as Opcode }, [u8; STATS_SIZE]>::new(&mut bytes)) }?;
    Ok(bytes)
}

/// Reads how long requests of the mount that `fd` is on took; the answer replaces the question.
pub fn latencies(fd: impl AsFd, call: &mut [u8; LATENCIES_SIZE]) -> io::Result<()> {
    // SAFETY: the call's number says that it reads and writes `LATENCIES_SIZE` bytes, and the kernel sizes both by the
    // number. Guarded by the test that asks a live mount.
    Ok(unsafe {
        ioctl::ioctl(fd, ioctl::Updater::<{ LATENCIES as Opcode }, [u8; LATENCIES_SIZE]>::new(call))
    }?)
}

/// Asks the mount that `fd` is on to become larger; the answer replaces the question.
pub fn resize(fd: impl AsFd, call: &mut [u8; RESIZE_SIZE]) -> io::Result<()> {
    // SAFETY: the call's number says that it reads and writes `RESIZE_SIZE` bytes, and the kernel sizes both by the
    // number. Guarded by the test that resizes a live mount.
    Ok(unsafe { ioctl::ioctl(fd, ioctl::Updater::<{ RESIZE as Opcode }, [u8; RESIZE_SIZE]>::new(call)) }?)
}

/// Asks the file system that `fd` is on to discard what is free; the answer replaces the question.
pub fn trim(fd: impl AsFd, call: &mut [u64; 3]) -> io::Result<()> {
    // SAFETY: the call reads and writes a structure of three 64-bit numbers. Guarded by the test that trims a live
    // mount.
    Ok(unsafe { ioctl::ioctl(fd, ioctl::Updater::<{ TRIM as Opcode }, [u64; 3]>::new(call)) }?)
}

/// Marks the calling thread as one whose allocations must not wait for I/O, since it may be what that I/O needs.
/// Threads that it starts are marked too. Needs CAP_SYS_RESOURCE.
pub fn set_io_flusher() -> io::Result<()> {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: this option takes integers only and touches no memory of ours. Guarded by
    // `mount::process`'s test.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, on, unused, unused, unused) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
