//! What pairs of commuting operations share: no pair that two cores could do side by side may be lost.
#![cfg(target_arch = "x86_64")]

use narufs_testing::sharing::{report, trace};
use std::path::Path;

/// Pairs that share no byte that one of them writes, one a line: `make sharing` writes it anew.
const FREE: &str = include_str!("sharing.free");
/// Which bucket a name falls into changes from run to run: a pair is lost that is never free.
const RUNS: usize = 10;

#[test]
#[ignore = "needs two cores, and leave to trace processes"]
fn pairs_that_shared_nothing_still_share_nothing() {
    // On one core, what cores have of their own is not apart.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    assert!(cores >= 2, "missing: a second core");
    let mut lost: Vec<&str> = FREE.lines().collect();
    let mut last = String::new();
    for _ in 0..RUNS {
        if lost.is_empty() {
            break;
        }
        let traced = match trace::run(Path::new(env!("CARGO_BIN_EXE_narufs-sharing"))) {
            Ok(traced) => traced,
            Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                panic!("missing: leave to trace processes: {e}")
            }
            Err(e) => panic!("{e}"),
        };
        let free = report::free_pairs(&traced);
        lost.retain(|pair| !free.contains(*pair));
        last = report::text(&traced);
    }
    assert!(lost.is_empty(), "these share memory now: {lost:#?}\n{last}");
}
