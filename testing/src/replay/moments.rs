//! Moments at which a machine stood still, each with what its persistent memory held then.
//!
//! QEMU keeps the memory of an NVDIMM in a file, whose stores nobody records. testing/machines/moments.py stops QEMU now and
//! then, and copies the part of that file that the journal lies in, under the bytes that the record had then as a name. What
//! the record's entries within those bytes have written is what the disk may hold of the same moment.
//!
//! Left to others: stores that had not reached the medium, of which an emulated NVDIMM has none.

use crate::demand;
use crate::outlive::Outcome;
use std::path::{Path, PathBuf};

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Bytes of the record.
    pub size: u64,
    /// What the memory held.
    pub memory: PathBuf,
}

/// Those that a directory has, in their order.
///
/// # Errors
/// A name that is no number, or none at all.
pub fn read(dir: &Path) -> Outcome<Vec<Moment>> {
    let mut moments = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let size = name.to_str().and_then(|name| name.parse().ok());
        let size = size.ok_or_else(|| format!("{}: not the size of a record", name.display()))?;
        moments.push(Moment { size, memory: entry.path() });
    }
    demand!(!moments.is_empty(), "there is no moment in {}", dir.display());
    moments.sort_by_key(|moment| moment.size);
    Ok(moments)
}
