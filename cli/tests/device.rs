//! `narufs compare --device`: what may be overwritten, and that nothing is before its name was typed. Needs root and
//! loop devices.

use narufs_testing::place::require_loop_devices;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs a tool that must succeed.
fn tool(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).output().expect(program);
    assert!(out.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

/// A block device in memory, whose every byte is known.
struct Device {
    at: tempfile::TempDir,
    path: String,
    mounted: Option<PathBuf>,
}

const BYTES: u64 = 160 << 20;

impl Device {
    fn new() -> Device {
        require_loop_devices();
        let at = tempfile::Builder::new().prefix("narufs-device.").tempdir_in("/dev/shm");
        let at = at.expect("memory for files");
        let file = at.path().join("disk");
        std::fs::write(&file, [0xa5; 1 << 20]).expect("room");
        std::fs::File::options().write(true).open(&file).expect("there").set_len(BYTES).expect("sparse");
        let path = tool("losetup", &["--find", "--show", "--partscan", text(&file)]);
        Device { at, path, mounted: None }
    }

    fn is_untouched(&self) -> bool {
        let found = std::fs::read(self.at.path().join("disk")).expect("there");
        found[..1 << 20].iter().all(|byte| *byte == 0xa5) && found[1 << 20..].iter().all(|byte| *byte == 0)
    }

    /// Mounts a device with ext4 on it.
    fn mount(&mut self, device: &str) -> PathBuf {
        tool("mkfs.ext4", &["-q", "-F", device]);
        let point = self.at.path().join("mounted");
        std::fs::create_dir(&point).expect("room");
        tool("mount", &["-t", "ext4", device, text(&point)]);
        self.mounted = Some(point.clone());
        point
    }

    fn compare(&self, typed: &str, more: &[&str]) -> Output {
        let report = self.at.path().join("report");
        let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
        command.args(["compare", "--quick", "--device", &self.path, "--rounds", "1", "--threads", "1"]);
        command.args(["--workloads", "DWSL", "--seconds", "0.05", "--report", text(&report)]);
        command.args(["--work", text(self.at.path())]).args(more);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        // One that refuses may be gone before it is answered.
        let _ = child.stdin.take().expect("a pipe").write_all(format!("{typed}\n").as_bytes());
        child.wait_with_output().expect("it ends")
    }

    fn refuses(&self, typed: &str, more: &[&str], words: &[&str]) {
        let out = self.compare(typed, more);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        for word in words.iter().chain(&[self.path.as_str()]) {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(!self.at.path().join("report").exists());
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(point) = &self.mounted {
            let _ = Command::new("umount").arg(point).status();
        }
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain letters")
}

#[test]
#[ignore = "needs root, loop devices and ext4"]
fn a_device_is_overwritten_once_its_name_was_typed() {
    let device = Device::new();
    let contenders =
        "ext4,ext4-journal-ram,narufs-ssd,narufs-lib-ssd-process,narufs-nvm-delayed,narufs-lib-nvm-delayed";
    let out = device.compare(&device.path, &["--size", "128M", "--contenders", contenders]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    let json = std::fs::read(device.at.path().join("report/results.json")).expect("written");
    let results: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let machine = results["machine"].as_array().expect("a list");
    assert!(
        machine.iter().any(|row| row[0] == "device of all" && row[1] == device.path.as_str()),
        "{machine:?}"
    );
    let records = results["records"].as_array().expect("a list");
    let of = |name: &str| records.iter().find(|r| r["target"] == name);
    for (name, how) in [
        ("narufs-ssd", "killed"),
        ("narufs-lib-ssd-process", "killed"),
        ("narufs-nvm-delayed", "killed"),
        ("narufs-lib-nvm-delayed", "killed"),
    ] {
        let record = of(name).unwrap_or_else(|| panic!("{name} did not run: {said}"));
        assert_eq!(record["check"]["reopened"], how, "{name}");
        assert!(record["ring_bytes"].as_u64() > Some(0) && record["log_device"].is_null(), "{name}");
    }
    let note = of("narufs-lib-nvm-delayed").expect("above")["note"].clone();
    assert_eq!(note, "no system calls, fences 100 ns longer, write-backs at 2300 MB/s");
    // What a kernel file system writes to a journal in RAM is not the device's.
    let record = of("ext4-journal-ram").unwrap_or_else(|| panic!("missing: ext4 and its programs: {said}"));
    assert!(record["log_device"]["write_bytes"].as_u64() > Some(0), "{record}");
    assert!(record["laps"].is_null() && record["unlapped"] == false);
    assert!(of("ext4").expect("beside it")["log_device"].is_null());
    assert!(!device.is_untouched());
}

#[test]
#[ignore = "needs root and loop devices"]
fn another_name_is_no_confirmation() {
    let device = Device::new();
    for typed in ["", "y", "yes", "/dev/loop", &device.path[1..]] {
        device.refuses(typed, &["--size", "128M"], &["not confirmed"]);
    }
    assert!(device.is_untouched());
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_device_that_is_too_small_is_refused_before_anybody_types() {
    let device = Device::new();
    device.refuses(&device.path, &["--size", "161M"], &["too small", "160 MiB", "161", "--size"]);
    assert!(device.is_untouched());
}

#[test]
#[ignore = "needs root, loop devices and ext4"]
fn a_mounted_device_is_refused() {
    let mut device = Device::new();
    let point = device.mount(&device.path.clone());
    device.refuses(&device.path, &["--size", "128M"], &["in use", text(&point)]);
    std::fs::write(point.join("file"), "still there").expect("it is mounted");
}

#[test]
#[ignore = "needs root, loop devices, their partitions and ext4"]
fn a_device_with_a_partition_in_use_is_refused() {
    let mut device = Device::new();
    // 64 MiB from 1 MiB on. The kernel is told, for not every one knows the usual tables of partitions.
    tool("addpart", &[&device.path, "1", "2048", "131072"]);
    let partition = format!("{}p1", device.path);
    assert!(Path::new(&partition).exists(), "missing: device nodes for the partitions of loop devices");
    let point = device.mount(&partition);
    device.refuses(&device.path, &["--size", "128M"], &["in use", "a partition", text(&point)]);
    std::fs::write(point.join("file"), "still there").expect("it is mounted");
}
