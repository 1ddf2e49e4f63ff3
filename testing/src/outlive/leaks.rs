//! What restarts leave behind: `narufs-outlive leaks NARUFS [restarts=100] [inodes=0]`.
//!
//! Descriptors of server and supervisor, the supervisor's threads (a server's are as many as its requests have asked for, and
//! end with it), the memory that servers share, space and inodes of the file system are the same after so many restarts; with
//! `inodes=1` inodes of the kernel too, which are those of all mounts of the machine: nothing else may use FUSE meanwhile. Each
//! restart finds files at work: open, unlinked, written and not synced, and directories, which are gone when the next one
//! comes.

use super::Outcome;
use super::mounted::Mounted;
use super::settings::Settings;
use crate::demand;
use narufs_fuse::control;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// The names of what can be asked for.
pub const KNOWN: [&str; 2] = ["restarts", "inodes"];

/// Restarts after which what grows once has grown.
const WARM: u64 = 20;
const CACHE: u64 = 32 << 20;

/// What may leak.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Census {
    supervisor_descriptors: usize,
    supervisor_threads: usize,
    server_descriptors: usize,
    shared_bytes: u64,
    free_bytes: u64,
    /// Not those that are free: how many there could be follows from where the others lie.
    used_inodes: u64,
    staging_files: usize,
}

fn entries(dir: &str) -> Outcome<usize> {
    Ok(fs::read_dir(dir)?.count())
}

impl Census {
    fn take(mounted: &Mounted) -> Outcome<Census> {
        control::sync(&mounted.point())?;
        let stats = mounted.stats()?;
        let (server, supervisor) = (&stats["server_pid"], mounted.supervisor.pid.as_raw_nonzero());
        let mut shared = 0;
        for entry in fs::read_dir(format!("/proc/{supervisor}/fd"))? {
            let path = entry?.path();
            if fs::read_link(&path)?.to_string_lossy().contains("narufs-takeover") {
                shared = fs::metadata(&path)?.blocks() * 512;
            }
        }
        let room = rustix::fs::statvfs(mounted.point())?;
        Ok(Census {
            supervisor_descriptors: entries(&format!("/proc/{supervisor}/fd"))?,
            supervisor_threads: entries(&format!("/proc/{supervisor}/task"))?,
            server_descriptors: entries(&format!("/proc/{server}/fd"))?,
            shared_bytes: shared,
            free_bytes: room.f_bfree * room.f_frsize,
            used_inodes: room.f_files - room.f_ffree,
            staging_files: mounted.staging_files(),
        })
    }
}

/// Inodes that the kernel has in memory for FUSE, of all mounts.
fn kernel_inodes() -> Outcome<u64> {
    let slabs = fs::read_to_string("/proc/slabinfo")?;
    let line = slabs.lines().find(|line| line.starts_with("fuse_inode ")).ok_or("no slab of FUSE inodes")?;
    Ok(line.split_whitespace().nth(1).ok_or("a count")?.parse()?)
}

/// One restart in the midst of work, none of which is left.
fn restart(mounted: &Mounted, number: u64) -> Outcome {
    let at = |name: &str| mounted.point().join(name);
    let unlinked = File::create_new(at("unlinked"))?;
    (&unlinked).write_all(&[number as u8; 10_000])?;
    fs::remove_file(at("unlinked"))?;
    fs::write(at("written"), vec![number as u8; 50_000])?;
    fs::create_dir_all(at("dir/below"))?;
    mounted.restart()?;
    demand!(unlinked.metadata()?.len() == 10_000, "an open file has another length");
    drop(unlinked);
    demand!(fs::read(at("written"))? == vec![number as u8; 50_000], "a file has other bytes");
    fs::remove_file(at("written"))?;
    fs::remove_dir(at("dir/below"))?;
    Ok(fs::remove_dir(at("dir"))?)
}

/// Restarts, and compares.
///
/// # Errors
/// What has leaked.
pub fn run(settings: &Settings) -> Outcome {
    let restarts = settings.number("restarts", 100)?;
    let options = format!("noatime,memory={CACHE}");
    let mounted = Mounted::new(&settings.narufs, "/var/tmp".as_ref(), 512 << 20, 1 << 14, &options)?;
    // Each frame has been used once: what the memory takes is all that it can take.
    fs::write(mounted.point().join("full"), vec![1; CACHE as usize * 2])?;
    (0..WARM).try_for_each(|number| restart(&mounted, number))?;
    let (before, kernel_before) = (Census::take(&mounted)?, kernel_inodes()?);
    (0..restarts).try_for_each(|number| restart(&mounted, number))?;
    let after = Census::take(&mounted)?;
    let kernel = kernel_inodes()?.saturating_sub(kernel_before);
    println!("before: {before:?}\nafter:  {after:?}");
    println!("{kernel} more inodes of FUSE in the kernel");
    demand!(before == after, "{restarts} restarts have left something");
    if settings.number("inodes", 0)? != 0 {
        // One for each restart would be a leak; the kernel keeps what it likes of few.
        demand!(kernel < restarts / 2, "{restarts} restarts have left {kernel} inodes in the kernel");
    }
    println!("RESULT {restarts} restarts have left nothing");
    mounted.end()
}
