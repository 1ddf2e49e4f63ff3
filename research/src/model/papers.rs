//! The published points, and what the model makes of each on the machine of its paper.
//!
//! Nothing here is taken from a paper but its machine, its number of threads and the ratio that is compared: what
//! operations cost is [`Fitted`] on the machine at hand. Where this machine has one socket, lines between two cost what
//! they cost within one, which is too little; every table says so.

use super::events::{self, Setup, Waiting};
use super::machine::{Machine, Transfer};
use super::script::{Pick, Script, Step, spun};

/// What an operation costs on one core, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// By itself.
    pub work: f64,
    /// In a lock that all threads take; 0: there is none.
    pub held: f64,
    /// Lines that all write, once each.
    pub lines: usize,
}

/// What a mail server's loop, or a made file, costs with one journal, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Journalled {
    /// What threads do beside one another, and meet at.
    pub cost: Cost,
    /// Times that it waits for a commit.
    pub waits: usize,
    /// What a commit takes however much it covers.
    pub commit: f64,
    /// What a commit takes for each operation that it covers.
    pub for_each: f64,
}

/// A thing done with one technique and another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair<T> {
    /// As narufs does it.
    pub ours: T,
    /// As the paper's baseline does.
    pub baseline: T,
}

/// The journals beside ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Journals {
    /// Ours.
    pub ours: Journalled,
    /// One of block images.
    pub jbd2: Journalled,
    /// One of small units, with the same locks.
    pub fine: Journalled,
}

/// What was measured on the machine at hand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitted {
    /// A line's way to another core of this machine's socket, in ns.
    pub transfer: f64,
    /// Its way to another socket; none: the machine has one.
    pub across: Option<f64>,
    /// From the end of a lock until who slept for it runs, in ns.
    pub wakeup: f64,
    /// A page overwritten in one file by all: range lock, inode lock.
    pub overwrite: Pair<Cost>,
    /// A file made in each thread's directory: ids by lane, ids from one list.
    pub create: Pair<Cost>,
    /// A file removed from each thread's directory: summary of free ids, scan for them.
    pub unlink: Pair<Cost>,
    /// A file removed from one directory of all, likewise.
    pub unlink_shared: Pair<Cost>,
    /// A loop of varmail.
    pub varmail: Journals,
    /// A file of tokubench.
    pub tokubench: Journals,
    /// A write of the device at its place, in ns, and how many it serves at once.
    pub home_write: (f64, usize),
    /// What a thread of a checkpoint does for each page beside its write, in ns.
    pub home_work: f64,
}

/// A published ratio, and the model's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Which paper.
    pub paper: &'static str,
    /// What is compared with what.
    pub what: &'static str,
    /// Threads, each on a core of its own.
    pub threads: usize,
    /// The paper's ratio.
    pub published: f64,
    /// The model's.
    pub modelled: f64,
}

impl Point {
    /// Whether the two differ by a quarter at the most.
    pub fn is_near(&self) -> bool {
        (self.modelled / self.published - 1.0).abs() <= 0.25
    }
}

/// Cores of a socket in the machines of the papers: 24 cores (journal), 72 (checkpoint), 120 (range lock), 40 (ids).
const JOURNAL_SOCKET: usize = 12;
const RANGE_SOCKET: usize = 15;
const IDS_SOCKET: usize = 20;

/// Core counts of the range lock's figures.
pub const RANGE_CORES: [usize; 9] = [1, 2, 4, 15, 30, 60, 75, 90, 120];

/// Locks of a run; what waits for the first sleeps, as for a semaphore of the kernel.
const SHARED: usize = 0;
/// Operations of each run.
const OPERATIONS: u64 = 20_000;

impl Fitted {
    fn machine(&self, per_socket: usize) -> Machine {
        let across = self.across.unwrap_or(self.transfer);
        Machine { per_socket, transfer: Transfer { within: self.transfer, across } }
    }

    fn run(&self, per_socket: usize, threads: Vec<Script>, counted: usize, channels: usize) -> f64 {
        let setup = Setup {
            machine: self.machine(per_socket),
            counted,
            lines: LINES,
            locks: vec![Waiting::Sleep(self.wakeup)],
            channels,
            batches: 1,
            operations: OPERATIONS,
            seed: 1,
            threads,
        };
        events::run(setup).map_or(f64::NAN, |outcome| outcome.rate)
    }

