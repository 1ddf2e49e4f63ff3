//! What pairs of commuting operations share: no pair that two cores could do side by side may be lost.
#![cfg(target_arch = "x86_64")]

use narufs_testing::sharing::{report, trace};
use std::collections::BTreeSet;
use std::path::Path;

/// Pairs that share nothing, one a line: `make sharing` writes it anew.
const FREE: &str = include_str!("sharing.free");

#[test]
fn pairs_that_shared_nothing_still_share_nothing() {
    let traced = match trace::run(Path::new(env!("CARGO_BIN_EXE_narufs-sharing"))) {
        Ok(traced) => traced,
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            eprintln!("skipped: this place allows no tracing: {e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let free = report::free_pairs(&traced);
    let lost: Vec<&str> = FREE.lines().filter(|pair| !free.contains(*pair)).collect();
    assert!(lost.is_empty(), "these share cache lines now: {lost:#?}\n{}", report::text(&traced));
    let known: BTreeSet<&str> = FREE.lines().collect();
    let won: Vec<&String> = free.iter().filter(|pair| !known.contains(pair.as_str())).collect();
    if !won.is_empty() {
        eprintln!("these share nothing by now, `make sharing` notes it: {won:#?}");
    }
}
