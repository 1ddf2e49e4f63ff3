//! Which dirty pages a write-back takes, and what their record may have to hold.

use crate::file::data_path::{PAGE, page_after, page_of};
use crate::file::in_hands::InHands;
use crate::file::writeback::Take;
use crate::file::{FileData, MAX_NEW_RUNS, MAX_RUNS, Need};
use std::ops::Range;

/// Runs of a record that are kept for pieces which are written once more elsewhere: such a piece cuts a run.
pub(in crate::file) const SPARE_RUNS: usize = 2;

/// Takes dirty pages out of the file's sets; they are in the caller's hands now. Pages beyond `size` stay:
/// their writer has not set the size yet. With pages beyond the recorded end goes the page of that end: its
/// zeroed tail must be down before the recorded size grows; says whether that page stays behind, dirty.
pub(in crate::file) fn pick<'d>(
    data: &'d FileData,
    pages: Range<u64>,
    size: u64,
    logged: u64,
    take: Take,
    most: usize,
) -> (InHands<'d>, bool) {
    let mut state = data.state.lock();
    let state = &mut *state;
    let pages = pages.start..pages.end.min(page_after(size)).max(pages.start);
    let tail = page_of(logged);
    let mut picked: Vec<u64> = match take {
        Take::Unsynced => state.dirty.range(pages).copied().take(most).collect(),
        Take::All => {
            let mut both: Vec<u64> = state.dirty.range(pages.clone()).copied().take(most).collect();
            both.extend(state.synced.range(pages).take(most));
            both.sort_unstable();
            both.dedup();
            both.truncate(most);
            both
        }
        Take::Live => state
            .live
            .range(pages)
            .map(|(page, _)| *page)
            .filter(|page| state.dirty.contains(page) || state.synced.contains(page))
            .take(most)
            .collect(),
    };
    let beyond = picked.first().is_some_and(|first| *first > tail);
    if !logged.is_multiple_of(PAGE) && beyond && state.dirty.contains(&tail) {
        picked.insert(0, tail);
    }
    for page in &picked {
        state.dirty.remove(page);
        state.synced.remove(page);
    }
    state.in_hands = !picked.is_empty();
    (InHands::new(data, picked), state.dirty.contains(&tail))
}

/// What a record about the file's dirty pages may have to hold.
pub(in crate::file) fn need_of(data: &FileData) -> Need {
    let state = data.state.lock();
    let pages = state.dirty.len() + state.synced.len() + SPARE_RUNS;
    if state.doomed {
        Need { runs: pages.min(MAX_NEW_RUNS), dropped: state.doomed_extents.max(1), ..Need::default() }
    } else {
        Need { runs: pages.min(MAX_RUNS), again: true, ..Need::default() }
    }
}
