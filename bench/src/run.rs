//! A run: each workload with each number of threads, so often as asked, on one target.

use crate::check;
use crate::content::Content;
use crate::daily::{self, Shelf};
use crate::load::{self, Limits, Member};
use crate::memory;
use crate::params::Params;
use crate::progress::Progress;
use crate::record::{Record, Row};
use crate::stop::Stop;
use crate::target::Target;
use crate::workload::{self, Env, Needs, Phase, Spec, Worker, Workload};
use crate::{Error, Result};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workloads.
    pub workloads: Vec<&'static Spec>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Length of the timed part of workloads that have no other end.
    pub time: Duration,
    /// How often each.
    pub repeat: u32,
    /// How large the work is.
    pub params: Params,
    /// Whether what was written is compared afterwards.
    pub check: bool,
    /// Where what everyday work needs is kept, from one run to the next.
    pub shelf: Shelf,
}

impl Plan {
    /// What cannot be.
    pub fn wrong(&self) -> Option<String> {
        if self.workloads.is_empty() {
            return Some("name at least one workload: `narufs bench --list` shows them".into());
        }
        if let Some(bad) = self.threads.iter().find(|t| !(1..=1024).contains(*t)) {
            return Some(format!("--threads {bad}: say 1 to 1024"));
        }
        let daily = self.workloads.iter().any(|spec| spec.name == daily::NAME);
        if daily && self.threads != [1] {
            return Some("daily is the work of one: leave --threads out".into());
        }
        if self.repeat == 0 {
            return Some("--repeat 0: say 1 or more".into());
        }
        if self.time.is_zero() {
            return Some("--seconds 0: say more than 0".into());
        }
        self.params.wrong()
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub spec: &'static Spec,
    pub threads: usize,
    pub repeat: u32,
    pub plan: &'a Plan,
    pub stop: &'a Stop,
    pub progress: &'a Progress,
}

/// Runs the plan. Every record is given to `each` as soon as it is there.
///
/// # Errors
/// The first failure; what the run had made is removed then too. [`Error::Interrupted`] if `stop` was set.
pub fn run<T: Target>(
    target: &mut T,
    plan: &Plan,
    stop: &Stop,
    progress: &Progress,
    each: impl FnMut(Record),
) -> Result<()> {
    in_turn(plan, stop, progress, |at, each| once(target, at, each), each)
}

/// Calls `once` for each workload, number of threads and repetition, in this order; it gives its records away.
pub(crate) fn in_turn(
    plan: &Plan,
    stop: &Stop,
    progress: &Progress,
    mut once: impl FnMut(&At, &mut dyn FnMut(Record)) -> Result<()>,
    mut each: impl FnMut(Record),
) -> Result<()> {
    if let Some(wrong) = plan.wrong() {
        return Err(Error::Usage(wrong));
    }
    for spec in &plan.workloads {
        for &threads in &plan.threads {
            for repeat in 1..=plan.repeat {
                stop.check()?;
                let at = At { spec, threads, repeat, plan, stop, progress };
                let done = once(&at, &mut each).map_err(|e| e.in_workload(spec.name));
                done.inspect_err(|_| progress.clear())?;
            }
        }
    }
    progress.clear();
    Ok(())
}

/// A name that no other run uses.
pub(crate) fn work_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: numbers that differ are all that is asked for.
    format!("narufs-bench.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn once<T: Target>(target: &mut T, at: &At, each: &mut dyn FnMut(Record)) -> Result<()> {
    struct Visit<'a, T>(&'a mut T, &'a At<'a>);
    impl<T: Target> workload::Visitor<T::Session> for Visit<'_, T> {
        type Output = Result<Vec<Record>>;
        fn visit<W: Workload<T::Session>>(self, workload: W) -> Self::Output {
            let Visit(target, at) = self;
            let (mut records, left) = timed(target, &workload, at)?;
            if at.plan.check {
                at.doing("checking");
                let checked = check::check(target, &workload, &left)?;
                if let Some(last) = records.last_mut() {
                    last.check = Some(checked);
                }
            }
            Ok(records)
        }
    }
    target.enter(&work_name())?;
    let records = match at.spec.name {
        daily::NAME => daily::run(target, at, each).map(|()| Vec::new()),
        _ => at.spec.with(at.env(), Visit(target, at)).unwrap_or_else(|| Err(at.spec.not_here())),
    };
    at.doing("cleaning up");
    let left = target.leave();
    let records = records?;
    left.map(|()| records.into_iter().for_each(each))
}

impl At<'_> {
    /// What the workload is told.
    pub fn env(&self) -> Env {
        Env {
            threads: self.threads,
            params: self.plan.params.clone(),
            content: Content::new(self.plan.params.seed),
            stop: self.stop.clone(),
        }
    }

    /// Shows what is being done.
    pub fn doing(&self, what: &str) {
        self.progress.doing(&self.title(), what);
    }

    fn title(&self) -> String {
        let times = match self.plan.repeat {
            1 => String::new(),
            n => format!(" {}/{n}", self.repeat),
        };
        format!("{} x{}{times}", self.spec.name, self.threads)
    }
}

