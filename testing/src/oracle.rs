//! What may be found after a crash: the contract of docs/CONSISTENCY, made executable.
//!
//! The oracle is told each operation when it has returned, and the one that was under way. It keeps the
//! model after each operation that a crash may take back, and of each file, by identity, the contents it had
//! since it was last surely durable.
//!
//! Judged are, for some number of operations kept: all names, types, links, owners, modes, extended
//! attributes exactly as the model has them; sizes and bytes of files by these rules:
//! - a file that was synced after its last change is exact;
//! - else each byte is one that the file had at this place since then; or zero, where it changed since;
//! - a file that a rename put in another's place is at least as new as that rename;
//! - of an atomic batch all files have its content, or none has;
//! - a file with content that was emptied and rewritten has the old content or the new, not a mixture. Among others,
//!   whose syncs may come between the emptying and the rewriting, it may also be empty or a part of the new.

use crate::model::{Model, Outcome, Shown, Tree};
use crate::op::{Durable, Falloc, Op};
use crate::target::compare;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Which operations survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All that returned, whatever was synced.
    All,
    /// A prefix of all that holds those that returned before a successful sync began.
    Prefix,
}

/// What a file held.
#[derive(Debug, Clone)]
struct Version {
    /// Number of the operation that made it.
    op: usize,
    data: Arc<Vec<u8>>,
    /// It replaces all that was before at once.
    replaces: bool,
    /// The content of another place of the file, moved: counts for its bytes alone.
    moved: bool,
}

/// What an operation that is kept says of a file's older contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// They are gone: a rename put the file in another's place, or a batch has written to it.
    Since,
    /// They end at this size.
    Cut(usize),
}

/// The oracle.
#[derive(Debug, Clone)]
pub struct Oracle {
    kept: Kept,
    /// Others sync the same file system.
    among_others: bool,
    /// Numbers of operations and the model after each, from the last that surely survives.
    models: VecDeque<(usize, Model)>,
    /// Contents since the file was last synced; the first is surely durable.
    files: BTreeMap<usize, Vec<Version>>,
    /// Operations that bound what a file may show once they are surely kept: the file and the operation.
    durable: Vec<(usize, usize, Bound)>,
    /// Batches, and the files of each.
    batches: Vec<(usize, Vec<usize>)>,
    next: usize,
}

impl Oracle {
    /// Everything that the model shows is durable.
    pub fn new(model: Model, kept: Kept) -> Oracle {
        let version =
            |data: &Arc<Vec<u8>>| Version { op: 0, data: data.clone(), replaces: false, moved: false };
        let files = model.files().into_iter();
        let files = files.filter_map(|id| Some((id, vec![version(model.content(id)?)]))).collect();
        Oracle {
            kept,
            among_others: false,
            models: VecDeque::from([(0, model)]),
            files,
            durable: Vec::new(),
            batches: Vec::new(),
            next: 1,
        }
    }

    /// For one of several who work on, and sync, the same file system.
    pub fn among_others(self) -> Oracle {
        Oracle { among_others: true, ..self }
    }

    /// The model after everything that returned.
    pub fn model(&self) -> &Model {
        &self.models[self.models.len() - 1].1
    }

    /// An operation has returned; what it must have answered.
    pub fn returned(&mut self, op: &Op) -> Outcome {
        let outcome = self.begun(op);
        if outcome.is_ok() && op.syncs() {
            self.synced(op);
        }
        if self.kept == Kept::All {
            self.mark_durable(self.next - 1);
            self.models.drain(..self.models.len() - 1);
        }
        outcome
    }

    /// An operation was under way; nothing may be told after it.
    pub fn begun(&mut self, op: &Op) -> Outcome {
        let number = self.next;
        self.next += 1;
        let mut model = self.model().clone();
        let outcome = model.apply(op);
        if outcome.is_ok()
            && let Op::Rename { from, to, flags: 0 } = op
            && let Some(file) = self.model().identity(from)
            && self.model().identity(to).is_some_and(|over| over != file)
        {
            self.durable.push((file, number, Bound::Since));
        }
        // Emptying a file is recorded with its new content only, and so is what follows until then.
        if outcome.is_ok()
            && let Op::Truncate { path, size: 1.. } = op
            && let Some(file) = self.model().identity(path)
            && !self.files.get(&file).is_some_and(|v| v.iter().any(|v| v.replaces || v.data.is_empty()))
            && let Some(size) = model.content(file).map(|data| data.len())
        {
            self.durable.push((file, number, Bound::Cut(size)));
        }
        if outcome.is_ok()
            && let Op::Batch { paths, .. } = op
        {
            let files: Vec<_> = paths.iter().filter_map(|path| self.model().identity(path)).collect();
            self.durable.extend(files.iter().map(|file| (*file, number, Bound::Since)));
            self.batches.push((number, files));
        }
        for id in model.files() {
            let Some(now) = model.content(id) else { continue };
            let versions = self.files.entry(id).or_insert_with(|| {
                vec![Version { op: number, data: Arc::default(), replaces: false, moved: false }]
            });
            if versions.last().is_some_and(|v| !Arc::ptr_eq(&v.data, now)) {
                // In an empty file there is nothing to replace, whatever it held once: what is written there is written,
                // no more.
                let was_empty = versions.last().is_some_and(|v| v.data.is_empty());
                let mut replaces = matches!(op, Op::Rewrite { .. }) && !was_empty;
                let moved: Vec<Version> = versions.iter().filter_map(|v| moved(op, v)).collect();
                versions.extend(moved);
                if replaces && self.among_others {
                    versions.push(Version { op: number, data: Arc::default(), replaces, moved: false });
                    replaces = false;
                }
                versions.push(Version { op: number, data: now.clone(), replaces, moved: false });
            }
        }
        self.files.retain(|id, _| {
            model.content(*id).is_some() || self.models.iter().any(|(_, m)| m.content(*id).is_some())
        });
        self.models.push_back((number, model));
        outcome
    }

