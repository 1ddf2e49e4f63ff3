//! Recovery: from what a crash left to a state that contains everything committed.
//!
//! It works on a [`Store`](crate::store::Store) that has no journal yet, so that nothing can be logged meanwhile. Which ring counts
//! and whether it belongs to the image is decided in [`crate::volume`], which also begins the new epoch.
//!
//! # Order
//! 1. `restore`: what an unfinished checkpoint round may have torn at home is mended from the double-write
//!    area; flush.
//! 2. `redo`: every record that counts, in the order of positions, onto the pages; where that fills the
//!    budget, pages go home in between, through the double-write area, in the round that did not finish.
//! 3. Data records: per byte the newest that counts, to where the recovered metadata say; flush.
//! 4. The remaining pages go home; flush. The caller then makes a new epoch durable, and only then is
//!    anything logged.
//!
//! Redo is physical and absolute: whatever mixture of older and newer states (none beyond the end) the homes
//! have, the records in order lead to the same bytes. So recovery may crash anywhere and begin again.
//!
//! Where the journal is damaged nothing at all is written home, and nothing more once a page that it needs turns
//! out to be: the mount recovers into memory, as for any reader, and is read-only with the reason. What such a reader sees,
//! and what is redone where the rest of the journal is given up, ends at the damage; what lies in place in a newer form stays
//! there (`beyond`).

pub(crate) mod absorbed;
mod beyond;
mod redo;
mod resolve;
mod restore;

pub(crate) use restore::{Area, make_blank, unreadable};

use crate::checkpoint::{Checkpointer, RoundId};
use crate::format::Nid;
use crate::journal::Scan;
use crate::planted::{self, Bug};
use crate::takeover::NewerHome;
use crate::{Error, Result};
use absorbed::DataRedo;
use resolve::Recovered;

/// What recovery found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Records redone.
    pub records: u64,
    /// Images restored from the double-write area.
    pub restored: u64,
    /// Pages of file data written.
    pub data_pages: u64,
    /// Blocks of the double-write area that the device failed to read: see `restore`.
    pub unreadable: Vec<u64>,
    /// Files whose content may be older than what was synced, for the journal is damaged: see `beyond`.
    pub older: Vec<Nid>,
    /// What is damaged; the mount must be read-only.
    pub damage: Option<String>,
}

/// Where recovery writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Onto {
    /// To the image: at the first damage it ends.
    Image,
    /// To an overlay in memory, for readers: it goes on past damage as far as it can.
    Memory,
}

/// Steps 1 to 4. Onto the homes none of them is done where some of the double-write area cannot be read: whether that
/// matters is to be found out first. `round` marks what is written meanwhile: the ring's epoch, and the round after its last.
/// `homes`: what a killed predecessor has left in place in a newer form than the journal's, by position.
///
/// # Errors
/// Those of the device. Damage is no error but part of the outcome.
pub(crate) fn recover(
    pages: &Checkpointer,
    scan: &Scan,
    round: RoundId,
    homes: &[NewerHome],
    onto: Onto,
) -> Result<Outcome> {
    let store = &**pages.store();
    let mut outcome = Outcome { damage: scan.damage.clone(), ..Outcome::default() };
    let ends = |outcome: &Outcome| onto == Onto::Image && outcome.damage.is_some();
    if ends(&outcome) {
        return Ok(outcome);
    }
    if !planted::is(Bug::NoRestore) {
        let area = Area::read(store)?;
        outcome.unreadable.clone_from(&area.unreadable);
        if onto == Onto::Image && !outcome.unreadable.is_empty() {
            return Ok(outcome);
        }
        outcome.restored = restore::restore(store, &area, scan.end, round)?;
    }
    let mut data = DataRedo::new();
    let without_images = !outcome.unreadable.is_empty();
    // A home that cannot be read is damage where its image may be what cannot be read either, for a reader to go on.
    let damages = |e: &Error| match e {
        Error::Corrupt { .. } => true,
        Error::Device { .. } => onto == Onto::Memory && without_images,
        _ => false,
    };
    let noted = (onto == Onto::Memory).then_some(&mut outcome.damage);
    match redo::redo(pages, scan, round, homes, &mut data, noted) {
        Ok(records) => outcome.records = records,
        Err(e) if damages(&e) => note(&mut outcome.damage, e.to_string()),
        Err(e) => return Err(e),
    }
    if ends(&outcome) {
        return Ok(outcome);
    }
    if scan.damage.is_some() {
        match beyond::heed(pages, scan, round, &mut data) {
            Ok(older) => outcome.older = older,
            Err(e) if damages(&e) => note(&mut outcome.damage, e.to_string()),
            Err(e) => return Err(e),
        }
    }
    // What lies in place and is to stay was not flushed yet.
    if !data.is_empty() || !homes.is_empty() {
        match data.finish(store.device().as_ref(), &Recovered { store }) {
            Ok(pages) => outcome.data_pages = pages,
            Err(e) if damages(&e) => note(&mut outcome.damage, e.to_string()),
            Err(e) => return Err(e),
        }
    }
    if !ends(&outcome) && !planted::is(Bug::EpochBeforeHome) {
        pages.write_all(round)?;
    }
    Ok(outcome)
}

/// Redoes what can be of a journal whose rest is given up, after the images of its round were restored: records up to
/// the damage, on every page that is not damaged itself. What is left is for a check to find. What was done goes into the
/// outcome.
///
/// # Errors
/// Those of the device.
pub(crate) fn redo_in_part(
    pages: &Checkpointer,
    scan: &Scan,
    round: RoundId,
    homes: &[NewerHome],
    outcome: &mut Outcome,
) -> Result<()> {
    let store = &**pages.store();
    let whole = |result: Result<u64>| match result {
        Err(e @ Error::Corrupt { .. }) => {
            tracing::warn!("given up with the journal: {e}");
            Ok(0)
        }
        result => result,
    };
    let (mut data, mut damage) = (DataRedo::new(), scan.damage.clone());
    outcome.records = whole(redo::redo(pages, scan, round, homes, &mut data, Some(&mut damage)))?;
    if scan.damage.is_some() {
        outcome.older = beyond::heed(pages, scan, round, &mut data)?;
    }
    outcome.data_pages = whole(data.finish(store.device().as_ref(), &Recovered { store }))?;
    pages.write_all(round)
}

/// Keeps the first damage.
fn note(damage: &mut Option<String>, what: String) {
    damage.get_or_insert(what);
}
