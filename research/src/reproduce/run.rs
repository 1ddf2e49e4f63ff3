//! Runs in turn: each variant at each place on the axis before any runs again.

use super::bed::Mounted;
use super::found::{Absent, Account, Cells};
use crate::manycore::machine::Costs;
use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_bench::{Error, Params, Plan, Record, Result, daily, workload};
use narufs_cli::options::OptionList;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The technique as narufs has it.
pub const OURS: &str = "ours";

/// What all experiments have in common.
pub struct Run {
    /// A directory on the device that is measured.
    pub work: PathBuf,
    /// A directory in memory.
    pub memory: PathBuf,
    /// Small sizes.
    pub quick: bool,
    /// How often each.
    pub rounds: u32,
    /// The user's end of it.
    pub stop: Stop,
    /// What is shown meanwhile.
    pub progress: Progress,
    /// What the machine's cache lines cost.
    pub costs: Costs,
    /// Times as much as one thread two do that share nothing.
    pub pair: f64,
    /// Nanoseconds until a sleeper that was woken runs.
    pub wake: f64,
}

/// Options of a variant: its name is that of a baseline.
pub fn options(variant: &str, more: &[&str]) -> Vec<String> {
    let baseline = (variant != OURS).then(|| format!("baseline={variant}"));
    baseline.into_iter().chain(more.iter().map(|option| (*option).to_owned())).collect()
}

/// Why this build does not have a variant.
fn missing(variant: &str) -> Option<String> {
    OptionList::parse(&options(variant, &[])).err()
}

impl Run {
    /// One of two sizes.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Those of the variants that this build has; why it has not the others is told.
    pub fn present<'v>(&self, variants: &[&'v str], account: &mut Account) -> Vec<&'v str> {
        let mut present = Vec::new();
        for &variant in variants {
            match missing(variant) {
                None => present.push(variant),
                Some(reason) => absent(account, variant, reason),
            }
        }
        present
    }

    /// Calls `once` for each variant at each place, in turn; it gives what it has found, by names. A variant that
    /// fails is told, and left out from there on.
    ///
    /// # Errors
    /// The user's end of it.
    pub fn in_turn(
        &self,
        account: &mut Account,
        title: &str,
        variants: &[&str],
        places: &[u64],
        once: impl FnMut(&str, u64) -> Result<Vec<(&'static str, f64)>>,
    ) -> Result<Cells> {
        self.in_turns(self.rounds, account, title, variants, places, once)
    }

    /// As [`Run::in_turn`], in another number of rounds.
    ///
    /// # Errors
    /// The user's end of it.
    pub fn in_turns(
        &self,
        rounds: u32,
        account: &mut Account,
        title: &str,
        variants: &[&str],
        places: &[u64],
        mut once: impl FnMut(&str, u64) -> Result<Vec<(&'static str, f64)>>,
    ) -> Result<Cells> {
        let mut cells = Cells::default();
        let mut left: Vec<&str> = self.present(variants, account);
        for round in 1..=rounds {
            for &place in places {
                for variant in left.clone() {
                    self.stop.check()?;
                    self.progress.doing(&format!("{title} {place}"), variant);
                    match once(variant, place) {
                        Ok(found) => {
                            let first =
                                found.first().map_or(String::new(), |(what, v)| format!("{v:.0} {what}"));
                            self.progress.line(&format!(
                                "{}: round {round}/{rounds}: {title} {place}: {variant}: {first}",
                                account.paper
                            ));
                            found.iter().for_each(|(what, value)| cells.add(variant, place, what, *value));
                        }
                        Err(Error::Interrupted) => return Err(Error::Interrupted),
                        Err(e) => {
                            self.stop.check()?;
                            self.progress
                                .line(&format!("{}: {title} {place}: {variant}: {e}", account.paper));
                            absent(account, &format!("{variant}, {title} {place}"), e.to_string());
                            left.retain(|other| *other != variant);
                        }
                    }
                }
            }
        }
        Ok(cells)
    }

    /// Runs a workload of the benchmark on a mounted image, and compares afterwards.
    ///
    /// # Errors
    /// Those of the run, and wrong bytes.
    pub fn load(
        &self,
        mounted: &mut Mounted,
        name: &'static str,
        threads: u64,
        time: Duration,
        params: &Params,
    ) -> Result<Vec<Record>> {
        let spec = workload::find(name).ok_or_else(|| Error::Usage(format!("{name}: no such workload")))?;
        let plan = Plan {
            workloads: vec![spec],
            threads: vec![usize::try_from(threads).unwrap_or(1)],
            time,
            repeat: 1,
            params: params.clone(),
            check: true,
            shelf: daily::Shelf::default(),
        };
        let mut records = Vec::new();
        narufs_bench::run(&mut mounted.library, &plan, &self.stop, &Progress::none(), |r| records.push(r))?;
        Ok(records)
    }
}

/// Notes what did not run, once.
pub fn absent(account: &mut Account, what: &str, reason: impl Into<String>) {
    let new = Absent { what: what.to_owned(), reason: reason.into() };
    if !account.absent.contains(&new) {
        account.absent.push(new);
    }
}

/// The columns of rate and waits.
pub const COLUMNS: [(&str, &str, usize); 5] = [
    ("ops/s", "ops/s", 0),
    ("MB/s", "MB/s", 1),
    ("p50 us", "p50 us", 1),
    ("p99 us", "p99 us", 1),
    ("p99.9 us", "p99.9 us", 1),
];

/// What a record says of rate and waits.
pub fn figures(record: &Record) -> Vec<(&'static str, f64)> {
    vec![
        ("ops/s", record.ops_per_s),
        ("MB/s", record.mb_per_s),
        ("mean us", record.mean_us),
        ("p50 us", record.p50_us),
        ("p99 us", record.p99_us),
        ("p99.9 us", record.p999_us),
        ("cpu us", record.cpu_us_per_op),
    ]
}

/// A directory of this run's own in `place`; it goes with what it returns.
///
/// # Errors
/// If none can be made there.
pub fn own_directory(place: &Path) -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("narufs-reproduce.").tempdir_in(place);
    made.map_err(|e| Error::io("make a directory in", &place.display().to_string(), e))
}