    /// What a sync that returned makes durable: every operation before it, and the data it names.
    fn synced(&mut self, op: &Op) {
        let model = self.model().clone();
        let ids = match op {
            Op::SyncAll => model.files(),
            Op::Fsync { path }
            | Op::Fdatasync { path }
            | Op::Write { path, .. }
            | Op::WriteDirect { path, .. } => {
                // A sync of an open file covers the whole file; O_DSYNC the bytes of its own write. Both are
                // whole files here: the oracle is told of the sync only where nothing else was written.
                model.identity(path).into_iter().collect()
            }
            Op::Batch { paths, .. } => paths.iter().filter_map(|path| model.identity(path)).collect(),
            _ => Vec::new(),
        };
        let own = matches!(
            op,
            Op::Write { durable: Durable::Dsync | Durable::Sync, .. }
                | Op::WriteDirect { durable: Durable::Dsync | Durable::Sync, .. }
        );
        for id in ids {
            if let Some(versions) = self.files.get_mut(&id) {
                if own && versions.len() > 2 {
                    own_bytes(op, versions);
                } else if let Some(last) = versions.pop() {
                    *versions = vec![Version { replaces: false, moved: false, ..last }];
                }
            }
        }
        self.mark_durable(self.next - 1);
        self.models.drain(..self.models.len() - 1);
        // All of them are.
        self.batches.clear();
    }

    /// The renames up to an operation are kept: their files begin there.
    fn mark_durable(&mut self, upto: usize) {
        for (file, op, bound) in std::mem::take(&mut self.durable) {
            if op > upto {
                self.durable.push((file, op, bound));
            } else if let Some(versions) = self.files.get_mut(&file) {
                bound.apply(op, versions);
            }
        }
    }

    /// Judges what was found; the number of operations that were taken back.
    ///
    /// # Errors
    /// What contradicts the contract, for the state that fits best.
    pub fn check(&self, shown: &Tree) -> Result<usize, String> {
        let mut errors = Vec::new();
        for (back, (op, model)) in self.models.iter().rev().enumerate() {
            match self.check_against(*op, model, shown) {
                Ok(()) => return Ok(back),
                Err(e) => errors.push(format!("with all up to operation {op}: {e}")),
            }
        }
        Err(errors.join("; "))
    }

    fn check_against(&self, op: usize, model: &Model, shown: &Tree) -> Result<(), String> {
        let mut want = model.tree();
        for (path, want) in &mut want {
            let Some(id) = model.identity(path) else { continue };
            // Times that a later operation changed may have changed already.
            if self.models.iter().any(|(n, m)| *n > op && times(m, id, path, model)) {
                (want.times, want.touched) = (None, false);
            }
            let (Some(_), Some(got)) = (model.content(id), shown.get(path)) else { continue };
            self.check_content(op, id, got).map_err(|e| format!("{path}: {e}"))?;
            want.data.clone_from(&got.data);
            // Times that a write changed are recorded with its data.
            if self.files.get(&id).is_none_or(|versions| versions.len() > 1) {
                (want.times, want.touched) = (None, false);
            }
        }
        self.batches.iter().try_for_each(|batch| self.check_batch(batch, model, shown))?;
        compare(&want, shown)
    }

    /// Whether all files show the batch, or may show what was before it.
    fn check_batch(
        &self,
        (op, files): &(usize, Vec<usize>),
        model: &Model,
        shown: &Tree,
    ) -> Result<(), String> {
        let (mut old, mut new) = (Ok(()), Ok(()));
        for id in files {
            let got = model.path_of(*id).and_then(|path| shown.get(&path));
            let (Some(versions), Some(got)) = (self.files.get(id), got) else { continue };
            // What was moved keeps the number of what it was before, and its place behind.
            let (before, behind): (Vec<_>, Vec<_>) =
                versions.iter().cloned().partition(|version| version.op < *op);
            old = old.and_then(|()| fits(&before, &got.data));
            new = new.and_then(|()| fits(&behind, &got.data));
        }
        match (old, new) {
            (Err(old), Err(new)) => {
                Err(format!("a part of the batch of operation {op}: not before ({old}), not behind ({new})"))
            }
            _ => Ok(()),
        }
    }

