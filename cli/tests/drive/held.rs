//! While a request is held the mount answers what needs no drive, and goes on where it was when it is released.

use crate::over::{MEMORY, Over};
use narufs_fuse::transport::uring::can_be_had;
use narufs_testing::drive::faults::{Kind, Lasts, Rule, Wrong};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;

fn hold(over: &Over, kind: Kind) {
    over.faults().add(Rule { kind: Some(kind), spared: 0, lasts: Lasts::On, wrong: Wrong::Held });
}

/// What lies in memory is served, and can be changed there.
fn answers(over: &Over, cached: &File, round: u8) {
    assert!(over.faults().counts().held > 0);
    assert!(fs::metadata(over.at("cached")).expect("it is there").is_file());
    let mut byte = [0];
    cached.read_exact_at(&mut byte, 5000).expect("it lies in memory");
    assert_eq!(byte, [1]);
    assert!(fs::read_dir(over.at("")).expect("it lies in memory").count() >= 2);
    fs::write(over.at(&format!("made {round}")), [round]).expect("there is memory");
    fs::rename(over.at(&format!("made {round}")), over.at(&format!("named {round}"))).expect("as much");
    assert!(over.stats()["read_only"].is_null());
    assert!(over.stats_by_command().status.success());
    assert!(over.faults().counts().held > 0, "all the time");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn while_a_request_is_held_the_mount_answers_what_needs_no_drive() {
    answers_while_held("dev");
}

#[test]
#[ignore = "needs root and FUSE over io_uring (Linux 6.14)"]
fn while_a_request_is_held_a_mount_by_io_uring_answers_what_needs_no_drive() {
    assert!(can_be_had(), "missing: FUSE over io_uring (Linux 6.14), and leave to turn it on");
    answers_while_held("uring");
}

fn answers_while_held(transport: &str) {
    let mut over = Over::made();
    over.mount_by(transport).expect("the drive works");
    fs::write(over.at("much"), vec![2; 3 * MEMORY]).expect("room");
    fs::write(over.at("synced"), b"").expect("room");
    fs::write(over.at("cached"), vec![1; 10_000]).expect("room");
    for name in ["much", "synced", "cached"] {
        File::open(over.at(name)).and_then(|file| file.sync_all()).expect("the drive works");
    }
    let cached = File::open(over.at("cached")).expect("it is there");
    let synced = File::options().write(true).open(over.at("synced")).expect("it is there");
    for (round, kind) in [Kind::Write, Kind::Flush, Kind::Read].into_iter().enumerate() {
        cached.read_exact_at(&mut [0; 10_000], 0).expect("the drive works");
        hold(&over, kind);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| match kind {
                Kind::Read => File::open(over.at("much"))?.read_to_end(&mut Vec::new()).map(drop),
                _ => synced.write_all_at(&[round as u8 + 1; 200_000], 0).and_then(|()| synced.sync_all()),
            });
            // Who waits goes on, also where something is wrong here.
            scopeguard::defer! { over.faults().release() }
            over.faults().wait_for_held(1);
            answers(&over, &cached, round as u8);
            assert!(!waits.is_finished(), "{kind:?}: it needs what is held");
            over.faults().release();
            waits.join().expect("no panic").unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        });
    }
    drop((cached, synced));
    over.unmount();
    over.mount().expect("the drive works");
    assert_eq!(fs::read(over.at("synced")).expect("it is there"), [2; 200_000]);
    assert!((0..3).all(|round| fs::read(over.at(&format!("named {round}"))).is_ok_and(|it| it == [round])));
    over.unmount();
    over.place.check().expect("nothing has failed");
}
