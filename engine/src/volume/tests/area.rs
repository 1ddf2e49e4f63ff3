//! A double-write area of which some cannot be read.

use super::crash::bounds;
use super::*;

/// An image that is new, mounted.
fn fresh(kind: Kind) -> (SimMedia, Mounted) {
    let sim = kind.make();
    let mounted = mount(kind.media(&sim), &options()).expect("clean");
    (sim, mounted)
}

fn area(sim: &SimMedia) -> Vec<u64> {
    let sb = superblock::read(sim.device().as_ref()).expect("valid");
    (sb.dw_start.get()..sb.dw_start.get() + sb.dw_blocks.get()).collect()
}

fn why(mounted: &Mounted) -> String {
    mounted.store().failed().expect("it is read-only")
}

#[test]
fn what_is_not_needed_of_the_area_and_cannot_be_read_is_written_anew() {
    for (unclean, kind) in [(true, Kind::Ssd), (false, Kind::Ssd), (false, Kind::Mapped)] {
        let (sim, mounted) = fresh(kind);
        work(&sim, &mounted, 0, 13).expect("writable");
        if unclean {
            drop(mounted);
        } else {
            mounted.unmount().expect("works");
        }
        let lost = area(&sim);
        sim.lose(&lost, true);
        let mounted = mount(kind.media(&sim), &options()).expect("readable");
        assert!(why(&mounted).contains("nor written anew"), "{}", why(&mounted));
        drop(mounted);
        sim.lose(&lost, false);
        let (mounted, _) = recovered(kind, &sim, (13, 13)).expect("whole");
        assert_eq!(mounted.recovery().unreadable, lost);
        mounted.unmount().expect("works");
        let (mounted, _) = recovered(kind, &sim, (13, 13)).expect("whole");
        assert_eq!(mounted.recovery().unreadable, []);
    }
}

#[test]
fn a_journal_outside_of_the_image_is_trusted_only_if_the_area_can_be_read() {
    let kind = Kind::Mapped;
    let (sim, mounted) = fresh(kind);
    work(&sim, &mounted, 0, 13).expect("writable");
    drop(mounted);
    sim.lose(&area(&sim), false);
    let mounted = mount(kind.media(&sim), &options()).expect("readable");
    assert!(why(&mounted).contains("older than the image"), "{}", why(&mounted));
    assert_eq!(read(mounted.store()).expect("whole"), oracle(13)[13], "it can be read");
    drop(mounted);
    let trusting = ImageOptions { trust_journal: true, ..options() };
    let mounted = mount(kind.media(&sim), &trusting).expect("readable");
    assert_eq!(mounted.recovery().unreadable, area(&sim));
    mounted.unmount().expect("works");
    recovered(kind, &sim, (13, 13)).expect("whole");
}

#[test]
fn a_home_and_the_area_that_cannot_be_read_are_damage() {
    let kind = Kind::Ssd;
    let (sim, mounted) = fresh(kind);
    work(&sim, &mounted, 0, 8).expect("writable");
    mounted.unmount().expect("works");
    let mounted = mount(kind.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 8, 13).expect("writable");
    drop(mounted);
    let lost: Vec<u64> = area(&sim).into_iter().chain(FIRST..FIRST + PAGES).collect();
    sim.lose(&lost, false);
    let mounted = mount(kind.media(&sim), &options()).expect("readable");
    assert!(why(&mounted).contains("recovery meets damage without it (device"), "{}", why(&mounted));
    drop(mounted);
    sim.set_fault(None);
    recovered(kind, &sim, (13, 13)).expect("nothing was written");
}

/// At each moment of a workload, and in each state that a crash may leave: the mount goes on with a right state, or
/// says that it cannot, and leaves everything for another time.
#[test]
fn without_the_area_a_torn_home_is_damage_and_nothing_else_is() {
    let kind = Kind::Ssd;
    let (sim, mounted) = fresh(kind);
    let start = sim.events();
    let notes = work(&sim, &mounted, 0, 17).expect("writable");
    let end = sim.events();
    let (mut whole, mut damaged) = (0, 0);
    let mut points = sim.crash_points();
    for events in (start..=end).step_by(2) {
        points.skip_to(events);
        let point = points.next().expect("the log has that many events");
        let bounds = bounds(&notes, events, kind, Crash::PowerLoss);
        for state in point.states(Crash::PowerLoss, events as u64).take(12) {
            let again = state.restart();
            let lost = area(&again);
            // One block, or all.
            let some = lost.get(events / 2 % 4).map_or(&lost[..], std::slice::from_ref);
            again.lose(some, false);
            let mounted = mount(kind.media(&again), &options()).expect("readable");
            if mounted.store().failed().is_none() {
                whole += 1;
                assert_eq!(mounted.recovery().unreadable, some);
                drop(mounted);
            } else {
                damaged += 1;
                assert!(why(&mounted).contains("recovery meets damage without it"), "{}", why(&mounted));
                drop(mounted);
                again.set_fault(None);
            }
            recovered(kind, &again, bounds).unwrap_or_else(|e| panic!("{state}: {e}"));
        }
    }
    assert!(whole > 100 && damaged > 10, "{whole} whole, {damaged} damaged");
}
