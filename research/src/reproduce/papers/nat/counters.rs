//! What a mount does for ids, by its own counters and clocks; and tables as large as one likes. A build without baselines
//! has neither: there nothing is found.

use narufs_bench::{Error, Result};
use narufs_engine::vfs::Vfs;

/// What was done for ids in some time, by each operation: names and amounts.
pub type Done = Vec<(&'static str, f64)>;

/// Counters at the begin of what is measured.
pub struct Counters {
    #[cfg(feature = "baselines")]
    before: narufs_engine::meta::IdWork,
}

#[cfg(feature = "baselines")]
impl Counters {
    /// From now on.
    pub fn begin(fs: &Vfs) -> Counters {
        let space = fs.meta().space();
        space.time_ids(true);
        Counters { before: space.id_work() }
    }

    /// Nanoseconds to take an id and to give it back, and counts of an operation.
    pub fn done(&self, fs: &Vfs) -> Done {
        let (before, now) = (self.before, fs.meta().space().id_work());
        let each = |amount: u64, of: u64| amount as f64 / of.max(1) as f64;
        let (taken, freed) = (now.taken - before.taken, now.freed - before.freed);
        let all = taken + freed;
        vec![
            ("take ns", each(now.taken_ns - before.taken_ns, taken)),
            ("free ns", each(now.freed_ns - before.freed_ns, freed)),
            ("passed", each(now.passed - before.passed, all)),
            ("read", each(now.read - before.read, all)),
            ("scans", each(now.scans - before.scans, all)),
            ("waits", each(now.waits - before.waits, all)),
        ]
    }
}

#[cfg(not(feature = "baselines"))]
impl Counters {
    /// From now on.
    pub fn begin(_: &Vfs) -> Counters {
        Counters {}
    }

    /// Nothing.
    pub fn done(&self, _: &Vfs) -> Done {
        Vec::new()
    }
}

/// Makes blocks of the table whose ids are all in use.
///
/// # Errors
/// What the file system says; that this build cannot.
pub fn fill(fs: &Vfs, blocks: u64) -> Result<()> {
    #[cfg(feature = "baselines")]
    return fs.meta().space().fill_ids(blocks).map_err(|e| Error::Refused(format!("a table: {e}")));
    #[cfg(not(feature = "baselines"))]
    Err(Error::Refused(format!("{blocks} blocks of {:p} are not made by a build without baselines", fs)))
}