    /// Operations a second by so many threads on sockets of so many cores.
    pub fn rate(&self, per_socket: usize, threads: usize, cost: &Cost) -> f64 {
        self.run(per_socket, vec![cost.script(); threads], threads, 1)
    }

    /// Loops a second with a journal by so many threads.
    pub fn journalled(&self, per_socket: usize, threads: usize, journal: &Journalled) -> f64 {
        let script: Script = journal.script();
        let mut all = vec![script; threads];
        if journal.waits > 0 && journal.commit > 0.0 {
            let (fixed, each) = (Step::Request(journal.commit), Step::WorkForEach(journal.for_each));
            all.push(vec![Step::Gather(0), each, fixed, Step::Release(0)]);
        }
        self.run(per_socket, all, threads, 1)
    }

    /// Pages a second that so many threads of a checkpoint bring home.
    pub fn home(&self, threads: usize) -> f64 {
        let (write, channels) = self.home_write;
        let script = vec![Step::Work(self.home_work), Step::Request(write)];
        self.run(usize::MAX, vec![script; threads], threads, channels)
    }
}

/// Lines of a run: more than any operation shares.
const LINES: usize = 16;

impl Cost {
    fn script(&self) -> Script {
        // Half of the work before what is shared and half behind it; lengths vary, or threads would go in step.
        let mut script = vec![Step::Varied(self.work / 2.0)];
        script.extend((0..self.lines.min(LINES)).map(|line| Step::Line(Pick::the(line))));
        if self.held > 0.0 {
            script.extend(spun(SHARED, self.held));
        }
        script.push(Step::Varied(self.work / 2.0));
        script
    }
}

impl Journalled {
    fn script(&self) -> Script {
        let mut script = self.cost.script();
        if self.commit > 0.0 {
            script.extend((0..self.waits).map(|_| Step::Await(0)));
        }
        script
    }
}

/// Every published point beside the model's.
pub fn all(fitted: &Fitted) -> Vec<Point> {
    let mut points = journals(fitted);
    points.extend(checkpoints(fitted));
    points.extend(range_locks(fitted));
    points.extend(ids(fitted));
    points
}

fn journals(fitted: &Fitted) -> Vec<Point> {
    let ratio = |ours, other| {
        let rate = |journal| fitted.journalled(JOURNAL_SOCKET, 16, journal);
        rate(ours) / rate(other)
    };
    let Fitted { varmail, tokubench, .. } = fitted;
    let point =
        |what, published, modelled| Point { paper: "journaling", what, threads: 16, published, modelled };
    vec![
        point("varmail, ours to jbd2", 2.91, ratio(&varmail.ours, &varmail.jbd2)),
        point("varmail, ours to fine-grained", 2.38, ratio(&varmail.ours, &varmail.fine)),
        point("tokubench, ours to jbd2", 1.97, ratio(&tokubench.ours, &tokubench.jbd2)),
        point("tokubench, ours to fine-grained", 1.69, ratio(&tokubench.ours, &tokubench.fine)),
    ]
}

fn checkpoints(fitted: &Fitted) -> Vec<Point> {
    let ratio = fitted.home(8) / fitted.home(1);
    let point = |what, published| Point { paper: "checkpoint", what, threads: 8, published, modelled: ratio };
    vec![
        point("pages home a second, eight threads to one (2018, at most)", 1.92),
        point("the same (FAST'18, to ext4)", 2.2),
    ]
}

fn range_locks(fitted: &Fitted) -> Vec<Point> {
    let Pair { ours, baseline } = &fitted.overwrite;
    let ratio =
        |threads| fitted.rate(RANGE_SOCKET, threads, ours) / fitted.rate(RANGE_SOCKET, threads, baseline);
    let point = |what, threads, published, modelled| Point {
        paper: "range-lock",
        what,
        threads,
        published,
        modelled,
    };
    let mean = RANGE_CORES.iter().map(|threads| ratio(*threads)).sum::<f64>() / RANGE_CORES.len() as f64;
    vec![
        point("DWOM, range lock to inode lock, at most", 4, 40.5, ratio(4)),
        point("DWOM, the same, mean of all core counts", 120, 14.8, mean),
    ]
}

