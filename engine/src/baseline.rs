//! What a mount does as the systems did that narufs is measured against, in place of its own way: one switch for each
//! technique, so that a technique and its baseline run in the same engine, on the same device. Compiled only with the
//! feature `baselines`.
//!
//! Each keeps every promise of docs/CONSISTENCY.md that its own design can keep, and is built as well as its authors
//! would build it. What this leaves to others: all that the names mean, which stands where the technique does.

use std::fmt;
use std::str::FromStr;

/// How records reach the journal, and commits (T1, T2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JournalBaseline {
    /// As narufs does.
    #[default]
    Ours,
    /// As jbd2: images of whole blocks in running transactions.
    Jbd2,
    /// A journal in memory of slots as large as an inode, under locks.
    Fine,
    /// As published in 2020: a word for the slots, a flag in each, commits in the order of an array.
    Paper,
}

impl JournalBaseline {
    /// Whether what has returned may be lost with the process, until it is synced.
    pub fn keeps_in_memory(self) -> bool {
        matches!(self, JournalBaseline::Jbd2 | JournalBaseline::Fine)
    }

    /// An error if no server can go on with a mount that has this journal when another has ended.
    pub(crate) fn check_successors(self) -> crate::Result<()> {
        if !self.keeps_in_memory() {
            return Ok(());
        }
        Err(crate::Error::Refused(
            "a journal of transactions loses operations that have returned with its server, so that no other can go on \
             with the mount: say supervise=no"
                .into(),
        ))
    }
}

/// What guards the bytes of a file (T4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockBaseline {
    /// As narufs does.
    #[default]
    Ours,
    /// A reader-writer semaphore for the whole file.
    Inode,
    /// The published range lock: an interval tree under one lock.
    Tree,
}

/// Where free inode numbers are found (T5, T6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdsBaseline {
    /// As narufs does.
    #[default]
    Ours,
    /// In one list under one lock, and a semaphore for the whole node address table.
    Global,
    /// The same list, refilled by a scan of the table under a mutex.
    Scan,
}

/// Where the data of small synced writes goes (T9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataBaseline {
    /// As narufs does: into the journal.
    #[default]
    Ours,
    /// Home, before the record that needs it is committed, as ext4 by default.
    Ordered,
}

/// Who writes metadata home (T3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointBaseline {
    /// As narufs does.
    #[default]
    Ours,
    /// One thread, with one request under way.
    One,
    /// One thread, with 64 buffers in a batch, as jbd2.
    Batched,
}

/// Needless requests of scratch space that spills (T7); none of them in narufs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpillBaseline {
    /// A page that comes in loses its copy on the device, and is written again when it leaves.
    pub clean_lost: bool,
    /// A page that is overwritten whole is read before.
    pub read_before_overwrite: bool,
    /// Each miss reads eight pages, whatever the reader does.
    pub blind_readahead: bool,
}

/// What a mount does in the old way: nothing, by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Baselines {
    /// The journal.
    pub journal: JournalBaseline,
    /// The data of synced writes.
    pub data: DataBaseline,
    /// The lock of a file's bytes.
    pub lock: LockBaseline,
    /// Inode numbers.
    pub ids: IdsBaseline,
    /// Checkpoints.
    pub checkpoint: CheckpointBaseline,
    /// Spilling.
    pub spill: SpillBaseline,
}

/// Each name, and what it stands for.
pub const NAMES: [(&str, Baselines); 13] = [
    ("journal-jbd2", Baselines { journal: JournalBaseline::Jbd2, ..OURS }),
    ("journal-fine", Baselines { journal: JournalBaseline::Fine, ..OURS }),
    ("journal-paper", Baselines { journal: JournalBaseline::Paper, ..OURS }),
    ("data-ordered", Baselines { data: DataBaseline::Ordered, ..OURS }),
    ("checkpoint-one", Baselines { checkpoint: CheckpointBaseline::One, ..OURS }),
    ("checkpoint-64", Baselines { checkpoint: CheckpointBaseline::Batched, ..OURS }),
    ("lock-inode", Baselines { lock: LockBaseline::Inode, ..OURS }),
    ("lock-tree", Baselines { lock: LockBaseline::Tree, ..OURS }),
    ("ids-global", Baselines { ids: IdsBaseline::Global, ..OURS }),
    ("ids-scan", Baselines { ids: IdsBaseline::Scan, ..OURS }),
    ("spill-clean-lost", spill(SpillBaseline { clean_lost: true, ..FRUGAL })),
    ("spill-read-before-overwrite", spill(SpillBaseline { read_before_overwrite: true, ..FRUGAL })),
    ("spill-blind-readahead", spill(SpillBaseline { blind_readahead: true, ..FRUGAL })),
];

