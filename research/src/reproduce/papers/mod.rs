//! The papers' experiments, each in a file of its own: what is asked, how it is run, and what differs from the paper.

pub mod checkpoint;
pub mod journaling;
pub mod nat;
pub mod range_lock;
pub mod spill;

use super::found::Account;
use super::run::Run;
use narufs_bench::{Error, Result};

/// A paper.
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// Fills in what is known before, and measures.
    pub run: fn(&Run) -> Result<Account>,
}

/// All of them, in the order in which they are run.
pub const ALL: [Paper; 5] = [
    Paper { name: "journaling", run: journaling::run },
    Paper { name: "checkpoint", run: checkpoint::run },
    Paper { name: "range-lock", run: range_lock::run },
    Paper { name: "nat", run: nat::run },
    Paper { name: "spill", run: spill::run },
];

/// Those of these names; all if there are none.
///
/// # Errors
/// A name that there is not.
pub fn named(names: &[String]) -> Result<Vec<&'static Paper>> {
    for name in names {
        if !ALL.iter().any(|paper| paper.name == name) {
            let known: Vec<&str> = ALL.iter().map(|paper| paper.name).collect();
            return Err(Error::Usage(format!("{name}: no such paper; there are {}", known.join(", "))));
        }
    }
    Ok(ALL.iter().filter(|paper| names.is_empty() || names.iter().any(|name| name == paper.name)).collect())
}

/// Sentences.
fn said(sentences: &[&str]) -> Vec<String> {
    sentences.iter().map(|sentence| (*sentence).to_owned()).collect()
}
