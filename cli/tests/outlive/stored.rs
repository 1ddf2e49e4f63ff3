//! A service manager keeps the mount's descriptors as well: then the mount outlives all of its processes.

use crate::support::{Mounted, unmount};
use narufs_testing::lab::Ring;
use narufs_testing::place::Place;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use tempfile::TempDir;

/// Starts the program that its arguments name as systemd does: with the descriptors that come by standard input at the
/// numbers from 3 on.
const START: &str = r"
import os, socket, sys, fcntl
names, got, _, _ = socket.recv_fds(socket.socket(fileno=os.dup(0)), 65536, 250)
high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 500) for one in got]
for number, one in enumerate(high):
    os.dup2(one, 3 + number)
os.closerange(3 + len(high), 500)
os.dup2(os.open('/dev/null', os.O_RDWR), 0)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)), LISTEN_FDNAMES=names.decode().strip())
os.execvp(sys.argv[1], sys.argv[1:])
";

/// As much of a service manager as it takes.
pub struct Manager {
    _dir: TempDir,
    address: PathBuf,
    heard: mpsc::Receiver<Message>,
    pub kept: BTreeMap<String, OwnedFd>,
    /// What the service's program is started by.
    pub around: Vec<String>,
    /// What its environment has besides.
    pub environment: Vec<(&'static str, PathBuf)>,
}

/// What a service, or a test, has said.
struct Message {
    words: BTreeMap<String, String>,
    descriptors: Vec<OwnedFd>,
}

fn receive(socket: &UnixDatagram) -> Message {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4096];
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received =
        recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC).expect("a message").bytes;
    let text = std::str::from_utf8(&bytes[..received]).expect("text");
    let words = text.lines().filter_map(|line| line.split_once('='));
    let words = words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            descriptors.extend(more);
        }
    }
    Message { words, descriptors }
}

impl Manager {
    pub fn new() -> Manager {
        let dir = tempfile::tempdir().expect("room");
        let address = dir.path().join("notify");
        let socket = UnixDatagram::bind(&address).expect("a name that nobody has");
        let (tell, heard) = mpsc::channel();
        // Who says something is not to wait for a test that waits for something else.
        std::thread::spawn(move || while tell.send(receive(&socket)).is_ok() {});
        let kept = BTreeMap::new();
        Manager { _dir: dir, address, heard, kept, around: Vec::new(), environment: Vec::new() }
    }

    /// Does what is said until a message with this word.
    fn hear_until(&mut self, word: &str) {
        loop {
            let Message { words, descriptors } = self.heard.recv().expect("it listens");
            let name = || words["FDNAME"].clone();
            if words.contains_key("FDSTORE") {
                assert_eq!(words.get("FDPOLL").map(String::as_str), Some("0"), "{words:?}");
                self.kept.extend(descriptors.into_iter().map(|descriptor| (name(), descriptor)));
            }
            if words.contains_key("FDSTOREREMOVE") {
                self.kept.remove(&name());
            }
            if words.contains_key(word) {
                return;
            }
        }
    }

    pub fn wait_until_ready(&mut self) {
        self.hear_until("READY");
    }

    /// Hears what was said so far.
    pub fn catch_up(&mut self) {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.send_to(b"MARK=1", &self.address).expect("it listens");
        self.hear_until("MARK");
    }

    /// Starts the service with what is kept.
    pub fn start(&self, place: &Place, options: &str) -> Child {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("sockets");
        let mut command = Command::new("python3");
        command.args(["-c", START]).args(&self.around);
        command.args([env!("CARGO_BIN_EXE_narufs"), "mount", "--foreground"]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.args([place.image(), place.point()]).args(["-o", "supervise=yes", "-o", options]);
        command.env("NOTIFY_SOCKET", &self.address).stdin(theirs).stdout(Stdio::null());
        let child = command.spawn().expect("python3");
        let names: Vec<&str> = self.kept.keys().map(String::as_str).collect();
        let names = format!("{} ", names.join(":"));
        let descriptors: Vec<_> = self.kept.values().map(AsFd::as_fd).collect();
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&ours, &[IoSlice::new(names.as_bytes())], &mut control, SendFlags::NOSIGNAL).expect("room");
        child
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // The thread finds that nobody hears it.
        let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"END=1", &self.address));
    }
}

