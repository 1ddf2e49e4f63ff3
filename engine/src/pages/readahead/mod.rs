//! Reading ahead, as far as it is kept for each file and bounded for all: the streams that readers follow, the pages on
//! their way from the device, and what memory they may take.
//!
//! What this leaves to others: asking the device, and caching what comes (`file`).

mod budget;
mod fetching;
#[cfg(all(test, any(loom, shuttle)))]
mod fetching_models;
mod streams;

pub(crate) use budget::{ReadaheadBudget, Size};
pub(crate) use fetching::{Announced, Fetching, HandOff};
pub(crate) use streams::{Missed, Streams};

/// Pages of one request.
pub(crate) const REQUEST_PAGES: u64 = 64;
