//! Directories that are emptied, and that are read meanwhile.

use super::tests::{Fixture, name};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::BTreeMap;

/// The order in which names are removed.
#[derive(Debug, Clone, Copy)]
enum Order {
    Made,
    Shuffled,
    /// As readdir gives them, which is how `rm -r` removes them.
    Read,
    ReadBackwards,
}

/// Makes names, removes them in an order, and makes some again.
fn empties(order: Order, count: u32, len: usize) {
    let mut fixture = Fixture::new();
    let mut names: Vec<_> = (0..count).map(|n| name(n, len)).collect();
    for name in &names {
        fixture.insert(name, 1, true);
    }
    let most = fixture.image.blocks.get();
    match order {
        Order::Made => {}
        Order::Shuffled => names.shuffle(&mut StdRng::seed_from_u64(5)),
        Order::Read => names = fixture.in_order(),
        Order::ReadBackwards => names = fixture.in_order().into_iter().rev().collect(),
    }
    for (n, name) in (0..).zip(&names) {
        assert_eq!(fixture.remove(name), Some(1));
        if n % (count / 16) == 0 {
            fixture.verify();
        }
        if n == count / 16 * 15 {
            let blocks = fixture.image.blocks.get();
            assert!(
                blocks <= most / 2,
                "{order:?}: {blocks} blocks of {most} are left for a sixteenth of the names"
            );
        }
    }
    fixture.verify();
    assert!(fixture.dir().is_empty(None, &fixture.image).expect("sound"));
    let blocks = fixture.image.blocks.get();
    assert!(blocks <= 4, "{order:?}: {blocks} blocks of {most} are left for nothing");
    for name in &names[..names.len() / 8] {
        fixture.insert(name, 2, true);
    }
    fixture.verify();
    assert_eq!(fixture.all().len(), names.len() / 8);
}

#[test]
fn a_large_directory_that_is_emptied_ends_small() {
    for order in [Order::Made, Order::Shuffled, Order::Read, Order::ReadBackwards] {
        empties(order, 100_000, 20);
    }
}

#[test]
fn a_directory_of_long_names_that_is_emptied_ends_small() {
    for order in [Order::Made, Order::Shuffled, Order::Read, Order::ReadBackwards] {
        empties(order, 5000, 255);
    }
}

/// A full image adds blocks where it has no room to split; when they are empty they are given back.
#[test]
fn long_chains_are_emptied_as_well() {
    let mut fixture = Fixture::new();
    for n in 0..2000 {
        let split = fixture.image.buckets.get() < 5;
        fixture.insert(&name(n, 250), 1, split);
    }
    assert!(fixture.chains().iter().any(|len| *len > 20));
    for n in 0..2000 {
        assert_eq!(fixture.remove(&name(n, 250)), Some(1));
    }
    fixture.verify();
    assert!(fixture.image.blocks.get() <= 4, "{} blocks", fixture.image.blocks);
}

/// A thread that makes and removes names in turn changes the number of buckets once each way at the most.
#[test]
fn a_name_that_comes_and_goes_moves_no_bucket() {
    let mut fixture = Fixture::new();
    let (mut made, mut removed) = (0, 0);
    let mut random = StdRng::seed_from_u64(9);
    for turn in 0..40 {
        // To somewhere between nothing and some forty buckets.
        let to = random.random_range(0..3000u32);
        while made - removed < to {
            fixture.insert(&name(made, 20), 1, true);
            made += 1;
        }
        while made - removed > to {
            assert!(fixture.remove(&name(removed, 20)).is_some());
            removed += 1;
        }
        let mut changes = 0;
        for n in 0..300 {
            let (before, name) = (fixture.image.buckets.get(), name(1_000_000 + turn, 20 + n % 3));
            fixture.insert(&name, 1, true);
            assert!(fixture.remove(&name).is_some());
            changes += u32::from(fixture.image.buckets.get() != before);
        }
        assert!(changes <= 6, "{changes} changes at {to} names");
    }
}

/// What large directories split ahead of need is seldom joined again by the next removals, whatever fits a block.
#[test]
fn names_that_come_and_go_at_random_move_few_buckets() {
    for (count, len) in [(8000, 250), (9000, 250), (10_000, 250), (11_000, 250), (40_000, 60)] {
        let mut fixture = Fixture::new();
        let mut names: Vec<u32> = (0..count).collect();
        names.iter().for_each(|n| fixture.insert(&name(*n, len), 1, true));
        let mut random = StdRng::seed_from_u64(4);
        let (mut grown, mut shrunk) = (0, 0);
        let turns = 10_000;
        for n in count..count + turns {
            let gone = names.swap_remove(random.random_range(0..names.len()));
            let before = fixture.image.buckets.get();
            assert!(fixture.remove(&name(gone, len)).is_some());
            let between = fixture.image.buckets.get();
            fixture.insert(&name(n, len), 1, true);
            names.push(n);
            shrunk += before - between;
            grown += fixture.image.buckets.get() - between;
        }
        println!("{count} names of {len}: {} buckets, {grown} made, {shrunk} joined", fixture.image.buckets);
        assert!(shrunk <= turns / 20, "{shrunk} buckets joined, {grown} made in {turns} turns");
    }
}

#[test]
fn reading_meets_what_stays_once_while_a_directory_shrinks_and_grows() {
    const NAMES: u32 = 4000;
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::new();
        let stays = |n: u32| n.is_multiple_of(97);
        (0..NAMES).for_each(|n| fixture.insert(&name(n, 60), 1, true));
        let mut there: Vec<u32> = (0..NAMES).filter(|n| !stays(*n)).collect();
        let mut gone = Vec::new();
        let (mut least, mut most) = (u32::MAX, 0);
        let mut filling = false;
        for _ in 0..8 {
            let (mut seen, mut cookie) = (BTreeMap::new(), 0);
            loop {
                let page = fixture.dir().read(&fixture.image, cookie).expect("sound");
                for e in page.entries {
                    assert!(e.cookie > cookie);
                    *seen.entry(e.name).or_insert(0) += 1;
                }
                for _ in 0..random.random_range(0..200) {
                    let (from, to) = if filling { (&mut gone, &mut there) } else { (&mut there, &mut gone) };
                    if from.is_empty() {
                        filling = !filling;
                        continue;
                    }
                    let n = from.swap_remove(random.random_range(0..from.len()));
                    to.push(n);
                    match filling {
                        true => fixture.insert(&name(n, 60), 1, true),
                        false => assert!(fixture.remove(&name(n, 60)).is_some()),
                    }
                }
                (least, most) =
                    (least.min(fixture.image.buckets.get()), most.max(fixture.image.buckets.get()));
                match page.next {
                    Some(next) => cookie = next,
                    None => break,
                }
            }
            for n in (0..NAMES).filter(|n| stays(*n)) {
                assert_eq!(seen.get(&name(n, 60)), Some(&1));
            }
        }
        assert!(least * 4 < most, "{least} to {most} buckets");
        fixture.verify();
    }
}
