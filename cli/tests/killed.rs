//! `narufs bench --target lib:IMAGE`: the engine's process is killed, and what it wrote is found in what is left.

mod beside;

use narufs_engine::vfs::Context;
use narufs_testing::supervised::children_of;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn narufs(arguments: &[&str]) -> Command {
    beside::build();
    let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain letters")
}

/// An image that goes with the test.
struct Image {
    at: tempfile::TempDir,
}

impl Image {
    fn new(nvm: bool) -> Image {
        let prefix = tempfile::Builder::new().prefix("narufs-killed.").tempdir_in("/dev/shm");
        let image = Image { at: prefix.expect("memory for files") };
        let (path, ring) = (image.path(), image.at.path().join("ring"));
        let made = ["mkfs", text(&path), "--size", "128M", "--sparse", "--journal-size", "4M"];
        let nvm = if nvm { vec!["--journal-emulated", text(&ring)] } else { vec![] };
        let out = narufs(&[&made[..], &nvm].concat()).output().expect("it starts");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        image
    }

    fn path(&self) -> PathBuf {
        self.at.path().join("image")
    }

    fn target(&self) -> String {
        format!("lib:{}", text(&self.path()))
    }

    /// Clean, and nothing of a run is left in it.
    fn must_be_as_new(&self) {
        let out = narufs(&["fsck", text(&self.path())]).output().expect("it starts");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
        assert_eq!(self.names(), Vec::<String>::new());
    }

    fn names(&self) -> Vec<String> {
        let fs = narufs_engine::Fs::mount(self.path(), &narufs_engine::VolumeOptions::default())
            .expect("a good image");
        let mut names = Vec::new();
        let (inodes, root) = (fs.inodes(), narufs_engine::format::ROOT_NID);
        let dir = inodes.opendir(&Context::root(), root).expect("there is one");
        let read = inodes.readdir(&dir, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        });
        read.expect("it is readable");
        inodes.releasedir(dir);
        fs.unmount().expect("nothing is open");
        names.retain(|name| name != "." && name != "..");
        names
    }
}

/// A process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn every_workload_survives_the_kill_of_its_engine() {
    let cases = [(true, "power", "process"), (false, "power", "power"), (false, "process", "process")];
    for (nvm, durability, survives) in cases {
        let image = Image::new(nvm);
        let sizes = ["--ops", "30", "--files", "60", "--size", "1M", "--memory", "1M", "--repeat", "1"];
        let option = format!("durability={durability}");
        let how = ["--threads", "3", "--json", "-", "-o", &option, "--target", &image.target()];
        let out = narufs(&[&["bench", "all"], &sizes[..], &how].concat()).output().expect("it starts");
        assert!(out.status.success(), "{}", said(&out));
        let records: Vec<Value> = serde_json::from_slice(&out.stdout).expect("JSON");
        let checks: Vec<&Value> = records.iter().map(|r| &r["check"]).filter(|c| !c.is_null()).collect();
        assert_eq!((records.len(), checks.len()), (23 + 5, 23), "one check for each workload");
        assert!(checks.iter().all(|c| c["reopened"] == "killed"));
        assert!(records.iter().all(|r| r["survives"] == survives && r["note"] == "no system calls"));
        image.must_be_as_new();
    }
}

