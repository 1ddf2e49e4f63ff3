//! Redo of metadata: the records' deltas onto the pages.

use super::absorbed::DataRedo;
use super::note;
use crate::checkpoint::{Checkpointer, RoundId};
use crate::format::Position;
use crate::journal::{Journal, Scan};
use crate::store::{Delta, decode};
use crate::takeover::NewerHome;
use crate::{Error, Result};
use std::collections::HashMap;

/// Applies every record that counts and collects the data records, but for what lies in place in a newer form (`homes`, by
/// position); the number of records. Pages go home when they fill the budget.
///
/// A page that turns out to be damaged ends it, unless there is a `damage` to be noted: for a reader, who then sees what the
/// records have for all other pages.
pub(super) fn redo(
    pages: &Checkpointer,
    scan: &Scan,
    round: RoundId,
    homes: &[NewerHome],
    data: &mut DataRedo,
    mut damage: Option<&mut Option<String>>,
) -> Result<u64> {
    let store = pages.store();
    let mut homes = homes.iter().peekable();
    let forgotten = forgotten(scan)?;
    let mut records = 0;
    // Beyond damage there were records, and homes may have gone on with them.
    let may_be_newer = scan.damage.is_some();
    for record in scan.records() {
        let (first, payload) = record?;
        let end = first + u64::from(Journal::slots_for(payload.len()));
        while let Some(home) = homes.next_if(|home| home.upto < end) {
            data.is_home(home);
        }
        for delta in decode(&payload) {
            let delta = delta.map_err(|e| at(first, &e))?;
            match &delta {
                Delta::Data { key, bytes } => data.data(key, bytes)?,
                Delta::Supersede { key } => data.supersede(key),
                metadata if metadata.block().is_some_and(|b| forgotten.get(&b) > Some(&first)) => {}
                metadata if may_be_newer && store.is_home_beyond(metadata, end) => {}
                metadata => match (store.redo(metadata, end).map_err(|e| at(first, &e)), &mut damage) {
                    (Ok(()), _) => {}
                    (Err(e @ Error::Corrupt { .. }), Some(damage)) => note(damage, e.to_string()),
                    (Err(e), _) => return Err(e),
                },
            }
        }
        records += 1;
        if store.is_full_of_dirty() {
            pages.write_all(round)?;
        }
    }
    // What it speaks of may lie beyond what is left of the journal, and the page have got another block there.
    homes.filter(|home| home.upto <= scan.end).for_each(|home| data.is_home(home));
    Ok(records)
}

/// The blocks that cease to hold metadata, with the position of the record that says so. What records before
/// it did to them is not redone: a checkpoint does not write such a page home, so there may be nothing to
/// redo it on. None comes to hold metadata again within the ring: its block waits for the head.
fn forgotten(scan: &Scan) -> Result<HashMap<u64, Position>> {
    let mut forgotten = HashMap::new();
    for record in scan.records() {
        let (first, payload) = record?;
        // What is wrong with a record is told when it is redone.
        for delta in decode(&payload).flatten() {
            if let Delta::Forget { block } = delta {
                forgotten.insert(block, first);
            }
        }
    }
    Ok(forgotten)
}

/// Says which record could not be redone; errors of the device stay what they are.
fn at(first: Position, e: &Error) -> Error {
    match e {
        Error::Corrupt { .. } => Error::Corrupt {
            what: "journal record",
            place: format!("position {first}"),
            detail: format!("it cannot be redone: {e}"),
        },
        other => other.clone(),
    }
}