const FRUGAL: SpillBaseline =
    SpillBaseline { clean_lost: false, read_before_overwrite: false, blind_readahead: false };

const OURS: Baselines = Baselines {
    journal: JournalBaseline::Ours,
    data: DataBaseline::Ours,
    lock: LockBaseline::Ours,
    ids: IdsBaseline::Ours,
    checkpoint: CheckpointBaseline::Ours,
    spill: FRUGAL,
};

const fn spill(spill: SpillBaseline) -> Baselines {
    Baselines { spill, ..OURS }
}

/// Takes what `other` has chosen; false if something else was chosen before.
fn take<T: Copy + Default + PartialEq>(own: &mut T, other: T) -> bool {
    let usual = T::default();
    if other == usual {
        return true;
    }
    let is_free = *own == usual || *own == other;
    *own = other;
    is_free
}

impl Baselines {
    /// With the choices of `other` too; `None` if one part would have two.
    pub fn and(mut self, other: Baselines) -> Option<Baselines> {
        let Baselines { journal, data, lock, ids, checkpoint, spill } = other;
        let fit = [
            take(&mut self.journal, journal),
            take(&mut self.data, data),
            take(&mut self.lock, lock),
            take(&mut self.ids, ids),
            take(&mut self.checkpoint, checkpoint),
            take(&mut self.spill.clean_lost, spill.clean_lost),
            take(&mut self.spill.read_before_overwrite, spill.read_before_overwrite),
            take(&mut self.spill.blind_readahead, spill.blind_readahead),
        ];
        fit.iter().all(|fits| *fits).then_some(self)
    }

    /// The names of what was chosen.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let own = *self;
        NAMES.iter().filter(move |(_, one)| own.and(*one) == Some(own)).map(|(name, _)| *name)
    }
}

impl FromStr for Baselines {
    type Err = String;

    /// Reads names with `+` between them; `ours` stands for none.
    fn from_str(text: &str) -> Result<Baselines, String> {
        let mut all = Baselines::default();
        for name in text.split('+').filter(|name| *name != "ours") {
            let Some((_, one)) = NAMES.iter().find(|(known, _)| *known == name) else {
                let known: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
                return Err(format!("{name:?}: there are {}, joined by +", known.join(", ")));
            };
            all = all.and(*one).ok_or_else(|| format!("{text}: two baselines for one part: say one"))?;
        }
        Ok(all)
    }
}

impl fmt::Display for Baselines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        f.write_str(if names.is_empty() { "ours".to_owned() } else { names.join("+") }.as_str())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!("ours".parse(), Ok(OURS));
        assert_eq!((OURS.to_string(), OURS), ("ours".to_owned(), Baselines::default()));
        for (name, one) in NAMES {
            assert_eq!((name.parse(), one.to_string()), (Ok(one), name.to_owned()));
            assert_ne!(one, OURS);
        }
        let all = "journal-fine+data-ordered+checkpoint-64+lock-tree+ids-scan+spill-clean-lost+spill-blind-readahead";
        let read: Baselines = all.parse().expect("they go together");
        assert_eq!(read.to_string(), all);
        assert!(read.spill.clean_lost && !read.spill.read_before_overwrite);
    }

    #[test]
    fn a_part_has_one_baseline() {
        for bad in ["lock-inode+lock-tree", "journal-jbd2+ids-scan+journal-paper"] {
            assert!(bad.parse::<Baselines>().unwrap_err().contains("two baselines for one part"));
        }
        assert!("lock-inode+lock-inode".parse::<Baselines>().is_ok());
        for bad in ["", "lock", "lock-tree+", "Lock-Tree"] {
            assert!(bad.parse::<Baselines>().unwrap_err().contains("spill-clean-lost"), "{bad}");
        }
    }
}
