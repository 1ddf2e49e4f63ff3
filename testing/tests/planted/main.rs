//! Each planted bug must be noticed: proof that the enumeration looks where it matters. And without the bug the
//! same sequences must pass, so that it is the bug that is noticed. Built with the feature `planted-bugs` only.

#![cfg(feature = "planted-bugs")]

mod looked;
mod mounted;
mod taken_over;

use looked::{
    append_behind_absorbed_bytes, batch_that_changes_a_part_of_what_is_unflushed,
    batch_that_changes_a_part_of_what_is_unsynced, commit_beside_an_open_reservation,
    copy_of_a_dead_original, id_of_an_undurable_removal, journal_of_an_earlier_mount,
    page_of_a_batch_that_goes_home_early, page_of_a_large_batch_that_is_moved_early,
    pages_of_a_batch_that_go_home_before_its_record, walk_to_a_removed_name,
};
use mounted::{a_call_happens_once, a_name_that_others_have_seen, a_write_that_another_has_followed};
use taken_over::{
    an_inode_that_is_forgotten_in_part, an_inode_that_the_kernel_holds, requests_of_a_killed_server,
    unsynced_writes_of_a_killed_server, writes_home_of_a_killed_server_after_a_sync,
};

use narufs_engine::planted::{Bug, plant};
use narufs_engine::sim::Crash;
use narufs_testing::crash::{Bench, Effort, Tally, Writers, setup};
use narufs_testing::lab::{Lab, Ring};
use narufs_testing::op::{Durable, Exists, Falloc, Op};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const SSD: (Ring, Crash) = (Ring::Ssd, Crash::PowerLoss);
const WINDOW: (Ring, Crash) = (Ring::SsdWindow, Crash::PowerLoss);
const PROCESS: (Ring, Crash) = (Ring::SsdProcess, Crash::PowerLoss);
const KILLED: (Ring, Crash) = (Ring::Ssd, Crash::ProcessKill);
const NVM: (Ring, Crash) = (Ring::Nvm, Crash::PowerLoss);

/// Short sequences, looked at closely.
const CLOSE: Effort = Effort {
    points: 150,
    states: 40,
    nested: 23,
    onward: 1000,
    again: 3,
    filled: u32::MAX,
    open: false,
    last: false,
    closing: false,
    in_round: None,
};
/// Long sequences, sampled.
const WIDE: Effort = Effort { points: 250, states: 4, nested: 50, again: 20, closing: true, ..CLOSE };
/// The checkpoint at the end of a sequence, every state.
const CLOSING: Effort =
    Effort { points: usize::MAX, states: usize::MAX, last: true, again: 50, closing: true, ..CLOSE };
/// The last operation inside a checkpoint round.
const ROUND: Effort = Effort { points: usize::MAX, last: true, in_round: Some(0), ..CLOSE };
/// What follows a recovery.
const ONWARD: Effort = Effort { points: 60, states: 10, onward: 2, ..CLOSE };

/// How a bug is noticed.
enum Check {
    /// By crash enumeration over a sequence.
    Crash((Ring, Crash), Effort, Vec<Op>),
    /// The same on an image that has just room enough.
    Scarce((Ring, Crash), Effort, Vec<Op>),
    /// The same with the last operation at each place of a checkpoint round.
    Round((Ring, Crash), Vec<Op>),
    /// By crashes of a round that several threads write home.
    Writers(Writers),
    /// By each of several.
    Each(Vec<Check>),
    /// By what is said when it is looked at otherwise.
    Looked(fn() -> Result<(), String>),
    /// The same by a mount, whose servers have the bug.
    Mounted(fn() -> Result<(), String>),
}

