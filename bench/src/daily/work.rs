//! Doing a step: what must be there before, what is timed, and what must be there after.

use super::difference::{Kept, compare};
use super::files::Files;
use super::material::Material;
use super::program::{Output, Ran, Surroundings};
use super::steps::{STEPS, Step, What};
use super::text::ABSENT;
use crate::load::{Measured, histogram};
use crate::stop::Stop;
use crate::workload::Seen;
use crate::{Error, Result};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// One run's place on the target.
pub(super) struct Work<'a> {
    around: Surroundings,
    material: &'a mut Material,
    stop: &'a Stop,
    /// What must be there: the directories and files of steps that were done.
    left: HashSet<&'static str>,
    /// What was found wrong, once: it is said only then.
    wrong: RefCell<HashSet<String>>,
}

const TREE: &str = "tree";
const COPY: &str = "copy";
const CLONE: &str = "clone";
const PROGRAM: &str = "program";
const DATABASE: &str = "rows.db";

impl<'a> Work<'a> {
    /// In a directory of the target.
    pub fn new(dir: &Path, material: &'a mut Material, stop: &'a Stop) -> Work<'a> {
        let around = Surroundings { dir: dir.to_owned(), outside: material.dir().to_owned() };
        Work { around, material, stop, left: HashSet::new(), wrong: RefCell::default() }
    }

    fn here(&self, name: &str) -> std::path::PathBuf {
        self.around.dir.join(name)
    }

    /// Makes what a step needs, outside of its time.
    pub fn prepare(&mut self, step: &Step) -> Result<()> {
        match step.what {
            What::Untar => self.material.archive(self.stop).map(drop),
            What::Find | What::Read | What::Grep => self.need(TREE),
            What::Copy => self.need(TREE),
            What::Rsync | What::Remove => self.need(TREE).and_then(|()| self.need(COPY)),
            What::Clone => self.material.repository(self.stop).map(drop),
            What::Status if self.left.contains(CLONE) => Ok(()),
            What::Status => {
                self.material.repository(self.stop)?;
                self.clone().map(drop)
            }
            What::Build => self.write_sources(),
            What::Small(act) => {
                let (material, dir) = (&*self.material, &self.around.dir);
                Files::prepare(act, material.small(), &material.content, dir, self.stop)
            }
            What::Sqlite => self.material.script().map(drop),
        }?;
        let is_repeated =
            matches!(step.what, What::Find | What::Read | What::Grep | What::Rsync | What::Status);
        if is_repeated && !step.cold {
            self.run(step)?;
        }
        Ok(())
    }

    /// The tree under a name, without the program that would have made it.
    fn need(&mut self, name: &'static str) -> Result<()> {
        if !self.left.insert(name) {
            return Ok(());
        }
        self.material.tree.write_to(&self.here(name), self.stop)
    }

    fn write_sources(&self) -> Result<()> {
        let root = self.here(PROGRAM);
        for (path, text) in &self.material.sources.files {
            let path = root.join(path);
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            let made = made.and_then(|()| std::fs::write(&path, text));
            made.map_err(|e| Error::io("write", &path.display().to_string(), e))?;
        }
        Ok(())
    }

    /// Loads a step's programs into memory: they do not lie on the target.
    pub fn touch_programs(&self, step: &Step) {
        step.programs.iter().for_each(|program| drop(super::program::version(program)));
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        self.around.command(program, arguments)
    }

    fn succeed(&self, command: Command, output: Output) -> Result<Ran> {
        self.around.succeed(command, output, self.stop)
    }

    fn clone(&mut self) -> Result<Ran> {
        let repository = self.material.repository(self.stop)?.display().to_string();
        let ran =
            self.succeed(self.command("git", &["clone", "--quiet", &repository, CLONE]), Output::Dropped)?;
        self.left.insert(CLONE);
        Ok(ran)
    }

    /// Does it.
    pub fn run(&mut self, step: &Step) -> Result<Measured> {
        let tree_bytes = self.material.tree.bytes();
        let (ran, bytes) = match step.what {
            What::Untar => {
                let archive = self.material.archive(self.stop)?.display().to_string();
                let ran =
                    self.succeed(self.command("tar", &["--extract", "--file", &archive]), Output::Dropped)?;
                self.left.insert(TREE);
                (ran, tree_bytes)
            }
            What::Find => {
                let ran = self.succeed(self.command("find", &[TREE, "-ls"]), Output::Counted)?;
                let wanted = self.material.tree.entries.len() as u64 + 1;
                if ran.lines != wanted {
                    return Err(Error::Wrong(format!("find lists {} entries, not {wanted}", ran.lines)));
                }
                (ran, 0)
            }
            What::Read => {
                // To a pipe: with /dev/null tar would not read.
                let ran = self.succeed(self.command("tar", &["--create", TREE]), Output::Dropped)?;
                if ran.bytes < tree_bytes {
                    return Err(Error::Wrong(format!("tar reads {} bytes, not {tree_bytes}", ran.bytes)));
                }
                (ran, tree_bytes)
            }
            What::Grep => {
                let grep = self.command("grep", &["--recursive", "--regexp", ABSENT, TREE]);
                let ran = self.around.run(grep, Output::Dropped, self.stop)?;
                match ran.status.code() {
                    Some(1) if ran.bytes == 0 => (ran, tree_bytes),
                    Some(0) => return Err(Error::Wrong("grep finds what was never written".into())),
                    _ => return Err(self.around.failed("grep", &ran)),
                }
            }
            What::Copy => {
                let ran = self.succeed(self.command("cp", &["--archive", TREE, COPY]), Output::Dropped)?;
                self.left.insert(COPY);
                (ran, tree_bytes)
            }
            What::Rsync => {
                let (from, to) = (format!("{TREE}/"), format!("{COPY}/"));
                let rsync = self.command("rsync", &["--archive", "--itemize-changes", &from, &to]);
                let ran = self.succeed(rsync, Output::Counted)?;
                // The time of the uppermost directory is not the archive's.
                if ran.lines > 1 {
                    return Err(Error::Wrong(format!("rsync finds {} differences in a copy", ran.lines)));
                }
                (ran, 0)
            }
            What::Clone => (self.clone()?, tree_bytes),
            What::Status => {
                let status = self.command("git", &["-C", CLONE, "status", "--porcelain"]);
                let ran = self.succeed(status, Output::Counted)?;
                if ran.lines > 0 {
                    return Err(Error::Wrong(format!("git finds {} changes in a fresh clone", ran.lines)));
                }
                (ran, 0)
            }
            What::Build => {
                let ran = self.succeed(self.command("make", &["-C", PROGRAM, "-j2"]), Output::Dropped)?;
                self.left.insert(PROGRAM);
                (ran, 0)
            }
            What::Small(act) => {
                let material = &*self.material;
                let files = Files::open(act, material.small(), &material.content, &self.around.dir)?;
                let measured = files.run(self.stop)?;
                self.left.insert(act.directory());
                return Ok(measured);
            }
            What::Sqlite => {
                let mut sqlite = self.command("sqlite3", &["-batch", "-bail", DATABASE]);
                let script = self.material.script()?;
                let open =
                    File::open(&script).map_err(|e| Error::io("open", &script.display().to_string(), e));
                sqlite.stdin(Stdio::from(open?));
                let ran = self.succeed(sqlite, Output::Dropped)?;
                self.left.insert(DATABASE);
                (ran, 0)
            }
            What::Remove => {
                let rm = self.command("rm", &["--recursive", "--force", TREE, COPY]);
                let ran = self.succeed(rm, Output::Dropped)?;
                self.left.remove(TREE);
                self.left.remove(COPY);
                (ran, 0)
            }
        };
        Ok(whole(ran.time, bytes))
    }

    /// Compares what a step has made, or what it must have left alone.
    pub fn compare(&self, step: &Step) -> Result<Seen> {
        match step.what {
            What::Untar | What::Find | What::Read | What::Grep => self.compare_one(TREE),
            What::Copy | What::Rsync => self.compare_one(COPY),
            What::Clone | What::Status => self.compare_one(CLONE),
            What::Build => self.compare_one(PROGRAM),
            What::Small(act) => self.compare_one(act.directory()),
            What::Sqlite => self.compare_one(DATABASE),
            What::Remove => match [TREE, COPY].iter().find(|name| self.here(name).symlink_metadata().is_ok())
            {
                Some(name) => Err(Error::Wrong(format!("{name} is there after its removal"))),
                None => Ok(Seen::default()),
            },
        }
    }

    /// Compares all that must be there.
    pub fn compare_all(&self) -> Result<Seen> {
        let mut all = Seen::default();
        let wrong = self.wrong.borrow().clone();
        for name in self.left.iter().filter(|name| !wrong.contains(**name)) {
            let seen = self.compare_one(name)?;
            all.files += seen.files;
            all.bytes += seen.bytes;
        }
        Ok(all)
    }

    fn compare_one(&self, name: &str) -> Result<Seen> {
        let compared = match name {
            TREE | COPY => compare(&self.here(name), &self.material.tree, Kept::All),
            CLONE => compare(&self.here(name), &self.material.tree, Kept::Git),
            PROGRAM => self.compare_program(),
            DATABASE => self.compare_database(),
            _ => {
                let acts = STEPS.iter().filter_map(|step| match step.what {
                    What::Small(act) if act.directory() == name => Some(act),
                    _ => None,
                });
                let material = &*self.material;
                acts.map(|act| {
                    let files = Files::open(act, material.small(), &material.content, &self.around.dir)?;
                    files.compare(&self.around.dir)
                })
                .next()
                .unwrap_or_else(|| Ok(Seen::default()))
            }
        };
        compared.map_err(|e| match e {
            Error::Wrong(what) => {
                self.wrong.borrow_mut().insert(name.to_owned());
                Error::Wrong(format!("in {name}: {what}"))
            }
            other => other,
        })
    }

    /// The sources are as they were, and the program says what it has to.
    fn compare_program(&self) -> Result<Seen> {
        let (root, mut seen) = (self.here(PROGRAM), Seen::default());
        for (path, text) in &self.material.sources.files {
            let read = std::fs::read(root.join(path)).map_err(|e| Error::io("read", path, e))?;
            if read != text.as_bytes() {
                return Err(Error::Wrong(format!("{path} is not what was written")));
            }
            seen.files += 1;
            seen.bytes += read.len() as u64;
        }
        // It is started elsewhere.
        let program =
            std::path::absolute(root.join("program")).map_err(|e| Error::io("find", "program", e))?;
        let program = program.display().to_string();
        let ran = self.succeed(self.command(&program, &[]), Output::Kept)?;
        if ran.said != self.material.sources.says.as_bytes() {
            return Err(Error::Wrong("the program that was built computes something else".into()));
        }
        Ok(seen)
    }

    /// The database is sound and has its rows.
    fn compare_database(&self) -> Result<Seen> {
        let question =
            "PRAGMA integrity_check; SELECT count(*), sum(number), sum(length(word)), sum(bytes) FROM rows;";
        let ran = self.succeed(self.command("sqlite3", &["-batch", DATABASE, question]), Output::Kept)?;
        let rows = self.material.rows();
        let sum = rows * (rows - 1) / 2;
        let wanted = format!("ok\n{rows}|{sum}|{}|{}\n", rows * "row 00000000".len() as u64, sum * 7);
        let said = String::from_utf8_lossy(&ran.said).into_owned();
        if said != wanted {
            return Err(Error::Wrong(format!("sqlite3 says {said:?}, not {wanted:?}")));
        }
        let size = std::fs::metadata(self.here(DATABASE)).map_or(0, |found| found.len());
        Ok(Seen { files: 1, bytes: size })
    }
}

/// A program's run is one operation.
fn whole(time: Duration, bytes: u64) -> Measured {
    let mut latency = histogram();
    latency.saturating_record(time.as_nanos() as u64);
    Measured { time, ops: 1, bytes, latency, done: true }
}
