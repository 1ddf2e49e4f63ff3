//! The request budget: no step of a program sends more requests to a mount than docs/REQUESTS.md says.

use narufs_testing::place::cannot_mount;
use narufs_testing::requests::{measure_each_way, report};
use std::path::Path;

/// `make requests` writes it anew.
const DOCUMENT: &str = include_str!("../../docs/REQUESTS.md");

#[test]
fn no_step_sends_more_requests_than_before() {
    if let Some(why) = cannot_mount() {
        println!("requests: skipped: {why}");
        return;
    }
    let table = measure_each_way(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("the same counts each time");
    let kernel = report::kernel().expect("the kernel's version");
    let made_on = report::made_on(DOCUMENT).expect("docs/REQUESTS.md names a kernel");
    if made_on != kernel {
        println!("requests: not compared: docs/REQUESTS.md is of Linux {made_on}, this is {kernel}");
        return;
    }
    let grown = report::growth(DOCUMENT, &table);
    assert!(
        grown.is_empty(),
        "steps send more requests than docs/REQUESTS.md says (`make requests` writes it anew, if they must):\n{}",
        grown.join("\n")
    );
    let text = report::text(&table, &kernel).expect("each kind has its reason");
    assert!(text == DOCUMENT, "docs/REQUESTS.md is not what was counted; `make requests` writes:\n{text}");
}
