//! A service that may not mount, in a mount name space of its own, and the other one that mounts for it.

use crate::stored::{Manager, end, kill_all, place};
use crate::support::{Mounted, Process};
use narufs_fuse::mount::mountinfo;
use narufs_testing::place::Place;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Starts the program that its arguments name with the socket that is its standard input, as systemd does.
const START: &str = r"
import os, sys
os.dup2(0, 3)
os.dup2(os.open('/dev/null', os.O_RDWR), 0)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')
os.execv(sys.argv[1], sys.argv[1:])
";

/// Asks what its second argument is at the socket that the first one is, and prints what is answered.
const ASK: &str = r"
import socket, sys
asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asking.connect(sys.argv[1])
asking.send(sys.argv[2].encode())
print(asking.recv(4096).decode())
";

/// No capability but the one that is not to wait for its own mount, and mounts that nobody else sees.
const AROUND: &str = "unshare --mount --propagation slave setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_resource";

/// A directory in which what one name space mounts and unmounts is seen in the others, as systemd has all of them.
struct Shared(TempDir);

impl Shared {
    fn new() -> Shared {
        let shared = Shared(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("room"));
        mount_bind(shared.0.path(), shared.0.path()).expect("root");
        mount_change(shared.0.path(), MountPropagationFlags::SHARED).expect("root");
        shared
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        unmount(self.0.path(), UnmountFlags::DETACH).expect("it is mounted");
    }
}

/// Who mounts at a place, with the socket that outlives it.
struct Mounting {
    _dir: TempDir,
    listener: OwnedFd,
    socket: PathBuf,
    place: [PathBuf; 2],
    child: Child,
}

impl Mounting {
    fn new(place: &Place, options: &str) -> Mounting {
        let dir = tempfile::tempdir().expect("room");
        let socket = dir.path().join("socket");
        let kind = SocketType::SEQPACKET;
        let listener = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&listener, &SocketAddrUnix::new(&socket).expect("short")).expect("nobody has it");
        listen(&listener, 16).expect("a socket");
        let place = [place.image(), place.point()];
        let child = Mounting::start(&listener, &place, options);
        Mounting { _dir: dir, listener, socket, place, child }
    }

    fn start(listener: &OwnedFd, place: &[PathBuf], options: &str) -> Child {
        let mut command = Command::new("python3");
        command.args(["-c", START, env!("CARGO_BIN_EXE_narufs"), "mount", "--mounter", "-o", options]);
        command.args(place).stdin(listener.try_clone().expect("a descriptor")).stdout(Stdio::null());
        command.spawn().expect("python3")
    }

    fn kill(&mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("a child");
    }

    fn start_again(&mut self, options: &str) {
        self.child = Mounting::start(&self.listener, &self.place, options);
    }

    /// What it answers to root, or to another user.
    fn ask(&self, act: &str, user: Option<&str>) -> Output {
        let mut command = Command::new("setpriv");
        command.args(user.map(|user| format!("--reuid={user}"))).args(["--", "python3", "-c", ASK]);
        command.arg(&self.socket).arg(act).stdin(Stdio::null()).output().expect("setpriv")
    }
}

