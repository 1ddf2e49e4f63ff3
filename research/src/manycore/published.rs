//! What the papers publish, point by point.

/// What a point is a ratio of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Operations a second: a technique over a baseline, the mean over numbers of threads.
    Rates(&'static str, &'static str),
    /// Time of an operation: a technique over a baseline, likewise.
    Times(&'static str, &'static str),
    /// Operations a second of one, over those of its one thread.
    Itself(&'static str),
}

/// A point.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// The paper.
    pub paper: &'static str,
    /// The plot that shows the workload.
    pub figure: &'static str,
    /// The ratio.
    pub of: Of,
    /// Numbers of threads.
    pub threads: &'static [usize],
    /// What is published.
    pub value: f64,
}

/// The published journal, and the two that it is compared with, which write home as jbd2 does: one thread, 64 buffers in a
/// batch.
pub const PAPER: &str = "journal-paper+data-ordered";
/// See [`PAPER`].
pub const JBD2: &str = "journal-jbd2+checkpoint-64+data-ordered";
/// See [`PAPER`].
pub const FINE: &str = "journal-fine+checkpoint-64+data-ordered";
const NVM_VARMAIL: &str = "varmail, journal on NVM, data on a drive as stated";
const NVM_TOKUBENCH: &str = "tokubench, journal on NVM, data on a drive as stated";
/// Numbers of threads that a mean "at 15 to 120 cores" is taken over.
const MANY: &[usize] = &[15, 30, 45, 60, 75, 90, 105, 120];
const FROM_FOUR: &[usize] = &[4, 15, 30, 45, 60, 75, 90, 105, 120];

const fn point(
    paper: &'static str,
    figure: &'static str,
    of: Of,
    threads: &'static [usize],
    value: f64,
) -> Point {
    Point { paper, figure, of, threads, value }
}

/// Every point.
pub const POINTS: [Point; 15] = [
    point("journaling", NVM_VARMAIL, Of::Rates(PAPER, JBD2), &[16], 2.91),
    point("journaling", NVM_VARMAIL, Of::Rates(PAPER, FINE), &[16], 2.38),
    point("journaling", NVM_TOKUBENCH, Of::Rates(PAPER, JBD2), &[16], 1.97),
    point("journaling", NVM_TOKUBENCH, Of::Rates(PAPER, FINE), &[16], 1.69),
    point("checkpoint", "Scattered", Of::Rates("ours", "checkpoint-one"), &[72], 1.92),
    point("range-lock", "DWOM", Of::Rates("lock-tree", "lock-inode"), &[4], 40.5),
    point("range-lock", "DWOM", Of::Rates("lock-tree", "lock-inode"), FROM_FOUR, 14.8),
    point("range-lock", "DWOM", Of::Times("lock-tree", "lock-inode"), MANY, 0.86),
    point("range-lock", "DWOM", Of::Times("lock-tree", "lock-inode"), &[120], 0.83),
    point("range-lock", "DWOL", Of::Rates("lock-tree", "lock-inode"), &[120], 1.0),
    point("nat", "MWCL", Of::Rates("ours", "ids-global"), &[40], 1.6),
    point("nat", "MWCL", Of::Itself("ours"), &[40], 40.0),
    point("nat", "MWUL", Of::Itself("ids-scan"), &[40], 0.6),
    point("nat", "MWUL", Of::Rates("ours", "ids-scan"), &[40], 41.0),
    point("nat", "MWUM", Of::Rates("ours", "ids-scan"), &[40], 3.0),
];

impl Point {
    /// In words.
    pub fn words(&self) -> String {
        let (least, most) = (self.threads.first().unwrap_or(&1), self.threads.last().unwrap_or(&1));
        let threads = if least == most { format!("{least}") } else { format!("{least} to {most}, mean") };
        match self.of {
            Of::Rates(of, to) => format!("{}: {of} over {to}, {threads}", self.figure),
            Of::Times(of, to) => format!("{}: time of {of} over {to}, {threads}", self.figure),
            Of::Itself(of) => format!("{}: {of} over its one thread, {threads}", self.figure),
        }
    }

    /// What a model says of it, by operations a second of a variant with so many threads.
    pub fn by(&self, rate: impl Fn(&str, usize) -> Option<f64>) -> Option<f64> {
        let one = |threads: usize| match self.of {
            Of::Rates(of, to) => Some(rate(of, threads)? / rate(to, threads)?),
            Of::Times(of, to) => Some(rate(to, threads)? / rate(of, threads)?),
            Of::Itself(of) => Some(rate(of, threads)? / rate(of, 1)?),
        };
        let all: Option<Vec<f64>> = self.threads.iter().map(|threads| one(*threads)).collect();
        let all = all.filter(|all| !all.is_empty())?;
        Some(all.iter().sum::<f64>() / all.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manycore::machine;

    #[test]
    fn every_point_is_of_a_machine_that_is_known() {
        for point in POINTS {
            let cores = machine::of(point.paper).expect("a machine").cores;
            assert!(point.threads.iter().all(|threads| *threads <= cores), "{}", point.words());
        }
    }

    #[test]
    fn ratios_are_of_what_they_say() {
        let rate = |name: &str, threads: usize| match name {
            "lock-tree" => Some(threads as f64),
            "lock-inode" => Some(2.0),
            _ => None,
        };
        let at = |of, threads| Point { paper: "x", figure: "y", of, threads, value: 1.0 }.by(rate);
        assert_eq!(at(Of::Rates("lock-tree", "lock-inode"), &[4, 8]), Some(3.0));
        assert_eq!(at(Of::Times("lock-tree", "lock-inode"), &[4]), Some(0.5));
        assert_eq!(at(Of::Itself("lock-tree"), &[8]), Some(8.0));
        assert_eq!(at(Of::Rates("lock-tree", "nobody"), &[4]), None);
    }
}
