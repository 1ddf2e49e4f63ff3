//! Bytes of files: written, read, moved, and holes between them.

use crate::mapped::with_each_io;
use crate::support::{
    Aligned, BLOCK, FIRST_USER, Served, as_user, pattern, refused_with, served, served_with,
};
use narufs_fuse::Caching;
use narufs_fuse::mount::Io;
use rustix::fs::{
    FallocateFlags, Mode, OFlags, SeekFrom, Timestamps, UTIME_NOW, fallocate, futimens, open, seek,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

fn every_way_of_writing_is_read_back_by_every_way_of_reading() {
    for io in [Io::Auto, Io::Cached, Io::Direct] {
        let m = served_with(Caching::Exclusive, |options| options.io = io);
        every_way_is_read_back(&m);
    }
}

fn every_way_is_read_back(m: &Served) {
    let ways = [
        OFlags::empty(),
        OFlags::SYNC,
        OFlags::DSYNC,
        OFlags::DIRECT,
        OFlags::DIRECT | OFlags::SYNC,
        OFlags::DIRECT | OFlags::DSYNC,
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let path = m.at(&format!("file-{n}"));
        let flags = OFlags::CREATE | OFlags::RDWR | way;
        let file = File::from(open(&path, flags, Mode::from(0o600)).unwrap());
        let data = pattern(1 << 20, n as u64);
        let aligned = Aligned::of(&data);
        file.write_all_at(aligned.bytes(), 0).unwrap();
        file.write_all_at(&aligned.bytes()[..8192], 3 << 20).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        for how in [OFlags::empty(), OFlags::DIRECT] {
            let file = File::from(open(&path, OFlags::RDONLY | how, Mode::empty()).unwrap());
            let mut back = Aligned::of(&vec![1; 1 << 20]);
            file.read_exact_at(back.bytes_mut(), 0).unwrap();
            assert!(back.bytes() == data, "{way:?} then {how:?}");
            file.read_exact_at(back.bytes_mut(), 1 << 20).unwrap();
            assert!(back.bytes().iter().all(|b| *b == 0), "the hole reads as zeros");
            assert_eq!(file.metadata().unwrap().len(), (3 << 20) + 8192);
        }
        // What one kind of descriptor writes the other sees at once.
        let cached = File::options().read(true).write(true).open(&path).unwrap();
        let direct = File::from(open(&path, OFlags::RDWR | OFlags::DIRECT, Mode::empty()).unwrap());
        let mut page = Aligned::of(&[0; 4096]);
        cached.write_all_at(&[7; 4096], 0).unwrap();
        direct.read_exact_at(page.bytes_mut(), 0).unwrap();
        assert_eq!(page.bytes(), [7; 4096]);
        direct.write_all_at(Aligned::of(&[9; 4096]).bytes(), 0).unwrap();
        cached.read_exact_at(page.bytes_mut(), 0).unwrap();
        assert_eq!(page.bytes(), [9; 4096]);
    }
}

/// A write of up to a request and a read of the same never mix where the kernel's page cache is not in between.
fn overlapping_reads_and_writes_do_not_mix_in_the_mount() {
    overlapping_reads_and_writes::<{ 20 * BLOCK as usize }>(200);
    overlapping_reads_and_writes::<{ 1 << 20 }>(10);
}

fn overlapping_reads_and_writes<const LEN: usize>(rounds: u8) {
    for (io, how) in [(Io::Direct, OFlags::empty()), (Io::Auto, OFlags::DIRECT), (Io::Cached, OFlags::DIRECT)]
    {
        let m = served_with(Caching::Exclusive, |options| options.io = io);
        let path = m.at("shared");
        let open =
            || File::from(open(&path, OFlags::CREATE | OFlags::RDWR | how, Mode::from(0o600)).unwrap());
        open().write_all_at(Aligned::of(&vec![1; LEN]).bytes(), 0).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let file = open();
                    let mut bytes = Aligned::of(&vec![0; LEN]);
                    while !done.load(Ordering::Relaxed) {
                        file.read_exact_at(bytes.bytes_mut(), 0).unwrap();
                        let first = bytes.bytes()[0];
                        assert!(bytes.bytes().iter().all(|b| *b == first), "{io:?}: parts of two writes");
                    }
                });
            }
            let writers = [3_u8, 4].map(|writer| {
                scope.spawn(move || {
                    let file = open();
                    for round in 0..rounds {
                        let bytes = Aligned::of(&vec![writer + round; LEN]);
                        file.write_all_at(bytes.bytes(), 0).unwrap();
                    }
                })
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// With `io=cached` the kernel holds what is written: partly written pages are completed through a file open for
/// writing alone, times stay those of the writes, and who may write may touch and cut.
fn what_the_kernel_keeps_arrives_whole_with_its_times() {
    let m = served_with(Caching::Exclusive, |options| options.io = Io::Cached);
    let path = m.at("kept");
    let data = pattern(5 * BLOCK as usize, 3);
    fs::write(&path, &data).unwrap();
    drop_kernel_caches(&path);
    let mut wanted = data;
    let written = {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"in the midst", BLOCK + 100).unwrap();
        wanted[BLOCK as usize + 100..][..12].copy_from_slice(b"in the midst");
        let written = file.metadata().unwrap();
        file.sync_all().unwrap();
        written
    };
    drop_kernel_caches(&path);
    assert!(fs::read(&path).unwrap() == wanted);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.mtime(), after.mtime_nsec()), (written.mtime(), written.mtime_nsec()));

    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    as_user(FIRST_USER, || {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"theirs", 0).unwrap();
        file.set_len(7).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect_err("only the owner sets a time");
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        futimens(&file, &Timestamps { last_access: now, last_modification: now }).unwrap();
    });
    assert_eq!(fs::read(&path).unwrap(), [b"theirs".as_slice(), &wanted[6..7]].concat());
}