/// A child that this test orders about in the place of `narufs bench`.
struct Ordered {
    child: Killed,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Ordered {
    fn new(image: &Image, workload: &str, step: Value) -> Ordered {
        let order = json!({
            "mount": {"image": image.path(), "name": "lib", "options": []},
            "work": "work",
            "load": {
                "workload": workload, "threads": 2, "repeat": 1, "repeats": 1, "check": true,
                "time": {"secs": 600, "nanos": 0},
                "params": {
                    "seed": 1, "files": 40, "size": 1 << 20, "spread": true, "paper": false,
                    "memory": 1 << 20, "ratio": 0.25, "record": 4096, "ops": 40, "scale": 1.0, "steps": [],
                },
            },
            "step": step,
            "watched": false,
        });
        let mut command = narufs(&["bench-child"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = Killed(child.expect("it starts"));
        let out = child.0.stdout.take().expect("a pipe");
        let orders = child.0.stdin.as_mut().expect("a pipe");
        orders.write_all(format!("{order}\n").as_bytes()).expect("it listens");
        Ordered { child, lines: BufReader::new(out).lines() }
    }

    /// What it says of this kind.
    fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            let line = self.lines.next().expect("it says more").expect("readable");
            let said: Value = serde_json::from_str(&line).expect("JSON");
            match &said {
                Value::String(word) if word == kind => return Value::Null,
                Value::Object(fields) if fields.contains_key(kind) => return fields[kind].clone(),
                said => assert!(kind == "Failed" || said.get("Failed").is_none(), "{said}"),
            }
        }
    }
}

#[test]
fn what_the_kill_has_left_is_compared_and_what_is_lost_is_noticed() {
    let image = Image::new(true);
    for (workload, from, to) in
        [("DWSL", "[[", "[[7,"), ("DWAL", "\"size\":", "\"size\":1"), ("MWCM", "\"next\":", "\"next\":1")]
    {
        let mut measuring = Ordered::new(&image, workload, json!("Measure"));
        let synced = measuring.wait_for("Synced");
        let left = synced[1].as_str().expect("what must be there").to_owned();
        measuring.child.0.kill().expect("it lives");
        assert!(!measuring.child.0.wait().expect("it ends").success());
        // It was not unmounted: what the next process sees comes from the journal.
        let read = narufs(&["info", text(&image.path())]).output().expect("it starts");
        assert!(String::from_utf8_lossy(&read.stdout).contains("unclean: "), "{read:?}");

        let wrong = left.replacen(from, to, 1);
        assert_ne!(wrong, left, "{workload}");
        let order = |left: &str| json!({"Compare": left});
        let mut comparing = Ordered::new(&image, workload, order(&left));
        comparing.wait_for("Mounted");
        let compared = comparing.wait_for("Compared");
        assert!(compared[1].as_u64() > Some(0), "{compared}");
        comparing.wait_for("Ended");
        drop(comparing);
        image.must_be_as_new();

        let mut again = Ordered::new(&image, workload, json!("Measure"));
        again.wait_for("Synced");
        drop(again);
        let mut comparing = Ordered::new(&image, workload, order(&wrong));
        let failed = comparing.wait_for("Failed");
        assert!(failed.get("Wrong").is_some(), "{workload}: {failed}");
        drop(comparing);
        image.must_be_as_new();
    }
}

/// `narufs bench` at work, and the process that it has started.
fn at_work(image: &Image) -> (Killed, Pid) {
    let arguments = ["bench", "DWSL", "--seconds", "600", "--target", &image.target()];
    let child = narufs(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let parent = Killed(child.expect("it starts"));
    // The image is locked by the one who has mounted it: then the child is at work.
    let lock = std::fs::File::open(image.path()).expect("it is there");
    let taken = || {
        let tried = rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared);
        let _ = rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock);
        tried.is_err()
    };
    while !taken() {
        std::thread::yield_now();
    }
    let children = children_of(Pid::from_child(&parent.0)).expect("it lives");
    let child = *children.first().expect("a child");
    (parent, child)
}

fn wait_for_end(process: impl std::os::fd::AsFd) {
    poll(&mut [PollFd::new(&process, PollFlags::IN)], None).expect("it can be waited for");
}

fn end_of(mut parent: Killed) -> (Option<i32>, String) {
    let status = parent.0.wait().expect("it ends");
    let mut words = String::new();
    let mut err = parent.0.stderr.take().expect("a pipe");
    std::io::Read::read_to_string(&mut err, &mut words).expect("readable");
    (status.code(), words)
}

#[test]
fn an_interruption_reaches_the_engines_process_and_nothing_is_left() {
    let image = Image::new(false);
    let (parent, child) = at_work(&image);
    let process = pidfd_open(child, PidfdFlags::empty()).expect("it lives");
    kill_process(Pid::from_child(&parent.0), Signal::INT).expect("it lives");
    let (status, words) = end_of(parent);
    assert_eq!((status, words.as_str()), (Some(130), "narufs bench: interrupted\n"));
    wait_for_end(&process);
    image.must_be_as_new();
}

#[test]
fn the_engines_process_does_not_outlive_its_parent() {
    let image = Image::new(false);
    let (mut parent, child) = at_work(&image);
    let process = pidfd_open(child, PidfdFlags::empty()).expect("it lives");
    parent.0.kill().expect("it lives");
    parent.0.wait().expect("it ends");
    wait_for_end(&process);
    image.must_be_as_new();
}

#[test]
fn an_engine_that_dies_is_told_in_one_line_and_tidied_up() {
    let image = Image::new(true);
    let (parent, child) = at_work(&image);
    kill_process(child, Signal::KILL).expect("it lives");
    let (status, words) = end_of(parent);
    assert_eq!((status, words.lines().count()), (Some(1), 1), "{words}");
    assert!(words.contains("ended too soon") && words.contains("SIGKILL"), "{words}");
    image.must_be_as_new();
}

#[test]
fn the_hidden_command_says_what_it_is_for() {
    let out = narufs(&["bench-child"]).output().expect("it starts");
    assert_eq!(out.status.code(), Some(2));
    assert!(said(&out).contains("a part of `narufs bench`") && said(&out).lines().count() == 1);
    let help = String::from_utf8_lossy(&narufs(&["--help"]).output().expect("it starts").stdout).into_owned();
    assert!(!help.contains("bench-child"), "{help}");
}
