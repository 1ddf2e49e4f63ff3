//! Names that come, go and change: MWCL, MWCM, MWUL, MWUM, MWRL, MWRM.

use super::*;
use crate::params::share;
use std::fmt::Write;

/// Whose directory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// One for each thread.
    Private,
    /// One for all.
    Shared,
}

pub(super) const SHARED: &str = "shared";
/// Files of all threads together.
const FILES: u64 = 100_000;

/// Names one after the other, without an allocation for each.
#[derive(Debug)]
pub(super) struct Names {
    path: String,
    fixed: usize,
}

impl Names {
    /// Names of a thread in a directory of its own or in the shared one.
    pub fn new(place: Where, thread: usize) -> Names {
        let path = match place {
            Where::Private => format!("{}/f", own_dir(thread)),
            Where::Shared => format!("{SHARED}/{}f", own_dir(thread)),
        };
        Names { fixed: path.len(), path }
    }

    /// The path of a number.
    pub fn path(&mut self, number: u64) -> &str {
        self.path.truncate(self.fixed);
        write!(self.path, "{number}").expect("a string takes it");
        &self.path
    }

    /// The last component of it.
    pub fn name(&mut self, number: u64) -> String {
        let path = self.path(number);
        path.rsplit_once('/').map_or(path, |(_, name)| name).to_owned()
    }
}

fn dir(place: Where, thread: usize) -> String {
    match place {
        Where::Private => own_dir(thread),
        Where::Shared => SHARED.to_owned(),
    }
}

fn make_dir<S: Session>(place: Where, thread: usize, session: &mut S) -> Result<()> {
    session.mkdir(&dir(place, thread)).map(drop)
}

pub(super) fn make_files<S: Session>(
    session: &mut S,
    env: &Env,
    names: &mut Names,
    count: u64,
) -> Result<()> {
    for number in 0..count {
        env.stop.check()?;
        let file = session.create(names.path(number), How::Write)?;
        session.close(file)?;
    }
    Ok(())
}

/// Compares directories with the names that each thread has left in them.
fn check_names<S: Session>(session: &mut S, place: Where, left: &[std::ops::Range<u64>]) -> Result<Seen> {
    let of = |thread: usize| {
        let mut names = Names::new(place, thread);
        left[thread].clone().map(move |number| names.name(number))
    };
    let mut seen = Seen::default();
    match place {
        Where::Shared => seen.files = compare_names(session, SHARED, (0..left.len()).flat_map(of))?,
        Where::Private => {
            for thread in 0..left.len() {
                seen.files += compare_names(session, &own_dir(thread), of(thread))?;
            }
        }
    }
    Ok(seen)
}

/// MWCL, MWCM: empty files are made.
#[derive(Debug)]
pub struct Create {
    env: Env,
    place: Where,
    files: u64,
}

impl Create {
    pub(super) fn new(env: Env, place: Where) -> Create {
        Create { files: env.params.files_or(FILES, FILES), env, place }
    }
}

/// One thread that goes through its share of names.
#[derive(Debug)]
pub struct Through {
    names: Names,
    next: u64,
    count: u64,
}

/// How far a thread came: names below `next` are behind it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Passed {
    next: u64,
    count: u64,
}

impl Through {
    fn passed(&self) -> Passed {
        Passed { next: self.next, count: self.count }
    }

    fn new(place: Where, files: u64, threads: usize, thread: usize) -> Through {
        Through { names: Names::new(place, thread), next: 0, count: share(files, threads, thread).1 }
    }
}

impl<S: Session> Workload<S> for Create {
    type Worker = CreateWorker;
    type Left = Passed;

    fn needs(&self) -> Needs {
        Needs { bytes: 0, files: self.files + self.env.threads as u64 }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        (0..self.env.threads).try_for_each(|thread| make_dir(self.place, thread, session))
    }

    fn worker(&self, thread: usize, _session: &mut S) -> Result<CreateWorker> {
        Ok(CreateWorker(Through::new(self.place, self.files, self.env.threads, thread)))
    }

