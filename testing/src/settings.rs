//! What the environment asks of the tests.

use std::ops::Range;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// How many times longer than in CI: `NARUFS_TEST_SCALE`.
pub fn scale() -> u64 {
    number("NARUFS_TEST_SCALE").unwrap_or(1)
}

/// So many seeds at scale 1, or the one of `NARUFS_SEED`.
pub fn seeds(count: u64) -> Range<u64> {
    match number("NARUFS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..count * scale(),
    }
}

/// Whether everything is to be enumerated: `NARUFS_CRASH_FULL=1`.
pub fn crash_full() -> bool {
    number("NARUFS_CRASH_FULL").unwrap_or(0) != 0
}

/// At most so many pairs of operations: `NARUFS_CRASH_PAIRS`.
pub fn crash_pairs() -> Option<usize> {
    number("NARUFS_CRASH_PAIRS").map(|n| n as usize)
}

/// So many triples of operations: `NARUFS_CRASH_TRIPLES`.
pub fn crash_triples() -> Option<usize> {
    number("NARUFS_CRASH_TRIPLES").map(|n| n as usize)
}

/// One of so many parts of an enumeration: `NARUFS_PART=2/64` is the second; all of it is 1 of 1.
pub fn part() -> (usize, usize) {
    let Ok(value) = std::env::var("NARUFS_PART") else { return (1, 1) };
    let part = value.split_once('/').and_then(|(nth, of)| Some((nth.parse().ok()?, of.parse().ok()?)));
    part.filter(|(nth, of)| (1..=*of).contains(nth))
        .unwrap_or_else(|| panic!("NARUFS_PART={value}: say 2/64"))
}

/// Seeds count from here: `NARUFS_SEED`.
pub fn first_seed() -> u64 {
    number("NARUFS_SEED").unwrap_or(0)
}

/// Failures after which an enumeration ends: `NARUFS_MAX_FAILURES`.
pub fn max_failures() -> usize {
    number("NARUFS_MAX_FAILURES").unwrap_or(5) as usize
}
