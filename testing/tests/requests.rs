//! The request budget: no step of a program sends more requests to a mount than docs/REQUESTS.md says.

use narufs_testing::place::require_mounts;
use narufs_testing::requests::{measure_each_way, report};
use std::path::Path;

/// `make requests` writes it anew.
const DOCUMENT: &str = include_str!("../../docs/REQUESTS.md");

#[test]
#[ignore = "needs root, /dev/fuse, FUSE over io_uring and the version of Linux of docs/REQUESTS.md"]
fn no_step_sends_more_requests_than_before() {
    require_mounts();
    let table = measure_each_way(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("the same counts each time");
    let kernel = report::kernel().expect("the kernel's version");
    let made_on = report::made_on(DOCUMENT).expect("docs/REQUESTS.md names a kernel");
    assert!(
        made_on == kernel,
        "missing: Linux {made_on}, of which docs/REQUESTS.md is; this is {kernel}: `make requests` counts anew"
    );
    let grown = report::growth(DOCUMENT, &table);
    assert!(
        grown.is_empty(),
        "steps send more requests than docs/REQUESTS.md says (`make requests` writes it anew, if they must):\n{}",
        grown.join("\n")
    );
    let text = report::text(&table, &kernel).expect("each kind has its reason");
    assert!(text == DOCUMENT, "docs/REQUESTS.md is not what was counted; `make requests` writes:\n{text}");
}
