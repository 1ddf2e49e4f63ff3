//! What is told of mounts to who watches them. Needs root and /dev/fuse.

use narufs_testing::lab::Ring;
use narufs_testing::place::{Place, require_mounts};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The command, at work in the directory that the mount's lies in.
fn narufs(place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
    command.args(words).stdin(Stdio::null()).current_dir(place.point().parent().expect("it has one"));
    command
}

fn output(place: &Place, words: &[&str]) -> Output {
    narufs(place, words).output().expect("it starts")
}

fn mounted() -> Place {
    require_mounts();
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, Ring::Ssd, 64 << 20, 4096).expect("room");
    let (image, point) = (place.image(), place.point());
    let words = ["mount", image.to_str().expect("plain letters"), point.to_str().expect("plain letters")];
    let out = output(&place, &words);
    assert!(out.status.success(), "{out:?}");
    place
}

fn end(place: &Place) {
    let point = place.point();
    let out = output(place, &["umount", point.to_str().expect("plain letters")]);
    assert!(out.status.success(), "{out:?}");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn counters_that_found_no_room_are_told_of() {
    let place = mounted();
    let point = place.point();
    for command in ["metrics", "stats"] {
        let full = File::options().write(true).open("/dev/full").expect("every system has it");
        let out = narufs(&place, &[command]).arg(&point).stdout(full).output().expect("it starts");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("standard output: No space"), "{command}: {said}");
    }
    end(&place);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_mount_has_each_series_once_however_often_it_is_said() {
    let place = mounted();
    let point = place.point();
    fs::create_dir(point.join("sub")).expect("room");
    let name = point.file_name().and_then(|name| name.to_str()).expect("plain letters");
    let (dotted, below) = (format!("./{name}"), format!("{name}/sub"));
    let out = output(&place, &["metrics", &below, name, &dotted, point.to_str().expect("plain letters")]);
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).expect("text");
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').expect("a value").0;
        assert!(seen.insert(series), "{series}");
        assert!(series.contains(&format!("mount=\"{}\"", point.display())), "{series}");
    }
    assert!(!seen.is_empty());
    end(&place);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn looks_that_nobody_reads_any_more_end() {
    let place = mounted();
    let point = place.point();
    let mut top = narufs(&place, &["top", "--json", "-i", "0.1"]);
    let mut top = top.arg(&point).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut looks = BufReader::new(top.stdout.take().expect("a pipe"));
    let mut look = String::new();
    looks.read_line(&mut look).expect("a look");
    assert!(look.starts_with('{'), "{look}");
    drop(looks);
    assert!(top.wait().expect("a child").success());
    end(&place);
}
