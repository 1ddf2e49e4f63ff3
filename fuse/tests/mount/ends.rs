//! How mounts begin and end: as asked, or with their server.

use crate::memfs::MemFs;
use crate::support::{Mounted, Place, mounted, options};
use crate::transports::transport;
use narufs_fuse::control::{self, ServerProcess};
use narufs_fuse::mount::{self, Broker, FuseOptions, IfBusy, Made, Setting, Transport, mountinfo};
use narufs_fuse::wire::OpenFlags;
use narufs_fuse::wire::notify::Notification;
use narufs_fuse::{Server, ServerConfig};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Unmounts what this test has no file of open any more. A process that another test has just forked has a copy of what
/// was open until it executes its program.
fn unmounted(unmount: impl Fn() -> std::io::Result<()>) {
    loop {
        match unmount() {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => std::thread::yield_now(),
            ended => return ended.unwrap(),
        }
    }
}

fn an_unmount_ends_the_server_in_order() {
    let m = mounted();
    let file = File::create(m.point.join("file")).unwrap();
    let busy = m.server.unmount(IfBusy::Refuse).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    drop(file);
    unmounted(|| m.server.unmount(IfBusy::Refuse));
    m.server.wait();
    assert!(m.fs.is_destroyed());
    assert!(!mount::is_dead(&m.point) && mountinfo::find(&m.point).unwrap().is_none());
}

fn an_abort_ends_the_server_even_if_the_mount_is_in_use() {
    let m = mounted();
    let mut file = File::create(m.point.join("file")).unwrap();
    m.server.unmount(IfBusy::Abort).unwrap();
    m.server.wait();
    let gone = file.write_all(b"x").unwrap_err();
    assert!(matches!(gone.raw_os_error(), Some(libc::ENOTCONN | libc::EIO | libc::ECONNABORTED)), "{gone}");
}

fn a_server_that_goes_late_leaves_later_mounts_alone() {
    let Mounted { server, _place: place, .. } = mounted();
    unmounted(|| server.unmount(IfBusy::Refuse));
    server.wait();
    // Each is likely to get the number that the connection had, the first one at the same place as well.
    let again = Server::start(
        Arc::new(MemFs::new(OpenFlags::empty())),
        &place.point(),
        &options("memory"),
        &ServerConfig::default(),
    );
    let again = again.unwrap();
    let others: Vec<_> = (0..3).map(|_| mounted()).collect();
    drop(server);
    fs::write(place.point().join("file"), b"alive").unwrap();
    assert!(mount::is_at(&place.point(), again.mount().device()).unwrap());
    for other in &others {
        fs::write(other.point.join("file"), b"alive").unwrap();
        assert_eq!(fs::read(other.point.join("file")).unwrap(), b"alive");
    }
}

fn a_server_that_goes_cuts_off_users_of_a_detached_mount() {
    let Mounted { server, fs, point, _place } = mounted();
    let file = File::create(point.join("file")).unwrap();
    server.unmount(IfBusy::Detach).unwrap();
    assert!(mountinfo::find(&point).unwrap().is_none());
    file.set_len(5).unwrap();
    drop(server);
    assert!(fs.is_destroyed());
    assert!(file.set_len(6).is_err());
}

/// Mounts where nothing can be cut off: without the control file system of FUSE, and with an unmount that leaves a mount
/// to those who still use it, as `fusermount3` does.
#[derive(Debug)]
struct Gentle(PathBuf);

impl Broker for Gentle {
    fn mount(&self, _: bool) -> std::io::Result<Made> {
        Ok(Made { abort: None, ..mount::make(&self.0, &FuseOptions::new("memory"))? })
    }

    fn unmount(&self, device: (u32, u32), busy: IfBusy) -> std::io::Result<bool> {
        let busy = if busy == IfBusy::Abort { IfBusy::Detach } else { busy };
        mount::unmount_device(&self.0, device, busy)
    }

