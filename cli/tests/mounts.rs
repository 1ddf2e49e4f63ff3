//! How mounts follow one another: by the names that mount(8) and umount(8) call, and around servers that are ending.

use narufs_engine::VolumeOptions;
use narufs_fuse::mount::{FuseOptions, mountinfo};
use narufs_fuse::{Caching, control};
use narufs_testing::lab::Ring;
use narufs_testing::place::{Place, require_mounts};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The program under one of its names.
fn called(name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
    command.arg0(name).args(words).stdin(Stdio::null());
    command
}

fn done(name: &str, words: &[&str]) -> String {
    let out = called(name, words).output().expect("it starts");
    assert!(out.status.success() && out.stderr.is_empty(), "{name} {words:?}: {out:?}");
    String::from_utf8(out.stdout).expect("text")
}

fn refused(out: &Output, status: i32, why: &str) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(status), "{said}");
    assert!(said.contains(why) && said.lines().count() == 1, "{why}: {said}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain letters")
}

fn place() -> Place {
    require_mounts();
    Place::make(Path::new(env!("CARGO_TARGET_TMPDIR")), Ring::Ssd, 64 << 20, 4096).expect("room")
}

/// Takes the lock of an image, if nobody has it.
fn locked(image: &Path) -> Option<File> {
    let file = File::open(image).expect("it is there");
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| file)
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn umount_8_s_helper_returns_when_the_server_has_ended() {
    let place = place();
    let (image, point) = (place.image(), place.point());
    let (from, at) = (text(&image), text(&point));
    // As umount(8) calls it.
    for (name, words) in [
        ("umount.narufs", &[at][..]),
        ("umount.fuse.narufs", &[at, "-n", "-v"]),
        ("umount.fuse.narufs", &[at, "-r"]),
        ("/sbin/umount.narufs", &[at, "-t", "fuse.narufs"]),
        ("umount.narufs", &[at, "-N", "/proc/self/ns/mnt"]),
        ("umount.narufs", &[from]),
    ] {
        done("mount.narufs", &[from, at, "-o", "rw"]);
        fs::write(point.join("file"), vec![1; 1 << 20]).expect("room");
        done(name, words);
        assert!(locked(&image).is_some(), "{name} {words:?}: the image is still held");
    }
    done("mount.narufs", &[from, at, "-o", "rw"]);
    let open = File::open(point.join("file")).expect("there");
    refused(&called("umount.narufs", &[at]).output().expect("it starts"), 32, "in use");
    done("umount.narufs", &[at, "-r"]);
    assert!(File::create(point.join("new")).is_err(), "it is read-only");
    done("umount.narufs", &[at, "-l"]);
    assert!(locked(&image).is_none() && open.metadata().is_ok(), "it is detached, and used");
    drop(open);
    // Whoever still ends is waited for; whoever does not answer is not asked.
    done("mount.narufs", &[from, at, "-o", "rw"]);
    done("umount.narufs", &[at, "-f"]);
    done("mount.narufs", &[from, at, "-o", "rw"]);
    done("narufs", &["umount", at]);
    refused(&called("umount.narufs", &[at]).output().expect("it starts"), 32, "no narufs is mounted here");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_an_unmount_makes_read_only_is_written_down() {
    let place = place();
    let (image, point) = (place.image(), place.point());
    let (from, at) = (text(&image), text(&point));
    done("narufs", &["mount", from, at, "-o", "supervise=no,commit=3600"]);
    let content = vec![7; 1 << 20];
    fs::write(point.join("file"), &content).expect("room");
    let open = File::open(point.join("file")).expect("there");
    done("narufs", &["umount", "-r", at]);
    assert!(File::create(point.join("new")).is_err(), "it is read-only");
    let server = Pid::from_raw(control::server_pid(&point).expect("it answers") as i32).expect("a process");
    kill_process(server, Signal::KILL).expect("it lives");
    drop(open);
    called("narufs", &["mount", from, at]).status().expect("it starts");
    assert!(fs::read(point.join("file")).expect("there") == content, "it is whole");
    done("narufs", &["umount", at]);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn an_image_is_not_unmounted_by_what_lies_over_it() {
    let (below, above) = (place(), place());
    let (image, point, other) = (below.image(), below.point(), above.image());
    let (from, at) = (text(&image), text(&point));
    let mounted = || {
        let all = fs::read_to_string("/proc/self/mountinfo").expect("readable");
        all.lines().filter(|line| line.contains(at)).map(str::to_owned).collect::<Vec<_>>()
    };
    let must_stay = |over: &str| {
        let before = mounted();
        assert_eq!(before.len(), 2);
        for how in [&[][..], &["-l"], &["-f"], &["-r"]] {
            let out = called("narufs", &[&["umount", from], how].concat()).output().expect("it starts");
            refused(&out, 32, &format!("{over} is mounted over it at {at}: unmount that first"));
            assert_eq!(mounted(), before, "{how:?}");
        }
    };
    done("narufs", &["mount", from, at]);
    done("narufs", &["mount", text(&other), at]);
    must_stay("fuse.narufs");
    done("narufs", &["umount", at]);
    rustix::mount::mount("none", &point, "tmpfs", MountFlags::empty(), c"size=1M").expect("root may");
    must_stay("tmpfs");
    rustix::mount::unmount(&point, UnmountFlags::empty()).expect("nobody uses it");
    done("narufs", &["umount", from]);
    assert!(mounted().is_empty());
}

/// A file system in memory, and what is in it; it goes with this.
struct SmallHost(tempfile::TempDir);

impl SmallHost {
    fn new() -> SmallHost {
        require_mounts();
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
        rustix::mount::mount("none", dir.path(), "tmpfs", MountFlags::empty(), c"size=32M")
            .expect("root may");
        SmallHost(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        for place in [self.at("point"), self.0.path().to_owned()] {
            let _ = rustix::mount::unmount(place, UnmountFlags::DETACH);
        }
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn an_unmount_says_when_not_everything_could_be_written() {
    let host = SmallHost::new();
    let (image, point, rest) = (host.at("image"), host.at("point"), host.at("rest"));
    fs::create_dir(&point).expect("room");
    done("narufs", &["mkfs", text(&image), "--size", "64M", "--sparse", "--journal-size", "4M"]);
    done("narufs", &["mount", text(&image), text(&point), "-o", "commit=3600"]);
    let mut filling = File::create(&rest).expect("room");
    while filling.write_all(&[1; 4096]).is_ok() {}
    fs::write(point.join("file"), vec![7; 2 << 20]).expect("there is memory for it");
    // Nor is it made read-only in silence where it is in use.
    let open = File::open(point.join("file")).expect("there");
    let out = called("narufs", &["umount", "-r", text(&point)]).output().expect("it starts");
    refused(&out, 32, ": not everything could be written down");
    drop(open);
    let out = called("narufs", &["umount", text(&point)]).output().expect("it starts");
    refused(&out, 32, "not everything could be written down");
    assert!(mountinfo::find(&point).expect("readable").is_none());
    // With room it is as after any crash.
    drop(filling);
    fs::remove_file(&rest).expect("it is there");
    done("narufs", &["mount", text(&image), text(&point)]);
    done("narufs", &["umount", text(&point)]);
    done("narufs", &["fsck", text(&image)]);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_program_that_serves_what_it_has_open_is_not_waited_for() {
    let place = place();
    let point = place.point();
    let fs = narufs_engine::Fs::mount(place.image(), &VolumeOptions::default()).expect("an image");
    let serve = || {
        let options = FuseOptions::new("a program's");
        narufs_fuse::serve(Arc::clone(fs.inodes()), &point, &options, Caching::Shared).expect("a mount")
    };
    for words in [&["umount", text(&point), "-v"][..], &["umount", "--lazy", text(&point)]] {
        let server = serve();
        done("narufs", words);
        server.wait();
    }
    let server = serve();
    let said = done("umount.narufs", &[text(&point), "-v"]);
    assert!(said.contains("goes on"), "{said}");
    drop(server);
    fs.unmount().expect("it was open all the time");
}

/// Whether it sleeps for a while, or has ended.
fn pauses_or_has_ended(child: &mut Child) -> bool {
    let call = fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap_or_default();
    let number = call.split_whitespace().next().and_then(|number| number.parse().ok());
    number == Some(libc::SYS_clock_nanosleep) || child.try_wait().expect("a child").is_some()
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn an_unmount_outlasts_who_is_about_to_go() {
    let place = place();
    let (image, point) = (place.image(), place.point());
    done("narufs", &["mount", text(&image), text(&point)]);
    // Who goes on a busy machine may do so too late, and the mount is in use then, as it should.
    let unmounted = (0..100).any(|_| {
        let passing = File::create(point.join("file")).expect("room");
        let mut umount = called("narufs", &["umount", text(&point)]);
        let mut umount = umount.stderr(Stdio::null()).spawn().expect("it starts");
        while !pauses_or_has_ended(&mut umount) {
            std::thread::yield_now();
        }
        drop(passing);
        umount.wait().expect("a child").success()
    });
    assert!(unmounted, "nobody is there any more");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn of_an_image_that_is_served_a_mount_says_where() {
    let place = place();
    let (image, point) = (place.image(), place.point());
    done("narufs", &["mount", text(&image), text(&point)]);
    let other = image.with_file_name("other");
    fs::create_dir(&other).expect("room");
    let out = called("narufs", &["mount", text(&image), text(&other)]).output().expect("it starts");
    refused(&out, 32, &format!("is in use: it is mounted at {}", point.display()));
    done("narufs", &["umount", text(&point)]);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_mount_waits_for_who_holds_its_image_and_serves_it_no_more() {
    let place = place();
    let (image, point) = (place.image(), place.point());
    // As a server between the end of its mount and its own.
    let ending = File::open(&image).expect("it is there");
    // A process that another test starts may have what made it for a moment.
    flock(&ending, FlockOperation::LockExclusive).expect("nobody keeps it");
    let mut mount = called("narufs", &["mount", text(&image), text(&point)]).spawn().expect("it starts");
    let inode = format!(":{} ", ending.metadata().expect("open").ino());
    let is_waited_for = || {
        let locks = fs::read_to_string("/proc/locks").expect("readable");
        locks.lines().any(|line| line.contains("->") && line.contains(&inode))
    };
    while !is_waited_for() {
        assert!(mount.try_wait().expect("a child").is_none(), "it does not wait");
        std::thread::yield_now();
    }
    drop(ending);
    assert!(mount.wait().expect("a child").success());
    fs::write(point.join("file"), b"here").expect("it is mounted");
    done("narufs", &["umount", text(&point)]);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_mount_is_told_of_with_its_image() {
    let place = place();
    let (image, point) = (place.image(), place.point());
    done("narufs", &["mount", "-o", "supervise=no", text(&image), text(&point)]);
    let below = point.join("below");
    fs::create_dir(&below).expect("room");
    let json: serde_json::Value =
        serde_json::from_str(&done("narufs", &["doctor", "--json", text(&below)])).expect("a document");
    let find = |about: &str| {
        let findings = json["findings"].as_array().expect("a list");
        findings.iter().find(|finding| finding["about"] == about).unwrap_or_else(|| panic!("{about}: {json}"))
    };
    let said = |about: &str, key: &str| find(about)[key].as_str().expect("text").to_owned();
    assert!(said("mount", "found").starts_with("FUSE 7."), "{json}");
    assert!(said("server", "remedy").contains("without supervise=no"), "{json}");
    assert_eq!(said("durability", "found"), "power");
    assert!(said("image", "found").contains("mounted"), "{json}");
    assert_eq!(said("room", "verdict"), "good");
    done("narufs", &["umount", text(&point)]);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_service_without_a_supervisor_says_that_it_is_ready() {
    let place = place();
    let (image, point) = (place.image(), place.point());
    let (from, at) = (text(&image), text(&point));
    let address = image.with_file_name("notify");
    let manager = UnixDatagram::bind(&address).expect("a name that nobody has");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    for words in [&["--scratch", "-o", "memory=64M", at][..], &["-o", "supervise=no", from, at]] {
        let mut service = called("narufs", &[&["mount", "--foreground"], words].concat());
        let mut service = service.env("NOTIFY_SOCKET", &address).spawn().expect("it starts");
        let mut said = [0; 64];
        let heard = loop {
            match manager.recv(&mut said) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                heard => break &said[..heard.expect("a word within a minute")],
            }
        };
        assert_eq!(heard, b"READY=1", "{words:?}");
        done("narufs", &["umount", at]);
        assert!(service.wait().expect("a child").success(), "{words:?}");
    }
}
