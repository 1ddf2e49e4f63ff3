//! fsck of an image whose double-write area cannot be read.

use super::crash::{begin, content, idle, media};
use super::*;
use crate::format::JournalKind;
use crate::format::{STATE_CLEAN, STATE_DAMAGED, STATE_MOUNTED};
use crate::fsck::{self, IssueKind, Outcome, Report};
use crate::sim::{Crash, Fault, SimMedia};
use crate::volume::{ImageOptions, mount};

const BLOCKS: u64 = 3000;

fn area(sim: &SimMedia) -> Vec<u64> {
    let sb = crate::superblock::read(sim.device().as_ref()).expect("valid");
    (sb.dw_start.get()..sb.dw_start.get() + sb.dw_blocks.get()).collect()
}

fn check(kind: JournalKind, sim: &SimMedia, repair: bool, discard_journal: bool) -> Report {
    let options = fsck::Options { repair, discard_journal, ..fsck::Options::default() };
    fsck::check(&idle(kind, sim), &options).expect("the device can be written")
}

/// Makes and syncs files, and sends their metadata home in between.
fn worked(kind: JournalKind) -> (SimMedia, usize, Nid) {
    let sim = media(kind, BLOCKS);
    let run = begin(kind, &sim);
    let from = sim.events();
    let mut last = 0;
    for n in 0..12u8 {
        // Long enough for a bucket of several sectors, which can be torn.
        let name = format!("{n:0>100}");
        let (entry, handle, _) =
            run.fs().create(&root(), ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE).expect("room");
        run.fs().write(&root(), &handle, 0, &[n; 5000], WriteFlags::empty()).expect("room");
        run.fs().fsync(&handle, false).expect("memory");
        run.fs().release(handle, None);
        if n % 2 == 1 {
            run.fs().checkpointer().checkpoint().expect("memory");
        }
        last = entry.nid;
    }
    (sim, from, last)
}

/// The image can be mounted, and has the last file that [`worked`] has made.
#[track_caller]
fn last_is_whole(kind: JournalKind, sim: &SimMedia, last: Nid) {
    let run = begin(kind, sim);
    assert_eq!(content(run.fs(), last), [11; 5000]);
    run.end();
}

#[test]
fn a_repair_writes_the_area_anew() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        for unclean in [true, false] {
            let (sim, _, last) = worked(kind);
            if !unclean {
                begin(kind, &sim).end();
            }
            let lost = area(&sim);
            sim.lose(&lost, false);
            let events = sim.events();
            let found = check(kind, &sim, false, false);
            assert_eq!((found.status(), found.issues.len()), (4, lost.len()), "{:?}", found.issues);
            assert_eq!(found.of(IssueKind::DoubleWriteUnreadable).count(), lost.len());
            assert_eq!(sim.events(), events, "a check writes nothing");
            let mended = check(kind, &sim, true, false);
            assert_eq!((mended.status(), mended.issues.len()), (1, lost.len()), "{:?}", mended.issues);
            assert_eq!(check(kind, &sim, false, false).issues, []);
            last_is_whole(kind, &sim, last);
        }
    }
}

/// What a torn home held is lost with its image. A repair says so, and goes on once the journal is given up.
#[test]
fn what_a_torn_home_needs_of_the_area_is_damage_until_it_is_given_up() {
    let kind = JournalKind::Ssd;
    let (sim, from, _) = worked(kind);
    let (mut whole, mut damaged) = (0, 0);
    let mut points = sim.crash_points();
    for events in from..=sim.events() {
        points.skip_to(events);
        let point = points.next().expect("in the log");
        for state in point.sample(Crash::PowerLoss, events as u64, 12) {
            // Where homes may be torn, and some others.
            let options = ImageOptions { background: false, lanes: 1, ..ImageOptions::default() };
            let mounted = mount(idle(kind, &state.restart()), &options).expect("whole");
            if mounted.recovery().restored == 0 && !events.is_multiple_of(20) {
                continue;
            }
            drop(mounted);
            let again = state.restart();
            again.lose(&area(&again), false);
            let mended = check(kind, &again, true, false);
            if mended.status() == 1 {
                whole += 1;
            } else {
                damaged += 1;
                assert_eq!(mended.of(IssueKind::JournalDamaged).count(), 1, "{state}: {:?}", mended.issues);
                let given_up = check(kind, &again, true, true);
                assert_eq!(given_up.status(), 1, "{state}: {:?}", given_up.issues);
                assert_eq!(given_up.of(IssueKind::DoubleWriteUnreadable).count(), area(&again).len());
            }
            assert_eq!(check(kind, &again, false, false).issues, [], "{state}");
            begin(kind, &again).end();
        }
    }
    assert!(whole > 20 && damaged > 5, "{whole} whole, {damaged} damaged");
}

fn state(sim: &SimMedia) -> u32 {
    crate::superblock::read(sim.device().as_ref()).expect("valid").state.get()
}

fn set_state(sim: &SimMedia, state: u32) {
    let mut sb = crate::superblock::read(sim.device().as_ref()).expect("valid");
    sb.state.set(state);
    crate::superblock::write(sim.device().as_ref(), &mut sb).expect("memory");
}

/// Makes a block unreadable for ever; a write of it fails, or does not help.
fn break_block(sim: &SimMedia, broken: u64, writes: bool) {
    if writes {
        return sim.lose(&[broken], true);
    }
    sim.set_fault(Some(Box::new(move |fault| match fault {
        Fault::Read { block, count, .. } | Fault::Write { block, count, .. } => {
            (block..block + count).contains(&broken).then_some(libc::EIO)
        }
        Fault::Flush { .. } => None,
    })));
}

#[test]
fn a_repair_mends_nothing_where_the_area_cannot_be_written_anew() {
    let left = |report: &Report| report.issues.iter().all(|issue| matches!(issue.outcome, Outcome::Left(_)));
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        for (before, discard) in
            [(STATE_CLEAN, false), (STATE_DAMAGED, false), (STATE_MOUNTED, false), (STATE_MOUNTED, true)]
        {
            let (sim, _, last) = worked(kind);
            if before != STATE_MOUNTED {
                begin(kind, &sim).end();
                set_state(&sim, before);
            }
            for writes in [false, true] {
                break_block(&sim, area(&sim)[1], writes);
                let found = check(kind, &sim, true, discard);
                assert_eq!((found.status(), left(&found)), (4, true), "{:?}", found.issues);
                assert_eq!(state(&sim), before, "{:?}", found.issues);
                sim.set_fault(None);
            }
            if before == STATE_DAMAGED {
                assert_eq!(check(kind, &sim, true, false).status(), 1);
            }
            last_is_whole(kind, &sim, last);
        }
    }
}

#[test]
fn the_area_of_an_interrupted_repair_is_not_said_to_be_needless() {
    let kind = JournalKind::Ssd;
    let (sim, ..) = worked(kind);
    begin(kind, &sim).end();
    for (state, needless) in [(STATE_CLEAN, true), (STATE_DAMAGED, false)] {
        set_state(&sim, state);
        sim.lose(&area(&sim)[..1], false);
        let found = check(kind, &sim, true, false);
        assert_eq!(found.status(), 1, "{:?}", found.issues);
        let said =
            found.of(IssueKind::DoubleWriteUnreadable).map(|issue| issue.detail.contains("not needed"));
        assert_eq!(said.collect::<Vec<_>>(), [needless], "{:?}", found.issues);
    }
}
