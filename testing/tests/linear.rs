//! All calls on names, by many threads on few names, against the reference model; then fsck.
//!
//! `NARUFS_SEED=n` replays the calls of one seed (not how the threads meet); `NARUFS_TEST_SCALE=n` takes n times as
//! many seeds.

use narufs_testing::lab::Ring;
use narufs_testing::linear::rounds;
use narufs_testing::place::Place;
use narufs_testing::settings;
use narufs_testing::stress::Server;
use std::path::Path;

const IMAGE_BYTES: u64 = 128 << 20;
const ROUNDS: u64 = 1500;

fn run(ring: Ring, seed: u64) -> Result<(), String> {
    let said = |what: &'static str| move |e: narufs_engine::Error| format!("{what}: {e}");
    let place = Place::make(Path::new(env!("CARGO_TARGET_TMPDIR")), ring, IMAGE_BYTES, 8192);
    let place = place.map_err(said("mkfs"))?;
    let server = Server::start(&place.image()).map_err(said("mount"))?;
    let tally = rounds::run(server.fs(), seed, ROUNDS)?;
    server.stop().map_err(said("unmount"))?;
    place.check()?;
    println!("{ring:?}, seed {seed}: {tally:?}");
    if tally.undecided * 100 > tally.rounds {
        return Err(format!("{} of {} rounds are undecided", tally.undecided, tally.rounds));
    }
    Ok(())
}

#[test]
fn calls_on_names_come_one_after_the_other() {
    for seed in settings::seeds(2) {
        for ring in [Ring::Ssd, Ring::Nvm] {
            run(ring, seed).unwrap_or_else(|e| panic!("{ring:?}, NARUFS_SEED={seed}: {e}"));
        }
    }
}
