//! What servers have given up, as the kernel shows it, and who acts for them.

use crate::support::{Mounted, Process, narufs, said};
use narufs_fuse::mount::mountinfo;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What the kernel shows of each thread of a process, but those that it works for its rings by.
fn threads(pid: Pid) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).expect("it lives");
    let tasks = tasks.map(|task| fs::read_to_string(task.expect("a thread").path().join("status")));
    // One that has ended is not there.
    tasks.flatten().filter(|status| !status.starts_with("Name:\tiou-")).collect()
}

fn value<'s>(status: &'s str, heading: &str) -> &'s str {
    let line = status.lines().find_map(|line| line.strip_prefix(heading)?.strip_prefix(':'));
    line.expect("the kernel shows it").trim()
}

fn broker(stats: &Value) -> Option<Pid> {
    Pid::from_raw(stats["hardening"]["broker_pid"].as_i64().expect("a number") as i32)
}

fn check(mounted: &Mounted) {
    let stats = mounted.stats();
    let given_up = &stats["hardening"];
    for what in ["asked", "no_capabilities", "no_new_privileges", "seccomp"] {
        assert_eq!(given_up[what], true, "{what}: {given_up}");
    }
    assert!(given_up["landlock"].as_u64() > Some(0), "missing: Landlock: {given_up}");
    let all = threads(mounted.server());
    assert!(all.len() > 2, "it serves by threads");
    for status in all {
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(value(&status, set), "0000000000000000", "{set}: {status}");
        }
        assert_eq!((value(&status, "NoNewPrivs"), value(&status, "Seccomp")), ("1", "2"), "{status}");
    }
    let broker = Process::of(broker(&stats).expect("there is one"));
    assert_eq!(value(&broker.status_all(), "Seccomp"), "0", "it acts for the server");
    let open = fs::read_dir(format!("/proc/{}/fd", broker.pid.as_raw_nonzero())).expect("it lives");
    let open: Vec<_> = open.map(|fd| fs::read_link(fd.expect("an entry").path())).collect();
    let is_of_mount = |path: &std::path::Path| {
        let path = path.to_string_lossy();
        path.contains("/dev/fuse") || path.contains("abort") || path.contains("memfd")
    };
    assert!(open.iter().flatten().all(|path| !is_of_mount(path)), "{open:?}");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn each_server_gives_up_what_it_does_not_need_and_shows_it() {
    let mounted = Mounted::new("noatime");
    check(&mounted);
    fs::write(mounted.at("file"), b"text").expect("room");
    let first = Process::of(broker(&mounted.stats()).expect("there is one"));
    mounted.restart();
    check(&mounted);
    first.wait_for_end();
    assert_eq!(fs::read(mounted.at("file")).expect("it is there"), b"text");
    let out = narufs().arg("stats").arg(mounted.place.point()).output().expect("it starts");
    let shown = String::from_utf8_lossy(&out.stdout);
    assert!(
        shown.contains("hardening      no capabilities, no new privileges, files by Landlock"),
        "{shown}"
    );
    let entry = mountinfo::find(&mounted.place.point()).expect("readable").expect("it is mounted");
    let options: Vec<&str> = entry.options.split(',').collect();
    assert!(options.contains(&"nosuid") && options.contains(&"nodev"), "{options:?}");
    let last = Process::of(broker(&mounted.stats()).expect("there is one"));
    mounted.end();
    last.wait_for_end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn nothing_is_given_up_where_that_is_asked_for() {
    let mounted = Mounted::new("harden=no");
    let stats = mounted.stats();
    assert_eq!((&stats["hardening"]["asked"], broker(&stats)), (&Value::Bool(false), None));
    let own = fs::read_to_string("/proc/self/status").expect("readable");
    let server = Process::of(mounted.server()).status_all();
    for what in ["CapPrm", "CapBnd", "NoNewPrivs", "Seccomp"] {
        assert_eq!(value(&server, what), value(&own, what), "{what}");
    }
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_mount_goes_on_without_its_broker_until_it_is_unmounted() {
    let mounted = Mounted::new("noatime");
    let broker = Process::of(broker(&mounted.stats()).expect("there is one"));
    kill_process(broker.pid, Signal::KILL).expect("it lives");
    broker.wait_for_end();
    fs::write(mounted.at("file"), b"text").expect("room");
    // A successor has its own.
    mounted.restart();
    check(&mounted);
    let again = Process::of(self::broker(&mounted.stats()).expect("there is one"));
    kill_process(again.pid, Signal::KILL).expect("it lives");
    again.wait_for_end();
    mounted.end();
}

/// What is answered to who asks for metrics there.
fn metrics(socket: &Path) -> String {
    let mut asking = UnixStream::connect(socket).expect("somebody listens");
    asking.write_all(b"GET /metrics HTTP/1.1\r\nHost: narufs\r\n\r\n").expect("heard");
    let mut answer = String::new();
    asking.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn metrics_are_served_and_their_socket_goes_with_the_mount() {
    let dir = tempfile::tempdir().expect("room");
    let socket = dir.path().join("socket");
    let mounted = Mounted::new(&format!("metrics=unix:{}", socket.display()));
    check(&mounted);
    let first = metrics(&socket);
    assert!(first.contains("200 OK") && first.contains("narufs_memory_resident_bytes"), "{first}");
    mounted.restart();
    check(&mounted);
    assert!(metrics(&socket).contains("narufs_incarnation{"), "the next server answers");
    mounted.end();
    assert!(!socket.exists());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_mount_that_fails_says_so_by_way_of_the_broker() {
    let mounted = Mounted::new("noatime");
    let place = mounted.place.point();
    // A file is no place for a mount.
    let file = mounted.at("file");
    fs::write(&file, b"").expect("room");
    let out = narufs().args(["mount", "--scratch"]).arg(&file).output().expect("it starts");
    assert!(!out.status.success() && said(&out).contains("not a directory"), "{}", said(&out));
    assert!(mountinfo::find(&place).expect("readable").is_some());
    mounted.end();
}
