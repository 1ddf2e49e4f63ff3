//! What a file system promises beyond the mount: one engine, two profiles.

/// A profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Durable: what was synced outlives the mount. There is a journal.
    #[default]
    Durable,
    /// Scratch: nothing outlives the mount. What memory has no room for goes to spill space.
    Spilling {
        /// Blocks that may be promised beyond those of the spill space: pages that stay in memory.
        in_memory: u64,
    },
    /// Scratch without spill space: pages never leave memory.
    InMemory,
}

impl Profile {
    /// Whether anything is to be found after the mount. Without, nothing is flushed, ordered or recorded
    /// before its time.
    pub fn keeps(self) -> bool {
        self == Profile::Durable
    }
}
