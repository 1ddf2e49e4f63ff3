//! `narufs bench` as users call it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn narufs(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
    command.args(arguments);
    command
}

fn memory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("narufs-bench-cli.").tempdir_in("/dev/shm").expect("memory for files")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain letters")
}

fn run(arguments: &[&str]) -> Output {
    narufs(arguments).output().expect("it starts")
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("it is there").next().is_none()
}

/// A process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn bad_input_gets_one_clear_line_and_its_status() {
    let at = memory();
    let dir = text(at.path());
    let missing = at.path().join("missing");
    for (status, word, arguments) in [
        (2, "nearest is varmail", vec!["varmial", "--target", dir]),
        (2, "--list", vec!["--target", dir]),
        (2, "--threads 0", vec!["DWOL", "--target", dir, "--threads", "0"]),
        (2, "unknown option", vec!["DWOL", "--target", "lib:x", "-o", "colour"]),
        (1, "no such directory", vec!["DWOL", "--target", text(&missing)]),
        (1, "cannot write here", vec!["DWOL", "--target", "/sys"]),
        (1, "too little space", vec!["DWTL", "--target", dir, "--size", "1024T"]),
        (1, "missing", vec!["DWOL", "--target", &format!("lib:{}", text(&missing))]),
        (1, "missing/x.json", vec!["DWOL", "--target", dir, "--json", text(&missing.join("x.json"))]),
    ] {
        let out = run(&[vec!["bench"], arguments.clone()].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{arguments:?}: {said}");
        assert!(out.stdout.is_empty(), "{arguments:?} prints");
        assert!(is_empty(at.path()), "{arguments:?} leaves something");
    }
    assert_eq!(run(&["bench", "DWOL"]).status.code(), Some(2));
    assert_eq!(run(&["bench", "DWOL", "--target", dir, "--seconds", "-1"]).status.code(), Some(2));
}

#[test]
fn records_are_a_json_list() {
    let at = memory();
    let (dir, json) = (at.path().join("target"), at.path().join("out.json"));
    std::fs::create_dir(&dir).expect("room");
    let arguments = ["bench", "DWOL", "iozone", "--target", text(&dir), "--threads", "1,2", "--repeat", "2"];
    let sizes = ["--ops", "10", "--memory", "1M", "--json", text(&json)];
    let out = run(&[&arguments[..], &sizes].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let records: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
    assert_eq!(records.len(), 2 * 2 * (1 + 6));
    assert!(records.iter().all(|r| r["survives"] == "nothing" && r["ops"].as_u64() > Some(0)));
    let table = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(table.contains("iozone random-write") && table.contains("median of 2"), "{table}");
    assert!(is_empty(&dir));

    let out = run(&["bench", "MWCL", "--files", "9", "--repeat", "1", "--target", text(&dir), "--json", "-"]);
    let records: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).expect("nothing but JSON");
    assert_eq!((records.len(), records[0]["ops"].as_u64()), (1, Some(9)));
}

#[test]
fn an_image_is_measured_without_a_mount() {
    let at = memory();
    let (image, ring) = (at.path().join("image"), at.path().join("ring"));
    let made = run(&[
        "mkfs",
        text(&image),
        "--size",
        "128M",
        "--sparse",
        "--journal-size",
        "4M",
        "--journal-emulated",
        text(&ring),
    ]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let target = format!("lib:{}", text(&image));
    let arguments =
        ["bench", "DWSL", "varmail", "--ops", "200", "--files", "40", "--repeat", "1", "--json", "-"];
    let more = ["--nvm-delay", "1", "-o", "memory=16M", "--target", &target];
    let out = run(&[&arguments[..], &more].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let records: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(record["survives"], "process");
        assert_eq!(record["note"], "no system calls, fences 1 ns longer");
        assert_eq!(record["check"]["reopened"], "killed");
        assert!(record["nvm_fences"].as_u64() > Some(0));
    }
    assert!(run(&["fsck", text(&image)]).status.success(), "the image is not clean afterwards");
}

#[test]
fn an_interruption_cleans_up() {
    let at = memory();
    let json = at.path().join("out.json");
    let dir = at.path().join("target");
    std::fs::create_dir(&dir).expect("room");
    let mut command =
        narufs(&["bench", "DWOL", "--target", text(&dir), "--ops", "100", "--repeat", "1000000"]);
    let child = command.args(["--json", text(&json)]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = Killed(child.expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("a pipe")).lines();
    // The heading and the first row: it is at work.
    for _ in 0..2 {
        lines.next().expect("a line").expect("readable");
    }
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    let rows = lines.map_while(Result::ok).count();
    assert_eq!(child.0.wait().expect("it ends").code(), Some(130));
    assert!(is_empty(&dir), "something is left");
    let records: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
    assert!(!records.is_empty() && records.len() <= rows + 1, "what was measured counts");
}

#[test]
fn help_teaches() {
    let help = String::from_utf8_lossy(&run(&["bench", "--help"]).stdout).into_owned();
    for word in ["--target", "lib:", "Examples", "Exit status", "unlapped", "--list"] {
        assert!(help.contains(word), "{word} is not explained");
    }
    let list = String::from_utf8_lossy(&run(&["bench", "--list"]).stdout).into_owned();
    for word in ["DWOL", "MRDM", "varmail", "oltp", "one operation:", "sizes:"] {
        assert!(list.contains(word), "{word} is not listed");
    }
}