/// What the kernel holds is bounded, for within a memory limit it would end processes rather than wait for writes.
fn the_kernel_keeps_so_much_and_no_more() {
    let m = served_with(Caching::Exclusive, |options| options.io = Io::Cached);
    let device = fs::metadata(m.at("")).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let most = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/max_bytes"));
    let most = most.expect("missing: a kernel that bounds what it holds (Linux 6.2)");
    let most: u64 = most.trim().parse().unwrap();
    // The kernel keeps a share of what may be dirty, and shows it as bytes of that as it is now: not to the byte.
    assert!((1..=17 << 20).contains(&most), "{most}");
}

/// Has the kernel forget what it holds of a file, once it is written.
fn drop_kernel_caches(path: &std::path::Path) {
    File::open(path).unwrap().sync_all().unwrap();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// A library's readers would not see what the kernel keeps.
fn the_kernel_keeps_no_writes_of_a_file_system_that_others_use() {
    let why = refused_with(Caching::Shared, |options| options.io = Io::Cached);
    assert_eq!(why.kind(), std::io::ErrorKind::InvalidInput);
}

fn appends_through_two_descriptors_do_not_overwrite_each_other() {
    let m = served();
    for way in [OFlags::empty(), OFlags::DIRECT] {
        let path = m.at(&format!("log-{}", way.bits()));
        std::thread::scope(|scope| {
            for byte in [1, 2] {
                let path = &path;
                scope.spawn(move || {
                    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | way;
                    let mut file = File::from(open(path, flags, Mode::from(0o600)).unwrap());
                    let record = Aligned::of(&[byte; BLOCK as usize]);
                    (0..200).for_each(|_| file.write_all(record.bytes()).unwrap());
                });
            }
        });
        let all = fs::read(&path).unwrap();
        assert_eq!(all.len() as u64, 400 * BLOCK, "{way:?}");
        let records: Vec<_> =
            all.chunks(BLOCK as usize).map(|r| (r[0], r.iter().all(|b| *b == r[0]))).collect();
        assert!(records.iter().all(|(_, whole)| *whole));
        assert_eq!(records.iter().filter(|(byte, _)| *byte == 1).count(), 200);
    }
}

fn space_is_given_taken_zeroed_and_moved() {
    let m = served();
    let file = File::options().read(true).write(true).create_new(true).open(m.at("file")).unwrap();
    let mut expected = pattern(16 * BLOCK as usize, 1);
    file.write_all_at(&expected, 0).unwrap();
    let same = |expected: &[u8]| {
        assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
        assert!(fs::read(m.at("file")).unwrap() == expected);
    };
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 100, 2 * BLOCK).unwrap();
    expected[100..100 + 2 * BLOCK as usize].fill(0);
    same(&expected);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 5 * BLOCK + 7, BLOCK).unwrap();
    expected[5 * BLOCK as usize + 7..6 * BLOCK as usize + 7].fill(0);
    same(&expected);
    fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 15 * BLOCK, 4 * BLOCK).unwrap();
    expected[15 * BLOCK as usize..].fill(0);
    same(&expected);
    // The kernel does not pass these on.
    for shift in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, shift, 2 * BLOCK, BLOCK), Err(Errno::OPNOTSUPP));
    }
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 100 * BLOCK).unwrap();
    same(&expected);
    assert!(file.metadata().unwrap().blocks() >= 100 * 8);
    fallocate(&file, FallocateFlags::empty(), 20 * BLOCK, 5 * BLOCK).unwrap();
    expected.resize(25 * BLOCK as usize, 0);
    same(&expected);
    file.set_len(3 * BLOCK + 5).unwrap();
    file.set_len(4 * BLOCK).unwrap();
    expected.truncate(3 * BLOCK as usize + 5);
    expected.resize(4 * BLOCK as usize, 0);
    same(&expected);
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 1 << 40), Err(Errno::NOSPC));
    file.sync_all().unwrap();
    same(&expected);
}

