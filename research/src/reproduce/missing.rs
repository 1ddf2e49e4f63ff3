//! Baselines whose names an engine knows before it has them.

/// They are told as missing, in place of figures that would be the technique's own.
pub const NAMES: [&str; 12] = [
    "journal-jbd2",
    "journal-fine",
    "journal-paper",
    "checkpoint-one",
    "checkpoint-64",
    "lock-inode",
    "lock-tree",
    "ids-global",
    "ids-scan",
    "spill-clean-lost",
    "spill-read-before-overwrite",
    "spill-blind-readahead",
];
