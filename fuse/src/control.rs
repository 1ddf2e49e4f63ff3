//! Control calls that every mount answers, whatever is mounted.
//!
//! umount(2) of a FUSE mount returns before its server has written anything down. Who unmounts therefore asks
//! the server's process first, and waits for its end afterwards.

use crate::sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The number of the call that asks for the server's process id: a read of 32 bits, of type `N`, number 1.
pub const SERVER_PID: u32 = 0x8004_4e01;

/// The number of the call that makes everything durable: type `N`, number 2.
pub const SYNC: u32 = 0x4e02;

/// Makes everything on the mount at `dir` durable. sync(2) and syncfs(2) do not reach its server.
pub fn sync(dir: &Path) -> io::Result<()> {
    sys::sync_mount(open(dir)?)
}

/// The number of the call that makes what syncs were answered for survive a loss of power: type `N`, number 4.
pub const SYNC_POWER: u32 = 0x4e04;

/// Makes everything that an fsync on the mount at `dir` was answered for survive a loss of power, whatever its
/// fsyncs wait for. Unsynced data stays in memory.
pub fn sync_power(dir: &Path) -> io::Result<()> {
    sys::sync_power_mount(open(dir)?)
}

/// Most bytes that the answer to [`STATS`] may have: what the call's number can say.
pub const STATS_SIZE: usize = (1 << 14) - 1;

/// The number of the call that reads the counters as JSON: a read of [`STATS_SIZE`] bytes, type `N`, number 3.
pub const STATS: u32 = 0x8000_4e03 | (STATS_SIZE as u32) << 16;

/// The counters of the mount at `dir`, as JSON.
pub fn stats(dir: &Path) -> io::Result<String> {
    let bytes = sys::stats(open(dir)?)?;
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8(bytes[..end].to_vec()).map_err(io::Error::other)
}

fn open(dir: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The server of a live mount.
#[derive(Debug)]
pub struct ServerProcess {
    /// Its process id.
    pub pid: Pid,
    descriptor: OwnedFd,
}

impl ServerProcess {
    /// Asks the mount at `dir` who serves it. ENOTTY: it is not a mount of narufs.
    pub fn of(dir: &Path) -> io::Result<ServerProcess> {
        let pid = sys::server_pid(open(dir)?)?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the mount names no process"))?;
        Ok(ServerProcess { pid, descriptor: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Waits until it has ended.
    pub fn wait(&self) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], None) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}
