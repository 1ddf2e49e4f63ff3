//! A file system that is open here and served at a directory.
#![cfg(feature = "mount")]

use narufs::*;
use std::fs::TryLockError;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system in memory, and a place to serve it at.
fn scratch() -> (Fs, tempfile::TempDir, PathBuf) {
    assert!(std::fs::metadata("/dev/fuse").is_ok(), "missing: /dev/fuse, to mount");
    let dir = tempfile::tempdir().expect("a place");
    let point = dir.path().join("mnt");
    std::fs::create_dir(&point).expect("room");
    let fs = Fs::scratch(&ScratchOptions::new(64 << 20)).expect("memory");
    (fs, dir, point)
}

fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("the list");
    mounts.lines().any(|line| line.split(' ').nth(1) == point.to_str())
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn both_sides_see_what_the_other_does_at_once() {
    let (fs, _dir, point) = scratch();
    let served = fs.serve(&point, &ServeOptions::new()).expect("it can be mounted");
    assert_eq!(served.dir(), point.canonicalize().expect("it is there"));
    let there = std::fs::File::create_new(point.join("f")).expect("room");
    drop(there);
    let there = std::fs::File::options().read(true).write(true).open(point.join("f")).expect("it is there");
    let here = fs.open_with("/f", OpenOptions::new().read(true).write(true)).expect("made there");
    let read = || {
        let mut bytes = vec![0; 5];
        there.read_exact_at(&mut bytes, 0).expect("five bytes");
        bytes
    };
    for round in 0..100u8 {
        here.write_all_at(&[round; 5], 0).expect("room");
        assert_eq!(read(), [round; 5]);
        there.write_all_at(&[round, 1, 2, 3, 4], 0).expect("room");
        assert_eq!(fs.read("/f").expect("read"), [round, 1, 2, 3, 4]);
        let mut batch = fs.batch();
        batch.write_all_at(&here, &[round ^ 1; 5000], 0).expect("room");
        batch.commit(Commit::Ordered).expect("room");
        assert_eq!((read(), there.metadata().expect("asked").len()), (vec![round ^ 1; 5], 5000));
        here.set_len(5).expect("it is cut");
        assert_eq!(there.metadata().expect("asked").len(), 5);
    }
    fs.rename("/f", "/g").expect("moved");
    assert!(!point.join("f").exists() && point.join("g").exists());
    drop((here, there));
    drop(served);
    assert!(!is_mounted(&point));
    fs.close().expect("nobody has it");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn locks_are_in_each_other_s_way() {
    let (fs, _dir, point) = scratch();
    let _served = fs.serve(&point, &ServeOptions::new()).expect("it can be mounted");
    let here = fs.create("/f").expect("room");
    let there = std::fs::File::open(point.join("f")).expect("it is there");
    here.lock_shared().expect("free");
    assert!(matches!(there.try_lock(), Err(TryLockError::WouldBlock)));
    there.try_lock_shared().expect("beside another");
    here.unlock().expect("it had it");
    assert!(matches!(here.try_lock(), Err(TryLockError::WouldBlock)));
    // What waits here is granted what a process there gives back by its end.
    drop(there);
    here.lock().expect("it comes free");
    here.unlock().expect("it had it");
    let mut other = Command::new("flock")
        .arg(point.join("f"))
        .args(["sh", "-c", "echo locked; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock is installed");
    let mut said = [0; 7];
    std::io::Read::read_exact(other.stdout.as_mut().expect("piped"), &mut said).expect("it says so");
    assert_eq!(&said, b"locked\n");
    assert!(matches!(here.try_lock_shared(), Err(TryLockError::WouldBlock)));
    other.stdin.take().expect("piped").write_all(b"end\n").expect("it reads");
    here.lock().expect("it comes free");
    assert!(other.wait().expect("it ends").success());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn it_is_served_once_and_stays_open_as_long_as_it_is() {
    let (fs, _dir, point) = scratch();
    let served = fs.serve(&point, &ServeOptions::new().read_only(true).source("some image")).expect("root");
    assert_eq!(fs.serve(&point, &ServeOptions::new()).unwrap_err().errno(), libc::EBUSY);
    assert!(std::fs::write(point.join("f"), b"x").is_err_and(|e| e.raw_os_error() == Some(libc::EROFS)));
    fs.write("/f", "x").expect("this process may");
    let held = std::fs::File::open(point.join("f")).expect("it is there");
    assert_eq!(served.unmount().unwrap_err().errno(), libc::EBUSY);
    drop(held);
    served.unmount().expect("nobody is in");
    served.wait().expect("it has ended");
    assert!(!is_mounted(&point));
    drop(served);

    // Again, and cut off in use.
    let served = fs.serve(&point, &ServeOptions::new()).expect("it is free");
    let held = std::fs::File::open(point.join("f")).expect("it is there");
    assert_eq!(fs.close().unwrap_err().errno(), libc::EBUSY);
    served.cut_off().expect("it is ours");
    assert!(held.read_at(&mut [0], 0).is_err());
    drop(served);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn reading_where_nothing_is_to_change_leaves_access_times_as_they_are() {
    let dir = tempfile::tempdir().expect("a place");
    let point = dir.path().join("mnt");
    std::fs::create_dir(&point).expect("room");
    for times in [AccessTimes::Relative, AccessTimes::Strict] {
        let fs = Fs::scratch(&ScratchOptions::new(64 << 20).access_times(times)).expect("memory");
        fs.create_dir("/d").expect("room");
        fs.write("/d/f", "x").expect("room");
        let both = || ["/d", "/d/f"].map(|path| fs.metadata(path).expect("it is there").accessed());
        let read_there = || {
            assert_eq!(std::fs::read_dir(point.join("d")).expect("a directory").count(), 1);
            assert_eq!(std::fs::read(point.join("d/f")).expect("a file"), b"x");
        };
        let before = both();
        let served = fs.serve(&point, &ServeOptions::new().read_only(true)).expect("it can be mounted");
        read_there();
        assert_eq!(both(), before);
        drop(served);
        let _served = fs.serve(&point, &ServeOptions::new()).expect("it can be mounted");
        read_there();
        let after = both();
        assert!(after[0] > before[0] && after[1] > before[1], "{before:?}, {after:?}");
    }
}

const SERVE_AT: &str = "NARUFS_TEST_SERVE_AT";
const RUN: &str = "NARUFS_TEST_RUN";

/// Not a test by itself: a program that serves a directory, and has a shell do something there, or does itself what it
/// should not.
#[test]
fn serve_in_a_process_of_its_own() {
    let Some(point) = std::env::var_os(SERVE_AT) else { return };
    let fs = Fs::scratch(&ScratchOptions::new(64 << 20)).expect("memory");
    fs.create_dir("/d").expect("room");
    fs.write("/f", "x").expect("room");
    let _served = fs.serve(&point, &ServeOptions::new()).expect("it can be mounted");
    let Ok(script) = std::env::var(RUN) else {
        let here = fs.open("/f").expect("it is there");
        here.lock().expect("free");
        let there = std::fs::File::open(Path::new(&point).join("f")).expect("it is there");
        println!("\nwaiting for itself");
        return there.lock().expect("it is killed");
    };
    let mut shell = Command::new("sh");
    shell.args(["-exc", &script]);
    assert!(shell.current_dir(&point).status().expect("a shell").success());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn who_is_killed_in_its_own_directory_ends() {
    let (_fs, _dir, point) = scratch();
    let mut child = Command::new(std::env::current_exe().expect("a test"));
    child.args(["--exact", "serve_in_a_process_of_its_own", "--nocapture"]).env(SERVE_AT, &point);
    let mut child = child.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("text") == "waiting for itself"));
    let waits = |task: std::io::Result<std::fs::DirEntry>| {
        let call =
            std::fs::read_to_string(task.expect("a thread").path().join("syscall")).unwrap_or_default();
        call.split(' ').next() == Some(libc::SYS_flock.to_string().as_str())
    };
    let tasks = || std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("it goes on");
    while !tasks().any(waits) {
        std::thread::yield_now();
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    let dead = std::fs::read_dir(&point).expect_err("nobody answers");
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
    assert!(Command::new("umount").arg(&point).status().expect("it is installed").success());
}

/// Another user, who has a name.
const NOBODY: u32 = 65534;

#[test]
#[ignore = "needs root, /dev/fuse and fusermount3"]
fn who_is_not_root_serves_what_is_his() {
    let (_fs, dir, point) = scratch();
    let at = |name| dir.path().join(name);
    // Where others reach it.
    std::fs::copy(std::env::current_exe().expect("a test"), at("test")).expect("room");
    for path in [dir.path(), &at("test")] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    }
    std::os::unix::fs::chown(&point, Some(NOBODY), Some(NOBODY)).expect("root");
    // Where the device is everybody's, as distributions have it, whatever this machine does.
    let run = "mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; \
        exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all -- \
        ./test --exact serve_in_a_process_of_its_own --nocapture";
    let there = "test \"$(stat -c %u:%g . f d | sort -u)\" = 65534:65534; \
        echo y >>f; chmod 600 f; echo z >d/new; mv d/new new; rmdir d; test \"$(cat new)\" = z";
    let mut serving = Command::new("unshare");
    serving.args(["--mount", "sh", "-ec", run]).current_dir(dir.path()).env(SERVE_AT, &point).env(RUN, there);
    let done = serving.output().expect("unshare is installed");
    assert!(done.status.success(), "{done:?}");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn what_cannot_be_served_says_why_and_leaves_everything_as_it_was() {
    let (fs, _dir, point) = scratch();
    let refused = fs.serve(point.join("missing"), &ServeOptions::new()).unwrap_err();
    assert_eq!(refused.errno(), libc::ENOENT);
    assert!(refused.to_string().starts_with("serve /"), "{refused}");
    drop(fs.serve(&point, &ServeOptions::new()).expect("it can be"));
    fs.close().expect("nobody has it");
}
