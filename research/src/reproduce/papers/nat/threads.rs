//! MWCL and MWUL, MWCM and MWUM in one mount: threads make empty files, then remove them; in directories of their own, or
//! in one. Nothing is synced before or between, as F2FS is when it has much to do.

use super::counters::Counters;
use super::table;
use crate::reproduce::bed::Bed;
use crate::reproduce::run::Run;
use narufs_bench::load::{self, Limits, Measured, Member};
use narufs_bench::target::{How, LibrarySession, Session, Target};
use narufs_bench::workload::{Step, Worker};
use narufs_bench::{Error, Result};
use std::time::Duration;

/// One thread's names in a directory.
struct Names {
    dir: String,
    thread: usize,
    most: u64,
    made: u64,
    removed: u64,
    removes: bool,
}

impl Names {
    fn path(&self, n: u64) -> String {
        format!("{}/{}-{n}", self.dir, self.thread)
    }

    /// Compares what is there with what was done.
    fn compare<S: Session>(&self, session: &mut S) -> Result<()> {
        for n in 0..self.made {
            let (path, wanted) = (self.path(n), n >= self.removed);
            if session.size(&path).is_ok() != wanted {
                let is = if wanted { "is not there" } else { "is still there" };
                return Err(Error::Wrong(format!("{path} {is}")));
            }
        }
        Ok(())
    }
}

impl<S: Session> Worker<S> for Names {
    type Left = u64;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        if self.removes {
            if self.removed == self.made {
                return Ok(Step::End);
            }
            session.unlink(&self.path(self.removed))?;
            self.removed += 1;
        } else {
            if self.made == self.most {
                return Ok(Step::End);
            }
            let file = session.create(&self.path(self.made), How::Write)?;
            session.close(file)?;
            self.made += 1;
        }
        Ok(Step::Done(0))
    }

    fn left(self) -> u64 {
        self.made - self.removed
    }
}

/// What the figures of a phase are called: operations a second, waits in us, and per operation blocks that were passed and
/// waits for another's scan.
type Called = [&'static str; 5];

/// Figures of the creations.
pub const MADE: Called = ["made ops/s", "made p50 us", "made p99 us", "made passed", "made waits"];
/// Figures of the removals.
pub const REMOVED: Called =
    ["removed ops/s", "removed p50 us", "removed p99 us", "removed passed", "removed waits"];

/// Creations and removals by so many threads.
///
/// # Errors
/// What the file system says, and names that are not as they must be.
pub fn measure(
    run: &Run,
    bed: &Bed,
    (variant, ids): (&str, u64),
    threads: u64,
    shared: bool,
) -> Result<Vec<(&'static str, f64)>> {
    let (files, time) = (run.size(100_000, 10_000), Duration::from_millis(run.size(1000, 200)));
    let (_copy, mounted) = table::mount(run, bed, variant, ids)?;
    let mut members: Vec<Member<LibrarySession, Names>> = Vec::new();
    for thread in 0..usize::try_from(threads).unwrap_or(1) {
        let mut session = mounted.library.session()?;
        let dir = if shared { "own".to_owned() } else { format!("own{thread}") };
        if !shared || thread == 0 {
            session.mkdir(&dir)?;
        }
        let worker = Names { dir, thread, most: files / threads, made: 0, removed: 0, removes: false };
        members.push(Member { session, worker });
    }
    let limits = Limits::new(Some(time), None, false);
    let mut found = Vec::new();
    for (removes, called) in [(false, MADE), (true, REMOVED)] {
        members.iter_mut().for_each(|member| member.worker.removes = removes);
        let counters = Counters::begin(&mounted.fs);
        let measured = load::drive(&mut members, &limits, &run.stop, || Ok(()), |_| ())?;
        found.extend(figures(&measured, called));
        let counted = counters.done(&mounted.fs);
        let of = |what: &str| counted.iter().find(|(name, _)| *name == what).map(|(_, value)| *value);
        found.extend(of("passed").map(|value| (called[3], value)));
        found.extend(of("waits").map(|value| (called[4], value)));
    }
    members.iter_mut().try_for_each(|member| member.worker.compare(&mut member.session))?;
    Ok(found)
}

fn figures(measured: &Measured, called: Called) -> [(&'static str, f64); 3] {
    let us = |quantile: f64| measured.latency.value_at_quantile(quantile) as f64 / 1e3;
    let rate = measured.ops as f64 / measured.time.as_secs_f64().max(1e-9);
    [(called[0], rate), (called[1], us(0.5)), (called[2], us(0.99))]
}
