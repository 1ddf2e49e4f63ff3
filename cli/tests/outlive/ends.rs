//! How a mount ends that outlives its servers.

use crate::support::{Mounted, Process, mount, narufs, said};
use narufs_fuse::mount::mountinfo;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

#[test]
#[ignore = "needs root and /dev/fuse"]
fn it_is_unmounted_while_no_server_is_there() {
    let mounted = Mounted::new("noatime");
    fs::write(mounted.at("file"), b"content").expect("room");
    mounted.kill(Signal::KILL);
    mounted.unmount();
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn it_is_cut_off_while_no_server_is_there() {
    let mounted = Mounted::new("noatime");
    fs::create_dir(mounted.at("dir")).expect("room");
    mounted.kill(Signal::KILL);
    let out = narufs().args(["umount", "--force"]).arg(mounted.place.point()).output().expect("it starts");
    assert!(out.status.success(), "{}", said(&out));
    mounted.wait_for_end();
    mounted.place.check().expect("nothing is wrong with the image");
    assert!(mount(&mounted.place, "noatime").status.success());
    assert!(mounted.at("dir").is_dir());
    assert!(narufs().arg("umount").arg(mounted.place.point()).status().expect("it starts").success());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_signal_to_the_supervisor_unmounts() {
    let mounted = Mounted::new("noatime");
    kill_process(mounted.supervisor, Signal::TERM).expect("it lives");
    mounted.wait_for_end();
    mounted.place.check().expect("nothing is wrong with the image");
}

/// As a service manager ends a unit, and a terminal a group.
#[test]
#[ignore = "needs root and /dev/fuse"]
fn one_signal_to_all_of_its_processes_lets_its_users_finish() {
    let mounted = Mounted::new("noatime");
    let mut file = File::options().create_new(true).write(true).open(mounted.at("file")).expect("room");
    file.write_all(b"before").expect("room");
    let server = mounted.server();
    for process in [server, mounted.supervisor] {
        kill_process(process, Signal::TERM).expect("it lives");
    }
    // Detached by the first of them; the second would cut this off.
    while mountinfo::find(&mounted.place.point()).expect("readable").is_some() {
        std::thread::yield_now();
    }
    file.write_all(b", and after").expect("it is served");
    file.sync_all().expect("it is served");
    drop(file);
    mounted.wait_for_end();
    mounted.place.check().expect("nothing is wrong with the image");
    assert!(mount(&mounted.place, "noatime").status.success());
    assert_eq!(fs::read(mounted.at("file")).expect("it is there"), b"before, and after");
    assert!(narufs().arg("umount").arg(mounted.place.point()).status().expect("it starts").success());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn who_unmounts_while_no_server_is_there_waits_for_the_next() {
    let mounted = Mounted::new("noatime");
    fs::write(mounted.at("file"), b"content").expect("room");
    mounted.stay_down();
    let mut unmount = narufs().arg("umount").arg(mounted.place.point()).spawn().expect("it starts");
    mounted.go_on();
    assert!(unmount.wait().expect("a child").success());
    mounted.wait_for_end();
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn who_cuts_it_off_while_no_server_is_there_need_not_wait() {
    let mounted = Mounted::new("noatime");
    fs::create_dir(mounted.at("dir")).expect("room");
    mounted.stay_down();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| fs::create_dir(mounted.at("other")));
        let out = narufs().args(["umount", "--force"]).arg(mounted.place.point()).output();
        let out = out.expect("it starts");
        assert!(out.status.success(), "{}", said(&out));
        assert!(mountinfo::find(&mounted.place.point()).expect("readable").is_none());
        // It was cut off, or came too late for that.
        let _ = waits.join().expect("no panic");
    });
    mounted.go_on();
    mounted.wait_for_end();
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn one_that_is_detached_goes_on_for_who_has_files_open() {
    let mounted = Mounted::new("noatime");
    let file = File::options().create_new(true).read(true).write(true).open(mounted.at("file"));
    let file = file.expect("made");
    file.write_all_at(b"before", 0).expect("room");
    let server = Process::of(mounted.server());
    let out = narufs().args(["umount", "--lazy"]).arg(mounted.place.point()).output().expect("it starts");
    assert!(out.status.success(), "{}", said(&out));
    kill_process(server.pid, Signal::KILL).expect("it lives");
    file.write_all_at(b" after", 6).expect("another server serves");
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, 0).expect("readable");
    assert_eq!(&bytes, b"before after");
    assert!(server.has_ended());
    drop(file);
    mounted.wait_for_end();
    mounted.place.check().expect("nothing is wrong with the image");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn who_does_not_want_it_has_a_mount_that_ends_with_its_server() {
    let mounted = Mounted::new("noatime");
    mounted.unmount();
    assert!(mount(&mounted.place, "supervise=no").status.success());
    let point = mounted.place.point();
    assert_eq!(narufs_fuse::control::supervisor_pid(&point).expect("it answers"), None);
    let out =
        narufs().args(["mount", "--scratch", "-o", "supervise=yes"]).arg(&point).output().expect("it starts");
    assert!(!out.status.success() && said(&out).contains("supervise=yes"), "{}", said(&out));
    assert!(narufs().arg("umount").arg(&point).status().expect("it starts").success());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn servers_that_die_of_themselves_are_given_up() {
    let at = tempfile::tempdir().expect("room");
    let log = at.path().join("log");
    // A first server may answer before it has said that it serves: who ends it then ends a mount that never was.
    let said_by_all = (0..20).find_map(|_| {
        let mounted = Mounted::heard("noatime", &log);
        // Each begins to serve: this takes as many faults as a minute may have.
        while let Ok(pid) = narufs_fuse::control::server_pid(&mounted.place.point()) {
            let server = Process::of(Pid::from_raw(pid as i32).expect("a process"));
            kill_process(server.pid, Signal::ABORT).expect("it lives");
            server.wait_for_end();
        }
        mounted.wait_for_end();
        let log = fs::read_to_string(&log).expect("it has said something");
        (!log.contains("the server ended before it served")).then_some((mounted, log))
    });
    let (mounted, log) = said_by_all.expect("one that has said that it serves");
    let point = mounted.place.point();
    let asked = narufs_fuse::control::server_pid(&point);
    assert!(asked.as_ref().is_err_and(narufs_fuse::mount::is_gone), "{asked:?}: {log}");
    let what_to_do = format!("run narufs umount {}, then narufs fsck, and mount again", point.display());
    // One that answers has begun to serve; whether it had said so is another matter.
    let why = ["faults of their own", "ended before they served"];
    assert!(why.iter().any(|why| log.contains(why)) && log.contains(&what_to_do), "{log}");
    mounted.end();
}