/// Refuses before anything is written what would end with a full target.
pub(crate) fn check_room<T: Target>(target: &T, needs: Needs) -> Result<()> {
    let space = target.space()?;
    // Metadata, and what a file system keeps for itself.
    let wanted = needs.bytes + needs.bytes / 20 + needs.files * 512 + (1 << 20);
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    if space.bytes < wanted {
        return Err(Error::Refused(format!(
            "too little space: about {} MiB are needed, {} MiB are free; ask for less with --files, --size or \
             fewer --threads",
            mib(wanted),
            space.bytes >> 20
        )));
    }
    match space.files {
        Some(free) if free < needs.files => Err(Error::Refused(format!(
            "too few inodes: {} are needed, {free} are free; ask for less with --files",
            needs.files
        ))),
        _ => Ok(()),
    }
}

/// Prepares, and runs the phases. Gives their records, and what each thread has left to be compared; no session
/// is alive then.
pub(crate) fn timed<T: Target, W: Workload<T::Session>>(
    target: &T,
    workload: &W,
    at: &At,
) -> Result<(Vec<Record>, Vec<W::Left>)> {
    check_room(target, workload.needs())?;
    at.doing("preparing");
    workload.prepare(&mut target.session()?)?;
    memory::touch(at.spec, workload.needs());
    let mut members = Vec::with_capacity(at.threads);
    let made = make_members(target, workload, at, &mut members);
    let records = made.and_then(|()| {
        at.spec.phases.iter().enumerate().map(|p| phase(target, &mut members, p, at)).collect()
    });
    // Also after a failure: what is open would be in the way of everything that follows.
    let ended = load::each(&mut members, |_, m: &mut Member<_, _>| m.worker.end(&mut m.session));
    let records: Vec<Record> = records?;
    ended?;
    Ok((records, members.into_iter().map(|member| member.worker.left()).collect()))
}

/// The threads' own preparations, all at once.
fn make_members<T: Target, W: Workload<T::Session>>(
    target: &T,
    workload: &W,
    at: &At,
    members: &mut Vec<Member<T::Session, W::Worker>>,
) -> Result<()> {
    let sessions: Vec<T::Session> = (0..at.threads).map(|_| target.session()).collect::<Result<_>>()?;
    let made: Vec<Result<Member<_, _>>> = std::thread::scope(|scope| {
        let begun = sessions.into_iter().enumerate().map(|(thread, mut session)| {
            scope.spawn(move || Ok(Member { worker: workload.worker(thread, &mut session)?, session }))
        });
        let begun: Vec<_> = begun.collect();
        begun.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(load::died()))).collect()
    });
    let mut failure = Ok(());
    for member in made {
        match member {
            Ok(member) => members.push(member),
            Err(e) if failure.is_ok() => failure = Err(e),
            Err(_) => {}
        }
    }
    failure
}

fn phase<T: Target, W: Worker<T::Session>>(
    target: &T,
    members: &mut [Member<T::Session, W>],
    (number, phase): (usize, &Phase),
    at: &At,
) -> Result<Record> {
    let (plan, spec) = (at.plan, at.spec);
    at.doing(phase.name.unwrap_or("preparing"));
    load::each(members, |_, m: &mut Member<_, _>| m.worker.begin(number, &mut m.session))?;
    // What preparations have left in memory is not this phase's to write.
    target.sync_all()?;
    let time = spec.timed.then_some(plan.time);
    let limits = Limits::new(time, plan.params.ops, spec.pinned);
    let mut before = None;
    let started = || {
        before = Some(target.counters()?.with_own_cpu());
        Ok(())
    };
    let measured =
        load::drive(members, &limits, at.stop, started, |passed| at.progress.running(passed, time))?;
    let begin = Instant::now();
    if phase.synced {
        target.sync_all()?;
    }
    let closing = if phase.synced { begin.elapsed() } else { Duration::ZERO };
    let after = target.counters()?.with_own_cpu();
    let delta = after.since(&before.unwrap_or_default());
    let row = Row {
        workload: spec.name,
        phase: phase.name,
        threads: at.threads,
        pinned: spec.pinned,
        repeat: at.repeat,
        seed: plan.params.seed,
    };
    Ok(Record::new(row, &target.describe(), &measured, closing, &delta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_make_no_sense_are_refused_in_words() {
        let plan = Plan {
            workloads: vec![workload::find("DWOL").expect("there is one")],
            threads: vec![1],
            time: Duration::from_secs(1),
            repeat: 1,
            params: Params::default(),
            check: true,
            shelf: Shelf::default(),
        };
        assert_eq!(plan.wrong(), None);
        let said = |plan: Plan| plan.wrong().expect("refused");
        assert!(said(Plan { workloads: vec![], ..plan.clone() }).contains("--list"));
        assert!(said(Plan { threads: vec![1, 0], ..plan.clone() }).contains("--threads 0"));
        assert!(said(Plan { repeat: 0, ..plan.clone() }).contains("--repeat"));
        assert!(said(Plan { time: Duration::ZERO, ..plan.clone() }).contains("--seconds"));
        let daily = vec![workload::find("daily").expect("there is one")];
        assert!(said(Plan { workloads: daily, threads: vec![2], ..plan }).contains("leave --threads out"));
    }
}
