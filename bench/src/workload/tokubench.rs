//! tokubench: many small files in a balanced tree. Each thread makes the files of a contiguous part of the leaves.

use super::*;
use crate::params::share;

/// Entries of a directory.
const FAN_OUT: u64 = 128;
/// Bytes of a file.
const SIZE: usize = 4096;
/// Files, and those of the paper.
const FILES: u64 = 100_000;
const PAPER: u64 = 3_000_000;
const ROOT: &str = "tree";

/// See the module.
#[derive(Debug)]
pub struct Tokubench {
    env: Env,
    tree: Tree,
}

/// The shape.
#[derive(Debug, Clone, Copy)]
struct Tree {
    files: u64,
    leaves: u64,
    /// Directories between the root and a file.
    levels: u32,
}

impl Tree {
    fn new(files: u64) -> Tree {
        let leaves = files.div_ceil(FAN_OUT);
        let levels = (0..).find(|l| FAN_OUT.saturating_pow(*l) >= leaves).unwrap_or(0);
        Tree { files, leaves, levels }
    }

    /// The directory of a leaf.
    fn dir(&self, leaf: u64, path: &mut String) {
        path.clear();
        path.push_str(ROOT);
        for level in (0..self.levels).rev() {
            path.push('/');
            push_digit(path, leaf / FAN_OUT.pow(level) % FAN_OUT);
        }
    }

    /// A file's path.
    fn path(&self, file: u64, path: &mut String) {
        self.dir(file / FAN_OUT, path);
        path.push_str("/f");
        push_digit(path, file % FAN_OUT);
    }

    /// The files of a thread.
    fn part(&self, threads: usize, thread: usize) -> std::ops::Range<u64> {
        let (first, count) = share(self.leaves, threads, thread);
        (first * FAN_OUT).min(self.files)..((first + count) * FAN_OUT).min(self.files)
    }
}

fn push_digit(path: &mut String, digit: u64) {
    for unit in [100, 10, 1] {
        path.push(char::from(b'0' + (digit / unit % 10) as u8));
    }
}

impl Tokubench {
    pub(super) fn new(env: Env) -> Tokubench {
        Tokubench { tree: Tree::new(env.params.files_or(FILES, PAPER)), env }
    }
}

impl<S: Session> Workload<S> for Tokubench {
    type Worker = TokubenchWorker;
    /// The files that it has made.
    type Left = std::ops::Range<u64>;

    fn needs(&self) -> Needs {
        let dirs = self.tree.leaves + self.tree.leaves.div_ceil(FAN_OUT) + 2;
        Needs { bytes: self.tree.files * SIZE as u64 + dirs * 4096, files: self.tree.files + dirs }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        session.mkdir(ROOT).map(drop)
    }

    fn worker(&self, thread: usize, _session: &mut S) -> Result<TokubenchWorker> {
        let part = self.tree.part(self.env.threads, thread);
        let content = self.env.content.clone();
        Ok(TokubenchWorker {
            content,
            tree: self.tree,
            first: part.start,
            next: part.start,
            end: part.end,
            path: String::new(),
        })
    }

    fn check(&self, left: &[std::ops::Range<u64>], session: &mut S) -> Result<Seen> {
        let mut seen = Seen::default();
        let mut path = String::new();
        for file in left.iter().cloned().flatten() {
            self.tree.path(file, &mut path);
            compare(session, &path, &self.env.content, file, SIZE as u64)?;
            seen.files += 1;
            seen.bytes += SIZE as u64;
        }
        Ok(seen)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct TokubenchWorker {
    content: Content,
    tree: Tree,
    first: u64,
    next: u64,
    end: u64,
    path: String,
}

impl TokubenchWorker {
    /// Makes the directories of the next file that this thread has not met yet.
    fn make_dirs<S: Session>(&mut self, session: &mut S) -> Result<()> {
        let leaf = self.next / FAN_OUT;
        let met = self.next > self.first;
        self.tree.dir(leaf, &mut self.path);
        for level in (0..self.tree.levels).rev() {
            // A directory of this level is new to the thread with the first leaf below it.
            if met && !leaf.is_multiple_of(FAN_OUT.pow(level)) {
                continue;
            }
            let end = ROOT.len() + 4 * (self.tree.levels - level) as usize;
            session.mkdir(&self.path[..end])?;
        }
        Ok(())
    }
}

impl<S: Session> Worker<S> for TokubenchWorker {
    type Left = std::ops::Range<u64>;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        if self.next == self.end {
            return Ok(Step::End);
        }
        if self.next.is_multiple_of(FAN_OUT) {
            self.make_dirs(session)?;
        }
        self.tree.path(self.next, &mut self.path);
        let file = session.create(&self.path, How::Write)?;
        let written = session.write_at(&file, 0, self.content.bytes(self.next, 0, SIZE));
        session.close(file)?;
        written?;
        self.next += 1;
        Ok(Step::Done(SIZE as u64))
    }

    fn left(self) -> std::ops::Range<u64> {
        self.first..self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_balanced_and_its_parts_cover_it() {
        for (files, levels) in
            [(1, 0), (128, 0), (129, 1), (128 * 128, 1), (128 * 128 + 1, 2), (3_000_000, 3)]
        {
            let tree = Tree::new(files);
            assert_eq!(tree.levels, levels, "{files}");
            for threads in [1, 3, 16] {
                let parts: Vec<_> = (0..threads).map(|t| tree.part(threads, t)).collect();
                assert_eq!(parts.iter().map(|p| p.end - p.start).sum::<u64>(), files);
                assert!(parts.windows(2).all(|w| w[0].end == w[1].start));
            }
        }
        let mut path = String::new();
        Tree::new(3_000_000).path(2_999_999, &mut path);
        assert_eq!(path, "tree/001/055/013/f063");
    }
}
