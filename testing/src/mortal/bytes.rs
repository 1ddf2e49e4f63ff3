//! Calls that change the bytes of files, and how many there are.

use super::cases::{
    COMMITS, Case, Held, LOOKS, MOVES, RECORDS, Room, WRITES, WRITES_THROUGH, file, open_file, pattern,
};
use crate::requests::report::kernel;
use narufs_fuse::control::{self, Growth};
use narufs_fuse::wire::Opcode;
use rustix::fs::{self, FallocateFlags, OFlags};
use rustix::io::{pwrite, write};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

const PAGE: u64 = 4096;

fn appended(room: &Room) -> io::Result<Held> {
    file(room)?;
    Ok(Held { files: vec![room.open("file", OFlags::RDWR | OFlags::APPEND)?] })
}

fn direct(room: &Room) -> io::Result<Held> {
    file(room)?;
    Ok(Held { files: vec![room.open("file", OFlags::RDWR | OFlags::DIRECT)?] })
}

fn synced(room: &Room) -> io::Result<Held> {
    file(room)?;
    Ok(Held { files: vec![room.open("file", OFlags::RDWR | OFlags::DSYNC)?] })
}

fn durable(room: &Room) -> io::Result<Held> {
    let held = long(room)?;
    fs::fsync(&held.files[0])?;
    Ok(held)
}

/// Of ten pages and some.
fn long(room: &Room) -> io::Result<Held> {
    Ok(Held { files: vec![room.file("file", 45_000, 3)?] })
}

fn empty(room: &Room) -> io::Result<Held> {
    Ok(Held { files: vec![room.file("file", 0, 0)?] })
}

fn two(room: &Room) -> io::Result<Held> {
    Ok(Held { files: vec![room.file("file", 30_000, 1)?, room.file("other", 5000, 2)?] })
}

fn directory(room: &Room) -> io::Result<Held> {
    file(room)?;
    Ok(Held { files: vec![room.open(".", OFlags::RDONLY | OFlags::DIRECTORY)?] })
}

fn wrote(held: &Held, len: usize, offset: u64) -> io::Result<String> {
    Ok(pwrite(&held.files[0], &pattern(len, 9), offset)?.to_string())
}

fn append(held: &Held, len: usize) -> io::Result<String> {
    Ok(write(&held.files[0], &pattern(len, 9))?.to_string())
}

fn resized(held: &Held, size: u64) -> io::Result<String> {
    fs::ftruncate(&held.files[0], size)?;
    Ok(String::new())
}

fn allocated(held: &Held, mode: FallocateFlags, offset: u64, len: u64) -> io::Result<String> {
    fs::fallocate(&held.files[0], mode, offset, len)?;
    Ok(String::new())
}

fn copied(held: &Held, len: usize) -> io::Result<String> {
    let (mut from, mut to) = (1000, 2000);
    let [source, target] = [&held.files[0], &held.files[1]];
    Ok(fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), len)?.to_string())
}

pub fn cases() -> Vec<Case> {
    use FallocateFlags as Mode;
    use Opcode::*;
    vec![
        Case::new("write within a page", Write, WRITES, open_file, |_, held| wrote(held, 100, 50)),
        Case::new("write over the end", Write, WRITES, open_file, |_, held| wrote(held, 10_000, 3000)),
        Case::new("write far beyond the end", Write, WRITES, open_file, |_, held| wrote(held, 100, 1 << 20)),
        Case::new("write to an empty file", Write, WRITES, empty, |_, held| wrote(held, 5000, 0)),
        Case::new("append", Write, WRITES, appended, |_, held| append(held, 3000)),
        Case::new("append, past the kernel's cache", Write, WRITES, appended, |_, held| append(held, 3000))
            .asked(),
        Case::new("write, past the kernel's cache", Write, WRITES, open_file, |_, held| {
            wrote(held, 10_000, 3000)
        })
        .asked(),
        Case::new("write with O_DIRECT", Write, WRITES_THROUGH, direct, |_, held| {
            wrote_aligned(held, 2 * PAGE, PAGE)
        }),
        Case::new("write with O_DSYNC", Write, WRITES, synced, |_, held| wrote(held, 3000, 5000)),
        Case::new("what follows a write with O_DSYNC", Fsync, COMMITS, synced, |_, held| {
            wrote(held, 3000, 5000)
        }),
        Case::new("truncate to less", Setattr, RECORDS, open_file, |_, held| resized(held, 5000)),
        Case::new("truncate what is durable to less", Setattr, RECORDS, durable, |_, held| {
            resized(held, 5000)
        }),
        Case::new("truncate to nothing", Setattr, RECORDS, durable, |_, held| resized(held, 0)),
        Case::new("truncate to more", Setattr, RECORDS, open_file, |_, held| resized(held, 50_000)),
        Case::new("fsync", Fsync, COMMITS, open_file, |_, held| {
            fs::fsync(&held.files[0])?;
            Ok(String::new())
        }),
        Case::new("fsync of a directory", Fsyncdir, LOOKS, directory, |_, held| {
            fs::fsync(&held.files[0])?;
            Ok(String::new())
        }),
        Case::new("sync everything", Ioctl, COMMITS, open_file, |r, _| {
            control::sync(&mount(r))?;
            Ok(String::new())
        }),
        Case::new("grow the file system", Ioctl, COMMITS, open_file, |r, _| {
            let before = control::size(&mount(r))?;
            let after = control::resize(&mount(r), Growth::By(16 << 20), true)?;
            Ok(format!("{:?}", after.map(|after| after - before)))
        }),
        Case::new("allocate", Fallocate, RECORDS, durable, |_, held| {
            allocated(held, Mode::empty(), 40_000, 60_000)
        })
        .measured(),
        Case::new("allocate beyond the end", Fallocate, RECORDS, durable, |_, held| {
            allocated(held, Mode::KEEP_SIZE, 40_000, 60_000)
        })
        .measured(),
        Case::new("punch a hole", Fallocate, RECORDS, durable, |_, held| {
            allocated(held, Mode::PUNCH_HOLE | Mode::KEEP_SIZE, 5000, 20_000)
        })
        .measured(),
        Case::new("punch a hole into what is not down", Fallocate, MOVES, long, |_, held| {
            allocated(held, Mode::PUNCH_HOLE | Mode::KEEP_SIZE, 5000, 20_000)
        }),
        Case::new("zero a range", Fallocate, RECORDS, durable, |_, held| {
            allocated(held, Mode::ZERO_RANGE, 5000, 60_000)
        }),
        Case::new("copy between files", copies(), WRITES, two, |_, held| copied(held, 20_000)),
    ]
}

/// Where the mount is, as those ask that take its path.
fn mount(room: &Room) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/..", room.dir.as_raw_fd()))
}

/// By Linux 6.18 the answer has 64 bits.
fn copies() -> Opcode {
    let version = kernel().unwrap_or_default();
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    if version >= (Some(6), Some(18)) { Opcode::CopyFileRange64 } else { Opcode::CopyFileRange }
}

/// From a place that a device can read from.
fn wrote_aligned(held: &Held, len: u64, offset: u64) -> io::Result<String> {
    let mut room = vec![0; (len + PAGE) as usize];
    let skip = room.as_ptr().align_offset(PAGE as usize);
    let bytes = &mut room[skip..][..len as usize];
    bytes.copy_from_slice(&pattern(len as usize, 9));
    Ok(pwrite(&held.files[0], bytes, offset)?.to_string())
}
