//! `narufs bench` as users call it.

mod beside;

use narufs_testing::place::require_loop_devices;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn narufs(arguments: &[&str]) -> Command {
    beside::build();
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
fn a_table_that_found_no_room_is_told_of() {
    let at = memory();
    let full = File::options().write(true).open("/dev/full").expect("every system has it");
    let words = ["bench", "DWOL", "--target", text(at.path()), "--ops", "10", "--memory", "1M"];
    let out = narufs(&words).stdout(full).output().expect("it starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output: No space"), "{said}");
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

#[test]
fn comparisons_refuse_what_they_do_not_know() {
    for (word, arguments) in [
        ("no such contender", vec!["compare", "--quick", "--contenders", "zfs"]),
        ("nearest is DWOL", vec!["compare", "--quick", "--workloads", "DWOLL"]),
        ("--rounds 0", vec!["compare", "--quick", "--rounds", "0"]),
        ("--threads 0", vec!["compare", "--quick", "--threads", "0"]),
        ("say 96M or more", vec!["compare", "--quick", "--spill-memory", "1M"]),
        ("--spill-ratio 0", vec!["compare", "--workloads", "spill", "--spill-ratio", "1,0"]),
    ] {
        let at = memory();
        let out = narufs(&arguments).current_dir(at.path()).output().expect("it starts");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{arguments:?}: {said}");
        assert!(!at.path().join("narufs-report/report.html").exists());
    }
    // Nobody is asked to type the name of what is no device.
    let at = memory();
    let out = narufs(&["compare", "--quick", "--device", "/dev/null"])
        .current_dir(at.path())
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("not a block device"));
}

