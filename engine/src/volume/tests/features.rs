//! Images with features that this build does not know: refused, read without a change, or used with their bits kept.

use super::*;
use crate::format::{Access, Features};
use crate::fsck;

/// A bit that no build has given a meaning.
const UNKNOWN: u64 = 1 << 63;

/// An image of five operations with some features, killed or unmounted.
fn image(kind: Kind, unclean: bool, features: [u64; 3]) -> SimMedia {
    let sim = kind.make();
    let mounted = mount(kind.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 0, 4).expect("writable");
    let mut sb = if unclean {
        let sb = *mounted.store().superblock_on_media();
        drop(mounted);
        sb
    } else {
        mounted.unmount().expect("works");
        superblock::read(sim.device().as_ref()).expect("valid")
    };
    [sb.compat, sb.ro_compat, sb.incompat] = features.map(Into::into);
    superblock::write(sim.device().as_ref(), &mut sb).expect("memory");
    sim
}

/// Why a mount and checks of every sort refuse an image; they write nothing.
fn refusals(kind: Kind, sim: &SimMedia, read_only: bool) -> Vec<String> {
    let before = sim.events();
    let mounts = [
        ImageOptions { read_only, ..options() },
        ImageOptions { read_only, discard_journal: true, ..options() },
        ImageOptions { read_only, trust_journal: true, ..options() },
    ];
    let checks = [(false, false), (true, false), (true, true)];
    let mounted = mounts.map(|options| mount(kind.media(sim), &options).map(drop));
    let checked = checks.map(|(repair, discard_journal)| {
        let options = fsck::Options { repair, discard_journal, ..fsck::Options::default() };
        fsck::check(&kind.media(sim), &options).map(drop)
    });
    let refused = mounted.into_iter().chain(checked).map(|result| match result {
        Err(Error::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(sim.events(), before, "nothing is written");
    assert!(refused.iter().all(|why| !why.contains('\n') && why.contains("newer narufs")), "{refused:?}");
    refused
}

#[test]
fn an_unknown_incompatible_feature_refuses_everything() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        for (unclean, compat) in [(true, 0), (false, 0), (true, UNKNOWN)] {
            let sim = image(kind, unclean, [compat, compat, UNKNOWN]);
            for read_only in [true, false] {
                let why = refusals(kind, &sim, read_only);
                assert!(why.iter().all(|why| why.contains("incompat 0x8000000000000000")), "{why:?}");
            }
            let sb = superblock::read_with_any_features(sim.device().as_ref()).expect("it can be shown");
            assert_eq!(Features::of(&sb).access(), Access::Refused);
        }
    }
}

#[test]
fn an_unknown_read_only_compatible_feature_allows_a_read_only_mount_alone() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        for unclean in [true, false] {
            let sim = image(kind, unclean, [0, UNKNOWN, 0]);
            let why = refusals(kind, &sim, false);
            assert!(why[..3].iter().all(|why| why.contains("-o ro")), "{why:?}");
            assert!(why[3..].iter().all(|why| why.contains("not check or mend")), "{why:?}");
            let before = sim.events();
            let reader = ImageOptions { read_only: true, ..options() };
            let mounted = mount(kind.media(&sim), &reader).expect("readable");
            assert_eq!(read(mounted.store()).expect("whole"), oracle(4)[4], "what the ring holds is shown");
            assert!(matches!(operate(mounted.store(), 4), Err(Error::ReadOnly(_))));
            mounted.unmount().expect("nothing to do");
            assert_eq!(sim.events(), before, "nothing is written");
        }
    }
}

#[test]
fn an_unknown_compatible_feature_is_ignored_and_kept() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        for unclean in [true, false] {
            let sim = image(kind, unclean, [UNKNOWN | 1, 0, 0]);
            for ops in [4, 9] {
                let mounted = mount(kind.media(&sim), &options()).expect("it may be ignored");
                assert_eq!(read(mounted.store()).expect("whole"), oracle(ops)[ops as usize]);
                work(&sim, &mounted, ops, ops + 5).expect("writable");
                mounted.unmount().expect("works");
                for copy in superblock::copies(sim.device().as_ref()) {
                    assert_eq!(copy.expect("whole").compat.get(), UNKNOWN | 1);
                }
            }
        }
    }
}
