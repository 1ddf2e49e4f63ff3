//! Which workloads there are, and how each is called, described and built.

use super::*;

/// A part of a workload with a time of its own.
#[derive(Debug)]
pub struct Phase {
    /// Its name, where there are several.
    pub name: Option<&'static str>,
    /// Whether everything is synced after the last operation, inside the time.
    pub synced: bool,
}

/// Which kind of work it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Bytes of files.
    Data,
    /// Names and attributes.
    Metadata,
    /// Whole applications.
    Macro,
    /// Real programs.
    Programs,
}

impl Family {
    /// Its name, which stands for all of its workloads.
    pub fn name(self) -> &'static str {
        match self {
            Family::Data => "data",
            Family::Metadata => "metadata",
            Family::Macro => "macro",
            Family::Programs => "programs",
        }
    }
}

/// A workload as users see it.
#[derive(Debug)]
pub struct Spec {
    /// Its name.
    pub name: &'static str,
    /// What kind it is.
    pub family: Family,
    /// What a thread does.
    pub summary: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// Its sizes, unless asked otherwise.
    pub sizes: &'static str,
    /// Whether threads stay on cores of their own.
    pub pinned: bool,
    /// Whether it ends after the time; otherwise when the work is done.
    pub timed: bool,
    /// Its phases; steps of everyday work are not among them.
    pub phases: &'static [Phase],
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Pages(pages::Access, pages::Sharing),
    Append,
    Truncate,
    Create(names::Where),
    Unlink(names::Where),
    Rename(names::Where),
    OpenPath(lookups::Target),
    Enumerate(names::Where),
    Varmail,
    Tokubench,
    Iozone,
    Oltp,
    /// No work of the generator.
    Daily,
}

/// Who takes a workload with its type.
pub trait Visitor<S: Session> {
    /// What comes of it.
    type Output;
    /// Takes it.
    fn visit<W: Workload<S>>(self, workload: W) -> Self::Output;
}

const ONE: &[Phase] = &[Phase { name: None, synced: false }];

const fn fxmark(
    name: &'static str,
    family: Family,
    kind: Kind,
    summary: &'static str,
    operation: &'static str,
    sizes: &'static str,
) -> Spec {
    Spec { name, family, summary, operation, sizes, pinned: true, timed: true, phases: ONE, kind }
}

use Family::{Data, Macro, Metadata};
use names::Where::{Private, Shared};
use pages::Access::{Read, Sync, Write};
use pages::Sharing::{Own, Regions, Same};

const PAGE_OWN: &str = "a file a thread, page 0; --spread: random pages, all files together --size (256M)";
const PAGE_REGION: &str = "one file, 8 MiB a thread, the first page of it; --spread: random pages of the thread's part of --size (256M)";
const PAGE_SAME: &str = "one file, page 0; --spread: random pages of --size (256M)";
const FILES: &str = "--files (100000) in all; ends early when they are done";
const LISTED: &str = "--files (1000) in each directory";

