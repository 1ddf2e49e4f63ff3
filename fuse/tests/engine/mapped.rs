//! Shared mappings of files, beside every way of reading and writing.

#![allow(unsafe_code, reason = "shared mappings are what is tested")]

use crate::support::{Aligned, BLOCK, Served, served_with};
use narufs_fuse::Caching;
use narufs_fuse::mount::Io;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A shared mapping of a file's first pages.
pub struct Map {
    at: *mut u8,
    len: usize,
}

impl Map {
    pub fn of(file: &File, len: usize) -> Result<Map, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, unmapped when this is dropped, and reached through volatile accesses alone. Guarded
        // by the tests of shared mappings.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Map { at: at.cast(), len })
    }

    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: within the mapping; the tests look at no page beyond the file's end.
        unsafe { self.at.add(at).read_volatile() }
    }

    pub fn put(&self, at: usize, byte: u8) {
        assert!(at < self.len);
        // SAFETY: as in `get`.
        unsafe { self.at.add(at).write_volatile(byte) }
    }

    fn sync(&self) {
        // SAFETY: the whole mapping, which lives.
        unsafe { rustix::mm::msync(self.at.cast(), self.len, MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `of`, which nobody touches afterwards.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), self.len) };
    }
}

/// Runs a test with every way of caching.
pub fn with_each_io(test: impl Fn(&Served, Io)) {
    for io in [Io::Auto, Io::Cached, Io::Direct] {
        let m = served_with(Caching::Exclusive, |options| options.io = io);
        let probe = File::options().read(true).write(true).create(true).truncate(false).open(m.at("probe"));
        let probe = probe.unwrap();
        probe.set_len(BLOCK).unwrap();
        let mapped = Map::of(&probe, BLOCK as usize);
        let maps_none = io == Io::Direct && matches!(mapped, Err(Errno::NODEV));
        assert!(!maps_none, "missing: a kernel that maps files opened past its cache (Linux 6.6)");
        drop(mapped.unwrap());
        test(&m, io);
    }
}

fn a_shared_mapping_and_reads_and_writes_see_each_other() {
    with_each_io(|m, io| {
        for way in [OFlags::empty(), OFlags::DIRECT] {
            let path = m.at(&format!("mapped-{}", way.bits()));
            let flags = OFlags::CREATE | OFlags::RDWR | way;
            let file = File::from(open(&path, flags, Mode::from(0o600)).unwrap());
            file.set_len(4 * BLOCK).unwrap();
            let cached = File::options().read(true).write(true).open(&path).unwrap();
            let map = Map::of(&cached, 4 * BLOCK as usize).unwrap();
            map.put(5, 42);
            map.put(3 * BLOCK as usize, 43);
            if io == Io::Direct {
                // What goes past the kernel's cache meets a mapping when that is synced.
                map.sync();
            }
            let mut page = Aligned::of(&[0; 4096]);
            file.read_exact_at(page.bytes_mut(), 0).unwrap();
            assert_eq!(page.bytes()[5], 42, "{io:?} {way:?}: a write to the mapping is read");
            file.write_all_at(Aligned::of(&[6; 4096]).bytes(), BLOCK).unwrap();
            assert_eq!(map.get(BLOCK as usize + 9), 6, "{io:?} {way:?}: a write is seen in the mapping");
            map.put(BLOCK as usize, 44);
            map.sync();
            // Past the kernel's cache: what was synced has reached the server.
            let direct = File::from(open(&path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap());
            direct.read_exact_at(page.bytes_mut(), BLOCK).unwrap();
            assert_eq!((page.bytes()[0], page.bytes()[1]), (44, 6), "{io:?} {way:?}");
            drop(map);
            let all = fs::read(&path).unwrap();
            assert_eq!((all[5], all[4096], all[4097], all[3 * 4096]), (42, 44, 6, 43));
        }
    });
}

/// What was cut off never comes back, neither in the mapping nor by any way of reading; and what is mapped of what
/// is left, and of what comes after, stays the file's.
fn a_file_is_cut_and_grown_under_a_shared_mapping() {
    with_each_io(|m, io| {
        let path = m.at("cut");
        fs::write(&path, [1; 4 * 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let direct = File::from(open(&path, OFlags::RDWR | OFlags::DIRECT, Mode::empty()).unwrap());
        let map = Map::of(&file, 4 * BLOCK as usize).unwrap();
        // All pages are there, and two are newer than what the server has.
        let (tail, last) = (BLOCK as usize + 100, 3 * BLOCK as usize + 7);
        assert!((0..4).all(|page| map.get(page * BLOCK as usize) == 1));
        map.put(tail - 1, 2);
        map.put(last, 3);
        let cut = if io == Io::Auto { &direct } else { &file };
        cut.set_len(tail as u64).unwrap();
        assert_eq!((map.get(tail - 1), map.get(tail), map.get(2 * BLOCK as usize - 1)), (2, 0, 0), "{io:?}");
        cut.set_len(4 * BLOCK).unwrap();
        assert_eq!((map.get(tail), map.get(2 * BLOCK as usize), map.get(last)), (0, 0, 0), "{io:?}");
        map.put(last, 4);
        map.sync();
        let mut expected = vec![0; 4 * BLOCK as usize];
        expected[..tail].fill(1);
        expected[tail - 1] = 2;
        expected[last] = 4;
        let mut back = Aligned::of(&vec![9; 4 * BLOCK as usize]);
        for how in [&file, &direct] {
            how.read_exact_at(back.bytes_mut(), 0).unwrap();
            assert!(back.bytes() == expected, "{io:?}");
        }
        drop(map);
        assert!(fs::read(&path).unwrap() == expected, "{io:?}");
    });
}

on_each_transport!(
    a_shared_mapping_and_reads_and_writes_see_each_other,
    a_file_is_cut_and_grown_under_a_shared_mapping,
);
