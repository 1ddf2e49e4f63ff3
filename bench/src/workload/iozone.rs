//! iozone: six passes over a file that is larger or smaller than the memory it may have.

use super::*;
use crate::content::{Stamp, generator};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// The phases, in their order in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Write,
    Read,
    RandomRead,
    RandomWrite,
}

const PASSES: [Pass; 6] =
    [Pass::Write, Pass::Write, Pass::Read, Pass::Read, Pass::RandomRead, Pass::RandomWrite];

/// See the module.
#[derive(Debug)]
pub struct Iozone {
    env: Env,
    records: u64,
    record: usize,
}

fn path(thread: usize) -> String {
    format!("iozone{thread:03}")
}

impl Iozone {
    pub(super) fn new(env: Env) -> Iozone {
        let record = env.params.record;
        // No pass goes further than the operations allow; the others need what it has written.
        let most = env.params.ops.unwrap_or(u64::MAX);
        let records = (env.params.iozone_share(env.threads) / record).min(most);
        Iozone { records, record: record as usize, env }
    }
}

impl<S: Session> Workload<S> for Iozone {
    type Worker = IozoneWorker<S::File>;
    /// How many times each record was written.
    type Left = Vec<u32>;

    fn needs(&self) -> Needs {
        let threads = self.env.threads as u64;
        Needs { bytes: threads * self.records * self.record as u64, files: threads }
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<Self::Worker> {
        let file = session.create(&path(thread), How::Write)?;
        let stamp = Stamp { page: 0, writer: thread as u32, version: 0 };
        let mut unit = vec![0; self.record];
        self.env.content.fill(thread as u64, stamp, &mut unit);
        Ok(IozoneWorker {
            file: Some(file),
            content: self.env.content.clone(),
            random: generator(self.env.params.seed, thread as u64),
            number: thread as u64,
            stamp,
            pass: Pass::Write,
            done: 0,
            versions: vec![0; self.records as usize],
            unit,
        })
    }

    fn check(&self, left: &[Vec<u32>], session: &mut S) -> Result<Seen> {
        let mut seen = Seen::default();
        for (thread, versions) in left.iter().enumerate() {
            let (written, number) = (self.records, thread as u64);
            pages::read_units(
                session,
                &path(thread),
                &self.env.content,
                number,
                self.record,
                0..written,
                |s| {
                    let version = versions.get(s.page as usize).copied().unwrap_or(0);
                    if s.version == version && s.writer as usize == thread {
                        return Ok(());
                    }
                    Err(Error::Wrong(format!("record {} is write {}, not {version}", s.page, s.version)))
                },
            )?;
            seen.files += 1;
            seen.bytes += written * self.record as u64;
        }
        Ok(seen)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct IozoneWorker<F> {
    file: Option<F>,
    content: Content,
    random: ChaCha8Rng,
    number: u64,
    stamp: Stamp,
    pass: Pass,
    /// Records of this phase.
    done: u64,
    /// How many times each record was written.
    versions: Vec<u32>,
    unit: Vec<u8>,
}

const OPEN: &str = "open until the end";

impl<S: Session> Worker<S> for IozoneWorker<S::File> {
    type Left = Vec<u32>;

    fn begin(&mut self, phase: usize, _session: &mut S) -> Result<()> {
        self.pass = PASSES[phase];
        self.done = 0;
        Ok(())
    }

    fn step(&mut self, session: &mut S) -> Result<Step> {
        let records = self.versions.len() as u64;
        if self.done == records {
            return Ok(Step::End);
        }
        let index = match self.pass {
            Pass::Write | Pass::Read => self.done,
            Pass::RandomRead | Pass::RandomWrite => self.random.random_range(0..records),
        };
        let file = self.file.as_ref().expect(OPEN);
        let offset = index * self.unit.len() as u64;
        match self.pass {
            Pass::Write | Pass::RandomWrite => {
                let version = &mut self.versions[index as usize];
                *version += 1;
                let stamp = Stamp { page: index, version: *version, ..self.stamp };
                self.content.stamp(self.number, stamp, &mut self.unit);
                session.write_at(file, offset, &self.unit)?;
            }
            Pass::Read | Pass::RandomRead => {
                let got = session.read_at(file, offset, &mut self.unit)?;
                if got < self.unit.len() {
                    return Err(Error::Wrong(format!("record {index} ends after {got} bytes")));
                }
            }
        }
        self.done += 1;
        Ok(Step::Done(self.unit.len() as u64))
    }

    fn finish(&mut self, session: &mut S) -> Result<()> {
        match self.pass {
            Pass::Write | Pass::RandomWrite => session.fsync(self.file.as_ref().expect(OPEN)),
            Pass::Read | Pass::RandomRead => Ok(()),
        }
    }

    fn end(&mut self, session: &mut S) -> Result<()> {
        self.file.take().map_or(Ok(()), |file| session.close(file))
    }

    fn left(self) -> Vec<u32> {
        self.versions
    }
}
