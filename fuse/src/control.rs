//! Control calls that every mount answers, whatever is mounted.
//!
//! umount(2) of a FUSE mount returns before its server has written anything down. Who unmounts therefore asks
//! the server's process first, and waits for its end afterwards.

mod latencies;
mod process;

pub use latencies::{LATENCIES, LATENCIES_SIZE, Times, latencies};
pub(crate) use latencies::{latencies_from, page_of_latencies};
pub use process::{ServerProcess, kill, server_pid};

use crate::mount::of_connection;
use crate::sys;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of the call that asks for the server's process id: a read of 32 bits, of type `N`, number 1.
pub const SERVER_PID: u32 = 0x8004_4e01;

/// The number of the call that makes everything durable: type `N`, number 2.
pub const SYNC: u32 = 0x4e02;

/// The number of the call that asks for the process that starts another server when this one is gone: a read of 32 bits,
/// type `N`, number 6. 0: nobody does.
pub const SUPERVISOR_PID: u32 = 0x8004_4e06;

/// The number of the call that asks whether the server's process is there for more than the mount, and goes on when that
/// has ended: a read of 32 bits, type `N`, number 7. 0: it ends with the mount.
pub const SERVER_STAYS: u32 = 0x8004_4e07;

/// The process that starts another server of the mount at `dir` when this one is gone, if one does.
pub fn supervisor_pid(dir: &Path) -> io::Result<Option<u32>> {
    Ok(Some(sys::supervisor_pid(open(dir)?)?).filter(|pid| *pid != 0))
}

/// How long requests are waited for that are under way: on a mount that is always busy some always are.
const PATIENCE: Duration = Duration::from_millis(500);

/// Makes everything that the server of the mount at `dir` has been given durable.
///
/// sync(2) and syncfs(2) do not reach a server, but have the kernel send what it keeps (`io=cached`, and stores into shared
/// maps). What it has sent is waited for until the mount is at rest, for half a second at the most, if the caller may know
/// that (root, or who has mounted). Newer kernels (seen with 6.18) say of syncfs(2) that it is done when they have not begun
/// yet: what is to be down in any case takes fsync(2) or msync(2).
pub fn sync(dir: &Path) -> io::Result<()> {
    let mount = open(dir)?;
    // What is no mount of ours is left alone.
    sys::server_pid(&mount)?;
    rustix::fs::syncfs(&mount)?;
    if let Err(e) = wait_for_rest(mount.as_fd()) {
        tracing::debug!("what the kernel has sent may be under way still: {e}");
    }
    sys::sync_mount(mount)
}

/// Waits until the server has answered everything.
fn wait_for_rest(mount: BorrowedFd<'_>) -> io::Result<()> {
    let connection = rustix::fs::minor(rustix::fs::fstat(mount)?.st_dev);
    let waiting = of_connection(connection, "waiting", OFlags::RDONLY)?;
    let (since, mut count) = (Instant::now(), [0; 16]);
    while since.elapsed() < PATIENCE {
        let read = rustix::io::pread(&waiting, &mut count, 0)?;
        if count[..read].trim_ascii() == b"0" {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
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

/// The number of the call that makes a file system larger: an exchange of [`RESIZE_SIZE`] bytes, type `N`, number 5.
pub const RESIZE: u32 = 0xc000_4e05 | (RESIZE_SIZE as u32) << 16;

/// Bytes of a question or answer of [`RESIZE`]: bytes (8), a [`Growth`] (4), 1 for sparse (4), then why it was refused,
/// as text.
pub const RESIZE_SIZE: usize = 512;

/// What size a file system is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// That of its device: 0 in the call.
    ToDevice,
    /// So many bytes: 1.
    To(u64),
    /// So many bytes more: 2. A server that is killed before it answers may have it done twice, so [`resize`] asks for the
    /// size by 0, and says [`Growth::To`].
    By(u64),
}

/// Makes the file system mounted at `dir` larger; gives its size in bytes, or a line that says why not.
pub fn resize(dir: &Path, growth: Growth, sparse: bool) -> io::Result<Result<u64, String>> {
    let mut call = [0; RESIZE_SIZE];
    let (how, bytes) = match growth {
        Growth::ToDevice => (0u32, 0),
        Growth::To(bytes) => (1, bytes),
        Growth::By(0) => (2, 0),
        // Said as a size: what a server has done, and died before it answered, another does not do once more.
        Growth::By(more) => (1, size(dir)?.saturating_add(more)),
    };
    call[..8].copy_from_slice(&bytes.to_ne_bytes());
    call[8..12].copy_from_slice(&how.to_ne_bytes());
    call[12..16].copy_from_slice(&u32::from(sparse).to_ne_bytes());
    sys::resize(open(dir)?, &mut call)?;
    let size = u64::from_ne_bytes(call[..8].try_into().map_err(io::Error::other)?);
    let why: Vec<u8> = call[16..].iter().copied().take_while(|b| *b != 0).collect();
    Ok(if size > 0 { Ok(size) } else { Err(String::from_utf8_lossy(&why).into_owned()) })
}

/// Size of the file system mounted at `dir`, in bytes. ENOTTY: it is not a mount of narufs.
pub fn size(dir: &Path) -> io::Result<u64> {
    resize(dir, Growth::By(0), false)?.map_err(io::Error::other)
}

/// What a server is asked by [`RESIZE`], and whether the space is to be left unreserved.
pub(crate) fn asked(data: &[u8]) -> Option<(Growth, bool)> {
    let bytes = u64::from_ne_bytes(*data.first_chunk()?);
    let how = u32::from_ne_bytes(*data.get(8..)?.first_chunk()?);
    let sparse = u32::from_ne_bytes(*data.get(12..)?.first_chunk()?);
    let growth = match how {
        0 => Growth::ToDevice,
        1 => Growth::To(bytes),
        2 => Growth::By(bytes),
        _ => return None,
    };
    Some((growth, sparse == 1))
}

/// What a server answers to [`RESIZE`].
pub(crate) fn resized(outcome: Result<u64, String>) -> Vec<u8> {
    let mut answer = vec![0; RESIZE_SIZE];
    match outcome {
        Ok(size) => answer[..8].copy_from_slice(&size.to_ne_bytes()),
        Err(why) => {
            let len = why.len().min(RESIZE_SIZE - 17);
            answer[16..16 + len].copy_from_slice(&why.as_bytes()[..len]);
        }
    }
    answer
}

/// The number of the kernel's call that discards what is free, FITRIM: `start`, `len` and `minlen`, of 8 bytes each.
/// fstrim(8) makes it.
pub const TRIM: u32 = 0xc018_5879;

/// Tells the device below the mount at `dir` what is free within a range of its bytes, runs of at least `least`
/// bytes; gives the number of bytes.
pub fn trim(dir: &Path, range: std::ops::Range<u64>, least: u64) -> io::Result<u64> {
    let mut call = [range.start, range.end.saturating_sub(range.start), least];
    sys::trim(open(dir)?, &mut call)?;
    Ok(call[1])
}

fn open(dir: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}
