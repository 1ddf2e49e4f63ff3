//! The moments between a record and the objects in memory that it changed.
//!
//! Pages are changed by the commit itself; what the inodes in memory say is changed behind it, with their locks held.
//! An operation that panics between the two leaves an inode that is older than its page: the next operation would log
//! the old one again. So then the file system goes read-only, and the next mount finds what was logged.

use super::Meta;
use crate::Result;
use crate::format::Position;
use crate::planted::{self, Spot};
use crate::store::{BrokenOff, Handle};

impl Meta {
    /// Commits an operation whose caller then changes objects in memory; the end of its record.
    pub(crate) fn commit(&self, h: Handle<'_>) -> Result<(Position, BrokenOff<'_>)> {
        let guard = BrokenOff::watch(self.store(), "an operation broke off behind its record");
        let end = h.commit()?;
        planted::panic_at(Spot::Committed);
        Ok((end, guard))
    }
}