fn ids(fitted: &Fitted) -> Vec<Point> {
    let rate = |threads: usize, cost: &Cost| fitted.rate(IDS_SOCKET, threads, cost);
    let ratio = |pair: &Pair<Cost>| rate(40, &pair.ours) / rate(40, &pair.baseline);
    let point = |what, published, modelled| Point { paper: "nat", what, threads: 40, published, modelled };
    let scan = &fitted.unlink.baseline;
    vec![
        point("create, ids by lane to one list", 1.6, ratio(&fitted.create)),
        point("unlink, summary to scan", 41.0, ratio(&fitted.unlink)),
        point("unlink in one directory, summary to scan", 3.0, ratio(&fitted.unlink_shared)),
        point("unlink with a scan, 40 cores to 1", 0.6, rate(40, scan) / rate(1, scan)),
    ]
}

/// What the range lock's paper says of the time of one write, which it keeps apart from the rate: ours to the inode
/// lock's, by cores.
pub fn latencies(fitted: &Fitted, cores: &[usize]) -> Vec<(usize, f64)> {
    let Pair { ours, baseline } = &fitted.overwrite;
    let rate = |threads: usize, cost: &Cost| fitted.rate(RANGE_SOCKET, threads, cost);
    // Closed: what as many threads finish in a second is what each waits, turned over.
    cores.iter().map(|&threads| (threads, rate(threads, baseline) / rate(threads, ours))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(work: f64, held: f64, lines: usize) -> Cost {
        Cost { work, held, lines }
    }

    fn journal(waits: usize, commit: f64, for_each: f64) -> Journalled {
        Journalled { cost: cost(20_000.0, 0.0, 1), waits, commit, for_each }
    }

    fn fitted() -> Fitted {
        let by_journal = |waits| Journals {
            ours: journal(waits, 0.0, 0.0),
            jbd2: journal(waits, 20_000.0, 4_000.0),
            fine: journal(waits, 15_000.0, 1_000.0),
        };
        Fitted {
            transfer: 60.0,
            across: None,
            wakeup: 3_000.0,
            overwrite: Pair { ours: cost(1_500.0, 0.0, 3), baseline: cost(300.0, 1_200.0, 0) },
            create: Pair { ours: cost(5_000.0, 0.0, 2), baseline: cost(5_000.0, 200.0, 2) },
            unlink: Pair { ours: cost(5_000.0, 0.0, 2), baseline: cost(5_000.0, 30_000.0, 2) },
            unlink_shared: Pair { ours: cost(5_000.0, 0.0, 8), baseline: cost(5_000.0, 1_500.0, 8) },
            varmail: by_journal(2),
            tokubench: by_journal(1),
            home_write: (20_000.0, 2),
            home_work: 1_000.0,
        }
    }

    #[test]
    fn every_point_has_a_model() {
        let points = all(&fitted());
        assert_eq!(points.len(), 12);
        for point in points {
            assert!(point.modelled.is_finite() && point.modelled > 0.0 && point.published > 0.0, "{point:?}");
            assert_eq!(point.is_near(), (0.75..=1.25).contains(&(point.modelled / point.published)));
        }
    }

    #[test]
    fn what_no_lock_holds_grows_with_the_cores_and_what_one_holds_does_not() {
        let fitted = fitted();
        let Pair { ours, baseline } = &fitted.overwrite;
        let grown = |cost| fitted.rate(RANGE_SOCKET, 15, cost) / fitted.rate(RANGE_SOCKET, 1, cost);
        // Three lines of 60 ns each, one after the other: never more than one operation for each of them.
        assert!(grown(ours) > 12.0 && grown(baseline) < 1.3, "{} {}", grown(ours), grown(baseline));
        assert!(latencies(&fitted, &[15, 120]).iter().all(|(_, ratio)| *ratio < 1.0));
    }

    #[test]
    fn a_checkpoint_by_many_is_as_fast_as_the_device_has_channels() {
        let fitted = fitted();
        let found = fitted.home(8) / fitted.home(1);
        assert!((found - 2.0 * 21.0 / 20.0).abs() < 0.05, "{found}");
    }
}