    fn check_content(&self, op: usize, id: usize, got: &Shown) -> Result<(), String> {
        let Some(versions) = self.files.get(&id) else { return Err("the oracle lost it".into()) };
        let mut versions = versions.clone();
        for (file, number, bound) in &self.durable {
            if *file == id && *number <= op {
                bound.apply(*number, &mut versions);
            }
        }
        let mut errors = Vec::new();
        let starts = (1..versions.len()).filter(|i| versions[*i].replaces);
        let mut bounds: Vec<usize> = [0].into_iter().chain(starts).collect();
        bounds.push(versions.len());
        for era in bounds.windows(2).rev() {
            match fits(&versions[era[0]..era[1]], &got.data) {
                Ok(()) => return Ok(()),
                Err(e) => errors.push(e),
            }
        }
        Err(errors.join(", or "))
    }
}

/// Whether times of an inode differ from what the earlier model has, or are no more known.
fn times(later: &Model, id: usize, path: &str, earlier: &Model) -> bool {
    let of = |m: &Model, p: &str| m.times(p);
    match later.path_of(id) {
        Some(now) => of(later, &now) != of(earlier, path),
        None => true,
    }
}

impl Bound {
    /// Takes away what an operation with this number, which is kept, rules out.
    fn apply(self, op: usize, versions: &mut Vec<Version>) {
        match self {
            Bound::Since => {
                let keep = versions.iter().rposition(|v| v.op <= op && !v.moved).unwrap_or(0);
                versions.drain(..keep);
                if let Some(first) = versions.first_mut() {
                    first.replaces = false;
                }
            }
            Bound::Cut(size) => {
                for version in versions.iter_mut().filter(|v| v.op < op && v.data.len() > size) {
                    Arc::make_mut(&mut version.data).truncate(size);
                }
            }
        }
    }
}

/// O_DSYNC of one write: its own bytes and the size are durable, other bytes may still be older.
fn own_bytes(op: &Op, versions: &mut [Version]) {
    let (offset, len) = match op {
        Op::Write { offset, len, .. } => (*offset as usize, *len as usize),
        Op::WriteDirect { block, blocks, .. } => (*block as usize * 4096, *blocks as usize * 4096),
        _ => return,
    };
    let Some(last) = versions.last().map(|v| v.data.clone()) else { return };
    let range = offset..(offset + len).min(last.len());
    for version in versions {
        let data = Arc::make_mut(&mut version.data);
        if data.len() < last.len() {
            data.resize(last.len(), 0);
        }
        data[range.clone()].copy_from_slice(&last[range.clone()]);
    }
}

/// What a version becomes where an operation moves its bytes.
fn moved(op: &Op, version: &Version) -> Option<Version> {
    let Op::Fallocate { mode, offset, len, .. } = op else { return None };
    let (start, len) = (*offset as usize, *len as usize);
    let mut data = version.data.to_vec();
    match mode {
        Falloc::Collapse if start < data.len() => drop(data.drain(start..(start + len).min(data.len()))),
        Falloc::Insert if start < data.len() => drop(data.splice(start..start, std::iter::repeat_n(0, len))),
        _ => return None,
    }
    Some(Version { data: Arc::new(data), moved: true, ..version.clone() })
}

/// Whether content is one of the versions, or a mixture of them that unsynced writes may leave.
fn fits(versions: &[Version], got: &[u8]) -> Result<(), String> {
    if versions.iter().any(|v| !v.moved && v.data[..] == *got) {
        return Ok(());
    }
    let lens = || versions.iter().map(|v| v.data.len());
    let (least, most) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
    // What is written in several steps may end between two of them, at a page.
    let stepped = got.len().is_multiple_of(4096) && (least..most).contains(&got.len());
    if !stepped && lens().all(|len| len != got.len()) {
        return Err(format!("{} bytes; it had {:?}", got.len(), lens().collect::<Vec<_>>()));
    }
    for (at, byte) in got.iter().enumerate() {
        let mut had = versions.iter().map(|v| v.data.get(at));
        if had.clone().flatten().any(|b| b == byte) {
            continue;
        }
        let first = had.next().flatten();
        let changed = first.is_none() || had.any(|b| b != first);
        if !(changed && *byte == 0) {
            let had: Vec<_> = versions.iter().map(|v| v.data.get(at).copied()).collect();
            return Err(format!("byte {at} of {} is {byte:#x}; it was {had:x?}", got.len()));
        }
    }
    Ok(())
}