/// The check of each bug; a new bug does not compile without one.
fn check_of(bug: Bug) -> Check {
    use Check::{Crash, Each, Looked, Mounted, Round, Scarce};
    let by_two = || Check::Writers(Writers { ring: Ring::Ssd, threads: 2, part: 5, states: 40 });
    let rewritten = |p: &str| Op::Rewrite { path: p.into(), len: 3000, fill: 1, direct: false };
    match bug {
        Bug::BatchPageHomeEarly => Each(vec![
            Looked(page_of_a_batch_that_goes_home_early),
            Looked(page_of_a_large_batch_that_is_moved_early),
        ]),
        Bug::BatchHomeBeforeRecord => Looked(pages_of_a_batch_that_go_home_before_its_record),
        Bug::ChangedOverUnsynced => Looked(batch_that_changes_a_part_of_what_is_unsynced),
        Bug::ChangedOverUnflushed => Looked(batch_that_changes_a_part_of_what_is_unflushed),
        Bug::NoFence | Bug::NoWriteBack => Crash(NVM, CLOSE, vec![create("/n")]),
        Bug::TornSlotAccepted | Bug::EpochBeforeHome => Crash(NVM, CLOSE, vec![create("/n"), create("/m")]),
        Bug::NoCommitFlush => Crash(SSD, CLOSE, vec![create("/n"), sync_dir()]),
        Bug::NoCommit => Crash(SSD, CLOSE, vec![create("/n"), write("/n", 0, 700, 1, Durable::Fsync)]),
        Bug::MappedBeforeFlush => Crash(
            SSD,
            CLOSE,
            vec![unlink("/g"), Op::SyncAll, create("/n"), write("/n", 0, 80_000, 1, Durable::Fsync)],
        ),
        Bug::NoDataFlush => Crash(
            NVM,
            CLOSE,
            vec![write("/g", 0, 80_000, 1, Durable::Fsync), write("/g", 0, 80_000, 2, Durable::Fsync)],
        ),
        Bug::DsyncIgnored => Crash(SSD, CLOSE, vec![write("/a", 4096, 4096, 1, Durable::Dsync)]),
        Bug::EmptiedAtOnce => Crash(SSD, CLOSE, vec![rewritten("/a"), sync_dir()]),
        Bug::RewrittenInTwo => {
            let on = |way| Crash(way, CLOSE, vec![rewritten("/a"), sync_dir()]);
            Each(vec![on(NVM), on(KILLED)])
        }
        // Little enough to be absorbed, and too much for that.
        Bug::RenameNotSettled => {
            let over = || Op::Rename { from: "/n".into(), to: "/b".into(), flags: 0 };
            let of = |len| vec![create("/n"), write("/n", 0, len, 1, Durable::No), over(), sync_dir()];
            Each(vec![
                Crash(SSD, CLOSE, of(3000)),
                Crash(SSD, CLOSE, of(80_000)),
                Crash(NVM, CLOSE, of(3000)),
            ])
        }
        // A file with attributes is freed in a record of its own.
        Bug::NoOrphanEntry => Crash(NVM, CLOSE, vec![xattr("/g", 300, 1), unlink("/g")]),
        Bug::IntentsForgotten => {
            let collapse =
                Op::Fallocate { path: "/g".into(), mode: Falloc::Collapse, offset: 8192, len: 12_288 };
            Crash(NVM, CLOSE, vec![collapse])
        }
        // Too much to be absorbed, over what is.
        Bug::NoSupersede => {
            let large = || write("/a", 0, 80_000, 2, Durable::Fsync);
            // Also where the file was emptied between the two.
            let emptied = vec![absorbed("/a", 1), rewritten("/a"), large()];
            Each(vec![Crash(NVM, CLOSE, vec![absorbed("/a", 1), large()]), Crash(NVM, CLOSE, emptied)])
        }
        // Past the cache, so that it is home and not flushed; then the older record goes.
        Bug::SupersedeBeforeFlush => {
            let ops = vec![absorbed("/a", 1), direct("/a", 2), fsync("/a"), fsync("/a")];
            Crash(NVM, CLOSE, ops)
        }
        Bug::AbsorbedOverStale => {
            let ops = vec![absorbed("/a", 1), direct("/a", 2), write("/a", 6000, 300, 3, Durable::Fsync)];
            Crash(NVM, CLOSE, ops)
        }
        Bug::OlderAbsorbedCounts => {
            let on = |way| Crash(way, CLOSE, vec![absorbed("/a", 1), absorbed("/a", 2)]);
            Each(vec![on(NVM), on(SSD), on(KILLED)])
        }
        Bug::HeadPassesAbsorbed => {
            let on = |way| Crash(way, WIDE, churn(vec![write("/a", 4096, 300, 1, Durable::Fsync)], 3));
            Each(vec![on(NVM), on(SSD)])
        }
        // The file stays empty over the rounds: somebody has it open, and nobody syncs.
        Bug::HeadPassesKept => {
            let empty = Op::Truncate { path: "/a".into(), size: 0 };
            Crash(NVM, Effort { open: true, ..WIDE }, churn(vec![absorbed("/a", 1), empty], 200))
        }
        // So few metadata beside so much data that a round leaves the youngest alone.
        Bug::HeadPassesYoung => {
            let page = |n: u32| write("/a", u64::from(n % 24) * 4096, 3500, n as u8, Durable::Fsync);
            Crash(NVM, WIDE, (0..140).map(page).collect())
        }
        Bug::StaleSlotAccepted | Bug::HeadNotFlushed => Crash(NVM, WIDE, churn(vec![create("/n")], 3)),
        Bug::HeadMovedBeforeFlush | Bug::NoRestore => Crash(SSD, WIDE, churn(vec![create("/n")], 3)),
        Bug::NoDoubleWriteFlush | Bug::AreaReusedEarly => {
            let ops = [batches(), vec![Op::SyncAll]].concat();
            Each(vec![Crash(SSD, CLOSING, ops), by_two()])
        }
        Bug::PartShared => by_two(),
        Bug::HomeBeforeLog => Crash(SSD, ROUND, vec![create("/n"), create("/m")]),
        // The images in the round are of records that only an answer against the end of the process was given for.
        Bug::RoundInWindow => {
            let ops = || vec![create("/n"), create("/m")];
            Each(vec![Round(WINDOW, ops()), Round(PROCESS, ops())])
        }
        // A page that changed before the round is freed when what frees it can go home in the next alone.
        Bug::ForgottenBeforeLog => {
            let dirty = [xattr("/b", 900, 1), xattr("/c", 900, 1), create("/n"), xattr("/n", 900, 2)];
            Round(SSD, [&dirty[..], &[unlink("/n")]].concat())
        }
        Bug::NoCarry => {
            let effort = Effort { nested: 3, ..CLOSE };
            Crash(KILLED, effort, vec![create("/n"), create("/d/n"), unlink("/b"), xattr("/a", 900, 1)])
        }
        Bug::HeaderBeforeSuperblock => {
            Crash(SSD, Effort { nested: 2, ..CLOSE }, vec![create("/n"), sync_dir()])
        }
        Bug::StaleTimeline => Crash(NVM, ONWARD, vec![create("/n"), create("/m"), unlink("/b")]),
        // So few blocks that the freed ones are the ones to take.
        Bug::ReusedEarly => Scarce(
            SSD,
            CLOSE,
            vec![unlink("/g"), create("/n"), write("/n", 0, 120_000, 1, Durable::No), fsync("/n")],
        ),
        // What was answered stays lost for longer than the window.
        Bug::WindowIgnored => {
            let ops = (0..6).map(|n| write("/a", 4096, 300, n, Durable::Fsync)).collect();
            Crash(WINDOW, CLOSE, ops)
        }
        Bug::CommitBeforeData => Crash(
            WINDOW,
            CLOSE,
            vec![
                unlink("/g"),
                Op::SyncAll,
                create("/n"),
                write("/n", 0, 80_000, 1, Durable::Fsync),
                sync_dir(),
            ],
        ),
        // Too much to be absorbed goes home in place after what was.
        Bug::HomeBeforePromised => {
            let ops = vec![
                write("/a", 4096, 300, 1, Durable::Fsync),
                write("/g", 0, 80_000, 2, Durable::No),
                fsync("/g"),
            ];
            Each(vec![Crash(WINDOW, CLOSE, ops.clone()), Crash(PROCESS, CLOSE, ops)])
        }
        Bug::EndNotSuperseded => Looked(append_behind_absorbed_bytes),
        Bug::CommitBeforeSeal => Looked(commit_beside_an_open_reservation),
        Bug::StaleEpochAccepted => Looked(journal_of_an_earlier_mount),
        Bug::IdReusedEarly => Looked(id_of_an_undurable_removal),
        Bug::StagingOfAnyOwner => Looked(copy_of_a_dead_original),
        Bug::NameKept => Looked(walk_to_a_removed_name),
        Bug::DirtyFrameForgotten | Bug::SizeNotKept => Looked(unsynced_writes_of_a_killed_server),
        Bug::NewerHomeRedone => Looked(writes_home_of_a_killed_server_after_a_sync),
        Bug::RequestsNotJudged => Looked(requests_of_a_killed_server),
        Bug::KernelNotAsked => Looked(an_inode_that_the_kernel_holds),
        Bug::ForgottenTwice => Looked(an_inode_that_is_forgotten_in_part),
        Bug::DoneAgain | Bug::ResentBitDropped | Bug::CloneNotKept => Mounted(a_call_happens_once),
        Bug::NotedAfterUnlock => Mounted(a_write_that_another_has_followed),
        Bug::MadeAfterUnlock => Mounted(a_name_that_others_have_seen),
    }
}

