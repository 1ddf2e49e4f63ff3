//! Overwrites that hold their range while a device is at work: a part of a page that is not in memory, so that the rest
//! of it is read before. Each thread goes through the pages of a region of one file, each page once.

use super::bed::{Bed, Mounted};
use super::run::Run;
use super::slow::Latency;
use narufs_bench::load::{self, Limits, Measured, Member};
use narufs_bench::target::{How, LibrarySession, Session, Target};
use narufs_bench::workload::{Step, Worker};
use narufs_bench::{Error, Result};
use std::time::Duration;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Bytes that are overwritten, in the middle of the page.
const PART: usize = 512;
const AT: usize = 1024;
/// The directory, which is another session's as the next mount has it.
const DIR: &str = "held";
const FILE: &str = "shared";

/// One file with a region for each thread.
#[derive(Debug, Clone, Copy)]
pub struct Regions {
    /// Threads.
    pub threads: u64,
    /// Pages of each region.
    pub pages: u64,
}

/// What a page holds, at each byte.
fn before(page: u64) -> u8 {
    (page % 251) as u8
}

fn after(page: u64) -> u8 {
    before(page) ^ 0xff
}

struct Overwriter<F> {
    file: Option<F>,
    next: u64,
    end: u64,
}

impl<S: Session> Worker<S> for Overwriter<S::File> {
    /// The page after the last that was written.
    type Left = u64;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        if self.next == self.end {
            return Ok(Step::End);
        }
        let file = self.file.as_ref().ok_or_else(|| Error::Refused("the file is closed".into()))?;
        session.write_at(file, self.next * PAGE as u64 + AT as u64, &[after(self.next); PART])?;
        self.next += 1;
        Ok(Step::Done(PART as u64))
    }

    fn end(&mut self, session: &mut S) -> Result<()> {
        self.file.take().map_or(Ok(()), |file| session.close(file))
    }

    fn left(self) -> u64 {
        self.next
    }
}

impl Regions {
    /// Makes the file on an image.
    ///
    /// # Errors
    /// What the file system says.
    pub fn make(self, bed: &Bed) -> Result<()> {
        let mut mounted = bed.mount(&[], None)?;
        mounted.library.enter(DIR)?;
        self.fill(&mut mounted.library.session()?)?;
        mounted.unmount()
    }

    fn fill(self, session: &mut LibrarySession) -> Result<()> {
        let file = session.create(FILE, How::Write)?;
        let mut piece = vec![0; 64 * PAGE];
        let made = (0..self.threads * self.pages).step_by(64).try_for_each(|first| {
            for (page, bytes) in (first..).zip(piece.chunks_mut(PAGE)) {
                bytes.fill(before(page));
            }
            let len = (self.threads * self.pages - first).min(64) as usize * PAGE;
            session.write_at(&file, first * PAGE as u64, &piece[..len])
        });
        session.close(file)?;
        made
    }

    /// Has the first `threads` overwrite their regions, with nothing in memory before, and compares every page.
    ///
    /// # Errors
    /// What the file system says, and wrong bytes.
    pub fn measure(
        self,
        run: &Run,
        bed: &Bed,
        options: &[String],
        latency: Latency,
        (threads, time): (u64, Duration),
    ) -> Result<Measured> {
        let mut mounted = bed.mount(options, Some(latency))?;
        mounted.library.enter_again(DIR)?;
        let done = self.timed(run, &mounted, threads, time);
        let unmounted = mounted.unmount();
        let done = done?;
        unmounted.map(|()| done)
    }

    fn timed(self, run: &Run, mounted: &Mounted, threads: u64, time: Duration) -> Result<Measured> {
        let mut members = Vec::new();
        for thread in 0..threads {
            let mut session = mounted.library.session()?;
            let file = Some(session.open(FILE, How::Write)?);
            let next = thread * self.pages;
            members.push(Member { worker: Overwriter { file, next, end: next + self.pages }, session });
        }
        let limits = Limits::new(Some(time), None, false);
        mounted.turn(true);
        let measured = load::drive(&mut members, &limits, &run.stop, || Ok(()), |_| ());
        mounted.turn(false);
        let ended = load::each(&mut members, |_, m: &mut Member<_, _>| m.worker.end(&mut m.session));
        let measured = measured?;
        ended?;
        let mut session = mounted.library.session()?;
        for (thread, member) in (0..).zip(members) {
            let first = thread * self.pages;
            self.compare(&mut session, first, member.worker.next)?;
        }
        Ok(measured)
    }

    fn compare(self, session: &mut LibrarySession, first: u64, end: u64) -> Result<()> {
        let file = session.open(FILE, How::Read)?;
        let mut bytes = vec![0; PAGE];
        for page in first..end {
            session.read_at(&file, page * PAGE as u64, &mut bytes)?;
            let wanted = |at: usize| if (AT..AT + PART).contains(&at) { after(page) } else { before(page) };
            if let Some(at) = (0..PAGE).find(|at| bytes[*at] != wanted(*at)) {
                return Err(Error::Wrong(format!(
                    "page {page}, byte {at}: {}, not {}",
                    bytes[at],
                    wanted(at)
                )));
            }
        }
        session.close(file)
    }
}
