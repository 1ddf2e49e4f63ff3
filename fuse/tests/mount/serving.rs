//! What the server does for its callers: it stalls none of them, knows their groups, and hears of a sync.

use crate::support::{mounted, mounted_with, on_one_core};
use narufs_fuse::ServerConfig;
use narufs_fuse::control;
use narufs_fuse::session::Config;
use narufs_fuse::wire::notify::Notification;
use narufs_fuse::wire::{OpenFlags, ROOT_ID};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

fn a_request_that_sleeps_stalls_nobody_on_its_core() {
    let m = mounted_with(OpenFlags::DIRECT_IO, on_one_core());
    let gate = m.point.join("gate");
    fs::write(&gate, b"through").unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(|| fs::read(&gate).unwrap())).collect();
        m.fs.wait_for_readers(8);
        fs::write(m.point.join("other"), b"meanwhile").unwrap();
        assert_eq!(fs::read(m.point.join("other")).unwrap(), b"meanwhile");
        m.fs.open_gate();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), b"through");
        }
    });
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_waiting_lock_occupies_no_thread_and_ends_when_its_caller_is_killed() {
    let config = ServerConfig { session: Config { locks: true, ..Config::default() }, ..on_one_core() };
    let m = mounted_with(OpenFlags::empty(), config);
    let path = m.point.join("file");
    let file = File::create(&path).unwrap();
    file.lock().unwrap();
    assert!(matches!(File::open(&path).unwrap().try_lock(), Err(fs::TryLockError::WouldBlock)));
    let waiter =
        || Command::new("flock").arg(&path).args(["echo", "held"]).stdout(Stdio::piped()).spawn().unwrap();
    let (mut killed, patient) = (waiter(), waiter());
    m.fs.wait_for_lockers(2);
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success());
    m.fs.wait_for_lockers(1);
    file.unlock().unwrap();
    assert_eq!(patient.wait_with_output().unwrap().stdout, b"held\n");
    file.lock().unwrap();
}

fn supplementary_groups_of_the_caller_are_known() {
    let m = mounted();
    let path = m.point.join("file");
    fs::write(&path, b"for the group").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&path, None, Some(4242)).unwrap();
    let read_with_groups = |groups: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--groups", groups, "cat"]).arg(&path).output().unwrap()
    };
    assert_eq!(read_with_groups("7,4242").stdout, b"for the group");
    assert!(!read_with_groups("7").status.success());
}

fn what_the_kernel_has_cached_is_dropped_on_notice() {
    let m = mounted();
    let path = m.point.join("file");
    fs::write(&path, b"old").unwrap();
    let file = File::open(&path).unwrap();
    let read = || {
        let mut text = [0; 3];
        file.read_exact_at(&mut text, 0).unwrap();
        text
    };
    assert_eq!(&read(), b"old");
    let nodeid = m.fs.replace(b"file", b"new");
    assert_eq!(&read(), b"old");
    let notifier = m.server.notifier();
    notifier.send(&Notification::InvalInode { nodeid, offset: 0, len: 0 }).unwrap();
    assert_eq!(&read(), b"new");
    let name = b"file";
    notifier.send(&Notification::InvalEntry { parent: ROOT_ID, name, expire_only: false }).unwrap();
    let unknown = notifier.send(&Notification::Delete { parent: ROOT_ID, child: 99, name: b"none" });
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

fn a_sync_reaches_the_server() {
    let m = mounted();
    control::sync(&m.point).unwrap();
    assert_eq!(m.fs.syncs(), 1);
    assert_eq!(control::sync(Path::new("/proc")).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
}

on_each_transport!(
    a_request_that_sleeps_stalls_nobody_on_its_core,
    supplementary_groups_of_the_caller_are_known,
    what_the_kernel_has_cached_is_dropped_on_notice,
    a_sync_reaches_the_server,
);