fn data_and_holes_are_found() {
    let m = served();
    let file = File::options().read(true).write(true).create_new(true).open(m.at("file")).unwrap();
    file.write_all_at(&[1; 4096], 10 * BLOCK).unwrap();
    file.set_len(20 * BLOCK).unwrap();
    for synced in [false, true] {
        assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(10 * BLOCK), "synced: {synced}");
        assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(0));
        assert_eq!(seek(&file, SeekFrom::Hole(10 * BLOCK + 5)), Ok(11 * BLOCK));
        assert_eq!(seek(&file, SeekFrom::Data(11 * BLOCK)), Err(Errno::NXIO));
        assert_eq!(seek(&file, SeekFrom::Hole(20 * BLOCK)), Err(Errno::NXIO));
        assert_eq!(seek(&file, SeekFrom::End(0)), Ok(20 * BLOCK));
        file.sync_all().unwrap();
    }
}

fn copies_within_the_file_system_are_exact() {
    let m = served();
    let data = pattern(3_000_000, 3);
    fs::write(m.at("from"), &data).unwrap();
    let from = File::open(m.at("from")).unwrap();
    let to = File::options().read(true).write(true).create_new(true).open(m.at("to")).unwrap();
    let (mut read_at, mut write_at) = (1000, 50);
    while let n @ 1.. =
        rustix::fs::copy_file_range(&from, Some(&mut read_at), &to, Some(&mut write_at), 2_000_000).unwrap()
    {
        assert!(n <= 2_000_000);
    }
    assert_eq!((read_at, write_at), (3_000_000, 2_999_050));
    assert!(fs::read(m.at("to")).unwrap()[50..] == data[1000..]);
    assert_eq!(fs::copy(m.at("from"), m.at("whole")).unwrap(), 3_000_000);
    assert!(fs::read(m.at("whole")).unwrap() == data);
}

