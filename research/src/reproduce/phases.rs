//! The phases of a workload on the engine, one by one, with what its data path and its device did in each.

use super::run::Run;
use narufs_bench::content::Content;
use narufs_bench::load::{self, Limits, Member};
use narufs_bench::target::{Library, LibrarySession, Target};
use narufs_bench::workload::{self, Env, Spec, Visitor, Worker, Workload};
use narufs_bench::{Error, Params, Result};
use narufs_engine::device::{BLOCK_SIZE, Cause, CauseCount};
use narufs_engine::stats::Stats;
use narufs_engine::vfs::Vfs;
use std::sync::Arc;

/// One phase. Bytes of the device are those of data, without metadata.
#[derive(Debug, Clone)]
pub struct PhaseIo {
    /// Its name.
    pub name: &'static str,
    /// Bytes of files a second.
    pub mb_per_s: f64,
    /// Bytes read from the device.
    pub read: u64,
    /// Bytes written to it.
    pub written: u64,
    /// Bytes of the pages that were asked for and not in memory.
    pub missed: u64,
    /// Bytes that were newer in memory than on the device when it began.
    pub dirty_before: u64,
    /// Cause, bytes read, bytes written; metadata too.
    pub causes: Vec<(String, u64, u64)>,
}

/// Causes of data.
const DATA: [Cause; 4] = [Cause::DataWriteBack, Cause::Eviction, Cause::ReadMiss, Cause::ReadAhead];

struct Phases<'a> {
    run: &'a Run,
    library: &'a Library,
    fs: Arc<Vfs>,
    spec: &'static Spec,
}

/// Runs a workload with one thread, phase by phase, and compares afterwards.
///
/// # Errors
/// Those of the file system, and wrong bytes.
pub fn measure(run: &Run, library: &mut Library, name: &'static str, params: Params) -> Result<Vec<PhaseIo>> {
    let spec = workload::find(name).ok_or_else(|| Error::Usage(format!("{name}: no such workload")))?;
    let env = Env { threads: 1, content: Content::new(params.seed), params, stop: run.stop.clone() };
    library.enter("phases")?;
    let fs = Arc::clone(library.inodes()?);
    let found = spec.with(env, Phases { run, library, fs, spec });
    let left = library.leave();
    let found = found.unwrap_or_else(|| Err(Error::Usage(format!("{name}: it has no phases"))))?;
    left.map(|()| found)
}

fn stats(fs: &Vfs) -> Result<Stats> {
    Stats::of(fs).map_err(|e| Error::Refused(format!("stats: {e}")))
}

impl Visitor<LibrarySession> for Phases<'_> {
    type Output = Result<Vec<PhaseIo>>;

    fn visit<W: Workload<LibrarySession>>(self, workload: W) -> Self::Output {
        workload.prepare(&mut self.library.session()?)?;
        let mut session = self.library.session()?;
        let worker = workload.worker(0, &mut session)?;
        let mut members = vec![Member { session, worker }];
        let phases = self.spec.phases.iter().enumerate();
        let found: Result<Vec<PhaseIo>> = phases
            .map(|(at, phase)| self.one(&mut members, at, phase.name.unwrap_or(self.spec.name)))
            .collect();
        let ended = load::each(&mut members, |_, m: &mut Member<_, W::Worker>| m.worker.end(&mut m.session));
        let found = found?;
        ended?;
        let left: Vec<W::Left> = members.into_iter().map(|member| member.worker.left()).collect();
        workload.check(&left, &mut self.library.session()?)?;
        Ok(found)
    }
}

impl Phases<'_> {
    fn one<W: Worker<LibrarySession>>(
        &self,
        members: &mut [Member<LibrarySession, W>],
        at: usize,
        name: &'static str,
    ) -> Result<PhaseIo> {
        self.run.stop.check()?;
        load::each(members, |_, m: &mut Member<_, W>| m.worker.begin(at, &mut m.session))?;
        let before = stats(&self.fs)?;
        let limits = Limits::new(None, None, false);
        let measured = load::drive(members, &limits, &self.run.stop, || Ok(()), |_| ())?;
        let after = stats(&self.fs)?;
        let pairs = before.device.iter().zip(&after.device);
        let moved = |(before, after): (&CauseCount, &CauseCount)| {
            (after.cause, after.read_bytes - before.read_bytes, after.write_bytes - before.write_bytes)
        };
        let moved: Vec<(Cause, u64, u64)> = pairs.map(moved).filter(|(_, r, w)| r + w > 0).collect();
        let data = || moved.iter().filter(|(cause, ..)| DATA.contains(cause));
        Ok(PhaseIo {
            name,
            mb_per_s: measured.bytes as f64 / measured.time.as_secs_f64().max(1e-9) / 1e6,
            read: data().map(|(_, read, _)| read).sum(),
            written: data().map(|(.., written)| written).sum(),
            missed: (after.data.misses - before.data.misses) * BLOCK_SIZE as u64,
            dirty_before: before.data.cache.dirty * BLOCK_SIZE as u64,
            causes: moved
                .iter()
                .map(|(cause, read, written)| (format!("{cause:?}"), *read, *written))
                .collect(),
        })
    }
}
