//! Pages of files that are there: DWOL, DWOM, DWSL, DRBL, DRBM, DRBH.
//!
//! Each page belongs to one thread, which stamps what it writes; the last stamp must be found again.

use super::*;
use crate::content::{LONGEST, PAGE, Stamp, generator};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// What is done with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Overwritten.
    Write,
    /// Overwritten and synced.
    Sync,
}

/// Whose pages they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// A file for each thread.
    Own,
    /// A region of one file for each thread.
    Regions,
    /// All threads use the same.
    Same,
}

/// Pages of a thread's region in a shared file: 8 MiB.
const REGION: u64 = (8 << 20) / PAGE as u64;
/// Mebibytes of the large file of `--spread`.
const SPREAD_MIB: u64 = 256;
const SHARED: &str = "shared";

/// See the module.
#[derive(Debug)]
pub struct Pages {
    env: Env,
    access: Access,
    sharing: Sharing,
    /// Pages between the beginnings of two threads' parts, and those of a part that are made.
    part: u64,
    /// Pages of a part to choose from.
    choice: u64,
}

impl Pages {
    pub(super) fn new(env: Env, access: Access, sharing: Sharing) -> Pages {
        let large = env.params.size_or(SPREAD_MIB, PAGE as u64) / PAGE as u64;
        let (part, choice) = match (env.params.spread, sharing) {
            (true, Sharing::Same) => (large, large),
            (true, _) => {
                let part = (large / env.threads as u64).clamp(1, u64::from(u32::MAX));
                (part, part)
            }
            (false, Sharing::Regions) => (REGION, 1),
            (false, _) => (1, 1),
        };
        Pages { env, access, sharing, part, choice }
    }

    /// File, its number, and the first page of a thread's part.
    fn place(&self, thread: usize) -> (String, u64, u64) {
        match self.sharing {
            Sharing::Own => (format!("{}/data", own_dir(thread)), 1 + thread as u64, 0),
            Sharing::Regions => (SHARED.into(), 0, thread as u64 * self.part),
            Sharing::Same => (SHARED.into(), 0, 0),
        }
    }

    fn parts(&self) -> usize {
        if self.sharing == Sharing::Same { 1 } else { self.env.threads }
    }

    /// Writes the pages of a part for the first time.
    fn make_part<S: Session>(&self, session: &mut S, file: &S::File, thread: usize) -> Result<()> {
        let (_, number, first) = self.place(thread);
        let stamps = (first..first + self.part).map(|page| Stamp { page, writer: thread as u32, version: 0 });
        make_units(session, file, &self.env, number, PAGE, stamps)
    }
}

/// Writes units one after the other, as they are before anybody else has written them.
pub(super) fn make_units<S: Session>(
    session: &mut S,
    file: &S::File,
    env: &Env,
    number: u64,
    unit: usize,
    stamps: impl Iterator<Item = Stamp>,
) -> Result<()> {
    let mut stamps = stamps.peekable();
    let mut piece = Vec::with_capacity(LONGEST);
    while let Some(first) = stamps.peek().map(|stamp| stamp.page) {
        env.stop.check()?;
        piece.clear();
        while piece.len() + unit <= LONGEST
            && let Some(stamp) = stamps.next()
        {
            let start = piece.len();
            piece.resize(start + unit, 0);
            env.content.fill(number, stamp, &mut piece[start..]);
        }
        session.write_at(file, first * unit as u64, &piece)?;
    }
    Ok(())
}

/// Reads the units of a file from `first` on, and shows the stamp of each.
pub(super) fn read_units<S: Session>(
    session: &mut S,
    path: &str,
    content: &Content,
    number: u64,
    unit: usize,
    units: std::ops::Range<u64>,
    mut each: impl FnMut(Stamp) -> Result<()>,
) -> Result<()> {
    let file = session.open(path, How::Read)?;
    let mut piece = vec![0; LONGEST / unit * unit];
    let mut read = |session: &mut S| {
        let mut next = units.start;
        while next < units.end {
            let wanted = ((units.end - next) as usize * unit).min(piece.len());
            let got = session.read_at(&file, next * unit as u64, &mut piece[..wanted])?;
            if got < wanted {
                return Err(Error::Wrong(format!("it ends {} bytes early", wanted - got)));
            }
            for bytes in piece[..wanted].chunks(unit) {
                each(content.read_stamp(number, next, bytes)?)?;
                next += 1;
            }
        }
        Ok(())
    };
    let done = read(session).map_err(|e| match e {
        Error::Wrong(what) => Error::Wrong(format!("{path}: {what}")),
        e => e,
    });
    session.close(file)?;
    done
}

