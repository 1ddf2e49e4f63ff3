//! Attributes, times, extended attributes, access lists, permissions.

use crate::support::{FIRST_USER, SECOND_USER, as_user, refused_with, served, served_as, served_with};
use narufs_engine::vfs::AtimePolicy;
use narufs_engine::volume::AssembleOptions;
use narufs_fuse::Caching;
use narufs_fuse::mount::{FuseOptions, Io, Permissions as Checks};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, StatxFlags, Timespec, Timestamps, XattrFlags, fallocate, statx, utimensat,
};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

fn times(path: &Path) -> [(i64, i64); 3] {
    let meta = fs::metadata(path).unwrap();
    [(meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())]
}

fn times_are_set_to_the_nanosecond_to_now_or_left() {
    let m = served();
    let path = m.at("file");
    fs::write(&path, b"").unwrap();
    let set = |access: (i64, i64), modification: (i64, i64)| {
        let at = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: at(access), last_modification: at(modification) };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    };
    let (now, omit) = (libc::UTIME_NOW, libc::UTIME_OMIT);
    set((1, 123_456_789), (-5, 999_999_999));
    assert_eq!(times(&path)[..2], [(1, 123_456_789), (-5, 999_999_999)]);
    set((0, omit), (7, 8));
    assert_eq!(times(&path)[..2], [(1, 123_456_789), (7, 8)]);
    set((0, now), (0, omit));
    assert!(times(&path)[0].0 > 1_000_000_000 && times(&path)[1] == (7, 8));
    let before = times(&path)[2];
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(times(&path)[2] > before && times(&path)[1] == (7, 8), "chmod changes ctime alone");
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"x").unwrap();
    assert!(times(&path)[1] > (1_000_000_000, 0));
    let stat = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME | StatxFlags::BASIC_STATS).unwrap();
    if stat.stx_mask & StatxFlags::BTIME.bits() != 0 {
        let born = (stat.stx_btime.tv_sec, i64::from(stat.stx_btime.tv_nsec));
        assert!(born > (1_000_000_000, 0) && born <= before);
    }
}

fn room_is_told() {
    let m = served();
    let before = rustix::fs::statvfs(&m.point).unwrap();
    assert_eq!((before.f_bsize, before.f_namemax), (4096, 255));
    assert!(before.f_bfree <= before.f_blocks && before.f_bavail <= before.f_bfree && before.f_ffree > 0);
    fs::write(m.at("file"), vec![1; 8 << 20]).unwrap();
    narufs_fuse::control::sync(&m.point).unwrap();
    let after = rustix::fs::statvfs(&m.point).unwrap();
    assert!(before.f_bfree - after.f_bfree >= 2048, "delayed or not, 8 MiB are taken");
    let rest = File::create(m.at("rest")).unwrap();
    let free = rustix::fs::statvfs(&m.point).unwrap();
    assert_eq!(free.f_bavail, free.f_bfree, "for root, too");
    let all = free.f_bavail * free.f_frsize;
    fallocate(&rest, FallocateFlags::empty(), 0, all).unwrap();
    let more = fallocate(&rest, FallocateFlags::empty(), all, 1 << 20);
    assert_eq!(more, Err(Errno::NOSPC));
}

fn a_trim_of_nothing_is_refused() {
    let m = served();
    let size = narufs_fuse::control::size(&m.point).unwrap();
    let trim = |range| narufs_fuse::control::trim(&m.point, range, 0).map_err(|e| e.raw_os_error());
    for bad in [size..u64::MAX, size..size + 4096, u64::MAX..u64::MAX, 0..0, 4096..8191] {
        assert_eq!(trim(bad.clone()), Err(Some(libc::EINVAL)), "{bad:?}");
    }
    assert!(trim(0..u64::MAX).unwrap() > 0 && trim(size - 4096..u64::MAX).is_ok());
}

