//! How directories get room: splits ahead of need, in turn, and what is done where there are no blocks for them.

use super::grow::splits_at_once;
use super::tests::{Fixture, name};
use super::*;

/// A thread that makes files in a large directory is seldom kept out of it.
#[test]
fn a_large_directory_splits_several_buckets_at_a_time() {
    let mut fixture = Fixture::new();
    let (mut largest, mut limited) = (0, 0);
    for n in 0..120_000 {
        let (before, name) = (fixture.image.buckets.get(), name(n, 20));
        let vacancy = fixture.dir().vacancy(None, &fixture.image, &name).expect("sound").expect("it is new");
        if splits_at_once(before) == 16 && vacancy.grows() {
            // The directory may have grown since credits were taken for fewer.
            let mut h = fixture.store.begin(split_slots(8)).expect("writable");
            let mut image = fixture.image;
            let most = Splits { count: 4, blocks: 8, longest: 8 };
            assert!(fixture.dir().grow(&mut h, &mut image, &name, most).expect("grows"));
            assert!(h.slots_needed() <= split_slots(8));
            assert!(image.buckets.get() <= before + 4);
            limited += 1;
            break;
        }
        fixture.insert(&name, 1, true);
        let made = fixture.image.buckets.get() - before;
        assert!(made == 0 || made >= splits_at_once(before), "{made} of {before}");
        largest = largest.max(made);
    }
    assert_eq!((largest, limited), (15, 1));
    assert_eq!([63, 64, 127, 128, 1 << 20].map(splits_at_once), [1, 1, 1, 2, 16]);
}

/// Many find a bucket full at once, let the directory go, and come back for room one after the other.
#[test]
fn only_who_comes_first_gives_a_bucket_room() {
    let mut fixture = Fixture::new();
    for n in 0..2000 {
        let name = name(n, 20);
        let mut h = fixture.store.begin(ENTRY_SLOTS).expect("writable");
        let before = fixture.dir().insert(&mut h, &fixture.image, &name, 1, FileType::Regular);
        drop(h);
        if before.expect("sound") == Insertion::Full {
            assert!(fixture.grow(&name, USUAL_CHAINS));
            let grown = (fixture.image.buckets.get(), fixture.chains());
            for _ in 0..16 {
                assert!(!fixture.grow(&name, USUAL_CHAINS));
            }
            assert_eq!((fixture.image.buckets.get(), fixture.chains()), grown);
        }
        fixture.insert(&name, 1, true);
        assert!(!fixture.grow(&name, USUAL_CHAINS), "it is there");
    }
}

/// A full image adds blocks where it has no room to split: chains become as long as can be.
#[test]
fn long_chains_are_split_when_there_is_room_again() {
    let mut fixture = Fixture::new();
    let mut n = 0;
    while fixture.chains().iter().all(|len| *len < MAX_CHAIN) {
        fixture.insert(&name(n, 250), 1, fixture.image.buckets.get() < 5);
        n += 1;
    }
    for more in n..4 * n {
        fixture.insert(&name(more, 250), 1, true);
    }
    assert_eq!(fixture.all().len(), 4 * n as usize);
    let chains = fixture.chains();
    assert!(chains.iter().all(|len| *len <= 4), "longest chain {:?}", chains.iter().max());
}

/// A chain that no record of the ring can divide would end all splits of its directory.
#[test]
fn no_chain_becomes_longer_than_can_be_split() {
    const LONGEST: u32 = 5;
    let mut fixture = Fixture::new();
    let mut refused = 0;
    for n in 0..400 {
        let (mut h, mut image) = (fixture.store.begin(OVERFLOW_SLOTS).expect("writable"), fixture.image);
        let most = Splits { count: 1, blocks: 0, longest: LONGEST };
        match fixture.dir().grow(&mut h, &mut image, &name(n, 250), most) {
            Ok(_) => {
                h.commit().expect("commits");
                fixture.image = image;
                fixture.insert(&name(n, 250), 1, false);
            }
            Err(e) => {
                assert_eq!(e.errno(), libc::ENOSPC);
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && fixture.chains().iter().all(|len| *len <= LONGEST as usize));
    assert!(fixture.grow(&name(1000, 250), LONGEST), "its turn comes when there is room");
    assert!(fixture.image.buckets.get() > 1);
}