impl<S: Session> Workload<S> for Pages {
    type Worker = PagesWorker<S::File>;
    /// How many times each page was written; no page of those that only read.
    type Left = Vec<u32>;

    fn needs(&self) -> Needs {
        let parts = self.parts() as u64;
        Needs { bytes: parts * self.part * PAGE as u64, files: 2 * parts }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        if self.sharing == Sharing::Own {
            return Ok(());
        }
        let file = session.create(SHARED, How::Write)?;
        let made = (0..self.parts()).try_for_each(|thread| self.make_part(session, &file, thread));
        session.close(file)?;
        made
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<Self::Worker> {
        let (path, number, first) = self.place(thread);
        let how = if self.access == Access::Read { How::Read } else { How::Write };
        if self.sharing == Sharing::Own {
            session.mkdir(&own_dir(thread))?;
            let file = session.create(&path, How::Write)?;
            let made = self.make_part(session, &file, thread);
            session.close(file)?;
            made?;
        }
        let mut unit = Box::new([0; PAGE]);
        let stamp = Stamp { page: first, writer: thread as u32, version: 0 };
        self.env.content.fill(number, stamp, &mut unit[..]);
        let versions = if self.access == Access::Read { 0 } else { self.choice };
        Ok(PagesWorker {
            file: Some(session.open(&path, how)?),
            access: self.access,
            content: self.env.content.clone(),
            random: generator(self.env.params.seed, thread as u64),
            stamp,
            number,
            first,
            choice: self.choice,
            versions: vec![0; versions as usize],
            unit,
        })
    }

    fn check(&self, left: &[Vec<u32>], session: &mut S) -> Result<Seen> {
        let mut seen = Seen::default();
        for (thread, versions) in left.iter().enumerate().take(self.parts()) {
            let (path, number, first) = self.place(thread);
            let pages = first..first + self.part;
            read_units(session, &path, &self.env.content, number, PAGE, pages, |stamp| {
                let version = versions.get((stamp.page - first) as usize).copied().unwrap_or(0);
                let wanted = Stamp { page: stamp.page, writer: thread as u32, version };
                if stamp == wanted {
                    return Ok(());
                }
                Err(Error::Wrong(format!("page {} is write {}, not {version}", stamp.page, stamp.version)))
            })?;
            seen.files += 1;
            seen.bytes += self.part * PAGE as u64;
        }
        Ok(seen)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct PagesWorker<F> {
    file: Option<F>,
    access: Access,
    content: Content,
    random: ChaCha8Rng,
    stamp: Stamp,
    number: u64,
    first: u64,
    choice: u64,
    /// How many times each page was written.
    versions: Vec<u32>,
    unit: Box<[u8; PAGE]>,
}

impl<S: Session> Worker<S> for PagesWorker<S::File> {
    type Left = Vec<u32>;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        let file = self.file.as_ref().expect("open until the end");
        let index = if self.choice > 1 { self.random.random_range(0..self.choice) } else { 0 };
        let page = self.first + index;
        let offset = page * PAGE as u64;
        if self.access == Access::Read {
            if session.read_at(file, offset, &mut self.unit[..])? < PAGE {
                return Err(Error::Wrong(format!("page {page} is not there")));
            }
            return Ok(Step::Done(PAGE as u64));
        }
        let version = &mut self.versions[index as usize];
        *version = version.wrapping_add(1);
        self.stamp.page = page;
        self.stamp.version = *version;
        self.content.stamp(self.number, self.stamp, &mut self.unit[..]);
        session.write_at(file, offset, &self.unit[..])?;
        if self.access == Access::Sync {
            session.fsync(file)?;
        }
        Ok(Step::Done(PAGE as u64))
    }

    fn end(&mut self, session: &mut S) -> Result<()> {
        self.file.take().map_or(Ok(()), |file| session.close(file))
    }

    fn left(self) -> Vec<u32> {
        self.versions
    }
}
