//! Images that are made by a command which is killed.

use crate::support::{Work, narufs};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that makes its image where there is none finds none, or one that it can use.
#[test]
fn what_is_killed_while_it_makes_an_image_leaves_none_or_one_that_is_whole() {
    let work = Work::new();
    for turns in 0..60 {
        let image = work.at(&format!("{turns}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
        command.args(["mkfs", &image, "--size", "64M"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        for _ in 0..turns * turns * 40 {
            std::thread::yield_now();
        }
        child.kill().expect("it is a child");
        child.wait().expect("it is a child");
        if Path::new(&image).exists() {
            narufs(&["fsck", &image]).done();
        } else {
            narufs(&["mkfs", &image, "--size", "64M"]).done();
        }
    }
}
