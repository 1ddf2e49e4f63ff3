//! Pages held by a role that has the write-back mutex.

use super::PageStates;
use super::sets::Sets;
use crate::format::Position;
use std::ops::Deref;

/// Pages that were taken to be written in place. Dropped before it is finished, all of them are dirty again.
#[derive(Debug)]
#[must_use = "dropped, it is a write-back that has failed"]
pub(crate) struct UnderWriteBack<'s> {
    states: &'s PageStates,
    pages: Vec<u64>,
    is_finished: bool,
}

/// The end of a write-back, with the states locked.
#[derive(Debug)]
pub(crate) struct WriteBackEnd<'l> {
    sets: &'l mut Sets,
    /// Extent blocks that are not needed any more.
    nodes: u64,
}

impl<'s> UnderWriteBack<'s> {
    pub(super) fn new(states: &'s PageStates, pages: Vec<u64>) -> UnderWriteBack<'s> {
        UnderWriteBack { states, pages, is_finished: false }
    }

    /// Some of them are not written this time: they are dirty again.
    pub fn put_back(&self, pages: &[u64]) {
        self.states.sets.lock().dirty.extend(pages);
    }

    /// The write-back is over: `tell` says of each page that was not put back what became of it. So many writes of the
    /// device are flushed by now. How many extent blocks are not needed any more.
    #[must_use = "somebody else may need them"]
    pub fn finish(mut self, flushed: u64, tell: impl FnOnce(&mut WriteBackEnd<'_>)) -> u64 {
        let mut sets = self.states.sets.lock();
        sets.under_write_back = false;
        sets.trim_unflushed(flushed);
        let mut end = WriteBackEnd { sets: &mut sets, nodes: 0 };
        tell(&mut end);
        let nodes = end.nodes;
        sets.shrink();
        drop(sets);
        self.is_finished = true;
        nodes
    }
}

impl WriteBackEnd<'_> {
    /// The page was not written, or not recorded: it is dirty again.
    pub fn failed(&mut self, page: u64) {
        self.sets.dirty.insert(page);
    }

    /// The page is in place. If it `is_newer` than its record, that is stale now: the answer, if it was not before, is the
    /// position after it. `overwritten`, where it had its place before: the device's count of writes.
    pub fn written(&mut self, page: u64, is_newer: bool, overwritten: Option<u64>) -> Option<Position> {
        let mut stale_upto = None;
        if let Some(record) = self.sets.records.get_mut(&page) {
            record.first = Position::MAX;
            if is_newer && self.sets.stale.insert(page) {
                stale_upto = Some(record.last);
            }
        }
        if let Some(completed) = overwritten {
            self.sets.unflushed.insert(page, completed);
        }
        stale_upto
    }

    /// The page is in place, but is to count as wholly dirty: so does what a record takes of it.
    pub fn stays_dirty(&mut self, page: u64) {
        self.sets.stale.remove(&page);
        self.sets.dirty.insert(page);
    }

    /// So many blocks that were set aside are used, or wanted no more.
    pub fn unreserve(&mut self, count: u64) {
        self.nodes += self.sets.unreserve(count);
    }
}

impl Deref for UnderWriteBack<'_> {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.pages
    }
}

impl Drop for UnderWriteBack<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let mut sets = self.states.sets.lock();
        sets.under_write_back = false;
        sets.dirty.extend(&self.pages);
        drop(sets);
        self.states.note_failure();
    }
}

/// Pages that were taken to be logged. Dropped before it is finished, all of them are dirty again, and have a record if
/// that was logged.
#[derive(Debug)]
#[must_use = "dropped, it is a write-back that has failed"]
pub(crate) struct Logging<'s> {
    states: &'s PageStates,
    pages: Vec<u64>,
    /// The position after their record, once it is logged.
    end: Option<Position>,
    is_finished: bool,
}

/// The end of logging, with the states locked.
#[derive(Debug)]
pub(crate) struct LoggingEnd<'l> {
    sets: &'l mut Sets,
    end: Position,
    /// Extent blocks that are not needed any more.
    nodes: u64,
}

impl<'s> Logging<'s> {
    pub(super) fn new(states: &'s PageStates, pages: Vec<u64>) -> Logging<'s> {
        Logging { states, pages, end: None, is_finished: false }
    }

    /// Their record is in the journal, up to this position.
    pub fn record_logged(&mut self, end: Position) {
        self.end = Some(end);
    }

    /// Nothing was logged: the pages are dirty again. No failure: they go another way.
    pub fn abort(&mut self) {
        self.put_back();
        self.is_finished = true;
    }

    /// The record that ends at `end` is logged; with `truncates`, it is that of a pending truncation too. `tell` says
    /// which pages it holds. How many extent blocks are not needed any more.
    #[must_use = "somebody else may need them"]
    pub fn finish(&mut self, end: Position, truncates: bool, tell: impl FnOnce(&mut LoggingEnd<'_>)) -> u64 {
        let mut sets = self.states.sets.lock();
        sets.being_logged = false;
        if truncates {
            sets.truncate_recorded();
        }
        let mut ended = LoggingEnd { sets: &mut sets, end, nodes: 0 };
        tell(&mut ended);
        let nodes = ended.nodes;
        drop(sets);
        self.is_finished = true;
        nodes
    }

    /// Whether a drop would put the pages back.
    pub fn is_unfinished(&self) -> bool {
        !self.is_finished
    }

    /// Ends it as a drop does, but sooner.
    pub fn give_up(&mut self) {
        self.put_back();
        self.states.note_failure();
        self.is_finished = true;
    }

    fn put_back(&mut self) {
        let mut sets = self.states.sets.lock();
        for page in &self.pages {
            sets.dirty.insert(*page);
            if let Some(end) = self.end {
                sets.recorded(*page, end);
            }
        }
        sets.being_logged = false;
    }
}

impl LoggingEnd<'_> {
    /// The record holds this page. Unless it `is_current` a writer has made it dirty again meanwhile.
    pub fn logged(&mut self, page: u64, is_current: bool) {
        self.sets.recorded(page, self.end);
        self.sets.stale.remove(&page);
        if is_current {
            self.sets.logged.insert(page);
        }
    }

    /// So many blocks that were set aside are used, or wanted no more.
    pub fn unreserve(&mut self, count: u64) {
        self.nodes += self.sets.unreserve(count);
    }
}

impl Deref for Logging<'_> {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.pages
    }
}

impl Drop for Logging<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.give_up();
        }
    }
}
