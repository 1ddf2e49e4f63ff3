//! Baselines whose names an engine knows before it has them.

/// They are told as missing, in place of figures that would be the technique's own.
pub const NAMES: [&str; 6] = [
    "journal-jbd2",
    "journal-fine",
    "journal-paper",
    "spill-clean-lost",
    "spill-read-before-overwrite",
    "spill-blind-readahead",
];
