//! Names, bytes and attributes through the mount.

use crate::support::{mounted, mounted_with, pattern};
use narufs_fuse::ServerConfig;
use narufs_fuse::wire::OpenFlags;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, StatxFlags, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn names_are_made_moved_listed_and_removed() {
    let m = mounted();
    let at = |name: &str| m.point.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/a"), b"text").unwrap();
    assert_eq!(File::create_new(at("d/a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    fs::hard_link(at("d/a"), at("b")).unwrap();
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 2);
    symlink("../d/a", at("d/link")).unwrap();
    assert_eq!(fs::read_link(at("d/link")).unwrap(), Path::new("../d/a"));
    assert_eq!(fs::read(at("d/link")).unwrap(), b"text");
    fs::rename(at("b"), at("d/c")).unwrap();
    assert_eq!(fs::read(at("b")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::remove_dir(at("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    let root = File::open(&m.point).unwrap();
    rustix::fs::renameat_with(&root, "d/a", &root, "d/link", RenameFlags::EXCHANGE).unwrap();
    assert!(at("d/a").is_symlink() && !at("d/link").is_symlink());
    let taken = rustix::fs::renameat_with(&root, "d/a", &root, "d/link", RenameFlags::NOREPLACE);
    assert_eq!(taken, Err(rustix::io::Errno::EXIST));

    fs::create_dir(at("many")).unwrap();
    let wanted: Vec<_> = (0..3000).map(|n| format!("name-{n:05}-{}", "x".repeat(n % 60))).collect();
    for name in &wanted {
        File::create(at("many").join(name)).unwrap();
    }
    let mut found: Vec<_> = fs::read_dir(at("many"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().is_file());
            entry.file_name().into_string().unwrap()
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, wanted);
    fs::remove_dir_all(at("many")).unwrap();
    fs::remove_dir_all(at("d")).unwrap();
    assert_eq!(fs::read_dir(&m.point).unwrap().count(), 0);
}

fn large_reads_and_writes_by_two_threads_are_exact() {
    for flags in [OpenFlags::empty(), OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES] {
        let m = mounted_with(flags, ServerConfig::default());
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let path = m.point.join(format!("file-{seed}"));
                scope.spawn(move || {
                    let data = pattern(9 * 1024 * 1024 + 123, seed);
                    let mut options = OpenOptions::new();
                    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
                    for (at, piece) in data.chunks(3 * 1024 * 1024 + 77).enumerate() {
                        file.write_all_at(piece, (at * (3 * 1024 * 1024 + 77)) as u64).unwrap();
                    }
                    assert!(fs::read(&path).unwrap() == data, "{}", path.display());
                    let mut middle = vec![0; 2 * 1024 * 1024];
                    file.read_exact_at(&mut middle, 1234567).unwrap();
                    assert!(middle == data[1234567..][..middle.len()]);
                    file.set_len(5000).unwrap();
                    file.sync_all().unwrap();
                    assert_eq!(fs::read(&path).unwrap(), data[..5000]);
                });
            }
        });
    }
}

fn attributes_of_all_kinds_pass() {
    let m = mounted();
    let path = m.point.join("file");
    let file = File::create(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    rustix::fs::setxattr(&path, "user.one", b"1", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.two", &[7; 60000], XattrFlags::empty()).unwrap();
    let mut value = vec![0; 65536];
    assert_eq!(rustix::fs::getxattr(&path, "user.two", &mut value), Ok(60000));
    assert_eq!(rustix::fs::getxattr(&path, "user.two", &mut value[..10]), Err(rustix::io::Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(&path, "user.none", &mut value), Err(rustix::io::Errno::NODATA));
    assert_eq!(rustix::fs::listxattr(&path, &mut value), Ok(18));
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(5));
    file.set_times(times).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()), (0o640, 0, 5));
    assert_eq!(rustix::fs::statvfs(&m.point).unwrap().f_bavail, 40);
    if m.server.features().minor >= 39 {
        let got = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).unwrap();
        assert_eq!((got.stx_btime.tv_sec, got.stx_btime.tv_nsec), (7, 8));
    }
    let nameless = rustix::fs::open(&m.point, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).unwrap();
    File::from(nameless).write_all(b"gone when closed").unwrap();
    assert_eq!(fs::read_dir(&m.point).unwrap().count(), 1);
}

fn copy_within_the_file_system_passes() {
    let m = mounted();
    let data = pattern(300_000, 3);
    fs::write(m.point.join("from"), &data).unwrap();
    let from = File::open(m.point.join("from")).unwrap();
    let to = File::create(m.point.join("to")).unwrap();
    let (mut read_at, mut write_at) = (1000, 50);
    let copied = rustix::fs::copy_file_range(&from, Some(&mut read_at), &to, Some(&mut write_at), 200_000);
    assert_eq!(copied, Ok(200_000));
    assert_eq!(fs::read(m.point.join("to")).unwrap()[50..], data[1000..][..200_000]);
}

on_each_transport!(
    names_are_made_moved_listed_and_removed,
    large_reads_and_writes_by_two_threads_are_exact,
    attributes_of_all_kinds_pass,
    copy_within_the_file_system_passes,
);
