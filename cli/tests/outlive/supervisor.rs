//! The supervisor is killed: its server starts another one, which follows servers as the first did.

use crate::support::{Mounted, Process, children_of, mount, mounting, said, stop, unmount};
use narufs_testing::lab::Ring;
use narufs_testing::place::Place;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn text_of(pid: Pid, name: &str) -> String {
    fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_nonzero())).expect("it lives")
}

/// A supervisor is protected, and nobody's child.
fn check_supervisor(mounted: &Mounted, supervisor: &Process, protection: &str) {
    assert_eq!(text_of(supervisor.pid, "oom_score_adj"), protection);
    assert_ne!(supervisor.status("VmLck"), "0 kB");
    let server = mounted.server().as_raw_nonzero().to_string();
    assert_ne!(supervisor.status("PPid"), server);
    let cwd = fs::read_link(format!("/proc/{}/cwd", supervisor.pid.as_raw_nonzero()));
    assert_eq!(cwd.expect("it lives"), PathBuf::from("/"));
    // Read, not asked for: that of this test may be outside of its namespace, which is told by a number that is none.
    let session = |pid: Pid| {
        let stat = text_of(pid, "stat");
        let (_, after_name) = stat.rsplit_once(')').expect("a name");
        after_name.split_whitespace().nth(3).expect("a session").to_owned()
    };
    assert_ne!(session(supervisor.pid), session(rustix::process::getpid()));
    assert_ne!(session(supervisor.pid), session(mounted.server()));
    assert_eq!(mounted.stats()["supervisor_pid"], supervisor.pid.as_raw_nonzero().get());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_killed_supervisor_is_replaced_and_servers_are_followed() {
    let mounted = Mounted::new("noatime,commit=3600");
    let open = |name: &str| {
        File::options().create(true).read(true).write(true).truncate(false).open(mounted.at(name))
    };
    let (file, other) = (open("file").expect("made"), open("file").expect("there"));
    flock(&file, FlockOperation::LockExclusive).expect("nobody has it");
    // As far as this machine lets it.
    let protection = text_of(mounted.supervisor, "oom_score_adj");
    for round in 0..3u64 {
        let server = mounted.server();
        file.write_all_at(format!("{round}").as_bytes(), round).expect("room");
        let supervisor = Process::of(mounted.replace_supervisor().expect("another one"));
        assert_eq!(mounted.server(), server, "the server lives on");
        check_supervisor(&mounted, &supervisor, &protection);
        mounted.follow(Signal::KILL);
        assert_eq!(mounted.supervisor_now(), Some(supervisor.pid));
        let lock = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(lock.expect_err("it is held"), Errno::WOULDBLOCK);
        // Of its own child too.
        mounted.follow(Signal::ABORT);
    }
    assert_eq!(fs::read_to_string(mounted.at("file")).expect("readable"), "012");
    let before = mounted.supervisor_now();
    mounted.upgrade();
    assert_eq!(mounted.supervisor_now(), before, "the same process");
    // One that another supervisor has started makes room as well.
    let supervisor = Process::of(mounted.replace_supervisor().expect("another one"));
    mounted.upgrade();
    assert_eq!(mounted.supervisor_now(), Some(supervisor.pid));
    mounted.follow(Signal::KILL);
    drop((file, other));
    unmount(&mounted.place);
    assert!(supervisor.has_ended(), "umount has waited for it");
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_supervisor_can_be_asked_from_before_there_is_a_server_that_tells_of_it() {
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, Ring::Ssd, 256 << 20, 8192).expect("room");
    let mut mounting = mounting(&place, "noatime", Stdio::inherit());
    let supervisor = Pid::from_child(&mounting);
    while children_of(supervisor).is_empty() {
        assert!(mounting.try_wait().expect("ours").is_none(), "it starts a server");
    }
    let name = format!("narufs-supervisor-{}", supervisor.as_raw_nonzero());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    let asks = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    let asked = connect(&asks, &address);
    drop(asks);
    let mut words = String::new();
    mounting.stdout.take().expect("a pipe").read_to_string(&mut words).expect("words");
    assert!(words.starts_with("ready"), "{words}");
    std::thread::spawn(move || mounting.wait());
    Mounted::at_place(place, supervisor).end();
    asked.expect("it listens");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_s_own_fault_counts_for_a_supervisor_that_has_not_started_it() {
    let mounted = Mounted::new("noatime");
    mounted.replace_supervisor().expect("another one");
    mounted.follow(Signal::SEGV);
    fs::create_dir(mounted.at("dir")).expect("it is served");
    mounted.replace_supervisor().expect("another one");
    let supervisor = Process::of(mounted.supervisor_now().expect("it is there"));
    // It hears signals as the first did.
    kill_process(supervisor.pid, Signal::TERM).expect("it lives");
    supervisor.wait_for_end();
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn supervisors_that_end_one_after_the_other_are_given_up() {
    let mounted = Mounted::new("noatime");
    let server = Process::of(mounted.server());
    let mut replaced = 0;
    while mounted.replace_supervisor().is_some() {
        replaced += 1;
    }
    assert!(replaced >= 5, "{replaced}");
    // It goes on alone, says so, and the mount ends with it.
    assert_eq!(mounted.stats()["supervisor_pid"], 0);
    fs::create_dir(mounted.at("dir")).expect("it is served");
    unmount(&mounted.place);
    assert!(server.has_ended());
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_supervisor_that_is_killed_while_a_server_begins_is_replaced() {
    let mounted = Mounted::new("noatime");
    for number in 0..5 {
        fs::write(mounted.at(&format!("file-{number}")), vec![7; 100_000]).expect("room");
        let supervisor = mounted.supervisor_now().expect("there is one");
        let server = mounted.server();
        kill_process(server, Signal::KILL).expect("it lives");
        // The next one has been started, and has not begun to serve, or has.
        while children_of(supervisor).iter().all(|child| *child == server) {
            std::thread::yield_now();
        }
        kill_process(supervisor, Signal::KILL).expect("it lives");
        while mounted.supervisor_now() == Some(supervisor) {
            std::thread::yield_now();
        }
        assert!(mounted.supervisor_now().is_some());
    }
    assert_eq!(fs::read_dir(mounted.place.point()).expect("a directory").count(), 5);
    mounted.follow(Signal::KILL);
    let supervisor = Process::of(mounted.supervisor_now().expect("there is one"));
    unmount(&mounted.place);
    assert!(supervisor.has_ended());
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_stopped_server_is_not_unmounted_by_the_end_of_its_supervisor() {
    let mounted = Mounted::new("noatime");
    let server = mounted.server();
    stop(server);
    // The kernel hangs up the server now, and has it go on.
    kill_process(mounted.supervisor, Signal::KILL).expect("it lives");
    while mounted.supervisor_now() == Some(mounted.supervisor) {
        std::thread::yield_now();
    }
    assert_eq!(mounted.server(), server);
    let supervisor = Process::of(mounted.supervisor_now().expect("another one"));
    fs::create_dir(mounted.at("dir")).expect("it is mounted");
    unmount(&mounted.place);
    assert!(supervisor.has_ended());
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn both_killed_at_once_end_the_mount_and_the_next_one_takes_its_place() {
    let mounted = Mounted::new("noatime");
    let point = mounted.place.point();
    let synced = File::options().create_new(true).write(true).open(mounted.at("synced")).expect("made");
    synced.write_all_at(b"content", 0).expect("room");
    synced.sync_all().expect("durable");
    narufs_fuse::control::kill(&mounted.place.point()).expect("both live");
    let e = synced.write_all_at(b"more", 7).expect_err("nobody serves it");
    assert!(narufs_fuse::mount::is_gone(&e), "{e}");
    assert!(narufs_fuse::mount::is_dead(&point));
    drop(synced);
    let out = mount(&mounted.place, "noatime");
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(fs::read(point.join("synced")).expect("readable"), b"content");
    unmount(&mounted.place);
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn both_killed_at_once_leave_what_umount_takes_away() {
    let mounted = Mounted::new("noatime");
    let point = mounted.place.point();
    fs::create_dir(mounted.at("dir")).expect("room");
    narufs_fuse::control::kill(&mounted.place.point()).expect("both live");
    unmount(&mounted.place);
    assert!(narufs_fuse::mount::mountinfo::find(&point).expect("readable").is_none());
    assert_eq!(fs::read_dir(&point).expect("a directory").count(), 0);
    mounted.place.check().expect("nothing is wrong with the image");
    let out = mount(&mounted.place, "noatime");
    assert!(out.status.success(), "{}", said(&out));
    assert!(point.join("dir").is_dir(), "what was answered is there");
    unmount(&mounted.place);
    mounted.place.check().expect("nothing is wrong with the image");
}
