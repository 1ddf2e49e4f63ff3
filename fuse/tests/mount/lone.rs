//! One client alone, which is served from whichever core is faster, with cores that are kept awake.

use crate::support::{Mounted, mounted_as, options};
use narufs_fuse::ServerConfig;
use narufs_fuse::mount::Idle;
use narufs_fuse::wire::OpenFlags;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

on_each_transport! {
    a_lone_client_and_others_after_it_are_answered_wherever_they_are_served,
    cores_are_kept_awake_while_requests_come_and_halt_when_none_does,
}

fn awake() -> Mounted {
    let mut options = options("memory");
    options.idle = Idle::Awake;
    mounted_as(OpenFlags::DIRECT_IO, &options, ServerConfig::default())
}

fn work(dir: &Path, rounds: u32) {
    fs::create_dir(dir).unwrap();
    let path = dir.join("file");
    for round in 0..rounds {
        fs::write(&path, round.to_string()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), round.to_string());
        fs::remove_file(&path).unwrap();
    }
}

fn a_lone_client_and_others_after_it_are_answered_wherever_they_are_served() {
    let m = awake();
    for turn in 0..3 {
        // Enough for some trials of where it is served.
        work(&m.point.join(format!("alone-{turn}")), 1000);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let dir = m.point.join(format!("beside-{turn}-{thread}"));
                scope.spawn(move || work(&dir, 200));
            }
        });
    }
}

/// How long an idle core may take to wake, in microseconds: the shortest time that anybody asks for.
fn latency() -> i32 {
    let mut bytes = [0; 4];
    let file = File::open("/dev/cpu_dma_latency");
    file.and_then(|mut file| file.read_exact(&mut bytes)).expect("missing: /dev/cpu_dma_latency");
    i32::from_ne_bytes(bytes)
}

fn cores_are_kept_awake_while_requests_come_and_halt_when_none_does() {
    let m = awake();
    // Other mounts of this process may ask for the same meanwhile, but not for long.
    let asked = |latency| latency < 1000;
    for turn in 0.. {
        work(&m.point.join(format!("dir-{turn}")), 20);
        if asked(latency()) {
            break;
        }
    }
    while asked(latency()) {
        std::thread::yield_now();
    }
}