/// All workloads of the generator.
pub const ALL: &[Spec] = &[
    fxmark(
        "DWOL",
        Data,
        Kind::Pages(Write, Own),
        "overwrites a page of a private file",
        "pwrite of 4 KiB",
        PAGE_OWN,
    ),
    fxmark(
        "DWOM",
        Data,
        Kind::Pages(Write, Regions),
        "overwrites a page of its own region of a shared file",
        "pwrite of 4 KiB",
        PAGE_REGION,
    ),
    fxmark(
        "DWAL",
        Data,
        Kind::Append,
        "appends to a private file, and empties it when it is full; synced in the end, within the time",
        "append of 4 KiB, with the truncation where it is due",
        "full at --size (1G) divided by the threads",
    ),
    fxmark(
        "DWTL",
        Data,
        Kind::Truncate,
        "cuts a private file page by page",
        "ftruncate to 4 KiB less",
        "--size (1G) divided by the threads; ends early when they are empty",
    ),
    fxmark(
        "DWSL",
        Data,
        Kind::Pages(Sync, Own),
        "overwrites a page of a private file and syncs it",
        "pwrite of 4 KiB and fsync",
        PAGE_OWN,
    ),
    fxmark(
        "DRBL",
        Data,
        Kind::Pages(Read, Own),
        "reads a page of a private file",
        "pread of 4 KiB",
        PAGE_OWN,
    ),
    fxmark(
        "DRBM",
        Data,
        Kind::Pages(Read, Regions),
        "reads a page of its own region of a shared file",
        "pread of 4 KiB",
        PAGE_REGION,
    ),
    fxmark(
        "DRBH",
        Data,
        Kind::Pages(Read, Same),
        "reads the same page of a shared file as all others",
        "pread of 4 KiB",
        PAGE_SAME,
    ),
    fxmark(
        "MWCL",
        Metadata,
        Kind::Create(Private),
        "creates empty files in a private directory",
        "open with O_CREAT and O_EXCL, close",
        FILES,
    ),
    fxmark(
        "MWCM",
        Metadata,
        Kind::Create(Shared),
        "creates empty files in a shared directory",
        "open with O_CREAT and O_EXCL, close",
        FILES,
    ),
    fxmark(
        "MWUL",
        Metadata,
        Kind::Unlink(Private),
        "unlinks empty files of a private directory",
        "unlink",
        FILES,
    ),
    fxmark(
        "MWUM",
        Metadata,
        Kind::Unlink(Shared),
        "unlinks its own empty files in a shared directory",
        "unlink",
        FILES,
    ),
    fxmark(
        "MWRL",
        Metadata,
        Kind::Rename(Private),
        "renames one file in a private directory, again and again",
        "rename to a name that is free",
        "a file a thread",
    ),
    fxmark(
        "MWRM",
        Metadata,
        Kind::Rename(Shared),
        "moves files from a private directory into a shared one",
        "rename to a name that is free",
        FILES,
    ),
    fxmark(
        "MRPL",
        Metadata,
        Kind::OpenPath(lookups::Target::Own),
        "opens a private file five names deep",
        "open of a five-name path, close",
        "a file a thread",
    ),
    fxmark(
        "MRPM",
        Metadata,
        Kind::OpenPath(lookups::Target::Any),
        "opens random files of a shared tree, five names deep",
        "open of a five-name path, close",
        "a tree of eight entries in each directory: 32768 files; --files for a smaller one",
    ),
    fxmark(
        "MRPH",
        Metadata,
        Kind::OpenPath(lookups::Target::Same),
        "opens the same file as all others, five names deep",
        "open of a five-name path, close",
        "one file",
    ),
    fxmark(
        "MRDL",
        Metadata,
        Kind::Enumerate(Private),
        "lists a private directory",
        "opendir, every entry read, closedir",
        LISTED,
    ),
    fxmark(
        "MRDM",
        Metadata,
        Kind::Enumerate(Shared),
        "lists the same directory as all others",
        "opendir, every entry read, closedir",
        LISTED,
    ),
    Spec {
        name: "varmail",
        family: Macro,
        summary: "a mail server's loop of 13 calls over its share of the files of one directory",
        operation: "the next call of: unlink; create, append, fsync, close; open, read whole, append, fsync, close; open, read whole, close",
        sizes: "--files (1000; --paper 100000), 16 KiB on average; appends of 1 B to 32 KiB",
        pinned: false,
        timed: true,
        phases: ONE,
        kind: Kind::Varmail,
    },
    Spec {
        name: "tokubench",
        family: Macro,
        summary: "creates files of 4 KiB in a balanced tree with 128 entries in each directory",
        operation: "mkdir where a directory is missing; create, write 4 KiB, close",
        sizes: "--files (100000; --paper 3000000) in all; ends when they are made and synced, whatever --seconds",
        pinned: false,
        timed: false,
        phases: &[Phase { name: None, synced: true }],
        kind: Kind::Tokubench,
    },
    Spec {
        name: "iozone",
        family: Macro,
        summary: "six passes over a large file",
        operation: "pread or pwrite of --record (4K)",
        sizes: "--memory (256M) times --ratio (0.25) bytes, a file for each thread; each phase ends after as many records as the file has, the writing ones with fsync, whatever --seconds",
        pinned: false,
        timed: false,
        phases: &[
            Phase { name: Some("write"), synced: false },
            Phase { name: Some("rewrite"), synced: false },
            Phase { name: Some("read"), synced: false },
            Phase { name: Some("reread"), synced: false },
            Phase { name: Some("random-read"), synced: false },
            Phase { name: Some("random-write"), synced: false },
        ],
        kind: Kind::Iozone,
    },
    Spec {
        name: "oltp",
        family: Macro,
        summary: "transactions on one shared file of pages, each committed by a synced record in one shared log",
        operation: "a transaction: 6 preads and 4 pwrites of random 8 KiB pages, an append of 512 B to 4 KiB to the log, fdatasync of the log",
        sizes: "--size (256M) of pages",
        pinned: false,
        timed: true,
        phases: ONE,
        kind: Kind::Oltp,
    },
];

