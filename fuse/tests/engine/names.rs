//! Names: made, moved, listed, removed, and found by handle.

#![allow(unsafe_code, reason = "system calls on file handles, which no crate wraps")]

use crate::support::{Served, served};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, mknodat, open, renameat_with};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn rename_keeps_each_of_its_flags() {
    let m = served();
    let root = File::open(&m.point).unwrap();
    fs::write(m.at("a"), b"a").unwrap();
    fs::write(m.at("b"), b"b").unwrap();
    assert_eq!(renameat_with(&root, "a", &root, "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    renameat_with(&root, "a", &root, "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(m.at("a")).unwrap(), fs::read(m.at("b")).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    renameat_with(&root, "a", &root, "c", RenameFlags::NOREPLACE).unwrap();
    assert_eq!(renameat_with(&root, "c", &root, "d", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    assert_eq!(renameat_with(&root, "c", &root, "d", RenameFlags::WHITEOUT), Err(Errno::INVAL));
    let old = File::open(m.at("b")).unwrap();
    fs::rename(m.at("c"), m.at("b")).unwrap();
    assert_eq!(old.metadata().unwrap().nlink(), 0, "the replaced file lives on while it is open");
    assert_eq!(fs::read(m.at("b")).unwrap(), b"b");
    fs::create_dir_all(m.at("d/e")).unwrap();
    assert_eq!(fs::rename(m.at("d"), m.at("d/e/f")).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(fs::rename(m.at("b"), m.at("d")).unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(fs::rename(m.at("d"), m.at("b")).unwrap_err().kind(), ErrorKind::NotADirectory);
    fs::rename(m.at("d/e"), m.at("e")).unwrap();
    assert_eq!((fs::metadata(m.at("d")).unwrap().nlink(), fs::metadata(m.at("e")).unwrap().nlink()), (2, 2));
    assert_eq!(fs::metadata(m.at("e/..")).unwrap().ino(), fs::metadata(&m.point).unwrap().ino());
}

fn links_and_nodes_of_every_kind_are_made() {
    let m = served();
    let root = File::open(&m.point).unwrap();
    fs::write(m.at("file"), b"text").unwrap();
    fs::hard_link(m.at("file"), m.at("again")).unwrap();
    assert_eq!(fs::metadata(m.at("file")).unwrap().nlink(), 2);
    assert_eq!(fs::hard_link(m.at("file"), m.at("again")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(fs::hard_link(&m.point, m.at("directory")).is_err());
    for len in [1, 100, 1000, 4095] {
        let target = "t".repeat(len);
        symlink(&target, m.at("link")).unwrap();
        assert_eq!(fs::read_link(m.at("link")).unwrap(), Path::new(&target));
        assert_eq!(fs::symlink_metadata(m.at("link")).unwrap().len(), len as u64);
        fs::remove_file(m.at("link")).unwrap();
    }
    for (name, kind) in
        [("fifo", FileType::Fifo), ("socket", FileType::Socket), ("plain", FileType::RegularFile)]
    {
        mknodat(&root, name, kind, Mode::from(0o640), 0).unwrap();
    }
    mknodat(&root, "null", FileType::CharacterDevice, Mode::from(0o666), rustix::fs::makedev(1, 3)).unwrap();
    assert!(fs::metadata(m.at("fifo")).unwrap().file_type().is_fifo());
    assert!(fs::metadata(m.at("socket")).unwrap().file_type().is_socket());
    assert_eq!(fs::metadata(m.at("plain")).unwrap().len(), 0);
    assert_eq!(fs::metadata(m.at("null")).unwrap().rdev(), libc::makedev(1, 3));
    let mut null = File::options().read(true).write(true).open(m.at("null")).unwrap();
    null.write_all(b"gone").unwrap();
    assert_eq!(null.read(&mut [0; 8]).unwrap(), 0);
    let long = "n".repeat(255);
    File::create(m.at(&long)).unwrap();
    assert_eq!(File::create(m.at(&"n".repeat(256))).unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
}

fn creating_keeps_each_of_its_flags() {
    let m = served();
    let path = m.at("file");
    let make = |flags: OFlags| open(&path, flags | OFlags::RDWR, Mode::from(0o666)).map(File::from);
    assert_eq!(make(OFlags::empty()).unwrap_err(), Errno::NOENT);
    make(OFlags::CREATE | OFlags::EXCL).unwrap().write_all(b"0123456789").unwrap();
    assert_eq!(make(OFlags::CREATE | OFlags::EXCL).unwrap_err(), Errno::EXIST);
    assert_eq!(make(OFlags::CREATE).unwrap().metadata().unwrap().len(), 10);
    let mut end = make(OFlags::APPEND).unwrap();
    end.write_all(b"ab").unwrap();
    end.write_all(b"c").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"0123456789abc");
    assert_eq!(make(OFlags::TRUNC).unwrap().metadata().unwrap().len(), 0);
    assert_eq!(make(OFlags::DIRECTORY).unwrap_err(), Errno::NOTDIR);
    symlink("file", m.at("link")).unwrap();
    assert_eq!(open(m.at("link"), OFlags::NOFOLLOW, Mode::empty()).unwrap_err(), Errno::LOOP);
    assert_eq!(open(&m.point, OFlags::WRONLY, Mode::empty()).unwrap_err(), Errno::ISDIR);
    let handle = open(&m.point, OFlags::PATH, Mode::empty()).unwrap();
    assert!(rustix::fs::statat(&handle, "file", AtFlags::empty()).is_ok());
}

fn a_nameless_file_is_gone_or_gets_a_name() {
    let m = served();
    let nameless =
        |flags| open(&m.point, OFlags::TMPFILE | OFlags::RDWR | flags, Mode::from(0o600)).map(File::from);
    let mut kept = nameless(OFlags::empty()).unwrap();
    kept.write_all(b"kept").unwrap();
    assert_eq!(kept.metadata().unwrap().nlink(), 0);
    let proc = format!("/proc/self/fd/{}", kept.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, &*proc, rustix::fs::CWD, m.at("kept"), AtFlags::SYMLINK_FOLLOW)
        .unwrap();
    assert_eq!(fs::read(m.at("kept")).unwrap(), b"kept");
    let never = nameless(OFlags::EXCL).unwrap();
    let proc = format!("/proc/self/fd/{}", never.as_raw_fd());
    let refused =
        rustix::fs::linkat(rustix::fs::CWD, &*proc, rustix::fs::CWD, m.at("never"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(refused, Err(Errno::NOENT));
    assert_eq!(names(&m, "").len(), 1);
}

fn a_removed_file_lives_while_it_is_open() {
    let m = served();
    let free = || rustix::fs::statvfs(&m.point).unwrap().f_bfree;
    let mut file = File::options().read(true).write(true).create_new(true).open(m.at("file")).unwrap();
    file.write_all(&[7; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    let used = free();
    fs::remove_file(m.at("file")).unwrap();
    assert_eq!(fs::metadata(m.at("file")).unwrap_err().kind(), ErrorKind::NotFound);
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().len()), (0, (1 << 20) + 4));
    let mut first = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut first, 1 << 20).unwrap();
    assert_eq!(&first, b"more");
    drop(file);
    // The kernel tells of the close, and then of the forgotten inode, after close(2) has returned.
    assert!(free() >= used + 256, "its blocks come back");
}

fn names(m: &Served, dir: &str) -> Vec<String> {
    let list = fs::read_dir(m.at(dir)).unwrap();
    list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn ten_thousand_names_are_listed_once_while_others_come_and_go() {
    let m = served();
    fs::create_dir(m.at("many")).unwrap();
    let stay: BTreeSet<String> = (0..10_000).map(|n| format!("stay-{n:05}")).collect();
    for name in &stay {
        File::create(m.at("many").join(name)).unwrap();
    }
    let many = m.at("many");
    let change = |round: usize| {
        for n in 0..500 {
            let name = many.join(format!("come-{round}-{n}"));
            File::create(&name).unwrap();
            if n % 2 == 0 {
                fs::remove_file(&name).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| (0..4).for_each(change));
        loop {
            let last = changer.is_finished();
            let all = names(&m, "many");
            let kept: Vec<_> = all.iter().filter(|name| name.starts_with("stay")).collect();
            let once: BTreeSet<_> = all.iter().collect();
            assert_eq!((kept.len(), once.len()), (stay.len(), all.len()), "every name once");
            if last {
                break;
            }
        }
        changer.join().unwrap();
    });
    assert_eq!(names(&m, "many").len(), 10_000 + 4 * 250);
    assert_eq!(fs::remove_dir(&many).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs::remove_dir_all(&many).unwrap();
    assert!(names(&m, "").is_empty());
}

/// What `name_to_handle_at` fills in.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

fn files_are_found_by_handle_until_they_are_gone() {
    let m = served();
    fs::create_dir(m.at("d")).unwrap();
    fs::write(m.at("d/file"), b"text").unwrap();
    let root = File::open(&m.point).unwrap();
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let (mut mount_id, name) = (0, c"d/file");
    // SAFETY: the kernel writes at most `bytes` bytes of data behind the header, which `Handle` has room for, and
    // one int; all outlive the call. Guarded by this test.
    let made = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            root.as_raw_fd(),
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            0,
        )
    };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    let mut find = |flags: i32| {
        // SAFETY: the kernel reads the handle, which outlives the call; a descriptor it gives is owned by nobody
        // else. Guarded by this test.
        unsafe {
            match libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), &raw mut handle, flags) {
                -1 => Err(std::io::Error::last_os_error()),
                fd => Ok(File::from_raw_fd(fd as i32)),
            }
        }
    };
    let mut text = String::new();
    find(libc::O_RDONLY).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    fs::rename(m.at("d/file"), m.at("moved")).unwrap();
    assert_eq!(find(libc::O_RDONLY).unwrap().metadata().unwrap().len(), 4);
    fs::remove_file(m.at("moved")).unwrap();
    narufs_fuse::control::sync(&m.point).unwrap();
    assert_eq!(find(libc::O_RDONLY).unwrap_err().raw_os_error(), Some(libc::ESTALE));
}

fn a_directory_is_made_durable_and_its_mode_counts() {
    let m = served();
    fs::create_dir(m.at("d")).unwrap();
    fs::set_permissions(m.at("d"), fs::Permissions::from_mode(0o2755)).unwrap();
    rustix::fs::chown(m.at("d"), None, Some(rustix::fs::Gid::from_raw(77))).unwrap();
    fs::set_permissions(m.at("d"), fs::Permissions::from_mode(0o2755)).unwrap();
    fs::create_dir(m.at("d/e")).unwrap();
    let made = fs::metadata(m.at("d/e")).unwrap();
    assert_eq!((made.gid(), made.mode() & 0o2000), (77, 0o2000), "setgid of a directory is passed on");
    let dir = File::open(m.at("d")).unwrap();
    dir.sync_all().unwrap();
    dir.sync_data().unwrap();
    fs::remove_dir(m.at("d/e")).unwrap();
    assert_eq!(fs::metadata(m.at("d")).unwrap().nlink(), 2);
    fs::remove_dir(m.at("d")).unwrap();
    dir.sync_all().unwrap();
    assert!(File::create(format!("/proc/self/fd/{}/x", dir.as_raw_fd())).is_err());
}

on_each_transport!(
    rename_keeps_each_of_its_flags,
    links_and_nodes_of_every_kind_are_made,
    creating_keeps_each_of_its_flags,
    a_nameless_file_is_gone_or_gets_a_name,
    a_removed_file_lives_while_it_is_open,
    ten_thousand_names_are_listed_once_while_others_come_and_go,
    files_are_found_by_handle_until_they_are_gone,
    a_directory_is_made_durable_and_its_mode_counts,
);