impl Drop for Mounting {
    fn drop(&mut self) {
        // A test that has failed may have killed it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mounts_of(pid: Pid) -> PathBuf {
    fs::read_link(format!("/proc/{}/ns/mnt", pid.as_raw_nonzero())).expect("it lives")
}

/// The capabilities that a process may use.
fn permitted(pid: Pid) -> u64 {
    u64::from_str_radix(&Process::of(pid).status("CapPrm"), 16).expect("a mask")
}

/// Its supervisor and its server may not mount, and are elsewhere.
fn check(mounted: &Mounted) {
    let own = fs::read_link("/proc/self/ns/mnt").expect("readable");
    let supervisor = mounted.supervisor_now().expect("there is one");
    // As far as this test may give it.
    let resource = permitted(getpid()) & 1 << 24;
    for (process, capabilities) in [(supervisor, resource), (mounted.server(), 0)] {
        assert_ne!(mounts_of(process), own);
        assert_eq!(permitted(process), capabilities);
    }
    assert!(mountinfo::find(&mounted.place.point()).expect("readable").is_some(), "everybody sees the mount");
}

fn manager(mounting: &Mounting) -> Manager {
    let mut manager = Manager::new();
    manager.around = AROUND.split(' ').map(str::to_owned).collect();
    manager.environment = vec![("NARUFS_MOUNTER", mounting.socket.clone())];
    manager
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_service_that_may_not_mount_has_it_done_and_outlives_who_does() {
    let shared = Shared::new();
    let place = place(shared.0.path());
    let mut mounting = Mounting::new(&place, "noatime");
    let mut manager = manager(&mounting);
    let mut service = manager.start(&place, "noatime");
    manager.wait_until_ready();
    let mut mounted = Mounted::at_place(place, Pid::from_child(&service));
    mounted.settle();
    check(&mounted);
    let entry = mountinfo::find(&mounted.place.point()).expect("readable").expect("it is mounted");
    assert!(entry.options.split(',').any(|option| option == "noatime"), "{}", entry.options);
    fs::write(mounted.at("file"), b"text").expect("room");

    // All of it killed, then servers and supervisors by themselves, while nobody is there who mounts.
    manager.catch_up();
    kill_all(&mut service, &mounted.place);
    service = manager.start(&mounted.place, "noatime");
    manager.wait_until_ready();
    mounted.is_of(Pid::from_child(&service));
    check(&mounted);
    mounted.follow(Signal::KILL);
    check(&mounted);
    mounted.replace_supervisor().expect("another one");
    manager.wait_until_ready();
    check(&mounted);
    assert!(!service.wait().expect("a child").success());
    mounting.kill();
    fs::write(mounted.at("file"), b"more").expect("the mount goes on");

    // One that comes later has what was asked meanwhile.
    let supervisor = mounted.supervisor_now().expect("there is one");
    mounted.is_of(supervisor);
    kill_process(supervisor, Signal::TERM).expect("it lives");
    mounting.start_again("noatime");
    mounted.wait_for_end();
    assert!(mountinfo::find(&mounted.place.point()).expect("readable").is_none(), "it is unmounted");
    manager.catch_up();
    assert!(manager.kept.is_empty(), "{:?}", manager.kept.keys());
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_mount_is_ended_when_nobody_mounts_for_its_service_any_more() {
    for options in ["harden=yes", "harden=no"] {
        let shared = Shared::new();
        let place = place(shared.0.path());
        let mounting = Mounting::new(&place, "noatime");
        let mut manager = manager(&mounting);
        let service = manager.start(&place, options);
        manager.wait_until_ready();
        let mounted = Mounted::at_place(place, Pid::from_child(&service));
        mounted.settle();
        // Its socket too: who asks is refused.
        drop(mounting);
        fs::write(mounted.at("file"), b"text").expect("the mount goes on");
        mounted.follow(Signal::KILL);
        assert_eq!(fs::read(mounted.at("file")).expect("it is there"), b"text");
        end(manager, service, &mounted);
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn who_mounts_hears_root_alone_and_mounts_over_no_mount_that_is_served() {
    let shared = Shared::new();
    let place = place(shared.0.path());
    let mounting = Mounting::new(&place, "noatime");
    fs::set_permissions(mounting.socket.parent().expect("one"), fs::Permissions::from_mode(0o755))
        .expect("ours");
    fs::set_permissions(&mounting.socket, fs::Permissions::from_mode(0o666)).expect("ours");
    let answer = |act: &str, user| {
        let out = mounting.ask(act, user);
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    let mount = r#"{"Mount":{"read_only":false}}"#;
    let mounted = |point: &Path| mountinfo::find(point).expect("readable").is_some();
    assert_eq!(answer(mount, Some("65534")), "");
    assert!(!mounted(&place.point()));
    assert_eq!(answer("nonsense", None), "");
    let mut manager = manager(&mounting);
    let service = manager.start(&place, "noatime");
    manager.wait_until_ready();
    let served = Mounted::at_place(place, Pid::from_child(&service));
    served.settle();
    assert!(answer(mount, None).starts_with(r#"{"Refused":{"errno":16,"#));
    // Another mount than that there.
    assert_eq!(answer(r#"{"Unmount":{"device":[0,1],"busy":"Detach"}}"#, None), r#"{"Done":false}"#);
    assert!(mounted(&served.place.point()));
    end(manager, service, &served);
}