#[test]
fn a_report_is_made_from_results_alone() {
    let at = tempfile::tempdir().expect("room");
    let (from, report) = (at.path().join("results.json"), at.path().join("report"));
    let none = r#"{"machine":[],"command":"c","rounds":1,"contenders":[],"records":[],"absent":[]}"#;
    for (content, code, word) in [(none, 0, "report: "), ("{}", 1, "not the results of a comparison")] {
        std::fs::write(&from, content).expect("written");
        let out =
            narufs(&["compare", "--from", text(&from), "--report", text(&report)]).output().expect("it ends");
        assert_eq!(out.status.code(), Some(code));
        let said = [out.stdout, out.stderr].concat();
        assert!(String::from_utf8_lossy(&said).contains(word), "{}", String::from_utf8_lossy(&said));
    }
    assert!(report.join("report.html").exists());
    let out = narufs(&["compare", "--from", text(&from), "--quick"]).output().expect("it ends");
    assert_eq!(out.status.code(), Some(2), "nothing is measured from a file");
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_comparison_writes_its_report_and_leaves_nothing() {
    require_loop_devices();
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a disk");
    let (work, report) = (at.path().join("work"), at.path().join("report"));
    std::fs::create_dir(&work).expect("room");
    let arguments =
        ["compare", "--quick", "--rounds", "2", "--size", "128M", "--files", "40", "--seconds", "0.05"];
    let choice =
        ["--workloads", "DWOL,MWCL", "--threads", "1,2", "--contenders", "tmpfs,narufs-nvm,narufs-lib-nvm"];
    let places = ["--work", text(&work), "--report", text(&report)];
    let child = narufs(&[&arguments[..], &choice, &places].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = child.id();
    let out = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    let json = std::fs::read(report.join("results.json")).expect("written");
    let results: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let records = results["records"].as_array().expect("a list");
    assert_eq!(
        (records.len(), results["absent"].as_array().map(Vec::len)),
        (2 * 3 * 2 * 2, Some(0)),
        "{said}"
    );
    // In turn: each contender once before any runs the same again.
    let order: Vec<_> = records.iter().filter(|r| r["workload"] == "DWOL" && r["threads"] == 1).collect();
    let turns: Vec<_> = order.iter().map(|r| r["target"].as_str().unwrap_or_default()).collect();
    let once = ["tmpfs", "narufs-nvm", "narufs-lib-nvm"];
    assert_eq!(turns, [once, once].concat());
    for record in records.iter().filter(|r| r["filesystem"] == "narufs") {
        // With the last phase of each run; each number of threads is a run.
        assert_eq!(record["check"]["reopened"], "killed");
        assert_eq!(record["survives"], "process");
    }
    let page = std::fs::read_to_string(report.join("report.html")).expect("written");
    assert!(page.contains("narufs-lib-nvm") && page.contains("</html>"));
    let again = at.path().join("again");
    for form in [&["--compact"][..], &[]] {
        // The second time from the short form.
        let from = if form.is_empty() { &again } else { &report }.join("results.json");
        let shown = ["compare", "--from", text(&from), "--report", text(&again)];
        let out = narufs(&[&shown[..], form].concat()).output().expect("it ends");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let drawn = std::fs::read_to_string(again.join("report.html")).expect("written");
        assert_eq!(drawn.matches("<figure>").count(), page.matches("<figure>").count());
    }
    assert!(is_empty(&work), "files are left");
    assert!(!Path::new(&format!("/dev/shm/narufs-compare.{pid}")).exists());
    let loops = Command::new("losetup").arg("--all").output().expect("it is there").stdout;
    assert!(!String::from_utf8_lossy(&loops).contains(text(&work)), "a loop device is left");
}

/// A comparison beyond a memory limit.
fn beyond_memory(at: &Path, more: &[&str]) -> Command {
    let v2 = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let has_limit =
        v2.contains("memory") || Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
    assert!(has_limit, "missing: control groups with a memory controller");
    require_loop_devices();
    let sizes = ["--spill-memory", "96M", "--spill-ratio", "1.25", "--size", "256M"];
    let mut command = narufs(&["compare", "--workloads", "spill"]);
    command.args(sizes).args(more).arg("--work").arg(at).arg("--report").arg(at.join("report"));
    command
}

/// Nothing that a comparison of this process beyond a memory limit makes is there.
fn assert_nothing_left(at: &Path, pid: u32) {
    let name = format!("narufs-compare.{pid}");
    for above in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/dev/shm", text(at)] {
        assert!(!Path::new(above).join(&name).exists(), "{above}/{name} is left");
    }
    let loops = Command::new("losetup").arg("--all").output().expect("it is there").stdout;
    assert!(!String::from_utf8_lossy(&loops).contains(text(at)), "a loop device is left");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(!mounts.contains(&name), "a mount is left");
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    assert!(!swaps.lines().any(|line| line.ends_with("32767")), "a swap area is left: {swaps}");
}

/// Swap areas belong to the whole machine: who turns one on is alone.
static SWAP: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
#[ignore = "needs root, loop devices, a memory controller, swap areas and ext4"]
fn data_beyond_a_memory_limit_are_compared_and_nothing_is_left() {
    let _alone = SWAP.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a disk");
    let mut command = beyond_memory(at.path(), &["--rounds", "1"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id();
    let out = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    let json = std::fs::read(at.path().join("report/results.json")).expect("written");
    let results: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let (rows, absent) = (results["spilled"]["rows"].as_array(), results["absent"].as_array());
    let (rows, absent) = (rows.expect("a list"), absent.expect("a list"));
    let mounts = ["narufs-ssd", "narufs-scratch", "narufs-scratch-cached"];
    let narufs = mounts.into_iter().chain(["narufs-lib-ssd", "narufs-lib-scratch"]);
    for contender in ["tmpfs-swap", "ext4-no-journal"].into_iter().chain(narufs) {
        let own: Vec<_> = rows.iter().filter(|row| row["target"] == contender).collect();
        let reason = absent.iter().find(|a| a["contender"] == contender).map(|a| a["reason"].to_string());
        assert_eq!(reason, None, "missing: what {contender} needs");
        assert_eq!(own.len(), 6, "{contender}: {said}");
        for row in own {
            assert!(row["memory_peak"].as_u64().is_none_or(|peak| peak <= 96 << 20), "{row}");
            let phase = row["phase"].as_str().expect("a word");
            // The file does not fit: reading it all reaches the device.
            let read = row["device_read_bytes"].as_u64().expect("a number");
            assert!(!phase.ends_with("read") || read > 0, "{contender} {phase} read nothing");
        }
    }
    let page = std::fs::read_to_string(at.path().join("report/report.html")).expect("written");
    assert!(page.contains("More data than memory"));
    assert_nothing_left(at.path(), pid);
}

#[test]
#[ignore = "needs root, loop devices and a memory controller"]
fn an_interruption_beyond_a_memory_limit_cleans_up() {
    let _alone = SWAP.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a disk");
    let choice = ["--rounds", "1000", "--contenders", "tmpfs-swap,narufs-ssd"];
    let mut command = beyond_memory(at.path(), &choice);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = Killed(child.expect("it starts"));
    let mut lines = BufReader::new(child.0.stderr.take().expect("a pipe")).lines();
    // The first contender is through, in one way or another: the next is at work.
    lines.next().expect("a line").expect("readable");
    let pid = child.0.id();
    let id = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it lives");
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.0.wait().expect("it ends").code(), Some(130), "{said:?}");
    assert_nothing_left(at.path(), pid);
}

/// It is built with the papers' baselines, and by nobody who does not ask for it.
#[test]
fn a_program_that_is_not_built_is_named_with_what_builds_it() {
    let at = memory();
    let alone = at.path().join("narufs");
    std::fs::copy(env!("CARGO_BIN_EXE_narufs"), &alone).expect("room");
    let out = Command::new(&alone).args(["reproduce", "nat"]).env("PATH", "").output().expect("it starts");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(127), "{said}");
    assert!(said.contains("make reproduce") && said.lines().count() == 1, "{said}");
    let out = Command::new(&alone).args(["reproduce", "--help"]).env("PATH", "").output().expect("it starts");
    assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("--quick"));
}
