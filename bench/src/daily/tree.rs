//! The tree of everyday work: names, modes, sizes, times and bytes like those of a tree of sources, from a seed.

use super::text::{Bytes, Text};
use crate::stop::Stop;
use crate::{Error, Result};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;

/// Directories, regular files and symbolic links at scale 1.
const DIRECTORIES: u64 = 2600;
const FILES: u64 = 17_800;
const LINKS: u64 = 200;
/// Files of 1 to 20 MB at scale 1, as many below 4.5 MB as above.
const LARGE: u64 = 8;
/// Half of the files are not larger.
const MEDIAN: f64 = 4000.0;
/// How far sizes lie apart: with it, the mean is four times the median.
const SIGMA: f64 = 1.6;
/// No other file is larger.
const CAP: f64 = 1e6;
/// Names on the longest path.
const DEPTH: usize = 10;
/// When the oldest was changed: long ago, so that what gives files the time of day is found out.
const OLDEST: u64 = 1_500_000_000;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    /// A file, with the checksum of its bytes.
    File(Bytes, u32),
    /// A symbolic link, with its target.
    Link(String),
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its path from the root of the tree, which is no entry.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// Seconds of its last change.
    pub mtime: u64,
    pub kind: Kind,
}

/// See the module. Directories come before what is in them.
#[derive(Debug)]
pub(super) struct Tree {
    pub entries: Vec<Entry>,
    pub text: Text,
}

fn scaled(count: u64, scale: f64) -> u64 {
    (count as f64 * scale).round() as u64
}

fn below(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

fn depth(path: &str) -> usize {
    if path.is_empty() { 0 } else { path.matches('/').count() + 1 }
}

impl Tree {
    /// The tree of a seed, at a scale.
    pub fn new(seed: u64, scale: f64) -> Tree {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x7265_6574);
        let mut tree = Tree { entries: Vec::new(), text: Text::new(seed) };
        let directories = tree.directories(&mut rng, scaled(DIRECTORIES, scale).max(12));
        tree.files(&mut rng, &directories, scaled(FILES, scale).max(40), scaled(LARGE, scale));
        tree.links(&mut rng, &directories, scaled(LINKS, scale).max(3));
        tree
    }

    fn push(&mut self, rng: &mut ChaCha8Rng, path: String, mode: u32, kind: Kind) {
        let mtime = OLDEST + rng.random_range(0..150_000_000);
        self.entries.push(Entry { path, mode, mtime, kind });
    }

    /// The root is among them.
    fn directories(&mut self, rng: &mut ChaCha8Rng, count: u64) -> Vec<String> {
        let mut all = vec![String::new()];
        for number in 0..count as usize {
            // The first go down as deep as any; the others hang somewhere.
            let deep = number < DEPTH - 1;
            let parent = loop {
                let at = if deep { all.len() - 1 } else { rng.random_range(0..all.len()) };
                if depth(&all[at]) < DEPTH - 1 {
                    break all[at].clone();
                }
            };
            let path = below(&parent, &format!("dir{number:04x}"));
            let mode = if rng.random_ratio(1, 25) { 0o700 } else { 0o755 };
            self.push(rng, path.clone(), mode, Kind::Directory);
            all.push(path);
        }
        all
    }

    fn files(&mut self, rng: &mut ChaCha8Rng, directories: &[String], count: u64, large: u64) {
        let sizes = LogNormal::new(MEDIAN.ln(), SIGMA).expect("these are good parameters");
        for number in 0..count {
            let size = match number {
                n if n < large => (1e6 * 20_f64.powf(rng.random())) as u64,
                _ => sizes.sample(rng).min(CAP) as u64,
            };
            // Each directory has one at least: git keeps none that is empty.
            let parent = match directories.get(number as usize) {
                Some(own) => own,
                None => &directories[rng.random_range(0..directories.len())],
            };
            let (mode, suffix) = match rng.random_range(0..100) {
                0..3 => (0o755, ".sh"),
                3 => (0o444, ".txt"),
                4 => (0o600, ".key"),
                5..10 => (0o644, ".png"),
                10..40 => (0o644, ".h"),
                _ => (0o644, ".c"),
            };
            let bytes = Bytes { number, size, prose: suffix != ".png" };
            let crc = self.text.crc(bytes);
            self.push(rng, below(parent, &format!("file{number:05x}{suffix}")), mode, Kind::File(bytes, crc));
        }
    }

    fn links(&mut self, rng: &mut ChaCha8Rng, directories: &[String], count: u64) {
        let files: Vec<String> = self.files_of().map(|(entry, _)| entry.path.clone()).collect();
        for number in 0..count {
            let parent = &directories[rng.random_range(0..directories.len())];
            let up = "../".repeat(depth(parent));
            let target = format!("{up}{}", files[rng.random_range(0..files.len())]);
            self.push(rng, below(parent, &format!("link{number:03x}")), 0o777, Kind::Link(target));
        }
    }

    /// Its files, with their bytes.
    pub fn files_of(&self) -> impl Iterator<Item = (&Entry, Bytes)> {
        self.entries.iter().filter_map(|entry| match entry.kind {
            Kind::File(bytes, _) => Some((entry, bytes)),
            _ => None,
        })
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.files_of().map(|(_, bytes)| bytes.size).sum()
    }

    /// Makes the tree at `root`, which is not there.
    pub fn write_to(&self, root: &Path, stop: &Stop) -> Result<()> {
        std::fs::create_dir(root).map_err(|e| Error::io("mkdir", &root.display().to_string(), e))?;
        for entry in &self.entries {
            stop.check()?;
            let path = root.join(&entry.path);
            self.make(entry, &path).map_err(|e| Error::io("make", &path.display().to_string(), e))?;
        }
        // What is in a directory changes its time; and the modes of some would be in the way.
        for entry in self.entries.iter().rev() {
            let path = root.join(&entry.path);
            finish(entry, &path).map_err(|e| Error::io("make", &path.display().to_string(), e))?;
        }
        Ok(())
    }

    fn make(&self, entry: &Entry, path: &Path) -> std::io::Result<()> {
        match &entry.kind {
            Kind::Directory => DirBuilder::new().mode(0o700).create(path),
            Kind::Link(target) => symlink(target, path),
            Kind::File(bytes, _) => {
                let mut file = BufWriter::with_capacity(256 << 10, File::create_new(path)?);
                self.text.pieces(*bytes, |piece| file.write_all(piece))?;
                file.flush()
            }
        }
    }
}