fn extended_attributes_keep_their_rules() {
    let m = served();
    let path = m.at("file");
    fs::write(&path, b"").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let get = |name: &str| {
        let mut value = vec![0; 65536];
        rustix::fs::getxattr(&path, name, &mut value).map(|n| value[..n].to_vec())
    };
    set("user.one", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.one", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    set("user.one", b"2", XattrFlags::REPLACE).unwrap();
    assert_eq!(set("user.two", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.empty", b"", XattrFlags::empty()).unwrap();
    set("trusted.root", b"t", XattrFlags::empty()).unwrap();
    set("security.label", b"s", XattrFlags::empty()).unwrap();
    set("user.long", &[1; 2000], XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.long", &mut [0u8; 100]), Err(Errno::RANGE));
    assert_eq!((get("user.one").unwrap(), get("user.empty").unwrap()), (b"2".to_vec(), Vec::new()));
    assert_eq!(get("user.none"), Err(Errno::NODATA));
    let mut list = vec![0; 1024];
    let listed = rustix::fs::listxattr(&path, &mut list).unwrap();
    let listed = String::from_utf8(list[..listed].to_vec()).unwrap();
    assert!(listed.contains("user.one\0") && listed.contains("trusted.root\0"));
    rustix::fs::removexattr(&path, "user.one").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.one"), Err(Errno::NODATA));
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    as_user(FIRST_USER, || {
        assert_eq!(rustix::fs::getxattr(&path, "trusted.root", &mut [0u8; 8]), Err(Errno::NODATA));
        assert_eq!(rustix::fs::setxattr(&path, "trusted.x", b"", XattrFlags::empty()), Err(Errno::PERM));
        rustix::fs::setxattr(&path, "user.theirs", b"v", XattrFlags::empty()).unwrap();
    });
    assert_eq!(get("user.theirs").unwrap(), b"v");
}

/// An access list as setfacl(1) passes it: tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&perm.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NOBODY: u32 = u32::MAX;

fn access_lists_hold(who: Checks) {
    let m = served_with(Caching::Exclusive, |o| o.permissions = Some(who));
    let path = m.at("file");
    fs::write(&path, b"secret").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let list = acl(&[
        (USER_OBJ, 6, NOBODY),
        (USER, 4, FIRST_USER),
        (GROUP_OBJ, 0, NOBODY),
        (MASK, 4, NOBODY),
        (OTHER, 0, NOBODY),
    ]);
    rustix::fs::setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
    let mut value = vec![0; 1024];
    let len = rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value).unwrap();
    assert_eq!(value[..len], list);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640, "the group bits show the mask");
    as_user(FIRST_USER, || {
        assert_eq!(fs::read(&path).unwrap(), b"secret");
        assert_eq!(File::options().write(true).open(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
    as_user(SECOND_USER, || {
        assert_eq!(fs::read(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    as_user(FIRST_USER, || {
        assert_eq!(fs::read(&path).unwrap_err().kind(), ErrorKind::PermissionDenied, "chmod sets the mask");
    });
    assert!(
        rustix::fs::setxattr(&path, "system.posix_acl_access", b"nonsense", XattrFlags::empty()).is_err()
    );

    fs::create_dir(m.at("d")).unwrap();
    let inherited = acl(&[
        (USER_OBJ, 7, NOBODY),
        (USER, 7, FIRST_USER),
        (GROUP_OBJ, 5, NOBODY),
        (MASK, 7, NOBODY),
        (OTHER, 0, NOBODY),
    ]);
    rustix::fs::setxattr(m.at("d"), "system.posix_acl_default", &inherited, XattrFlags::empty()).unwrap();
    fs::create_dir(m.at("d/e")).unwrap();
    let len = rustix::fs::getxattr(m.at("d/e"), "system.posix_acl_default", &mut value).unwrap();
    assert_eq!(value[..len], inherited);
    File::create(m.at("d/e/file")).unwrap();
    as_user(FIRST_USER, || File::options().write(true).open(m.at("d/e/file")).map(drop)).unwrap_or_else(
        |e| {
            panic!("the list is inherited: {e}");
        },
    );
    rustix::fs::removexattr(m.at("d"), "system.posix_acl_default").unwrap();
}

fn access_lists_hold_where_the_server_checks() {
    access_lists_hold(Checks::Server);
}

fn access_lists_hold_where_the_kernel_checks() {
    access_lists_hold(Checks::Kernel);
}

fn permissions_hold(who: Checks) {
    let m = served_with(Caching::Exclusive, |o| o.permissions = Some(who));
    as_user(FIRST_USER, || {
        fs::create_dir(m.at("own")).unwrap();
        fs::create_dir(m.at("own/open")).unwrap();
        fs::write(m.at("own/open/file"), b"mine").unwrap();
        fs::set_permissions(m.at("own/open/file"), Permissions::from_mode(0o644)).unwrap();
    });
    let read = || as_user(SECOND_USER, || fs::read(m.at("own/open/file")).map_err(|e| e.kind()));
    let stat =
        || as_user(SECOND_USER, || fs::metadata(m.at("own/open/file")).map(drop).map_err(|e| e.kind()));
    let denied = Err(ErrorKind::PermissionDenied);
    assert_eq!(read(), Ok(b"mine".to_vec()));
    for round in 0..3 {
        // The kernel has every name on the way in its cache now, from both users.
        as_user(FIRST_USER, || fs::set_permissions(m.at("own"), Permissions::from_mode(0o700))).unwrap();
        assert_eq!((read(), stat()), (denied.clone(), Err(ErrorKind::PermissionDenied)), "round {round}");
        as_user(FIRST_USER, || fs::read(m.at("own/open/file")).map(drop)).unwrap();
        assert_eq!(read(), denied, "what the owner looked up is not the other's, round {round}");
        as_user(FIRST_USER, || fs::set_permissions(m.at("own"), Permissions::from_mode(0o755))).unwrap();
        assert_eq!((read(), stat()), (Ok(b"mine".to_vec()), Ok(())));
        let only_first = acl(&[
            (USER_OBJ, 7, NOBODY),
            (USER, 0, SECOND_USER),
            (GROUP_OBJ, 5, NOBODY),
            (MASK, 5, NOBODY),
            (OTHER, 5, NOBODY),
        ]);
        let list = "system.posix_acl_access";
        as_user(FIRST_USER, || rustix::fs::setxattr(m.at("own"), list, &only_first, XattrFlags::empty()))
            .unwrap();
        assert_eq!(
            (read(), stat()),
            (denied.clone(), Err(ErrorKind::PermissionDenied)),
            "by list, round {round}"
        );
        as_user(FIRST_USER, || rustix::fs::removexattr(m.at("own"), list)).unwrap();
        assert_eq!(read(), Ok(b"mine".to_vec()));
        // A whole tree moves below a directory that only its owner may search.
        as_user(FIRST_USER, || {
            fs::create_dir(m.at("closed")).unwrap();
            fs::set_permissions(m.at("closed"), Permissions::from_mode(0o700)).unwrap();
            fs::rename(m.at("own"), m.at("closed/own")).unwrap();
            fs::read(m.at("closed/own/open/file")).unwrap();
        });
        let moved = || as_user(SECOND_USER, || fs::read(m.at("closed/own/open/file")).map_err(|e| e.kind()));
        assert_eq!(moved(), denied, "moved, round {round}");
        as_user(FIRST_USER, || {
            fs::rename(m.at("closed/own"), m.at("own")).unwrap();
            fs::remove_dir(m.at("closed")).unwrap();
        });
        assert_eq!(read(), Ok(b"mine".to_vec()));
    }
    as_user(SECOND_USER, || {
        assert_eq!(File::create(m.at("own/theirs")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(fs::remove_file(m.at("own/open/file")).unwrap_err().kind(), ErrorKind::PermissionDenied);
        let chown = std::os::unix::fs::chown(m.at("own/open/file"), Some(SECOND_USER), None);
        assert_eq!(chown.unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
}

fn permissions_hold_cached_or_not_where_the_server_checks() {
    permissions_hold(Checks::Server);
}

fn permissions_hold_cached_or_not_where_the_kernel_checks() {
    permissions_hold(Checks::Kernel);
}

fn setuid_is_lost_when_others_write_or_the_owner_changes() {
    for who in [Checks::Server, Checks::Kernel] {
        let m = served_with(Caching::Exclusive, |o| o.permissions = Some(who));
        let path = m.at("program");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::write(&path, b"").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(mode(), 0o6777);
        as_user(FIRST_USER, || File::options().append(true).open(&path).unwrap().write_all(b"x")).unwrap();
        assert_eq!(mode(), 0o777, "{who:?}");
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        std::os::unix::fs::chown(&path, Some(FIRST_USER), Some(FIRST_USER)).unwrap();
        assert_eq!(mode(), 0o777);
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        as_user(SECOND_USER, || File::options().write(true).truncate(true).open(&path).map(drop)).unwrap();
        assert_eq!(mode(), 0o777);
    }
}

/// By one who is not privileged the kernel removes it as that user, before the change.
fn a_capability_and_setuid_are_lost_whoever_changes_the_file() {
    for (who, io) in [
        (Checks::Server, Io::Auto),
        (Checks::Server, Io::Direct),
        (Checks::Kernel, Io::Auto),
        (Checks::Kernel, Io::Cached),
    ] {
        let m = served_with(Caching::Exclusive, |o| {
            o.permissions = Some(who);
            o.io = io;
        });
        let path = m.at("program");
        fs::write(&path, vec![1; 16384]).unwrap();
        fs::write(m.at("other"), b"text").unwrap();
        let words = [0x0200_0001u32, 1 << 10, 0, 0, 0];
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let open = |flags| File::options().write(true).custom_flags(flags).open(&path);
        let allocate = |flags| Ok(fallocate(open(0)?, flags, 0, 4096)?);
        let write = |flags| {
            let mut block = narufs_engine::device::IoBuf::zeroed(4096);
            block.fill(7);
            open(flags)?.write_all_at(&block, 0)
        };
        let copy = || {
            let (from, to) = (File::open(m.at("other"))?, open(0)?);
            let copied = rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 4)?;
            assert_eq!(copied, 4);
            Ok(())
        };
        let keep = FallocateFlags::KEEP_SIZE;
        let changes: [(&str, &(dyn Fn() -> std::io::Result<()> + Sync)); 9] = [
            ("allocate", &|| allocate(FallocateFlags::empty())),
            ("allocate, keeping the size", &|| allocate(keep)),
            ("punch", &|| allocate(FallocateFlags::PUNCH_HOLE | keep)),
            ("zero", &|| allocate(FallocateFlags::ZERO_RANGE)),
            ("write", &|| write(0)),
            ("O_DIRECT", &|| write(libc::O_DIRECT)),
            ("O_TRUNC", &|| write(libc::O_TRUNC)),
            ("truncate", &|| open(0)?.set_len(9)),
            ("copy_file_range", &copy),
        ];
        for (what, change) in changes {
            let about = format!("{what}, {io:?}, {who:?}");
            for (before, after) in [(0o6777, 0o777), (0o6767, 0o767)] {
                fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
                rustix::fs::setxattr(&path, "security.capability", &value, XattrFlags::empty()).unwrap();
                assert_eq!(rustix::fs::getxattr(&path, "security.capability", &mut [0u8; 20]), Ok(20));
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, before);
                as_user(FIRST_USER, || change().unwrap_or_else(|e| panic!("{about}: {e}")));
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, after, "{about}");
                let left = rustix::fs::getxattr(&path, "security.capability", &mut [0u8; 20]);
                assert_eq!(left, Err(Errno::NODATA), "{about}");
            }
        }
        // Nobody else may take it away, where the kernel holds to that: some with the BPF LSM do so on no file system.
        let elsewhere = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let removed = [path.as_path(), elsewhere.path()].map(|path| {
            rustix::fs::setxattr(path, "security.capability", &value, XattrFlags::empty()).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
            let removed = as_user(FIRST_USER, || rustix::fs::removexattr(path, "security.capability"));
            (removed, rustix::fs::getxattr(path, "security.capability", &mut [0u8; 20]))
        });
        match who {
            Checks::Kernel => assert_eq!(removed[0], removed[1]),
            Checks::Server => assert_eq!(removed[0].1, Ok(20)),
        }
    }
}

/// Read after read, through whatever cache, and of a directory.
fn every_read_changes_a_strict_access_time() {
    for io in [Io::Auto, Io::Direct] {
        let mut files = AssembleOptions::default();
        files.fs.atime = AtimePolicy::Strict;
        let m = served_as(Caching::Exclusive, files, |o| o.io = io);
        let path = m.at("file");
        fs::write(&path, b"text").unwrap();
        fs::create_dir(m.at("dir")).unwrap();
        fs::write(m.at("dir/entry"), b"").unwrap();
        let open = File::open(&path).unwrap();
        let read = |file: &File| assert_eq!(file.read_at(&mut [0; 8], 0).unwrap(), 4);
        let reads: [(&Path, &dyn Fn()); 3] = [
            (&path, &|| read(&File::open(&path).unwrap())),
            (&path, &|| read(&open)),
            (&m.at("dir"), &|| assert_eq!(fs::read_dir(m.at("dir")).unwrap().count(), 1)),
        ];
        for (path, read) in reads {
            for round in 0..3 {
                let before = times(path)[0];
                read();
                assert!(times(path)[0] > before, "{}, read {round}, {io:?}", path.display());
            }
        }
    }
}

fn a_capability_is_lost_when_the_file_changes_by_the_kernel_s_cache_or_past_it() {
    for caching in [Caching::Exclusive, Caching::Shared] {
        let m = served_with(caching, |_| {});
        let path = m.at("program");
        fs::write(&path, b"text").unwrap();
        // Of the second version, effective: CAP_NET_BIND_SERVICE.
        let words = [0x0200_0001u32, 1 << 10, 0, 0, 0];
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let write = |flags: i32| {
            let file = File::options().write(true).custom_flags(flags).open(&path)?;
            let mut block = narufs_engine::device::IoBuf::zeroed(4096);
            block.fill(7);
            file.write_all_at(&block, 0)
        };
        let truncate = || File::options().write(true).open(&path)?.set_len(3);
        let changes: [(&str, &dyn Fn() -> std::io::Result<()>); 4] = [
            ("write", &|| write(0)),
            ("O_DIRECT", &|| write(libc::O_DIRECT)),
            ("O_TRUNC", &|| write(libc::O_TRUNC)),
            ("truncate", &truncate),
        ];
        for (what, change) in changes {
            rustix::fs::setxattr(&path, "security.capability", &value, XattrFlags::empty()).unwrap();
            let mut found = [0; 20];
            assert_eq!(rustix::fs::getxattr(&path, "security.capability", &mut found), Ok(20));
            change().unwrap();
            let left = rustix::fs::getxattr(&path, "security.capability", &mut found);
            assert_eq!(left, Err(Errno::NODATA), "{what}, {caching:?}");
        }
    }
}

fn without_extended_attributes_the_rest_goes_on() {
    let m = served_with(Caching::Exclusive, |o| o.xattr = false);
    let path = m.at("file");
    fs::write(&path, b"text").unwrap();
    for _ in 0..2 {
        let set = rustix::fs::setxattr(&path, "user.a", b"1", XattrFlags::empty());
        assert_eq!(set, Err(Errno::OPNOTSUPP));
        let mut found = [0; 8];
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut found), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::listxattr(&path, &mut found), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(Errno::NODATA));
    }
    File::options().append(true).open(&path).unwrap().write_all(b" and more").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"text and more");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let read = as_user(FIRST_USER, || fs::read(&path).map_err(|e| e.kind()));
    assert_eq!(read, Err(ErrorKind::PermissionDenied));
    let both = |o: &mut FuseOptions| (o.xattr, o.permissions) = (false, Some(Checks::Kernel));
    let why = refused_with(Caching::Exclusive, both);
    assert_eq!(why.kind(), ErrorKind::InvalidInput, "the kernel would see no access lists");
}

on_each_transport!(
    times_are_set_to_the_nanosecond_to_now_or_left,
    room_is_told,
    a_trim_of_nothing_is_refused,
    extended_attributes_keep_their_rules,
    access_lists_hold_where_the_server_checks,
    access_lists_hold_where_the_kernel_checks,
    permissions_hold_cached_or_not_where_the_server_checks,
    permissions_hold_cached_or_not_where_the_kernel_checks,
    setuid_is_lost_when_others_write_or_the_owner_changes,
    a_capability_is_lost_when_the_file_changes_by_the_kernel_s_cache_or_past_it,
    a_capability_and_setuid_are_lost_whoever_changes_the_file,
    every_read_changes_a_strict_access_time,
    without_extended_attributes_the_rest_goes_on,
);
