//! What is run in a comparison.

use super::spill::Spilling;
use crate::params::Params;
use crate::workload::{self, Family};
use std::time::Duration;

/// One workload with its sizes.
#[derive(Debug, Clone)]
pub struct Load {
    /// The workload.
    pub workload: &'static str,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Length of its timed part.
    pub time: Duration,
    /// Sizes.
    pub params: Params,
    /// Bytes of narufs's journal: few enough to be lapped within the time, wherever that can be; what mkfs chooses where
    /// the work is to be done as it comes.
    pub ring: Option<u64>,
}

/// The ring of the crash tests, in which every operation fits some hundred times. What changes names alone logs a slot
/// or two for each: more would not be lapped.
const NAMES_RING: u64 = 2 << 20;
/// The smallest journal that mkfs.ext4 makes with blocks of 4 KiB, for what logs whole pages.
const DATA_RING: u64 = 4 << 20;

fn load(workload: &'static str, threads: &[usize], seconds: f64, params: Params) -> Load {
    let names = workload::find(workload).is_some_and(|spec| spec.family == Family::Metadata);
    let ring = if names { NAMES_RING } else { DATA_RING };
    Load {
        workload,
        threads: threads.to_vec(),
        time: Duration::from_secs_f64(seconds),
        params,
        ring: Some(ring),
    }
}

/// Some minutes: what tells file systems apart most.
pub fn quick() -> Vec<Load> {
    let few = Params { files: Some(30_000), ..Params::default() };
    let threads = [1, 2, 16];
    let mut loads: Vec<Load> =
        ["DWOM", "DWSL", "DRBM"].map(|name| load(name, &threads, 1.0, Params::default())).into();
    // A creation or an unlink logs a slot: as many as go around the ring three times and a half.
    loads.extend(["MWCL", "MWCM", "MWUM"].map(|name| load(name, &threads, 1.0, few.clone())));
    loads.push(load("varmail", &threads, 1.0, Params::default()));
    loads.push(load("tokubench", &threads, 1.0, few));
    loads.push(load("iozone", &[1], 1.0, Params::default()));
    loads
}

/// The ring where runs are three times as long.
const FULL_RING: u64 = 8 << 20;
/// The journal that mkfs.ext4 makes on 2 to 16 GiB, and so that of the contenders: for what logs all it writes, and
/// goes around this one, too, within such a run.
const SYNCED_RING: u64 = 64 << 20;

/// Everything, at the sizes of docs/BENCH.md.
pub fn full() -> Vec<Load> {
    let threads = [1, 2, 4, 16];
    let long = |spec: &workload::Spec| match spec.name {
        "iozone" => load(spec.name, &[1], 3.0, Params { ratio: 1.0, ..Params::default() }),
        name => load(name, &threads, 3.0, Params::default()),
    };
    let ring = |name| if ["DWSL", "varmail"].contains(&name) { SYNCED_RING } else { FULL_RING };
    let generated =
        workload::ALL.iter().map(long).map(|load| Load { ring: Some(ring(load.workload)), ..load });
    // What people do all day they do on a file system as it comes.
    let daily = Load { ring: None, ..load(workload::DAILY.name, &[1], 1.0, Params::default()) };
    generated.chain([daily]).collect()
}

/// Data beyond a memory limit.
pub fn spilling(quick: bool) -> Spilling {
    match quick {
        true => Spilling { memory: 256 << 20, ratios: vec![1.25] },
        false => Spilling { memory: 512 << 20, ratios: vec![0.25, 1.25, 2.5] },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_name_workloads_that_exist() {
        for load in quick().iter().chain(&full()) {
            assert!(crate::workload::find(load.workload).is_some(), "{}", load.workload);
            assert!(!load.threads.is_empty() && load.params.wrong().is_none());
        }
        assert!([true, false].map(spilling).iter().all(|spilling| spilling.wrong().is_none()));
        assert_eq!(full().len(), crate::workload::every().count());
    }
}
