//! Redo of metadata: the records' deltas onto the pages.

use crate::checkpoint::RoundId;
use crate::file::DataRedo;
use crate::format::Position;
use crate::journal::{Journal, Scan};
use crate::store::{Delta, Store, decode};
use crate::{Error, Result};

/// Applies every record that counts and collects the data records; the number of records. If `write`, pages
/// go home when they fill the budget.
pub(super) fn redo(
    store: &Store,
    scan: &Scan,
    round: RoundId,
    write: bool,
    data: &mut DataRedo,
) -> Result<u64> {
    let mut records = 0;
    for record in scan.records() {
        let (first, payload) = record?;
        let end = first + u64::from(Journal::slots_for(payload.len()));
        for delta in decode(&payload) {
            let delta = delta.map_err(|e| at(first, &e))?;
            match &delta {
                Delta::Data { key, bytes } => data.data(key, bytes)?,
                Delta::Supersede { key } => data.supersede(key),
                metadata => store.redo(metadata, end).map_err(|e| at(first, &e))?,
            }
        }
        records += 1;
        if write && store.is_full_of_dirty() {
            store.write_all(round)?;
        }
    }
    Ok(records)
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
