//! Which dirty pages a write-back takes, and what their record may have to hold.

use crate::meta::{MAX_NEW_RUNS, MAX_RUNS, Need};
use crate::pages::FileData;
use crate::pages::{PAGE, page_after, page_of};
use crate::pages::{Selection, Take, UnderWriteBack};
use std::ops::Range;

/// Runs of a record that are kept for extents which are written once more elsewhere: such a extent cuts a run.
pub(super) const SPARE_RUNS: usize = 2;

/// Takes dirty pages out of the file's sets, `logged` bytes of which are recorded. Pages beyond `size` stay: their
/// writer has not set the size yet. Says also whether the page of the recorded end stays behind, dirty.
pub(super) fn select(
    data: &FileData,
    pages: Range<u64>,
    (size, logged): (u64, u64),
    take: Take,
    most: usize,
) -> (UnderWriteBack<'_>, bool) {
    let pages = pages.start..pages.end.min(page_after(size)).max(pages.start);
    let tail = (!logged.is_multiple_of(PAGE)).then_some(page_of(logged));
    data.pages.begin_write_back(Selection { pages, take, most, tail })
}

/// The page of the recorded end, if the journal holds that: to the end of the page, in zeros, where it was new then. A
/// size beyond would show them, had redo put them in place.
pub(super) fn recorded_end(data: &FileData) -> Option<u64> {
    let logged = data.logged_size();
    let page = page_of(logged);
    (!logged.is_multiple_of(PAGE) && data.pages.has_records(page..page + 1)).then_some(page)
}

/// What a record about the file's dirty pages may have to hold.
pub(super) fn need_of(data: &FileData) -> Need {
    let pages = data.pages.summary();
    let runs = pages.unwritten() + SPARE_RUNS;
    if let Some(extents) = pages.truncate_pending {
        Need { runs: runs.min(MAX_NEW_RUNS), dropped: extents.max(1), ..Need::default() }
    } else {
        let superseded = usize::from(recorded_end(data).is_some());
        Need { runs: runs.min(MAX_RUNS), superseded, again: true, ..Need::default() }
    }
}
