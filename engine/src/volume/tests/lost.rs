//! A ring in the image of which some cannot be read.

use super::crash::bounds;
use super::*;
use crate::format::SLOTS_PER_BLOCK;

const KIND: Kind = Kind::Ssd;

/// An image after so many operations and the end of its process, or of the machine; what must be there, and can be.
fn killed(ops: u64, crash: Crash) -> (SimMedia, (u64, u64)) {
    let sim = KIND.make();
    mount(KIND.media(&sim), &options()).expect("clean").unmount().expect("works");
    let mounted = mount(KIND.media(&sim), &options()).expect("clean");
    let notes = work(&sim, &mounted, 0, ops).expect("writable");
    drop(mounted);
    if crash == Crash::PowerLoss {
        sim.add_pmem(KIND.spec());
    }
    let bounds = bounds(&notes, sim.events(), KIND, crash);
    (sim, bounds)
}

fn ring(sim: &SimMedia) -> u64 {
    superblock::read(sim.device().as_ref()).expect("valid").ring_start.get()
}

/// The one that can be read may be the older one, and nothing tells.
#[test]
fn an_unclean_image_waits_for_each_copy_of_the_rings_header() {
    for copy in 0..2 {
        for crash in [Crash::ProcessKill, Crash::PowerLoss] {
            for ops in 1..40 {
                let (sim, bounds) = killed(ops, crash);
                sim.lose(&[ring(&sim) + copy], false);
                let what = format!("copy {copy}, {ops} operations, {crash:?}");
                let to_read = ImageOptions { read_only: true, ..options() };
                for how in [options(), to_read] {
                    let refused = mount(KIND.media(&sim), &how).map(drop);
                    assert!(matches!(refused, Err(Error::Device { .. })), "{what}: {refused:?}");
                }
                // Read another time it takes nothing with it.
                sim.set_fault(None);
                let (mounted, n) = recovered(KIND, &sim, bounds).unwrap_or_else(|e| panic!("{what}: {e}"));
                work(&sim, &mounted, n, n + 4).expect("writable");
                mounted.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
                recovered(KIND, &sim, (n + 4, n + 4)).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
}

#[test]
fn a_clean_image_needs_no_copy_of_the_rings_header() {
    for lost in [&[0][..], &[1], &[0, 1]] {
        let sim = KIND.make();
        for _ in 0..2 {
            mount(KIND.media(&sim), &options()).expect("clean").unmount().expect("works");
        }
        let lost: Vec<u64> = lost.iter().map(|copy| ring(&sim) + copy).collect();
        sim.lose(&lost, false);
        let check = |repair| {
            let how = crate::fsck::Options { repair, ..crate::fsck::Options::default() };
            crate::fsck::check(&KIND.media(&sim), &how).expect("an image")
        };
        let found = check(false);
        assert_eq!(found.of(crate::fsck::IssueKind::RingHeader).count(), usize::from(lost.len() == 2));
        assert_eq!(found.issues.len(), usize::from(lost.len() == 2), "{:?}", found.issues);
        assert!(check(true).status() <= 1);
        sim.lose(&lost, false);
        let mounted = mount(KIND.media(&sim), &options()).expect("clean");
        assert_eq!(mounted.store().failed(), None);
        mounted.unmount().expect("works");
    }
}

#[test]
fn a_journal_whose_header_cannot_be_read_can_be_given_up() {
    for lost in [&[0][..], &[1], &[0, 1]] {
        let (sim, _) = killed(13, Crash::PowerLoss);
        let lost: Vec<u64> = lost.iter().map(|copy| ring(&sim) + copy).collect();
        sim.lose(&lost, false);
        assert!(matches!(mount(KIND.media(&sim), &options()).map(drop), Err(Error::Device { .. })));
        let how =
            crate::fsck::Options { repair: true, discard_journal: true, ..crate::fsck::Options::default() };
        let report = crate::fsck::check(&KIND.media(&sim), &how).expect("given up");
        assert_eq!(report.of(crate::fsck::IssueKind::RingMissing).count(), 1, "{:?}", report.issues);
        mount(KIND.media(&sim), &options()).expect("repaired").unmount().expect("works");
    }
}

/// Of a ring that has gone on a whole lap since, the copy that can be read says nothing.
#[test]
fn a_header_that_is_older_than_the_ring_is_damage() {
    let sim = KIND.make();
    let mounted = mount(KIND.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 0, 5).expect("writable");
    let start = ring(&sim);
    let read = |block| Request::read(block, IoBuf::zeroed(BLOCK_SIZE), Cause::Journal);
    let device = sim.device();
    let old = device.run(vec![read(start), read(start + 1)]).expect("memory");
    let (first, slots) = (mounted.store().tail(), KIND.slots());
    let mut n = 5;
    while mounted.store().tail() < first + 2 * slots {
        work(&sim, &mounted, n, n + 5).expect("writable");
        n += 5;
    }
    drop(mounted);
    sim.add_pmem(KIND.spec());
    let put = |(block, buf)| Request::write(block, buf, Cause::Journal);
    device.run((start..).zip(old).map(put).collect()).expect("memory");
    device.flush().expect("memory");
    match mount(KIND.media(&sim), &options()) {
        Ok(mounted) => assert!(mounted.store().failed().is_some(), "{:?}", read_state(&mounted)),
        Err(e) => assert!(matches!(e, Error::Refused(_)), "{e}"),
    }
}

fn read_state(mounted: &Mounted) -> Option<State> {
    super::read(mounted.store()).ok().flatten()
}

/// What lies there may have been promised: nobody takes it for the end of the journal.
#[test]
fn slots_that_cannot_be_read_are_damage_where_they_may_be_needed_and_nothing_elsewhere() {
    let blocks = KIND.slots() / SLOTS_PER_BLOCK;
    let (mut whole, mut damaged) = (0, 0);
    for ops in [1, 4, 7, 13, 24] {
        for block in 0..blocks {
            let (sim, bounds) = killed(ops, Crash::PowerLoss);
            sim.lose(&[ring(&sim) + 2 + block], false);
            let what = format!("{ops} operations, block {block}");
            let mounted = mount(KIND.media(&sim), &options()).unwrap_or_else(|e| panic!("{what}: {e}"));
            let Some(why) = mounted.store().failed() else {
                drop(mounted);
                recovered(KIND, &sim, bounds).unwrap_or_else(|e| panic!("{what}: {e}"));
                whole += 1;
                continue;
            };
            drop(mounted);
            assert!(why.contains("journal"), "{what}: {why}");
            // It may be read another time: nothing was written.
            sim.set_fault(None);
            recovered(KIND, &sim, bounds).unwrap_or_else(|e| panic!("{what}: {e}"));
            let (sim, _) = killed(ops, Crash::PowerLoss);
            sim.lose(&[ring(&sim) + 2 + block], false);
            let how = crate::fsck::Options {
                repair: true,
                discard_journal: true,
                ..crate::fsck::Options::default()
            };
            let report =
                crate::fsck::check(&KIND.media(&sim), &how).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(report.of(crate::fsck::IssueKind::JournalDamaged).count(), 1, "{what}");
            damaged += 1;
        }
    }
    assert!(whole > 10 && damaged > 10, "{whole} whole, {damaged} damaged");
}
