//! What the work is done on, outside of the target: the tree as an archive and as a repository, a script for sqlite3.
//! Made when it is first asked for, kept as long as the run, in memory where there is room.

use super::program::{Output, Surroundings};
use super::sources::Sources;
use super::tree::{Kind, Tree};
use crate::content::Content;
use crate::stop::Stop;
use crate::{Error, Result};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows that sqlite3 inserts at scale 1, a transaction each.
const ROWS: f64 = 10_000.0;
/// Small files of each kind at scale 1.
const SMALL: f64 = 2000.0;

/// Where the material of one run is kept. Clones share it; the last one to go removes it.
#[derive(Debug, Clone, Default)]
pub struct Shelf(Arc<Mutex<Option<Material>>>);

/// The material of a seed at a scale.
#[derive(Debug)]
pub(super) struct Material {
    seed: u64,
    scale: f64,
    dir: Outside,
    pub tree: Tree,
    pub sources: Sources,
    pub content: Content,
    archive: Option<PathBuf>,
    repository: Option<PathBuf>,
    script: Option<PathBuf>,
}

/// A directory outside of the target, which goes with everything in it.
#[derive(Debug)]
struct Outside(PathBuf);

impl Outside {
    fn new(bytes: u64) -> Result<Outside> {
        let memory = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
        let above = if room > 2 * bytes { memory.to_owned() } else { std::env::temp_dir() };
        let path = above.join(crate::run::work_name());
        std::fs::create_dir(&path).map_err(|e| Error::io("mkdir", &path.display().to_string(), e))?;
        Ok(Outside(path))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{}: {e}", self.0.display());
        }
    }
}

/// The material on a shelf, for one who uses it.
pub(super) struct Taken<'a>(MutexGuard<'a, Option<Material>>);

impl Taken<'_> {
    /// The material.
    pub fn get(&mut self, seed: u64, scale: f64) -> Result<&mut Material> {
        if !self.0.as_ref().is_some_and(|there| there.seed == seed && there.scale == scale) {
            *self.0 = None;
        }
        match &mut *self.0 {
            Some(there) => Ok(there),
            empty => Ok(empty.insert(Material::new(seed, scale)?)),
        }
    }
}

impl Shelf {
    /// Takes what is on it, until the answer is dropped.
    pub(super) fn take(&self) -> Taken<'_> {
        // Whoever has panicked with it has left what is there, whole or to be made.
        Taken(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let path = path.display().to_string();
    move |e| Error::io("write", &path, e)
}

impl Material {
    fn new(seed: u64, scale: f64) -> Result<Material> {
        let tree = Tree::new(seed, scale);
        Ok(Material {
            seed,
            scale,
            dir: Outside::new(tree.bytes() * 2)?,
            sources: Sources::new(seed, scale),
            content: Content::new(seed),
            tree,
            archive: None,
            repository: None,
            script: None,
        })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir.0
    }

    fn around(&self) -> Surroundings {
        Surroundings { dir: self.dir.0.clone(), outside: self.dir.0.clone() }
    }

    /// Small files of each kind.
    pub fn small(&self) -> u64 {
        (SMALL * self.scale).round().max(10.0) as u64
    }

    /// Rows of the table.
    pub fn rows(&self) -> u64 {
        (ROWS * self.scale).round().max(20.0) as u64
    }

    /// The tree as an archive of tar, with `tree` as its first name.
    pub fn archive(&mut self, stop: &Stop) -> Result<PathBuf> {
        if let Some(made) = &self.archive {
            return Ok(made.clone());
        }
        let (around, tree) = (self.around(), self.dir.0.join("tree"));
        self.tree.write_to(&tree, stop)?;
        let tar = around.command("tar", &["--create", "--file=tree.tar", "tree"]);
        around.succeed(tar, Output::Dropped, stop)?;
        std::fs::remove_dir_all(&tree).map_err(at(&tree))?;
        Ok(self.archive.insert(self.dir.0.join("tree.tar")).clone())
    }

    /// A bare repository whose only commit is the tree.
    pub fn repository(&mut self, stop: &Stop) -> Result<PathBuf> {
        if let Some(made) = &self.repository {
            return Ok(made.clone());
        }
        let (around, stream) = (self.around(), self.dir.0.join("stream"));
        self.import(&stream).map_err(at(&stream))?;
        let init = around.command("git", &["init", "--quiet", "--bare", "--initial-branch=main", "tree.git"]);
        around.succeed(init, Output::Dropped, stop)?;
        let mut import = around.command("git", &["--git-dir=tree.git", "fast-import", "--quiet"]);
        import.stdin(Stdio::from(File::open(&stream).map_err(at(&stream))?));
        around.succeed(import, Output::Dropped, stop)?;
        std::fs::remove_file(&stream).map_err(at(&stream))?;
        Ok(self.repository.insert(self.dir.0.join("tree.git")).clone())
    }

    /// The tree in the words of git fast-import.
    fn import(&self, to: &Path) -> std::io::Result<()> {
        let mut stream = BufWriter::with_capacity(1 << 20, File::create(to)?);
        writeln!(
            stream,
            "commit refs/heads/main\ncommitter A <a@example.org> 1600000000 +0000\ndata 4\ntree"
        )?;
        for entry in &self.tree.entries {
            match &entry.kind {
                Kind::Directory => {}
                Kind::Link(target) => {
                    writeln!(stream, "M 120000 inline {}\ndata {}\n{target}", entry.path, target.len())?;
                }
                Kind::File(bytes, _) => {
                    let mode = if entry.mode & 0o100 == 0 { "100644" } else { "100755" };
                    writeln!(stream, "M {mode} inline {}\ndata {}", entry.path, bytes.size)?;
                    self.tree.text.pieces(*bytes, |piece| stream.write_all(piece))?;
                    writeln!(stream)?;
                }
            }
        }
        stream.flush()
    }

    /// A script for sqlite3 that makes a table and inserts its rows, each by itself.
    pub fn script(&mut self) -> Result<PathBuf> {
        if let Some(made) = &self.script {
            return Ok(made.clone());
        }
        let path = self.dir.0.join("script.sql");
        let mut text =
            "CREATE TABLE rows (number INTEGER PRIMARY KEY, word TEXT, bytes INTEGER);\n".to_owned();
        for number in 0..self.rows() {
            let _ = writeln!(text, "INSERT INTO rows VALUES ({number}, 'row {number:08}', {});", number * 7);
        }
        std::fs::write(&path, text).map_err(at(&path))?;
        Ok(self.script.insert(path).clone())
    }
}