pub fn place(under: &Path) -> Place {
    Place::make(under, Ring::Ssd, 256 << 20, 8192).expect("room")
}

/// Kills all processes of a service, none of which sees another's end.
pub fn kill_all(service: &mut Child, place: &Place) {
    narufs_fuse::control::kill(&place.point()).expect("both live");
    service.wait().expect("a child");
}

/// The service ends with its mount, and leaves nothing behind.
pub fn end(mut manager: Manager, mut service: Child, mounted: &Mounted) {
    unmount(&mounted.place);
    assert!(service.wait().expect("a child").success());
    manager.catch_up();
    assert!(manager.kept.is_empty(), "{:?}", manager.kept.keys());
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_service_that_was_killed_whole_goes_on_with_its_mount() {
    let mut manager = Manager::new();
    let place = place(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let mut service = manager.start(&place, "noatime,commit=3600");
    manager.wait_until_ready();
    for name in ["fuse", "abort", "memory", "arguments", "clone-0"] {
        assert!(manager.kept.contains_key(name), "{name}: {:?}", manager.kept.keys());
    }
    let mut mounted = Mounted::at_place(place, Pid::from_child(&service));
    mounted.settle();
    let open =
        || File::options().create(true).read(true).write(true).truncate(false).open(mounted.at("file"));
    let (file, other) = (open().expect("made"), open().expect("there"));
    flock(&file, FlockOperation::LockExclusive).expect("nobody has it");
    for round in 0..3u64 {
        file.write_all_at(format!("{round}").as_bytes(), round).expect("room");
        manager.catch_up();
        kill_all(&mut service, &mounted.place);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| fs::create_dir(mounted.at(&format!("dir-{round}"))));
            // Other options than it was mounted with are for the next mount.
            service = manager.start(&mounted.place, "noatime");
            waits.join().expect("no panic").expect("it is made once");
        });
        manager.wait_until_ready();
        assert_eq!(mounted.supervisor_now(), Some(Pid::from_child(&service)));
        assert_eq!(mounted.incarnation(), round + 1);
        let lock = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(lock.expect_err("it is held"), Errno::WOULDBLOCK);
    }
    assert_eq!(fs::read_to_string(mounted.at("file")).expect("readable"), "012");
    assert_eq!(fs::read_dir(mounted.place.point()).expect("a directory").count(), 4);
    mounted.is_of(Pid::from_child(&service));
    mounted.follow(Signal::KILL);
    drop((file, other));
    end(manager, service, &mounted);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_is_no_whole_mount_is_given_up_and_it_is_mounted_anew() {
    let mut manager = Manager::new();
    let place = place(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let mut service = manager.start(&place, "noatime");
    manager.wait_until_ready();
    let mounted = Mounted::at_place(place, Pid::from_child(&service));
    mounted.settle();
    fs::create_dir(mounted.at("dir")).expect("made");
    manager.catch_up();
    kill_all(&mut service, &mounted.place);
    manager.kept.remove("memory").expect("it is kept");
    service = manager.start(&mounted.place, "noatime");
    manager.wait_until_ready();
    assert_eq!(mounted.incarnation(), 0);
    assert!(mounted.at("dir").is_dir());
    assert!(manager.kept.contains_key("memory"), "that of the new one");
    end(manager, service, &mounted);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_supervisor_in_the_place_of_the_first_tells_the_service_manager_too() {
    let mut manager = Manager::new();
    let place = place(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let mut service = manager.start(&place, "noatime");
    manager.wait_until_ready();
    let mounted = Mounted::at_place(place, Pid::from_child(&service));
    mounted.settle();
    mounted.replace_supervisor().expect("another one");
    assert!(!service.wait().expect("a child").success());
    manager.wait_until_ready();
    mounted.follow(Signal::KILL);
    unmount(&mounted.place);
    manager.catch_up();
    assert!(manager.kept.is_empty(), "{:?}", manager.kept.keys());
    mounted.place.check().expect("nothing is wrong with the image");
}
