//! Each planted bug must be noticed by crash enumeration: proof that the enumeration looks where it matters.
//! Built with the feature `planted-bugs` only.

#![cfg(feature = "planted-bugs")]

use narufs::planted::{Bug, plant};
use narufs::sim::Crash;
use narufs_testing::crash::{Bench, Effort, Tally, setup};
use narufs_testing::lab::{Lab, Ring};
use narufs_testing::op::{Durable, Op};
use std::time::Instant;

const SSD: (Ring, Crash) = (Ring::Ssd, Crash::PowerLoss);
const NVM: (Ring, Crash) = (Ring::Nvm, Crash::PowerLoss);

/// Short sequences, looked at closely.
const CLOSE: Effort =
    Effort { points: 150, states: 40, nested: 23, again: 3, filled: u32::MAX, closing: false };
/// Long sequences, sampled.
const WIDE: Effort =
    Effort { points: 250, states: 4, nested: 50, again: 20, filled: u32::MAX, closing: true };

fn write(path: &str, offset: u64, len: u32, fill: u8, durable: Durable) -> Op {
    Op::Write { path: path.into(), offset, len, fill, durable }
}
fn create(path: &str) -> Op {
    Op::Create { path: path.into(), exclusive: true }
}
fn unlink(path: &str) -> Op {
    Op::Unlink { path: path.into() }
}
fn fsync(path: &str) -> Op {
    Op::Fsync { path: path.into() }
}
fn sync_dir() -> Op {
    Op::FsyncDir { path: "/".into() }
}

/// Enough records for several checkpoints and laps.
fn churn(first: Op) -> Vec<Op> {
    let mut ops = vec![first];
    for n in 0..60_u32 {
        let (path, name) = (["/a", "/b", "/c", "/d"][n as usize % 4].to_string(), "user.c".to_string());
        ops.push(Op::SetXattr { path: path.clone(), name, len: 400 + n, fill: n as u8 });
        ops.push(Op::Chmod { path, mode: 0o600 + n % 8 });
        ops.push(create(&format!("/d/{n}")));
        if n % 3 == 0 {
            ops.push(sync_dir());
        }
        if n % 4 == 3 {
            ops.push(unlink(&format!("/d/{}", n - 2)));
        }
    }
    ops
}

fn notices(bug: Bug, way: (Ring, Crash), ops: &[Op], effort: &Effort) {
    noticed_on(Lab::tiny(way.0), bug, way.1, ops, effort);
}

fn noticed_on(lab: Lab, bug: Bug, crash: Crash, ops: &[Op], effort: &Effort) {
    let began = Instant::now();
    let bench = Bench::new(lab, crash, &setup()).expect("nothing is planted yet");
    let mut tally = Tally::default();
    let mut found = None;
    for seed in 0..4 {
        plant(Some(bug));
        let run = bench.run(ops, effort, seed, &mut tally);
        plant(None);
        if let Err(e) = run {
            found = Some(e);
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let Some(found) = found else { panic!("{bug:?} was not noticed: {tally}, {seconds:.1} s") };
    // The operations stand before the state in the sentence.
    let what = found.rsplit_once(", seed ").map_or(found.as_str(), |(_, what)| what);
    println!(
        "{bug:?} after {} states, {seconds:.1} s: seed {}",
        tally.states,
        what.chars().take(300).collect::<String>()
    );
}

macro_rules! planted {
    ($($name:ident: $bug:ident, $way:expr, $effort:expr, $ops:expr;)*) => {$(
        #[test]
        fn $name() {
            notices(Bug::$bug, $way, &$ops, &$effort);
        }
    )*};
}

planted! {
    a_missing_fence: NoFence, NVM, CLOSE, [create("/n")];
    a_missing_write_back: NoWriteBack, NVM, CLOSE, [create("/n")];
    a_commit_without_flush: NoCommitFlush, SSD, CLOSE, [create("/n"), sync_dir()];
    a_torn_slot_that_counts: TornSlotAccepted, NVM, CLOSE, [create("/n"), create("/m")];
    an_epoch_that_begins_too_early: EpochBeforeHome, NVM, CLOSE, [create("/n"), create("/m")];
    mapping_before_the_data: MappedBeforeFlush, SSD, CLOSE,
        [unlink("/g"), Op::SyncAll, create("/n"), write("/n", 0, 80_000, 1, Durable::Fsync)];
    data_that_is_not_flushed: NoDataFlush, NVM, CLOSE,
        [write("/g", 0, 80_000, 1, Durable::Fsync), write("/g", 0, 80_000, 2, Durable::Fsync)];
    an_fsync_without_commit: NoCommit, SSD, CLOSE, [create("/n"), write("/n", 0, 700, 1, Durable::Fsync)];
    a_dsync_that_does_nothing: DsyncIgnored, SSD, CLOSE, [write("/a", 4096, 4096, 1, Durable::Dsync)];
    a_head_beyond_absorbed_data: HeadPassesAbsorbed, NVM, WIDE, churn(write("/a", 4096, 300, 1, Durable::Fsync));
    a_head_beyond_absorbed_data_in_the_image: HeadPassesAbsorbed, SSD, WIDE,
        churn(write("/a", 4096, 300, 1, Durable::Fsync));
    a_file_emptied_too_early: EmptiedAtOnce, SSD, CLOSE,
        [Op::Rewrite { path: "/a".into(), len: 3000, fill: 1 }, sync_dir()];
    a_rename_before_its_data: RenameNotSettled, SSD, CLOSE,
        [create("/n"), write("/n", 0, 3000, 1, Durable::No),
         Op::Rename { from: "/n".into(), to: "/b".into(), flags: 0 }, sync_dir()];
    // A file with attributes is freed in a record of its own.
    an_orphan_without_entry: NoOrphanEntry, NVM, CLOSE,
        [Op::SetXattr { path: "/g".into(), name: "user.a".into(), len: 300, fill: 1 }, unlink("/g")];
    a_head_before_the_flush: HeadMovedBeforeFlush, SSD, WIDE, churn(create("/n"));
    a_round_that_is_not_restored: NoRestore, SSD, WIDE, churn(create("/n"));
}

#[test]
fn freed_blocks_given_out_too_early() {
    // So few blocks that the freed ones are the ones to take.
    let lab = Lab { blocks: 160, ..Lab::tiny(Ring::Ssd) };
    let ops = [unlink("/g"), create("/n"), write("/n", 0, 120_000, 1, Durable::No), fsync("/n")];
    noticed_on(lab, Bug::ReusedEarly, Crash::PowerLoss, &ops, &CLOSE);
}
