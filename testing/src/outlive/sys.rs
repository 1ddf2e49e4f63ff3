//! Calls that no safe library has: shared maps, memory that is given back, locks of open files.

#![allow(unsafe_code, reason = "a leaf module: system calls on memory, and fcntl")]

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// A shared map of a file's first bytes.
#[derive(Debug)]
pub struct Map {
    at: *mut u8,
    len: usize,
}

// SAFETY: the mapping has no thread affinity and belongs to this value. Guarded by the test below.
unsafe impl Send for Map {}

impl Map {
    /// Maps a file, which is as long.
    pub fn of(file: &File, len: usize) -> Result<Map, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses, unmapped when this is dropped, and reached through
        // volatile accesses alone. Guarded by the test below.
        let at = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Map { at: at.cast(), len })
    }

    /// The byte there.
    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.len, "within the map");
        // SAFETY: within the mapping, of a file that is as long. Guarded by the test below.
        unsafe { self.at.add(at).read_volatile() }
    }

    /// Changes it.
    pub fn put(&mut self, at: usize, byte: u8) {
        assert!(at < self.len, "within the map");
        // SAFETY: as in `get`.
        unsafe { self.at.add(at).write_volatile(byte) }
    }

    /// A fault brings its own page alone.
    pub fn reads_nothing_ahead(&self) -> Result<(), Errno> {
        // SAFETY: the whole mapping, which lives; no byte of it changes. Guarded by the test below.
        unsafe { madvise(self.at.cast(), self.len, Advice::Random) }
    }

    /// Has the file be as the map is, on the device.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the whole mapping, which lives. Guarded by the test below.
        unsafe { msync(self.at.cast(), self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `of`, which nobody touches afterwards. A failure would leave it mapped.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}

/// Has the kernel take pages of a file out of this process's memory: the next access brings them back from the file.
pub fn page_out(range: &Range<usize>) -> Result<(), Errno> {
    let at = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: it changes no byte of the memory, whatever is mapped there. Guarded by the test below.
    unsafe { madvise(at, range.len(), Advice::LinuxPageOut) }
}

/// Locks a whole file for this open file description, or unlocks it; false: another has it.
pub fn lock_open_file(file: &File, locked: bool) -> io::Result<bool> {
    // SAFETY: zeros are a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = if locked { libc::F_WRLCK } else { libc::F_UNLCK } as libc::c_short;
    // SAFETY: the call reads the structure, which lives. Guarded by the test below.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            e => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_locks_do_what_they_say() {
        let file = tempfile::NamedTempFile::new().expect("room");
        file.as_file().set_len(8192).expect("room");
        let mut map = Map::of(file.as_file(), 8192).expect("mapped");
        map.reads_nothing_ahead().expect("a mapping");
        map.put(8191, 7);
        map.sync().expect("synced");
        let range = map.at.expose_provenance()..map.at.expose_provenance() + 8192;
        page_out(&range).expect("a mapping");
        assert_eq!((map.get(8191), map.get(0)), (7, 0));
        let other = file.reopen().expect("it is there");
        assert!(lock_open_file(&other, true).expect("locked"));
        assert!(!lock_open_file(file.as_file(), true).expect("asked"));
        assert!(lock_open_file(&other, false).expect("unlocked"));
        assert!(lock_open_file(file.as_file(), true).expect("locked"));
    }
}
