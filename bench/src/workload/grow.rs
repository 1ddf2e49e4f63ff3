//! Files that grow and shrink: DWAL and DWTL.

use super::*;
use crate::content::PAGE;

/// Mebibytes of all files together, when they are full.
const FULL_MIB: u64 = 1024;

fn full(env: &Env) -> u64 {
    (env.params.size_or(FULL_MIB, PAGE as u64) / env.threads as u64 / PAGE as u64).max(1) * PAGE as u64
}

fn path(thread: usize) -> String {
    format!("{}/data", own_dir(thread))
}

/// DWAL: each thread appends pages to a file of its own, and empties it where the next would be too much. What is left
/// in the end is synced within the time: who keeps it in memory has not written it yet.
#[derive(Debug)]
pub struct Append {
    env: Env,
    full: u64,
}

impl Append {
    pub(super) fn new(env: Env) -> Append {
        Append { full: full(&env), env }
    }
}

impl<S: Session> Workload<S> for Append {
    type Worker = AppendWorker<S::File>;
    type Left = Grown;

    fn needs(&self) -> Needs {
        let threads = self.env.threads as u64;
        let most = self.env.params.ops.map_or(self.full, |ops| self.full.min(ops * PAGE as u64));
        Needs { bytes: threads * most, files: 2 * threads }
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<Self::Worker> {
        session.mkdir(&own_dir(thread))?;
        let file = Some(session.create(&path(thread), How::Append)?);
        let (content, number) = (self.env.content.clone(), number(thread, 0));
        Ok(AppendWorker { file, content, thread, number, rounds: 0, size: 0, full: self.full })
    }

    fn check(&self, left: &[Grown], session: &mut S) -> Result<Seen> {
        let mut seen = Seen::default();
        for (thread, file) in left.iter().enumerate() {
            compare(session, &path(thread), &self.env.content, file.number, file.size)?;
            seen.files += 1;
            seen.bytes += file.size;
        }
        Ok(seen)
    }
}

/// Content differs from one filling to the next, so that what was cut off is not taken for what came after it.
fn number(thread: usize, rounds: u64) -> u64 {
    rounds << 16 | thread as u64
}

/// The file that a thread has left.
#[derive(Debug, Serialize, Deserialize)]
pub struct Grown {
    number: u64,
    size: u64,
}

/// One thread of it.
#[derive(Debug)]
pub struct AppendWorker<F> {
    file: Option<F>,
    content: Content,
    thread: usize,
    number: u64,
    rounds: u64,
    size: u64,
    full: u64,
}

impl<S: Session> Worker<S> for AppendWorker<S::File> {
    type Left = Grown;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        let file = self.file.as_ref().expect("open until the end");
        if self.size + PAGE as u64 > self.full {
            session.truncate(file, 0)?;
            self.size = 0;
            self.rounds += 1;
            self.number = number(self.thread, self.rounds);
        }
        session.append(file, self.content.bytes(self.number, self.size, PAGE))?;
        self.size += PAGE as u64;
        Ok(Step::Done(PAGE as u64))
    }

    fn finish(&mut self, session: &mut S) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| session.fsync(file))
    }

    fn end(&mut self, session: &mut S) -> Result<()> {
        self.file.take().map_or(Ok(()), |file| session.close(file))
    }

    fn left(self) -> Grown {
        Grown { number: self.number, size: self.size }
    }
}

/// DWTL: each thread cuts a page off the end of its own file until there is none.
#[derive(Debug)]
pub struct Truncate {
    env: Env,
    full: u64,
}

impl Truncate {
    pub(super) fn new(env: Env) -> Truncate {
        Truncate { full: full(&env), env }
    }
}

impl<S: Session> Workload<S> for Truncate {
    type Worker = TruncateWorker<S::File>;
    /// The size of the thread's file.
    type Left = u64;

    fn needs(&self) -> Needs {
        let threads = self.env.threads as u64;
        Needs { bytes: threads * self.full, files: 2 * threads }
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<Self::Worker> {
        session.mkdir(&own_dir(thread))?;
        let file = session.create(&path(thread), How::Write)?;
        if let Err(e) = fill(session, &file, &self.env, thread as u64, self.full) {
            session.close(file)?;
            return Err(e);
        }
        Ok(TruncateWorker { file: Some(file), size: self.full })
    }

    fn check(&self, left: &[u64], session: &mut S) -> Result<Seen> {
        let mut seen = Seen::default();
        for (thread, &size) in left.iter().enumerate() {
            compare(session, &path(thread), &self.env.content, thread as u64, size)?;
            seen.files += 1;
            seen.bytes += size;
        }
        Ok(seen)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct TruncateWorker<F> {
    file: Option<F>,
    size: u64,
}

impl<S: Session> Worker<S> for TruncateWorker<S::File> {
    type Left = u64;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        if self.size == 0 {
            return Ok(Step::End);
        }
        let file = self.file.as_ref().expect("open until the end");
        self.size -= PAGE as u64;
        session.truncate(file, self.size)?;
        Ok(Step::Done(0))
    }

    fn end(&mut self, session: &mut S) -> Result<()> {
        self.file.take().map_or(Ok(()), |file| session.close(file))
    }

    fn left(self) -> u64 {
        self.size
    }
}
