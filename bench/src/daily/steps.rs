//! Which steps there are, in their order, and what each takes.

use super::files::Act;
use crate::{Error, Result};

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Untar,
    Find,
    Read,
    Grep,
    Copy,
    Rsync,
    Clone,
    Status,
    Build,
    Small(Act),
    Sqlite,
    Remove,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its name, which is that of the phase in records.
    pub name: &'static str,
    /// What it does, in words.
    pub summary: &'static str,
    /// The programs that it takes.
    pub programs: &'static [&'static str],
    /// Whether the file system is brought back from its media, or its caches are dropped, just before.
    pub cold: bool,
    pub(super) what: What,
}

const fn step(
    name: &'static str,
    programs: &'static [&'static str],
    what: What,
    summary: &'static str,
) -> Step {
    Step { name, summary, programs, cold: false, what }
}

const fn cold(name: &'static str, of: Step) -> Step {
    Step { name, cold: true, summary: "the same, with nothing in memory", ..of }
}

const FIND: Step = step("find", &["find"], What::Find, "find -ls of the tree, warm");
const READ: Step = step("read", &["tar"], What::Read, "tar c of the tree into a pipe, warm");
const GREP: Step = step("grep", &["grep"], What::Grep, "grep -r of a word that is not there, warm");
const RSYNC: Step =
    step("rsync", &["rsync"], What::Rsync, "rsync -a of the tree onto its copy: nothing to do; warm");

/// All steps, in their order.
pub const STEPS: &[Step] = &[
    step("untar", &["tar"], What::Untar, "tar x of the tree"),
    FIND,
    READ,
    GREP,
    cold("find-cold", FIND),
    cold("read-cold", READ),
    cold("grep-cold", GREP),
    step("copy", &["cp"], What::Copy, "cp -a of the tree"),
    RSYNC,
    cold("rsync-cold", RSYNC),
    step("clone", &["git"], What::Clone, "git clone of a bare repository elsewhere"),
    step("status", &["git"], What::Status, "git status of the clone, warm"),
    step("build", &["make", "cc"], What::Build, "make -j2 of a C program, cc -O1"),
    step("fsyncs", &[], What::Small(Act::Sync), "create, write 5 KiB, fsync, close: 2,000 files"),
    step("sqlite", &["sqlite3"], What::Sqlite, "sqlite3: 10,000 rows, a transaction each"),
    step("rewrite", &[], What::Small(Act::Rewrite), "open with O_TRUNC, write 4 KiB, close: 2,000 files"),
    step(
        "rename",
        &[],
        What::Small(Act::Replace),
        "write 4 KiB beside a file and rename over it: 2,000 files",
    ),
    step("remove", &["rm"], What::Remove, "rm -rf of the tree and its copy"),
];

/// The steps that names stand for, in the order of [`STEPS`]; all of no names.
///
/// # Errors
/// One that lists those that there are.
pub fn steps(names: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = names.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(Error::Usage(format!("--steps {unknown}: no such step; there are {}", known.join(", "))));
    }
    Ok(STEPS.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name)).collect())
}

impl Step {
    /// A program of it that is not installed.
    pub(super) fn missing(&self) -> Option<&'static str> {
        self.programs.iter().copied().find(|program| !super::program::is_there(program))
    }
}

/// The programs of all steps with their versions, and those that are missing with the steps that are left out.
pub fn programs() -> Vec<(String, String)> {
    let mut told: Vec<(String, String)> = Vec::new();
    for program in STEPS.iter().flat_map(|step| step.programs) {
        if told.iter().any(|(known, _)| known == program) {
            continue;
        }
        let takers = STEPS.iter().filter(|step| step.programs.contains(program)).map(|step| step.name);
        let version = super::program::version(program);
        let missing = || format!("missing, without it no {}", takers.collect::<Vec<_>>().join(", "));
        told.push(((*program).to_owned(), version.unwrap_or_else(missing)));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        let names = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
            steps(&list).map(|steps| steps.iter().map(|step| step.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["remove", "untar"]).expect("both are there"), ["untar", "remove"]);
        assert_eq!(names(&[]).expect("all").len(), STEPS.len());
        let said = names(&["untar", "unzip"]).expect_err("there is none").to_string();
        assert!(said.starts_with("--steps unzip") && said.contains("find-cold"), "{said}");
        assert!(programs().iter().any(|(program, _)| program == "tar"));
    }
}
