//! Who holds an image that is to be mounted.
//!
//! umount(2) returns before the server of a mount has written everything down; until it has, it holds the image's lock.
//! Who mounts the image meanwhile waits for it, at most [`PATIENCE`]. An image that is being served is another
//! matter: that is said at once, and where.
//!
//! The wait is one for the lock itself, in a thread, for no wait for a lock ends by itself; the process ends soon after
//! a wait in vain, and the thread with it. It is no promise: the engine takes the lock anew, and decides.

use crate::failure::{Failure, Status};
use narufs_fuse::mount::{self, mountinfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for an image that nobody serves.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// An image as it is found now, whatever its path leads to later. That holds nothing of it, neither its lock nor its device.
pub fn place(image: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(image, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Where the file can be opened that a descriptor is of, by this process or by one that has the descriptor from it.
pub fn path_of(place: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", place.as_fd().as_raw_fd()))
}

/// Waits until nobody holds an image's lock, so long at the most. Whoever asks tries the lock once more.
pub fn wait_for_lock(place: &OwnedFd, most: Duration) {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path_of(place), flags, Mode::empty());
    let Ok(file) = opened.map(File::from) else { return };
    if let (Ok(told), Ok(most)) = (when_unlocked(file), Timespec::try_from(most)) {
        let _ = poll(&mut [PollFd::new(&told, PollFlags::IN)], Some(&most));
    }
    // It may be the journal's that is held.
    std::thread::yield_now();
}

/// A pipe whose end tells that nobody holds a file's lock.
fn when_unlocked(file: File) -> rustix::io::Result<OwnedFd> {
    let (told, tell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    std::thread::spawn(move || {
        let _tell = tell;
        while flock(&file, FlockOperation::LockExclusive) == Err(Errno::INTR) {}
    });
    Ok(told)
}

/// Waits until nobody holds an image. What else is wrong with it is left to who opens it.
pub fn wait_for(image: &Path) -> Result<(), Failure> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(image, flags, Mode::empty()).map(File::from) else { return Ok(()) };
    if flock(&file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK) {
        return Ok(());
    }
    let failed = |e: std::io::Error| Failure::about(Status::MountFailed, image, e);
    let found = file.metadata().map_err(failed)?;
    let mounts = File::open("/proc/self/mountinfo").map_err(failed)?;
    let told = when_unlocked(file).map_err(|e| failed(e.into()))?;
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(point) = served_at(&found) {
            let (image, point) = (image.display(), point.display());
            let why = format!(
                "{image} is in use: it is mounted at {point}; unmount that first (narufs umount {point})"
            );
            return Err(Failure::new(Status::MountFailed, why));
        }
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()));
        let left = left.map_err(|e| failed(std::io::Error::other(e)))?;
        // What is being mounted is served from some moment on.
        let mut events =
            [PollFd::new(&told, PollFlags::IN), PollFd::new(&mounts, PollFlags::PRI | PollFlags::ERR)];
        match poll(&mut events, Some(&left)) {
            Ok(0) => return Err(Failure::new(Status::MountFailed, in_vain(image, &found))),
            Ok(_) if !events[0].revents().is_empty() => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(failed(e.into())),
        }
    }
}

fn in_vain(image: &Path, found: &Metadata) -> String {
    let image = image.display();
    let waited = PATIENCE.as_secs();
    match process(found) {
        Some(pid) => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!(
                "{image} is in use by process {pid} ({}), which did not end within {waited} s: wait for it (tail \
                 --pid={pid} -f /dev/null), or end it, first",
                name.trim_end()
            )
        }
        None => format!("{image} is in use by a process that did not end within {waited} s: end it first"),
    }
}

/// Where a live server has the image mounted.
fn served_at(image: &Metadata) -> Option<PathBuf> {
    let is_of_image = |entry: &mountinfo::Entry| {
        entry.is_ours() && std::fs::metadata(&entry.source).is_ok_and(|source| is_same(&source, image))
    };
    let here = mountinfo::all().unwrap_or_default();
    let live = here.iter().find(|entry| is_of_image(entry) && !mount::is_dead(&entry.point));
    if let Some(entry) = live {
        return Some(entry.point.clone());
    }
    // In another mount name space it cannot be asked; one that is being killed has none any more.
    let holder = process(image).filter(|pid| {
        let space = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/mnt")).ok();
        space(&pid.to_string()) != space("self")
    })?;
    mountinfo::seen_by(holder).ok()?.into_iter().find(is_of_image).map(|entry| entry.point)
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    match one.file_type().is_block_device() && other.file_type().is_block_device() {
        true => one.rdev() == other.rdev(),
        false => (one.dev(), one.ino()) == (other.dev(), other.ino()),
    }
}

/// Who has the lock of a file, where the kernel says so: some file systems show other device numbers there.
pub fn process(file: &Metadata) -> Option<u32> {
    let device = file.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let name = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, &name)
}

fn holder_in(locks: &str, name: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        // 1: FLOCK ADVISORY WRITE 4711 fe:00:42 0 EOF; those who wait have an arrow behind the number.
        let mut words = line.split_whitespace().skip(1);
        let is_flock = words.next()? == "FLOCK";
        let pid = words.nth(2)?.parse().ok()?;
        (is_flock && words.next()? == name && pid > 0).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_not_one_who_waits_for_it() {
        let locks = "1: POSIX  ADVISORY  WRITE 5 fe:00:42 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 6 fe:00:42 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 7 fe:00:421 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 8 fe:00:42 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE -1 fe:00:43 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:42"), Some(8));
        assert_eq!(holder_in(locks, "fe:00:43"), None);
        let file = tempfile::tempfile().expect("room");
        flock(&file, FlockOperation::LockExclusive).expect("nobody has it");
        assert_eq!(process(&file.metadata().expect("there")), Some(std::process::id()));
    }
}
