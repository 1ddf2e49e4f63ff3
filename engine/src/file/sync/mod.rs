//! What makes a file's content durable: fsync, the data journal that spares it a write home, and the way of what the
//! journal holds to its place before the ring's head passes it.

pub(in crate::file) mod data_journal;
pub(in crate::file) mod fsync;
pub(in crate::file) mod lost_before;
pub(in crate::file) mod old_content;
mod reclaim;
pub(in crate::file) mod sectors;
pub(in crate::file) mod several;
