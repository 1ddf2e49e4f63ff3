//! How a mount ends that outlives its servers.

use crate::support::{Mounted, mount, narufs, said};
use rustix::process::{Signal, kill_process};
use std::fs;

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

#[test]
#[ignore = "needs root and /dev/fuse"]
fn without_its_supervisor_it_goes_on_and_ends_with_its_server() {
    let mounted = Mounted::new("noatime");
    kill_process(mounted.supervisor, Signal::KILL).expect("it lives");
    mounted.wait_for_end();
    fs::create_dir(mounted.at("dir")).expect("it is served");
    let out = narufs().arg("umount").arg(mounted.place.point()).output().expect("it starts");
    assert!(out.status.success(), "{}", said(&out));
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
    let mounted = Mounted::new("noatime");
    let end = || fs::metadata(mounted.at("nothing")).expect_err("it is not there").raw_os_error();
    // Each begins to serve: this takes as many faults as a minute may have.
    while end() == Some(libc::ENOENT) {
        mounted.kill(Signal::ABORT);
    }
    mounted.wait_for_end();
    assert!(narufs_fuse::mount::is_dead(&mounted.place.point()));
    assert!(narufs().arg("umount").arg(mounted.place.point()).status().expect("it starts").success());
    assert!(mount(&mounted.place, "noatime").status.success());
    assert!(narufs().arg("umount").arg(mounted.place.point()).status().expect("it starts").success());
}