/// Where the kernel lets the direct writes of one file go beside each other, and where it does not: neighbours stay
/// whole, and the file grows to the last of them.
fn direct_writers_of_one_file_leave_their_neighbours_alone() {
    const THREADS: u64 = 4;
    const EACH: u64 = 100;
    with_each_io(|m, io| {
        let path = m.at("parts");
        let opened = |flags| File::from(open(&path, flags | OFlags::DIRECT, Mode::from(0o600)).unwrap());
        drop(opened(OFlags::CREATE | OFlags::RDWR));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let opened = &opened;
                scope.spawn(move || {
                    let file = opened(OFlags::RDWR);
                    let mut back = Aligned::of(&[0; 4096]);
                    for round in 0..EACH {
                        let at = (round * THREADS + thread) * BLOCK;
                        let bytes = Aligned::of(&[(1 + thread * 60 + round % 50) as u8; 4096]);
                        file.write_all_at(bytes.bytes(), at).unwrap();
                        file.read_exact_at(back.bytes_mut(), at).unwrap();
                        assert!(back.bytes() == bytes.bytes(), "{io:?}");
                    }
                });
            }
        });
        let all = fs::read(&path).unwrap();
        assert_eq!(all.len() as u64, THREADS * EACH * BLOCK, "{io:?}");
        for (n, page) in all.chunks(BLOCK as usize).enumerate() {
            let (thread, round) = (n as u64 % THREADS, n as u64 / THREADS);
            assert!(page.iter().all(|b| u64::from(*b) == 1 + thread * 60 + round % 50), "{io:?}: page {n}");
        }
    });
}

fn a_full_image_says_so_and_recovers() {
    let m = served();
    let piece = vec![3; 1 << 20];
    let mut file = File::create(m.at("large")).unwrap();
    let error = loop {
        if let Err(e) = file.write_all(&piece) {
            break e;
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(file.metadata().unwrap().len() > 64 << 20);
    drop(file);
    fs::remove_file(m.at("large")).unwrap();
    // The kernel tells of the close and of the end of the inode after both calls have returned.
    fs::write(m.at("small"), &piece).unwrap();
    assert_eq!(fs::read(m.at("small")).unwrap(), piece);
}

/// A process that does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_running_program_is_neither_opened_for_writing_nor_emptied() {
    let m = served();
    let program = m.at("program");
    // Copied by another process: a descriptor for writing of this one could live on in the child of another test.
    assert!(
        Command::new("cp").args(["/bin/sleep".as_ref(), program.as_os_str()]).status().unwrap().success()
    );
    let before = fs::read(&program).unwrap();
    let running = Running(Command::new(&program).arg("1000").spawn().unwrap());
    for flags in
        [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC, OFlags::WRONLY | OFlags::TRUNC]
    {
        assert_eq!(open(&program, flags, Mode::empty()).unwrap_err(), Errno::TXTBSY, "{flags:?}");
        let now = open(&program, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).map(File::from).unwrap();
        assert_eq!(now.metadata().unwrap().len(), before.len() as u64, "{flags:?}");
        assert!(fs::read(&program).unwrap() == before, "{flags:?}");
    }
    drop(running);
    drop(open(&program, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).unwrap());
    assert_eq!(fs::metadata(&program).unwrap().len(), 0);
}

on_each_transport!(
    every_way_of_writing_is_read_back_by_every_way_of_reading,
    overlapping_reads_and_writes_do_not_mix_in_the_mount,
    what_the_kernel_keeps_arrives_whole_with_its_times,
    the_kernel_keeps_so_much_and_no_more,
    the_kernel_keeps_no_writes_of_a_file_system_that_others_use,
    appends_through_two_descriptors_do_not_overwrite_each_other,
    space_is_given_taken_zeroed_and_moved,
    data_and_holes_are_found,
    copies_within_the_file_system_are_exact,
    direct_writers_of_one_file_leave_their_neighbours_alone,
    a_full_image_says_so_and_recovers,
    a_running_program_is_neither_opened_for_writing_nor_emptied,
);
