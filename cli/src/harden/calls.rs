//! Which system calls a server may still make, made known to the kernel by seccomp.
//!
//! What is not listed is refused with EPERM, and the kernel's audit log says so. Why not a kill: a call that a later C
//! library makes in place of a listed one would end server after server, and the mount with them, where the refusal of one
//! call is an error of one request, or nothing that matters. Numbers that this list cannot know, and clone3, whose flags no
//! filter sees, are answered ENOSYS: C libraries then do what they did before there were such calls.
//!
//! The list was found by tracing all tests (docs/DESIGN.md, "What a server may still do"), and what the C library makes of
//! threads, memory, signals and aborts was added: a fault is to be reported, whatever it meets.

use super::install;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io;

/// Numbers of calls that were not there when this was written, up to where there may be some by now; the same on all
/// machines.
const UNKNOWN: std::ops::Range<i64> = 470..600;

/// Calls whatever their arguments.
const ANY: &[i64] = &[
    // Files that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    // Threads that may wait for this process itself keep none but one.
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_io_uring_enter,
    // Names: which ones is for Landlock to say.
    libc::SYS_openat,
    libc::SYS_unlinkat,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_chdir,
    libc::SYS_getcwd,
    // Memory, none of it to be run.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_msync,
    libc::SYS_brk,
    libc::SYS_memfd_create,
    libc::SYS_membarrier,
    // Threads, time, signals.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    // Threads that serve give up what they have not.
    libc::SYS_capget,
    libc::SYS_capset,
    // What is said to the supervisor and the broker.
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    // Who asks for metrics: what listens was there before.
    libc::SYS_accept4,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
];

/// The same where the machine has older calls besides.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_open,
    libc::SYS_unlink,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_pipe,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[i64] = &[];

/// Requests to devices: to connect a descriptor to a mount, whether something is a terminal, not to wait at a socket.
const REQUESTS: [u32; 3] = [0x8004_e500, libc::TCGETS as u32, libc::FIONBIO as u32];

/// Names of mappings, and what the kernel has told the program of the machine.
const PR_SET_VMA: u64 = 0x5356_4d41;
const PR_GET_AUXV: u64 = 0x4155_5856;

/// Refuses all others, for all threads.
///
/// # Errors
/// The kernel has no seccomp, or this machine's numbers are not known.
pub fn restrict() -> io::Result<()> {
    let missing: Rules = missing().map(|call| (call, Vec::new())).collect();
    let missing = filter(missing, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    let known = filter(allowed()?, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?;
    install::install(&missing, false)?;
    install::install(&known, true)
}

/// Calls that are answered as if the kernel had not got them. Of two filters that refuse, the word of the later one counts.
fn missing() -> impl Iterator<Item = i64> {
    UNKNOWN.chain([libc::SYS_clone3])
}

/// Refuses besides what is needed to begin: all rings are there, and nothing about them changes.
///
/// # Errors
/// As [`restrict`].
pub fn close() -> io::Result<()> {
    let rings = [libc::SYS_io_uring_setup, libc::SYS_io_uring_register].map(|call| (call, Vec::new()));
    let refused = filter(rings.into(), SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))?;
    install::install(&refused, true)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn filter(rules: Rules, otherwise: SeccompAction, listed: SeccompAction) -> io::Result<BpfProgram> {
    let machine = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, listed, machine).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}

fn allowed() -> io::Result<Rules> {
    let whatever = ANY.iter().chain(OLDER).copied().chain(missing());
    let mut rules: Rules = whatever.map(|call| (call, Vec::new())).collect();
    let own = u64::from(std::process::id());
    let requests = REQUESTS.map(|request| is(1, Dword, Eq, u64::from(request)));
    let options =
        [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_NO_NEW_PRIVS].map(|option| option as u64);
    let executable = libc::PROT_EXEC as u64;
    let thread = libc::CLONE_THREAD as u64;
    // Connected from the start: who is at the other end of a datagram socket is chosen with each.
    let kinds = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(|kind| kind as u64);
    for (call, alternatives) in [
        (libc::SYS_ioctl, requests.into_iter().map(|one| vec![one]).collect()),
        (
            libc::SYS_prctl,
            options
                .into_iter()
                .chain([PR_SET_VMA, PR_GET_AUXV])
                .map(|one| vec![is(0, Dword, Eq, one)])
                .collect(),
        ),
        (libc::SYS_mmap, vec![vec![is(2, Qword, MaskedEq(executable), 0)]]),
        (libc::SYS_mprotect, vec![vec![is(2, Qword, MaskedEq(executable), 0)]]),
        // A thread, and no process.
        (libc::SYS_clone, vec![vec![is(0, Qword, MaskedEq(thread), thread)]]),
        (libc::SYS_tgkill, vec![vec![is(0, Dword, Eq, own)]]),
        (libc::SYS_kill, vec![vec![is(0, Dword, Eq, own)]]),
        (libc::SYS_pidfd_open, vec![vec![is(0, Dword, Eq, own)]]),
        // A thread's own.
        (libc::SYS_setpriority, vec![vec![is(1, Dword, Eq, 0)]]),
        // Limits are read, not changed.
        (libc::SYS_prlimit64, vec![vec![is(2, Qword, Eq, 0)]]),
        (
            libc::SYS_socketpair,
            kinds
                .map(|kind| vec![is(0, Dword, Eq, libc::AF_UNIX as u64), is(1, Dword, MaskedEq(0xf), kind)])
                .into(),
        ),
        // A filter more.
        (libc::SYS_seccomp, vec![vec![is(0, Dword, Eq, u64::from(libc::SECCOMP_SET_MODE_FILTER))]]),
        (libc::SYS_io_uring_setup, Vec::new()),
        (libc::SYS_io_uring_register, Vec::new()),
    ] {
        let alternatives: Vec<Vec<_>> = alternatives;
        let mut either = Vec::new();
        for all in alternatives {
            let conditions = all.into_iter().collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
            either.push(SeccompRule::new(conditions).map_err(io::Error::other)?);
        }
        rules.insert(call, either);
    }
    Ok(rules)
}

fn is(
    argument: u8,
    len: SeccompCmpArgLen,
    how: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, len, how, value)
}
