//! Faults of the device beneath a whole file system, on simulated media, seeded.
//!
//! Every place meets every fault, on every ring, and on scratch space with room and without:
//!
//! | place | which requests | what it does to an operation | and to the file system |
//! | --- | --- | --- | --- |
//! | write-back | data going home for fsync, sync, O_DIRECT | fsync says so; tried elsewhere if nothing is recorded yet | goes on; read-only where the ring's records wait for it |
//! | eviction | data going home, or spilling, for its frames | writes say so once too much cannot be written | goes on |
//! | journal | commits, with absorbed data | fsync says so | read-only |
//! | head | the header that moves the ring's head | nothing | read-only |
//! | double-write, checkpoint | metadata going home | nothing, if one of three tries works | else read-only; scratch space goes on while memory lasts, and once the device works again |
//! | flush | any | fsync says so until the next mount | read-only, but with a ring in memory not before a checkpoint |
//! | read | data, asked for or ahead | the read, or the write of a part of a page, says so | goes on |
//! | read of metadata | pages | the operation says so | goes on |
//! | any write, anything | | | |
//!
//! crossed with EIO and ENOSPC (the host's own, under a sparse image), for one request, for some, and until it is
//! mended, before anything of a request is done, and after a first part of it or all of it was. What holds in every case: nothing fails before a request did; what fails says EIO, ENOSPC or EROFS, and
//! leaves of each byte the old or the new; what an fsync has answered for is there after a crash; who is told once has
//! everything durable by the next fsync, where the device works again; reads show what was written; blocks and promises
//! come back; the image is recovered, and fsck finds nothing. That an operation ends at all is what the test's own end
//! says.

mod durable;
mod plan;
mod scratch;

use narufs_engine::sim::Crash;
use narufs_testing::lab::Ring;
use narufs_testing::settings;
use plan::{Extent, Lasts, Place};

const WAYS: [(Ring, Crash); 6] = [
    (Ring::Ssd, Crash::PowerLoss),
    (Ring::Nvm, Crash::PowerLoss),
    (Ring::Ssd, Crash::ProcessKill),
    (Ring::SsdWindow, Crash::ProcessKill),
    (Ring::SsdProcess, Crash::ProcessKill),
    (Ring::Nvm, Crash::ProcessKill),
];

/// What was done.
#[derive(Debug, Default)]
struct Tally {
    /// Requests that failed.
    requests: u64,
    /// Operations that said so.
    told: u64,
    /// Lives that ended read-only.
    read_only: u64,
    /// States that were recovered.
    states: u64,
}

/// Runs every fault at every place; some request must have failed at each of `reached`.
fn table(
    what: &str,
    reached: impl Fn(Place) -> bool,
    mut run: impl FnMut((Place, i32, Lasts), &mut Tally) -> Result<(), String>,
) {
    let mut failures = Vec::new();
    for place in Place::ALL {
        for lasts in Lasts::ALL {
            let mut tally = Tally::default();
            for errno in [libc::EIO, libc::ENOSPC] {
                if let Err(e) = run((place, errno, lasts), &mut tally) {
                    failures.push(format!("{place:?}, {lasts:?}, errno {errno}: {e}"));
                }
            }
            println!("{what}, {place:?}, {lasts:?}: {tally:?}");
            if reached(place) && tally.requests == 0 {
                failures.push(format!("{place:?}, {lasts:?}: no request failed"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn no_fault_takes_what_was_promised() {
    // Metadata are few, and stay in memory.
    table(
        "durable",
        |place| place != Place::ReadMetadata,
        |kind, tally| {
            settings::seeds(6).try_for_each(|seed| {
                WAYS.iter().try_for_each(|(ring, crash)| {
                    durable::run(*ring, *crash, kind, seed, tally)
                        .map_err(|e| format!("{ring:?}, {crash:?}, NARUFS_SEED={seed}: {e}"))
                })
            })
        },
    );
}

/// Steps of the life whose requests fail one by one.
const STEPS: usize = 1200;

/// How each of them fails.
const KINDS: [(Lasts, Extent); 4] = [
    (Lasts::Once, Extent::Nothing),
    (Lasts::Once, Extent::Part),
    (Lasts::Long, Extent::Nothing),
    (Lasts::Long, Extent::Part),
];

/// Every request of one life in turn, once and for good, wholly and in part; every two-hundredth where `NARUFS_TEST_SCALE` is
/// below 10, other ones with another `NARUFS_SEED`.
#[test]
fn no_request_that_fails_takes_what_was_promised() {
    let every = if settings::scale() >= 10 { 1 } else { 200 };
    let run = |way: (Ring, Crash)| {
        let none = (u64::MAX, Lasts::Once, Extent::Nothing);
        let whole = durable::run_with_request(way, none, STEPS, &mut Tally::default());
        let whole = whole.map_err(|e| format!("{way:?}: with no fault: {e}"))?;
        for (lasts, extent) in KINDS {
            let mut tally = Tally::default();
            for request in (settings::first_seed() % every..whole).step_by(every as usize) {
                durable::run_with_request(way, (request, lasts, extent), STEPS, &mut tally).map_err(|e| {
                    format!("{way:?}, {lasts:?}, {extent:?}, request {request} of {whole}: {e}")
                })?;
            }
            println!("each of {whole} requests, {way:?}, {lasts:?}, {extent:?}: {tally:?}");
        }
        Ok(())
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = [WAYS[0], WAYS[5]].map(|way| scope.spawn(move || run(way))).into();
        runs.into_iter().filter_map(|run| run.join().expect("no panic").err()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn no_fault_takes_what_scratch_space_has_accepted() {
    let reached = |place| {
        matches!(place, Place::Eviction | Place::Checkpoint | Place::Read | Place::AnyWrite | Place::Any)
    };
    table("scratch", reached, |kind, tally| {
        settings::seeds(12).try_for_each(|seed| {
            [scratch::ROOMY, scratch::FULL].into_iter().try_for_each(|sizes| {
                scratch::run(sizes, kind, seed, tally)
                    .map_err(|e| format!("{sizes:?}, NARUFS_SEED={seed}: {e}"))
            })
        })
    });
}

#[test]
fn metadata_that_cannot_be_spilled_is_told_and_goes_once_it_can() {
    for errno in [libc::EIO, libc::ENOSPC] {
        for background in [false, true] {
            if let Err(e) = scratch::fill_with_metadata(errno, background) {
                panic!("errno {errno}, background {background}: {e}");
            }
        }
    }
}
