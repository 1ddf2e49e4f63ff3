//! What the user may change about the workloads, and what follows from it for each.

use serde::{Deserialize, Serialize};

/// Mebibyte.
const MIB: u64 = 1 << 20;

/// How large the work is. What is `None` is the workload's own default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// Everything random and every byte follows from it.
    pub seed: u64,
    /// Files of MWC*, MWU*, MWRM, MRD*, varmail and tokubench.
    pub files: Option<u64>,
    /// Bytes of the file of DWTL, oltp and `spread`; the limit of DWAL.
    pub size: Option<u64>,
    /// Random pages of a large file where DWO*, DWSL and DRB* use one fixed page.
    pub spread: bool,
    /// The sizes of the papers: varmail 100,000 files, tokubench 3,000,000.
    pub paper: bool,
    /// The memory limit that iozone's file is a multiple of.
    pub memory: u64,
    /// That multiple.
    pub ratio: f64,
    /// Bytes of iozone's records.
    pub record: u64,
    /// Operations after which each thread ends, whatever the time.
    pub ops: Option<u64>,
    /// How much everyday work there is: 1 is a tree of 310 MB.
    pub scale: f64,
    /// The steps of it; all if empty.
    pub steps: Vec<String>,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            seed: 1,
            files: None,
            size: None,
            spread: false,
            paper: false,
            memory: 256 * MIB,
            ratio: 0.25,
            record: 4096,
            ops: None,
            scale: 1.0,
            steps: Vec::new(),
        }
    }
}

impl Params {
    /// The files of a workload with this default, and this many in its paper.
    pub fn files_or(&self, default: u64, paper: u64) -> u64 {
        self.files.unwrap_or(if self.paper { paper } else { default })
    }

    /// Bytes of a large file, in whole pages of the size given.
    pub fn size_or(&self, default_mib: u64, unit: u64) -> u64 {
        (self.size.unwrap_or(default_mib * MIB) / unit).max(1) * unit
    }

    /// Bytes of iozone's file for each of some threads, in whole records.
    pub fn iozone_share(&self, threads: usize) -> u64 {
        let all = (self.memory as f64 * self.ratio) as u64;
        (all / threads as u64 / self.record).max(1) * self.record
    }

    /// What cannot be.
    pub fn wrong(&self) -> Option<String> {
        if self.files == Some(0) {
            return Some("--files 0: at least one file is needed".into());
        }
        if self.ops == Some(0) {
            return Some("--ops 0: at least one operation is needed".into());
        }
        if !(self.ratio > 0.0 && self.ratio.is_finite()) {
            return Some(format!("--ratio {}: say a number above 0", self.ratio));
        }
        if !(self.scale > 0.0 && self.scale <= 100.0) {
            return Some(format!("--scale {}: say a number above 0, 100 at the most", self.scale));
        }
        if let Err(unknown) = crate::daily::steps(&self.steps) {
            return Some(unknown.to_string());
        }
        if self.record < 512 || self.record > crate::content::LONGEST as u64 {
            return Some(format!("--record {}: say 512 bytes to 1 MiB", self.record));
        }
        None
    }
}

/// How many of `all` things the `index`th of `parts` gets, and which is its first: all are given, evenly.
pub fn share(all: u64, parts: usize, index: usize) -> (u64, u64) {
    let (parts, index) = (parts as u64, index as u64);
    let (each, rest) = (all / parts, all % parts);
    (index * each + index.min(rest), each + u64::from(index < rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_without_overlap() {
        for (all, parts) in [(100_000, 16), (7, 3), (2, 5), (0, 2)] {
            let mut next = 0;
            for index in 0..parts {
                let (first, count) = share(all, parts, index);
                assert_eq!(first, next);
                assert!(count.abs_diff(all / parts as u64) <= 1);
                next += count;
            }
            assert_eq!(next, all);
        }
    }

    #[test]
    fn sizes_are_whole_units() {
        let params = Params { size: Some(10_000), record: 4096, ..Params::default() };
        assert_eq!(params.size_or(64, 4096), 8192);
        assert_eq!(Params::default().size_or(64, 4096), 64 << 20);
        assert_eq!(Params { size: Some(1), ..Params::default() }.size_or(64, 4096), 4096);
        let iozone = Params { memory: 1 << 20, ratio: 1.25, ..Params::default() };
        assert_eq!(iozone.iozone_share(1), 1_310_720);
        assert_eq!(iozone.iozone_share(3) % 4096, 0);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(Params::default().wrong(), None);
        assert!(Params { files: Some(0), ..Params::default() }.wrong().expect("none").contains("--files"));
        assert!(
            Params { ratio: f64::NAN, ..Params::default() }.wrong().expect("no number").contains("--ratio")
        );
        for scale in [0.0, f64::NAN, 1e9] {
            assert!(Params { scale, ..Params::default() }.wrong().expect("no scale").contains("--scale"));
        }
        let steps = vec!["unzip".to_owned()];
        assert!(Params { steps, ..Params::default() }.wrong().expect("no step").contains("--steps"));
        assert!(Params { record: 1, ..Params::default() }.wrong().expect("too small").contains("--record"));
    }
}
