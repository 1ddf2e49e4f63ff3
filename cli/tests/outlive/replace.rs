//! Another version of the program takes over while programs use the mount.

use crate::support::{Mounted, narufs, said};
use rustix::process::{Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const BINARY: &str = env!("CARGO_BIN_EXE_narufs");

#[test]
#[ignore = "needs root and /dev/fuse"]
fn an_upgrade_under_load_is_a_pause() {
    let mounted = Mounted::new("noatime");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (home, over) = (mounted.at(&format!("home-{number}")), &over);
            scope.spawn(move || {
                fs::create_dir(&home).expect("made");
                let mut log = File::options().create(true).append(true).open(home.join("log")).expect("made");
                for count in 0.. {
                    let dir = home.join(count.to_string());
                    fs::create_dir(&dir).expect("made");
                    writeln!(log, "{count}").expect("room");
                    fs::remove_dir(&dir).expect("it is empty");
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for _ in 0..3 {
            let before = mounted.incarnation();
            let out = narufs().arg("upgrade").arg(mounted.place.point()).output().expect("it starts");
            assert!(out.status.success(), "{}", said(&out));
            assert_eq!(mounted.incarnation(), before + 1);
            // The same process, of which the new program is.
            assert_eq!(mounted.stats()["supervisor_pid"], mounted.supervisor.as_raw_nonzero().get());
        }
        over.store(true, Ordering::Relaxed);
    });
    mounted.restart();
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_program_that_cannot_go_on_is_refused_and_the_next_is_taken() {
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room");
    let program = at.path().join("narufs");
    let replace = |from: &Path| {
        let new = at.path().join("new");
        fs::copy(from, &new).and_then(|_| fs::rename(&new, &program)).expect("room");
    };
    replace(Path::new(BINARY));
    let mounted = Mounted::of(&program, "noatime");
    fs::create_dir(mounted.at("dir")).expect("made");
    replace(Path::new("/bin/false"));
    kill_process(mounted.supervisor, Signal::HUP).expect("it lives");
    // A killed server is followed by one of the program that serves, whatever has its name.
    mounted.restart();
    let before = mounted.incarnation();
    replace(Path::new(BINARY));
    kill_process(mounted.supervisor, Signal::HUP).expect("it lives");
    while mounted.incarnation() == before {
        std::thread::yield_now();
    }
    assert!(mounted.at("dir").is_dir());
    // Nobody else asks for anything meanwhile.
    assert!(narufs().arg("upgrade").arg(mounted.place.point()).status().expect("it starts").success());
    mounted.restart();
    mounted.end();
}
