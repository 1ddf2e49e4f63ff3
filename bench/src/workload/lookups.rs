//! Names that are only looked at: MRPL, MRPM, MRPH, MRDL, MRDM.

use super::names::{Names, SHARED, Where, make_files};
use super::*;
use crate::content::generator;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Names in a path.
const DEPTH: u32 = 5;
/// Entries of a directory of the tree.
const BRANCHES: u64 = 8;
/// Files of a directory that is listed.
const LISTED: u64 = 1000;

/// Which file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A thread's own.
    Own,
    /// A random one of a shared tree.
    Any,
    /// The same for all.
    Same,
}

/// MRPL, MRPM, MRPH: a file five names deep is opened.
#[derive(Debug)]
pub struct OpenPath {
    env: Env,
    target: Target,
    branches: u64,
}

/// The largest tree with no more files than that.
fn branches(files: u64) -> u64 {
    (2..=BRANCHES).rev().find(|b| b.pow(DEPTH) <= files).unwrap_or(1)
}

/// A path of the tree: its digits, the file's last.
fn tree_path(number: u64, branches: u64, path: &mut String) {
    path.clear();
    path.push_str("tree");
    for level in (0..DEPTH).rev() {
        path.push('/');
        let digit = (number / branches.pow(level) % branches) as u8;
        path.push(char::from(b'0' + digit));
    }
}

fn own_path(thread: usize) -> String {
    format!("{}/1/2/3/4", own_dir(thread))
}

/// Makes a file and the directories above it.
fn make<S: Session>(session: &mut S, path: &str) -> Result<()> {
    for (end, _) in path.match_indices('/') {
        session.mkdir(&path[..end])?;
    }
    let file = session.create(path, How::Write)?;
    session.close(file)
}

impl OpenPath {
    pub(super) fn new(env: Env, target: Target) -> OpenPath {
        let all = BRANCHES.pow(DEPTH);
        let branches = if target == Target::Any { branches(env.params.files_or(all, all)) } else { 1 };
        OpenPath { env, target, branches }
    }

    fn files(&self) -> u64 {
        match self.target {
            Target::Own => self.env.threads as u64,
            _ => self.branches.pow(DEPTH),
        }
    }
}

impl<S: Session> Workload<S> for OpenPath {
    type Worker = OpenWorker;
    type Left = ();

    fn needs(&self) -> Needs {
        Needs { bytes: 0, files: self.files() * 2 + 16 }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        let mut path = String::new();
        let files = if self.target == Target::Own { 0 } else { self.files() };
        for number in 0..files {
            self.env.stop.check()?;
            tree_path(number, self.branches, &mut path);
            make(session, &path)?;
        }
        Ok(())
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<OpenWorker> {
        let mut path = String::new();
        match self.target {
            Target::Own => {
                path = own_path(thread);
                make(session, &path)?;
            }
            _ => tree_path(0, self.branches, &mut path),
        }
        let random = generator(self.env.params.seed, thread as u64);
        let choice = (self.target == Target::Any).then(|| self.files());
        Ok(OpenWorker { path, branches: self.branches, choice, random })
    }

    fn check(&self, left: &[()], session: &mut S) -> Result<Seen> {
        let mut seen = Seen::default();
        let mut path = String::new();
        let files = if self.target == Target::Own { left.len() as u64 } else { self.files() };
        for number in 0..files {
            match self.target {
                Target::Own => path = own_path(number as usize),
                _ => tree_path(number, self.branches, &mut path),
            }
            if session.size(&path)? != 0 {
                return Err(Error::Wrong(format!("{path} is not empty")));
            }
            seen.files += 1;
        }
        Ok(seen)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct OpenWorker {
    path: String,
    branches: u64,
    choice: Option<u64>,
    random: ChaCha8Rng,
}

impl<S: Session> Worker<S> for OpenWorker {
    type Left = ();

    fn step(&mut self, session: &mut S) -> Result<Step> {
        if let Some(files) = self.choice {
            tree_path(self.random.random_range(0..files), self.branches, &mut self.path);
        }
        let file = session.open(&self.path, How::Read)?;
        session.close(file)?;
        Ok(Step::Done(0))
    }

    fn left(self) {}
}

/// MRDL, MRDM: a directory is listed.
#[derive(Debug)]
pub struct Enumerate {
    env: Env,
    place: Where,
    files: u64,
}

impl Enumerate {
    pub(super) fn new(env: Env, place: Where) -> Enumerate {
        Enumerate { files: env.params.files_or(LISTED, LISTED), env, place }
    }

    fn dir(&self, thread: usize) -> String {
        if self.place == Where::Shared { SHARED.to_owned() } else { own_dir(thread) }
    }

    fn dirs(&self) -> usize {
        if self.place == Where::Shared { 1 } else { self.env.threads }
    }
}

impl<S: Session> Workload<S> for Enumerate {
    type Worker = EnumerateWorker;
    type Left = ();

    fn needs(&self) -> Needs {
        Needs { bytes: 0, files: self.files * self.dirs() as u64 + 16 }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        for thread in 0..self.dirs() {
            session.mkdir(&self.dir(thread))?;
            make_files(session, &self.env, &mut Names::new(self.place, thread), self.files)?;
        }
        Ok(())
    }

    fn worker(&self, thread: usize, _session: &mut S) -> Result<EnumerateWorker> {
        Ok(EnumerateWorker { dir: self.dir(thread), files: self.files })
    }

    fn check(&self, _left: &[()], session: &mut S) -> Result<Seen> {
        let mut seen = Seen::default();
        for thread in 0..self.dirs() {
            let mut names = Names::new(self.place, thread);
            let wanted = (0..self.files).map(|number| names.name(number));
            seen.files += compare_names(session, &self.dir(thread), wanted)?;
        }
        Ok(seen)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct EnumerateWorker {
    dir: String,
    files: u64,
}

impl<S: Session> Worker<S> for EnumerateWorker {
    type Left = ();

    fn step(&mut self, session: &mut S) -> Result<Step> {
        let mut bytes = 0;
        let found = session.list(&self.dir, &mut |name, _| bytes += name.len())?;
        if found != self.files {
            return Err(Error::Wrong(format!("{} lists {found} files of {}", self.dir, self.files)));
        }
        std::hint::black_box(bytes);
        Ok(Step::Done(0))
    }

    fn left(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_five_deep_and_not_larger_than_asked() {
        assert_eq!((branches(32768), branches(32767), branches(32), branches(31)), (8, 7, 2, 1));
        let mut path = String::new();
        tree_path(0o12345, 8, &mut path);
        assert_eq!(path, "tree/1/2/3/4/5");
        tree_path(31, 2, &mut path);
        assert_eq!(path, "tree/1/1/1/1/1");
    }
}
