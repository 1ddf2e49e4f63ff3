//! Beyond the damage of a journal: all there is given up, but for what it says of file data that lies in place.
//!
//! An fsync leaves a page's bytes in a data record. Later the page may be written in place and flushed, and another record
//! supersedes that one. With damage between the two, redo of what comes before it would put the older bytes over the newer
//! ones: what was synced would go back in time. So what can still be read beyond the damage is heeded for what it supersedes.
//!
//! # Which supersedes count
//! Some say that what lies in place is newer, others that the range is gone: cut off, punched out, replaced. Of what is gone
//! only beyond the damage the recovered file still has what it had at the damage, and that may be in the data record alone:
//! in place lies what the block held before, which may never have been this file's. So a supersede counts for pages that have
//! the same block in the recovered metadata and in those as of its own record, and for bytes below the file's size as of that.
//! To know those metadata, the records beyond the damage are redone on an overlay, which is dropped afterwards. A record that
//! frees blocks counts for nothing: it speaks of more than it has freed yet, where a removal takes several.
//!
//! What cannot be read may have moved a page without a trace in what can; then a supersede that speaks of its new place counts
//! for the old one, which shows what lies there. It takes a file that was replaced in just the part that is lost and written
//! in place again since. That a file is written in place again is the usual case by far, and to take its supersedes for
//! such ones would put older bytes into the midst of newer ones each time.
//!
//! # Why data beyond the damage do not count
//! A data record beyond the damage says nothing of what lies in place: that may be newer than what the last record before the
//! damage holds, or older, or rubbish where the page was new. So it supersedes nothing. Nor is it redone, though its bytes were
//! promised: what was synced before them is lost with the damage, and a program that has synced one thing after another would
//! find the second without the first, or a part of an atomic batch. What the journal alone has ends at the damage, data as
//! metadata; what has left it for its place stays as it is.
//!
//! # What is told
//! The files that have lost what was synced, or may have: those of which data beyond the damage are given up; and those of
//! which data before it are put in place, for what superseded them may be what cannot be read. Of a file that has lost
//! something and is neither, nothing is left that would tell.

use super::absorbed::{DataRedo, Resolve};
use super::resolve::Recovered;
use crate::Result;
use crate::checkpoint::{Checkpointer, RoundId};
use crate::device::{BLOCK_SIZE, Overlay};
use crate::format::{DataKey, Nid, U64};
use crate::journal::{Journal, Scan};
use crate::store::{Delta, Log, Store, StoreOptions, decode};
use crate::sync::Arc;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: u64 = BLOCK_SIZE as u64;

/// Pages of files, each of a generation, of which data before the damage hold something.
pub(super) type Pages = BTreeMap<(Nid, u32), BTreeSet<u64>>;

/// Takes out of the data what lies in place in a newer form, as far as that can be told; gives the files whose content may be
/// older than what was synced. The pages go home, for what follows to build on.
///
/// # Errors
/// Those of the device.
pub(super) fn heed(
    pages: &Checkpointer,
    scan: &Scan,
    round: RoundId,
    data: &mut DataRedo,
) -> Result<Vec<Nid>> {
    pages.write_all(round)?;
    let recovered = Recovered { store: pages.store() };
    let ahead = over(pages.store());
    let later = Recovered { store: ahead.store() };
    let (mut older, mut candidates) = (BTreeSet::new(), data.pages());
    for record in scan.records_beyond() {
        let (first, payload) = record?;
        let end = first + u64::from(Journal::slots_for(payload.len()));
        for delta in decode(&payload).map_while(Result::ok) {
            if !later.store.is_home_beyond(&delta, end)
                && let Err(e) = later.store.redo(&delta, end)
            {
                // What such a page would tell is not known, and does not count.
                tracing::debug!("beyond the damage, at {first}: {e}");
            }
        }
        let is_freed = |delta: &Delta<'_>| matches!(delta, Delta::Bits { set: false, .. });
        let frees = decode(&payload).map_while(Result::ok).any(|delta| is_freed(&delta));
        for delta in decode(&payload).map_while(Result::ok) {
            match delta {
                Delta::Supersede { .. } if frees => {}
                Delta::Supersede { key } => {
                    supersede(data, &mut candidates, &key, (&recovered, &later));
                }
                Delta::Data { key, .. } => {
                    older.insert((key.nid.get(), key.generation.get()));
                }
                _ => {}
            }
        }
        if later.store.is_full_of_dirty() {
            ahead.write_all(round)?;
        }
    }
    older.extend(data.files());
    let is_there = |(nid, generation)| matches!(recovered.size(nid, generation), Ok(Some(_)));
    Ok(older.into_iter().filter(|file| is_there(*file)).map(|(nid, _)| nid).collect())
}

/// The pages that are in place, to be changed in memory alone.
fn over(store: &Store) -> Checkpointer {
    let below = Arc::clone(store.device());
    let overlay = Arc::new(Overlay::new(below, store.budget() / BLOCK_SIZE));
    let options = StoreOptions::with_memory(store.budget());
    Checkpointer::new(Arc::new(Store::new(overlay, *store.superblock(), Log::durable(), &options)))
}

/// A supersede counts where a page has the block that it had as of the supersede's record. What it has said of a page stays
/// said: a block that is another's comes back to nobody within the ring.
fn supersede(
    data: &mut DataRedo,
    candidates: &mut Pages,
    key: &DataKey,
    (recovered, later): (&Recovered<'_>, &Recovered<'_>),
) {
    let (nid, generation, start) = (key.nid.get(), key.generation.get(), key.offset.get());
    let Some(pages) = candidates.get_mut(&(nid, generation)) else { return };
    let Ok(Some(size)) = later.size(nid, generation) else { return };
    let end = start.saturating_add(key.len.get()).min(size);
    let met: Vec<_> = pages.range(start / PAGE..end.div_ceil(PAGE).max(start / PAGE)).copied().collect();
    for page in met {
        let block = |of: &Recovered<'_>| of.block(nid, page).ok().flatten();
        let at = page * PAGE;
        let (from, upto) = (start.max(at), end.min(at.saturating_add(PAGE)));
        let lies = block(recovered).is_some_and(|block_now| block(later) == Some(block_now));
        if lies && from < upto {
            data.supersede(&DataKey { offset: U64::new(from), len: U64::new(upto - from), ..*key });
        }
        if !lies || upto - from.min(upto) == PAGE {
            pages.remove(&page);
        }
    }
}