/// Everyday work: see [`daily`](crate::daily).
pub const DAILY: &Spec = &Spec {
    name: crate::daily::NAME,
    family: Family::Programs,
    summary: "everyday work by real programs, a step after the other: tar, find, grep, cp, rsync, git, make, sqlite3, rm",
    operation: "a step, the whole run of its program; of fsyncs, rewrite and rename a file",
    sizes: "--scale (1): a tree of 20,600 entries, 310 MB; --steps for some of the steps; a directory alone",
    pinned: false,
    timed: false,
    phases: &[],
    kind: Kind::Daily,
};

/// All of them.
pub fn every() -> impl Iterator<Item = &'static Spec> {
    ALL.iter().chain([DAILY])
}

/// A workload by name, in any case of letters.
pub fn find(name: &str) -> Option<&'static Spec> {
    every().find(|spec| spec.name.eq_ignore_ascii_case(name))
}

/// The workloads that a word of the user stands for: one by name, a family, `fxmark`, or `all` of the generator's.
///
/// # Errors
/// One that names the nearest.
pub fn named(word: &str) -> Result<Vec<&'static Spec>> {
    let lower = word.to_ascii_lowercase();
    let chosen: Vec<&Spec> = match lower.as_str() {
        "all" => ALL.iter().collect(),
        "fxmark" => ALL.iter().filter(|spec| spec.family != Macro).collect(),
        _ => ALL.iter().filter(|spec| spec.family.name() == lower).collect(),
    };
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    if let Some(spec) = find(word) {
        return Ok(vec![spec]);
    }
    let groups = ["all", "fxmark", "data", "metadata", "macro"];
    let names = every().map(|spec| spec.name).chain(groups);
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(&name.to_ascii_lowercase(), &lower);
    let nearest = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or("all");
    Err(Error::Usage(format!(
        "{word}: no such workload; the nearest is {nearest} (`narufs bench --list` shows all)"
    )))
}

impl Spec {
    /// Whether it measures what becomes of a limit of memory.
    pub fn limits_memory(&self) -> bool {
        matches!(self.kind, Kind::Iozone)
    }

    /// Says that it cannot run where only the generator can.
    pub(crate) fn not_here(&self) -> Error {
        let name = self.name;
        Error::Refused(format!(
            "{name}: real programs make system calls: say a directory, of a mount of narufs too"
        ))
    }

    /// Builds the workload and hands it over; nothing if it is none of the generator's.
    pub fn with<S: Session, V: Visitor<S>>(&self, env: Env, visitor: V) -> Option<V::Output> {
        Some(match self.kind {
            Kind::Daily => return None,
            Kind::Pages(access, sharing) => visitor.visit(Pages::new(env, access, sharing)),
            Kind::Append => visitor.visit(Append::new(env)),
            Kind::Truncate => visitor.visit(Truncate::new(env)),
            Kind::Create(place) => visitor.visit(Create::new(env, place)),
            Kind::Unlink(place) => visitor.visit(Unlink::new(env, place)),
            Kind::Rename(place) => visitor.visit(Rename::new(env, place)),
            Kind::OpenPath(target) => visitor.visit(OpenPath::new(env, target)),
            Kind::Enumerate(place) => visitor.visit(Enumerate::new(env, place)),
            Kind::Varmail => visitor.visit(Varmail::new(env)),
            Kind::Tokubench => visitor.visit(Tokubench::new(env)),
            Kind::Iozone => visitor.visit(Iozone::new(env)),
            Kind::Oltp => visitor.visit(Oltp::new(env)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_of_the_papers_is_there_once() {
        let names: Vec<&str> = ALL.iter().map(|spec| spec.name).collect();
        let wanted = "DWOL DWOM DWAL DWTL DWSL DRBL DRBM DRBH MWCL MWCM MWUL MWUM MWRL MWRM MRPL MRPM MRPH MRDL \
                      MRDM varmail tokubench iozone oltp";
        assert_eq!(names, wanted.split_whitespace().collect::<Vec<_>>());
        assert_eq!(named("fxmark").expect("a group").len(), 19);
        assert_eq!(named("ALL").expect("a group").len(), 23);
        assert_eq!(named("macro").expect("a family").len(), 4);
        assert_eq!(named("dwom").expect("a name")[0].name, "DWOM");
    }

    #[test]
    fn an_unknown_workload_is_answered_with_the_nearest() {
        for (word, nearest) in [
            ("varmial", "varmail"),
            ("DWOMM", "DWOM"),
            ("tokobench", "tokubench"),
            ("MRPX", "MRP"),
            ("fxmarks", "fxmark"),
        ] {
            let said = named(word).expect_err("unknown").to_string();
            assert!(said.contains(&format!("nearest is {nearest}")), "{said}");
        }
    }
}