    fn check(&self, left: &[Passed], session: &mut S) -> Result<Seen> {
        let left: Vec<_> = left.iter().map(|t| 0..t.next).collect();
        check_names(session, self.place, &left)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct CreateWorker(Through);

impl<S: Session> Worker<S> for CreateWorker {
    type Left = Passed;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        if self.0.next == self.0.count {
            return Ok(Step::End);
        }
        let file = session.create(self.0.names.path(self.0.next), How::Write)?;
        session.close(file)?;
        self.0.next += 1;
        Ok(Step::Done(0))
    }

    fn left(self) -> Passed {
        self.0.passed()
    }
}

/// MWUL, MWUM: empty files are removed.
#[derive(Debug)]
pub struct Unlink {
    env: Env,
    place: Where,
    files: u64,
}

impl Unlink {
    pub(super) fn new(env: Env, place: Where) -> Unlink {
        Unlink { files: env.params.files_or(FILES, FILES), env, place }
    }
}

impl<S: Session> Workload<S> for Unlink {
    type Worker = UnlinkWorker;
    type Left = Passed;

    fn needs(&self) -> Needs {
        Needs { bytes: 0, files: self.files + self.env.threads as u64 }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        (0..self.env.threads).try_for_each(|thread| make_dir(self.place, thread, session))
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<UnlinkWorker> {
        let mut own = Through::new(self.place, self.files, self.env.threads, thread);
        make_files(session, &self.env, &mut own.names, own.count)?;
        Ok(UnlinkWorker(own))
    }

    fn check(&self, left: &[Passed], session: &mut S) -> Result<Seen> {
        let left: Vec<_> = left.iter().map(|t| t.next..t.count).collect();
        check_names(session, self.place, &left)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct UnlinkWorker(Through);

impl<S: Session> Worker<S> for UnlinkWorker {
    type Left = Passed;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        if self.0.next == self.0.count {
            return Ok(Step::End);
        }
        session.unlink(self.0.names.path(self.0.next))?;
        self.0.next += 1;
        Ok(Step::Done(0))
    }

    fn left(self) -> Passed {
        self.0.passed()
    }
}

/// MWRL: one file gets name after name. MWRM: files are moved into a shared directory.
#[derive(Debug)]
pub struct Rename {
    env: Env,
    to: Where,
    files: u64,
}

impl Rename {
    pub(super) fn new(env: Env, to: Where) -> Rename {
        let files = match to {
            Where::Private => env.threads as u64,
            Where::Shared => env.params.files_or(FILES, FILES),
        };
        Rename { env, to, files }
    }
}

impl<S: Session> Workload<S> for Rename {
    type Worker = RenameWorker;
    type Left = Passed;

    fn needs(&self) -> Needs {
        Needs { bytes: 0, files: self.files + self.env.threads as u64 }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        make_dir(self.to, 0, session)
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<RenameWorker> {
        make_dir(Where::Private, thread, session)?;
        let mut from = Through::new(Where::Private, self.files, self.env.threads, thread);
        make_files(session, &self.env, &mut from.names, from.count)?;
        Ok(RenameWorker { from, to: Names::new(self.to, thread), moves: self.to == Where::Shared })
    }

    fn check(&self, left: &[Passed], session: &mut S) -> Result<Seen> {
        let moves = self.to == Where::Shared;
        let range = |t: &Passed| if moves { t.next..t.count } else { t.next..t.next + 1 };
        let mut seen = check_names(session, Where::Private, &left.iter().map(range).collect::<Vec<_>>())?;
        if moves {
            let moved: Vec<_> = left.iter().map(|t| 0..t.next).collect();
            seen.files += check_names(session, Where::Shared, &moved)?.files;
        }
        Ok(seen)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct RenameWorker {
    from: Through,
    to: Names,
    /// Whether each file is moved once.
    moves: bool,
}

impl<S: Session> Worker<S> for RenameWorker {
    type Left = Passed;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        let number = self.from.next;
        if self.moves && number == self.from.count {
            return Ok(Step::End);
        }
        let new = if self.moves { number } else { number + 1 };
        session.rename(self.from.names.path(number), self.to.path(new))?;
        self.from.next += 1;
        Ok(Step::Done(0))
    }

    fn left(self) -> Passed {
        self.from.passed()
    }
}
