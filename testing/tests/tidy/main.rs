//! What no compiler holds: the order of the engine's modules, the size of files, docs, links, names.
//!
//! The order stands in ARCHITECTURE.md under the heading [`modules::HEADING`], a list. Each entry begins with one or
//! more names of modules in backticks, parted by commas; what follows the names is free. A module uses only those
//! that are named after it, and `lib.rs` declares them in the same order.
//!
//! What does not comply yet, and what may not, stands in [`exceptions`]. To see all that the rules find:
//!
//! ```text
//! cargo test -p narufs-testing --test tidy -- --nocapture
//! ```
//!
//! `NARUFS_TIDY_ROOT` names another tree to look at.

mod exceptions;
mod features;
mod figures;
mod items;
mod layers;
mod leaves;
mod markdown;
mod modules;
mod names;
mod operate;
mod silent;
mod sizes;
mod source;
mod tables;
mod tokens;

use exceptions::Baseline;

/// Prints what a rule found and fails if it is more than the baseline allows, or less: then it is to be lowered.
fn hold(rule: &str, baseline: Baseline, found: &[String]) {
    let count = found.len();
    let mut text = format!("{rule}: {count} found, {} allowed\n", baseline.0);
    for line in found {
        text += &format!("  {rule}: {line}\n");
    }
    println!("{text}");
    assert!(count <= baseline.0, "{rule}: {count} found, {} allowed:\n{}", baseline.0, found.join("\n"));
    if count < baseline.0 {
        let note = format!("{rule}: lower the baseline in exceptions.rs from {} to {count}", baseline.0);
        if exceptions::STRICT {
            panic!("{note}");
        }
        println!("{note}");
    }
}