/// Gives an entry its mode and its time.
fn finish(entry: &Entry, path: &Path) -> std::io::Result<()> {
    if !matches!(entry.kind, Kind::Link(_)) {
        std::fs::set_permissions(path, Permissions::from_mode(entry.mode))?;
    }
    let time = Timespec { tv_sec: entry.mtime as i64, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_tree_has_the_promised_shape() {
        let tree = Tree::new(1, 1.0);
        let count =
            |wanted: fn(&Kind) -> bool| tree.entries.iter().filter(|e| wanted(&e.kind)).count() as u64;
        assert_eq!(count(|kind| *kind == Kind::Directory), DIRECTORIES);
        assert_eq!(tree.entries.len() as u64, DIRECTORIES + FILES + LINKS);
        let paths: HashSet<&str> = tree.entries.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths.len(), tree.entries.len(), "names are unique");
        assert_eq!(tree.entries.iter().map(|e| depth(&e.path)).max(), Some(DEPTH));
        let mut sizes: Vec<u64> = tree.files_of().map(|(_, bytes)| bytes.size).collect();
        sizes.sort_unstable();
        let median = sizes[sizes.len() / 2];
        assert!((3500..4500).contains(&median), "half are not larger than {median} bytes");
        assert!((290e6..330e6).contains(&(tree.bytes() as f64)), "{} bytes in all", tree.bytes());
    }

    #[test]
    fn a_tree_follows_from_its_seed() {
        let [one, same, other] =
            [(1, 0.01), (1, 0.01), (2, 0.01)].map(|(seed, scale)| Tree::new(seed, scale));
        assert_eq!(one.entries, same.entries);
        assert_ne!(one.entries, other.entries);
        assert!(one.entries.len() < 300);
    }
}
