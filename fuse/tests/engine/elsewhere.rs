//! Who may do what, compared with a file system that the kernel serves itself, whoever checks permissions here.

use crate::support::{FIRST_USER, SECOND_USER, Served, as_user, served_with};
use narufs_fuse::Caching;
use narufs_fuse::mount::Permissions as Checks;
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown};
use std::path::Path;
use tempfile::TempDir;

/// A mount whose permissions are checked so, and a directory of the kernel's, for everybody both.
fn both(who: Checks) -> (Served, TempDir) {
    let elsewhere = TempDir::new_in("/dev/shm").unwrap();
    fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o777)).unwrap();
    (served_with(Caching::Exclusive, |o| o.permissions = Some(who)), elsewhere)
}

const CAPABILITY: &str = "security.capability";

fn give_capability(path: &Path) {
    let words = [0x0200_0001u32, 1 << 10, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    setxattr(path, CAPABILITY, &value, XattrFlags::empty()).unwrap();
}

fn has_capability(path: &Path) -> bool {
    match getxattr(path, CAPABILITY, &mut [0u8; 20]) {
        Ok(_) => true,
        Err(Errno::NODATA) => false,
        Err(e) => panic!("{}: {e}", path.display()),
    }
}

/// The kernel takes it away before it asks for the change, where it does not check who may.
fn a_change_that_is_refused_leaves_the_capability() {
    for who in [Checks::Server, Checks::Kernel] {
        let (m, elsewhere) = both(who);
        let changes: [(&str, &(dyn Fn(&Path) -> std::io::Result<()> + Sync)); 4] = [
            ("chown", &|path| chown(path, Some(FIRST_USER), None)),
            ("chgrp", &|path| chown(path, None, Some(FIRST_USER))),
            ("truncate", &|path| File::options().write(true).open(path)?.set_len(0)),
            ("O_TRUNC", &|path| File::options().write(true).truncate(true).open(path).map(drop)),
        ];
        for at in [m.at("program"), elsewhere.path().join("program")] {
            fs::write(&at, b"program").unwrap();
            fs::set_permissions(&at, Permissions::from_mode(0o755)).unwrap();
            give_capability(&at);
            for (what, change) in changes {
                as_user(FIRST_USER, || change(&at).expect_err(what));
                assert!(has_capability(&at), "{what}, {}, {who:?}", at.display());
            }
        }
        let at = m.at("program");
        if who == Checks::Server {
            // What changes nothing takes it away for the owner alone.
            as_user(FIRST_USER, || lchown(&at, None, None)).unwrap();
            assert!(has_capability(&at));
        }
        // It goes with what may be done.
        fs::set_permissions(&at, Permissions::from_mode(0o777)).unwrap();
        as_user(FIRST_USER, || File::options().append(true).open(&at)?.write_all(b"x")).unwrap();
        assert!(!has_capability(&at), "{who:?}");
        chown(&at, Some(FIRST_USER), None).unwrap();
        give_capability(&at);
        as_user(FIRST_USER, || chown(&at, None, Some(FIRST_USER))).unwrap();
        assert!(!has_capability(&at), "{who:?}");
        give_capability(&at);
        removexattr(&at, CAPABILITY).unwrap();
        assert!(!has_capability(&at), "{who:?}");
    }
}

/// Whatever `fs.protected_hardlinks` says.
fn links_to_what_is_another_s_are_made_as_elsewhere() {
    for who in [Checks::Server, Checks::Kernel] {
        let (m, elsewhere) = both(who);
        for mode in [0o666, 0o2666, 0o664, 0o662, 0o600, 0o4666, 0o2676] {
            for caller in [0, FIRST_USER, SECOND_USER] {
                let [here, there] = [m.point.as_path(), elsewhere.path()].map(|dir| {
                    let (file, name) = (dir.join("file"), dir.join("name"));
                    fs::write(&file, b"text").unwrap();
                    chown(&file, Some(FIRST_USER), None).unwrap();
                    fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
                    let linked =
                        as_user(caller, || fs::hard_link(&file, &name).map_err(|e| e.raw_os_error()));
                    let _ = fs::remove_file(&name);
                    fs::remove_file(&file).unwrap();
                    linked
                });
                assert_eq!(here, there, "{mode:o} by {caller}, {who:?}");
            }
        }
    }
}

fn setgid_stays_for_whom_it_stays_elsewhere() {
    let changes: [(&str, &(dyn Fn(&Path) -> std::io::Result<()> + Sync)); 4] = [
        ("write", &|path| File::options().write(true).open(path)?.write_all(b"x")),
        ("truncate", &|path| File::options().write(true).open(path)?.set_len(1)),
        ("allocate", &|path| {
            let file = File::options().write(true).open(path)?;
            Ok(fallocate(file, FallocateFlags::empty(), 0, 100)?)
        }),
        ("chgrp", &|path| chown(path, None, Some(SECOND_USER))),
    ];
    for who in [Checks::Server, Checks::Kernel] {
        let (m, elsewhere) = both(who);
        for mode in [0o2666, 0o2676, 0o6666] {
            for (what, change) in changes {
                // One of the group, and the owner, who is not.
                for caller in [FIRST_USER, SECOND_USER, 0] {
                    let [here, there] = [m.at("file"), elsewhere.path().join("file")].map(|file| {
                        fs::write(&file, b"text").unwrap();
                        chown(&file, Some(SECOND_USER), Some(FIRST_USER)).unwrap();
                        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
                        let done = as_user(caller, || change(&file).map_err(|e| e.raw_os_error()));
                        let left = fs::metadata(&file).unwrap().mode() & 0o7777;
                        fs::remove_file(&file).unwrap();
                        (done, format!("{left:o}"))
                    });
                    assert_eq!(here, there, "{what} of {mode:o} by {caller}, {who:?}");
                }
            }
        }
    }
}

on_each_transport!(
    a_change_that_is_refused_leaves_the_capability,
    links_to_what_is_another_s_are_made_as_elsewhere,
    setgid_stays_for_whom_it_stays_elsewhere,
);