fn write(path: &str, offset: u64, len: u32, fill: u8, durable: Durable) -> Op {
    Op::Write { path: path.into(), offset, len, fill, durable }
}
/// Few bytes of the second page, synced: they go into the journal.
fn absorbed(path: &str, fill: u8) -> Op {
    write(path, 4096, 300, fill, Durable::Fsync)
}
/// All of the second page, home in place and not flushed.
fn direct(path: &str, fill: u8) -> Op {
    Op::WriteDirect { path: path.into(), block: 1, blocks: 1, fill, durable: Durable::No }
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
fn xattr(path: &str, len: u32, fill: u8) -> Op {
    Op::SetXattr { path: path.into(), name: "user.c".into(), len, fill, exists: Exists::Any }
}

/// Enough records for several checkpoints and laps; every so many-th time a sync.
fn churn(first: Vec<Op>, sync: u32) -> Vec<Op> {
    let mut ops = first;
    for n in 0..200_u32 {
        let path = ["/a", "/b", "/c", "/d"][n as usize % 4];
        ops.push(xattr(path, 400 + n, n as u8));
        ops.push(Op::Chmod { path: path.into(), mode: 0o600 + n % 8 });
        ops.push(create(&format!("/d/{n}")));
        if n % sync == sync - 1 {
            ops.push(sync_dir());
        }
        if n % 4 == 3 {
            ops.push(unlink(&format!("/d/{}", n - 2)));
        }
    }
    ops
}

/// Dirties more pages, far from each other, than the double-write area holds.
fn batches() -> Vec<Op> {
    ["/a", "/b", "/c", "/d", "/g", "/d/x"].map(|path| xattr(path, 900, 1)).to_vec()
}

/// Runs a check with what is planted; what was noticed.
fn noticed(check: &Check, seeds: u64, tally: &mut Tally) -> Result<(), String> {
    let mut run = |lab: Lab, crash, efforts: &[Effort], ops: &[Op]| {
        let bench = Bench::new(lab, crash, &setup())?;
        let mut tries = (0..seeds).flat_map(|seed| efforts.iter().map(move |effort| (seed, effort)));
        tries.try_for_each(|(seed, effort)| bench.run(ops, effort, seed, tally))
    };
    match check {
        Check::Crash((ring, crash), effort, ops) => run(Lab::tiny(*ring), *crash, &[*effort], ops),
        Check::Round((ring, crash), ops) => {
            let efforts: Vec<_> = (0..24).map(|n| Effort { in_round: Some(n), ..ROUND }).collect();
            run(Lab::tiny(*ring), *crash, &efforts, ops)
        }
        Check::Scarce((ring, crash), effort, ops) => {
            let labs = (100..200).step_by(3).map(|blocks| Lab { blocks, ..Lab::tiny(*ring) });
            let results = labs.map(|lab| run(lab, *crash, &[*effort], ops));
            let full = |e: &String| e.contains("No space left on device");
            results.filter(|result| !result.as_ref().is_err_and(full)).take(3).collect()
        }
        Check::Writers(writers) => (0..seeds).try_for_each(|seed| writers.run(seed, tally)),
        Check::Each(checks) => checks.iter().try_for_each(|check| noticed(check, seeds, tally)),
        Check::Looked(look) | Check::Mounted(look) => look(),
    }
}

/// The complaint about one bug, if it is not noticed, or if something is noticed without it.
fn judge(bug: Bug, check: &Check) -> Option<String> {
    if let Check::Each(checks) = check {
        return checks.iter().find_map(|check| judge(bug, check));
    }
    let began = Instant::now();
    plant(Some(bug));
    let mut tally = Tally::default();
    let found = noticed(check, 6, &mut tally);
    plant(None);
    let (seconds, states) = (began.elapsed().as_secs_f64(), tally.states);
    let Err(found) = found else { return Some(format!("{bug:?} was not noticed: {tally}, {seconds:.1} s")) };
    // The operations stand before the state in the sentence.
    let what = found.rsplit_once(", seed ").map_or(found.as_str(), |(_, what)| what);
    println!("{bug:?} after {states} states, {seconds:.1} s: {}", what.chars().take(200).collect::<String>());
    let without = noticed(check, 1, &mut tally).err();
    without.map(|e| format!("the check of {bug:?} finds something without the bug: {e}"))
}

/// Each bug that is noticed so must be.
fn all_are_noticed(is_meant: impl Fn(&Check) -> bool + Sync) {
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| is_meant(&check_of(*bug))).collect();
    let next = AtomicUsize::new(0);
    let complaints = Mutex::new(Vec::new());
    let worker = || {
        // Relaxed: it only hands out numbers.
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(complaint) = judge(*bug, &check_of(*bug)) {
                complaints.lock().expect("no panic").push(complaint);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(worker);
        scope.spawn(worker);
    });
    let complaints = complaints.into_inner().expect("no panic");
    println!("{} planted bugs", bugs.len());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_planted_bug_is_noticed() {
    all_are_noticed(|check| !matches!(check, Check::Mounted(_)));
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn every_planted_bug_of_a_mount_is_noticed() {
    all_are_noticed(|check| matches!(check, Check::Mounted(_)));
}