    fn set(&self, _: (u32, u32), _: Setting, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_that_can_cut_nobody_off_ends_all_the_same() {
    let serve = |place: &Place| {
        let mut options = FuseOptions::new("memory");
        options.transport = Transport::Device;
        // Of a process that goes on: of another, its end is the mount's.
        let broker: Arc<dyn Broker> = Arc::new(Gentle(place.point()));
        let config = ServerConfig { broker: Some(broker), stays: true, ..Default::default() };
        let fs = Arc::new(MemFs::new(OpenFlags::empty()));
        let server = Server::start(Arc::clone(&fs), &place.point(), &options, &config).unwrap();
        (fs, server, File::create(place.point().join("file")).unwrap())
    };
    let place = Place::new();
    let (fs, server, file) = serve(&place);
    file.set_len(5).unwrap();
    assert_eq!(server.unmount(IfBusy::Refuse).unwrap_err().raw_os_error(), Some(libc::EBUSY));
    file.set_len(6).unwrap();
    drop(server);
    assert!(fs.is_destroyed());
    assert!(file.set_len(7).is_err());

    // Users are cut off when that is asked for, however long the server is kept.
    let (fs, server, file) = serve(&place);
    server.unmount(IfBusy::Abort).unwrap();
    server.wait();
    assert!(fs.is_destroyed());
    assert!(file.set_len(5).is_err());

    // Detached by somebody else, it is not to be found where it was.
    let (fs, server, file) = serve(&place);
    mount::unmount(&place.point(), IfBusy::Detach).unwrap();
    drop(server);
    assert!(fs.is_destroyed());
    assert!(file.set_len(5).is_err());
}

fn a_mount_is_safe_unless_asked_otherwise_and_can_be_read_only() {
    let place = Place::new();
    let mut options = options("an image");
    assert!(options.apply("ro"));
    let fs = Arc::new(MemFs::new(OpenFlags::empty()));
    let _server = Server::start(fs, &place.point(), &options, &ServerConfig::default()).unwrap();
    let entry = mountinfo::find(&place.point()).unwrap().unwrap();
    assert!(entry.is_ours());
    assert_eq!(entry.source, "an image");
    for wanted in ["ro", "nosuid", "nodev", "relatime", "allow_other"] {
        assert!(entry.options.split(',').any(|option| option == wanted), "{wanted} in {}", entry.options);
    }
    assert_eq!(File::create(place.point().join("x")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
}

#[test]
#[ignore = "needs root, /dev/fuse and fusermount3"]
fn the_helper_for_those_who_are_not_root_mounts_the_same() {
    let place = Place::new();
    let helper = Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status();
    assert!(helper.is_ok(), "missing: fusermount3 (package fuse3)");
    let options = FuseOptions::new("an, image");
    let fd = mount::helper::mount(&place.point(), &options).unwrap();
    let entry = mountinfo::find(&place.point()).unwrap().unwrap();
    assert!(entry.is_ours());
    assert_eq!(entry.source, "an, image");
    assert!(entry.options.contains("nosuid") && entry.options.contains("nodev"), "{}", entry.options);
    drop(fd);
    assert!(mount::is_dead(&place.point()), "{:?}", control::server_pid(&place.point()));
    mount::helper::unmount(&place.point(), true).unwrap();
    assert!(mountinfo::find(&place.point()).unwrap().is_none());
    assert!(mount::helper::unmount(&place.point(), true).is_err());
}

const SERVE_AT: &str = "NARUFS_FUSE_TEST_SERVE_AT";
const OPTION: &str = "NARUFS_FUSE_TEST_OPTION";
const TELLS: &str = "NARUFS_FUSE_TEST_TELLS";

/// Not a test by itself: the process that the tests below start and kill.
#[test]
fn serve_in_a_process_of_its_own() {
    let Some(dir) = std::env::var_os(SERVE_AT) else { return };
    let fs = Arc::new(MemFs::new(OpenFlags::empty()));
    let mut options = FuseOptions::new("child");
    assert!(options.apply(&std::env::var(OPTION).unwrap()));
    let config = ServerConfig { stays: std::env::var_os(TELLS).is_some(), ..ServerConfig::default() };
    let server = Server::start(Arc::clone(&fs), Path::new(&dir), &options, &config).unwrap();
    println!("\nserving");
    if config.stays {
        // Somebody waits for its content with its page locked, and is not answered.
        fs.wait_for_readers(1);
        let nodeid = fs.replace(b"gate", b"new");
        let told = server.notifier().send(&Notification::InvalInode { nodeid, offset: 0, len: 0 });
        panic!("that does not return: {told:?}");
    }
    server.wait();
}

struct Child(std::process::Child);

impl Child {
    fn serve(dir: &Path) -> Child {
        Child::serve_with(dir, |_| {})
    }

    fn serve_with(dir: &Path, change: impl FnOnce(&mut Command)) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "ends::serve_in_a_process_of_its_own", "--nocapture"]).env(SERVE_AT, dir);
        command.env(OPTION, format!("transport={}", transport().name()));
        change(&mut command);
        let mut child = Child(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "serving"), "the server did not start");
        // Its last words need somewhere to go.
        std::thread::spawn(move || lines.for_each(drop));
        child
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn after_a_killed_server_the_place_is_dead_and_can_be_mounted_anew() {
    let place = Place::new();
    let mut child = Child::serve(&place.point());
    let path = place.point().join("file");
    fs::write(&path, b"lost with its server").unwrap();
    let mut open = File::open(&path).unwrap();
    // What the kernel knows of the root it goes on telling without its server.
    assert!(fs::metadata(place.point()).unwrap().is_dir());
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert!(mount::is_dead(&place.point()));
    assert!(open.read(&mut [0]).is_err() || open.metadata().is_err());
    let fs = Arc::new(MemFs::new(OpenFlags::empty()));
    let server = Server::start(fs, &place.point(), &options("memory"), &ServerConfig::default()).unwrap();
    assert_eq!(fs::read(&path).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&path, b"new").unwrap();
    drop(server);
    assert!(mountinfo::find(&place.point()).unwrap().is_none(), "the dead mount was not taken away");
}

fn who_is_killed_while_it_tells_the_kernel_ends() {
    let place = Place::new();
    let mut child = Child::serve_with(&place.point(), |command| {
        command.env(TELLS, "");
    });
    let gate = place.point().join("gate");
    fs::write(&gate, b"old").unwrap();
    let reader = std::thread::spawn(move || fs::read(gate));
    // In the kernel, where no signal reaches it.
    let state = |task: &Path| fs::read_to_string(task.join("stat")).unwrap_or_default();
    let is_stuck = |task: &Path| state(task).rsplit(") ").next().is_some_and(|rest| rest.starts_with('D'));
    let tasks = || fs::read_dir(format!("/proc/{}/task", child.0.id())).unwrap();
    while !tasks().any(|task| is_stuck(&task.unwrap().path())) {
        std::thread::yield_now();
    }
    child.0.kill().unwrap();
    assert!(!child.0.wait().unwrap().success());
    assert!(reader.join().unwrap().is_err());
    assert!(mount::is_dead(&place.point()));
}

fn who_unmounts_can_wait_for_the_server() {
    let place = Place::new();
    let mut child = Child::serve(&place.point());
    let server = ServerProcess::of(&place.point()).unwrap();
    assert_eq!(server.pid.as_raw_nonzero().get() as u32, child.0.id());
    unmounted(|| mount::unmount(&place.point(), IfBusy::Refuse));
    server.wait().unwrap();
    assert!(child.0.wait().unwrap().success());
    assert_eq!(ServerProcess::of(&place.point()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
}

on_each_transport!(
    an_unmount_ends_the_server_in_order,
    an_abort_ends_the_server_even_if_the_mount_is_in_use,
    a_server_that_goes_late_leaves_later_mounts_alone,
    a_server_that_goes_cuts_off_users_of_a_detached_mount,
    a_mount_is_safe_unless_asked_otherwise_and_can_be_read_only,
    after_a_killed_server_the_place_is_dead_and_can_be_mounted_anew,
    who_is_killed_while_it_tells_the_kernel_ends,
    who_unmounts_can_wait_for_the_server,
);
