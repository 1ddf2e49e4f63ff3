//! What tests observe of the metadata beneath the data path, and what they have it answer.

use super::{Change, Mapping, Meta};
use crate::inode::InodeObj;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::collections::BTreeSet;
use std::ops::Range;

type Once = Mutex<Option<Box<dyn FnOnce() + Send>>>;
type Reachable = Box<dyn Fn(&BTreeSet<u64>) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Run once, when a page of a file is about to be looked for from the root of its extents.
    pub when_root_is_read: Once,
    /// Run once, when a page of a file has been mapped.
    pub when_mapped: Once,
    /// Run once, when a data record is logged, before its writer hears of it.
    pub when_absorbed: Once,
    /// Run once, when a write-back that has selected its pages asks for blocks.
    pub when_allocated: Once,
    /// Told of the blocks that each record without data is to make reachable, before it is logged.
    pub when_reachable: Mutex<Option<Reachable>>,
    /// The ring has no room for what may as well go home.
    pub is_crowded: AtomicBool,
    /// Credits without waiting are at an end at every so many-th file; 0: never.
    pub scarce: AtomicU64,
    asked: AtomicU64,
    /// So many records are to find that their room has changed.
    pub rooms_changed: AtomicU64,
}

impl Hooks {
    /// Runs a hook that is set, once.
    pub fn run(hook: &Once) {
        // A statement of its own: the hook may set another.
        let hook = hook.lock().take();
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Whether there are to be no credits for this file.
    pub fn refuses(&self) -> bool {
        let (scarce, asked) = (self.scarce.load(SeqCst), self.asked.fetch_add(1, SeqCst));
        scarce != 0 && asked % scarce == scarce - 1
    }

    /// Whether this record is to find that its room has changed.
    pub fn has_changed(&self) -> bool {
        let takes_one = |left: u64| left.checked_sub(1);
        self.rooms_changed.fetch_update(SeqCst, SeqCst, takes_one).is_ok()
    }

    /// Tells of what a change makes reachable, and checks that it inserts what was allocated for it and marks what was
    /// unwritten.
    pub fn check(&self, meta: &Meta, inode: &InodeObj, change: &Change) {
        let mut blocks = BTreeSet::new();
        for insert in &change.insert {
            let run = insert.blocks.start..insert.blocks.start + u64::from(insert.blocks.len);
            assert!(run.clone().all(|block| meta.is_volatile(block)), "mapped without a block");
            blocks.extend(run.filter(|_| !insert.unwritten));
        }
        for page in change.mark_written.iter().flat_map(Range::clone) {
            let Ok(Mapping::Mapped { block, unwritten: true, .. }) = meta.map(inode, page) else {
                panic!("marked as written, though it was not unwritten");
            };
            blocks.insert(block);
        }
        if let Some(told) = &*self.when_reachable.lock()
            && change.data.is_empty()
        {
            told(&blocks);
        }
    }
}
