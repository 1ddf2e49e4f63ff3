//! From the bitmaps of an image to an allocator.

use super::beyond::Beyond;
use super::bits::Bits;
use super::budget::Budget;
use super::group::Group;
use super::groups::Groups;
use super::quarantine::Quarantine;
use super::{Alloc, Shared};
use crate::error::OnDamage;
use crate::format::{BLOCKS_PER_GROUP, BlockKind};
use crate::lane;
use crate::store::{Profile, Store};
use crate::superblock::Bounds;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Arc, CachePadded, Mutex, OnceLock, Rounds};
use crate::{Error, Result};

/// Bitmap pages read in one batch at mount.
const LOAD_BATCH: usize = 256;

impl Alloc {
    /// Reads every bitmap, in batches: from then on the counts are exact.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a bitmap does not verify, or says that its own block is free.
    pub fn load(store: &Store) -> Result<Alloc> {
        Alloc::load_as(store, &mut OnDamage::Fail)
    }

    /// The same; where damage is borne with, a group whose bitmap is damaged counts as full.
    ///
    /// # Errors
    /// As [`Alloc::load`], but for damage that is noted.
    pub fn load_as(store: &Store, on_damage: &mut OnDamage) -> Result<Alloc> {
        let superblock = store.superblock();
        let groups_start = superblock.groups_start.get();
        let blocks = superblock.blocks.get();
        let count = Bounds::of(superblock).groups();
        let wanted: Vec<_> =
            (0..count).map(|index| (groups_start + index * BLOCKS_PER_GROUP, BlockKind::Bitmap)).collect();
        let mut groups = Vec::with_capacity(wanted.len());
        for batch in wanted.chunks(LOAD_BATCH) {
            // Those that were read come from memory below; a failure is met again there, with the one block it is about.
            if let Err(e) = store.get_many(batch)
                && *on_damage == OnDamage::Fail
            {
                return Err(e);
            }
            for (start, _) in batch {
                let len = (blocks - start).min(BLOCKS_PER_GROUP) as u32;
                let bits = match bitmap(store, *start, groups.len() as u64, len) {
                    Ok(bits) => bits,
                    Err(e) => {
                        on_damage.bear(e)?;
                        Bits::full(len)
                    }
                };
                groups.push(Group::new(*start, bits, len));
            }
        }
        let free = groups.iter().map(|group| u64::from(group.free())).sum();
        let kept_back = (blocks / 64).clamp(4, 4096);
        let (beyond, promised) = match store.profile() {
            Profile::Spilling { in_memory } => {
                let for_metadata = kept_back.min(in_memory.div_ceil(8));
                (Some(Beyond::new(free, for_metadata, in_memory)), free + in_memory)
            }
            Profile::Durable | Profile::InMemory => (None, free),
        };
        let lanes = lane::count();
        let spread = |lane: usize| AtomicUsize::new(lane * groups.len() / lanes);
        Ok(Alloc {
            shared: Arc::new(Shared {
                groups_start,
                budget: Budget::new(promised, kept_back),
                beyond,
                quarantine: Quarantine::new(),
                current: (0..lanes).map(|lane| CachePadded::new(spread(lane))).collect(),
                groups: Groups::new(groups),
                make_room: OnceLock::new(),
                await_frees: OnceLock::new(),
                record_frees: OnceLock::new(),
                also_waits: OnceLock::new(),
                rounds: Rounds::default(),
                trimming: Mutex::new(()),
            }),
        })
    }
}

fn bitmap(store: &Store, start: u64, group: u64, len: u32) -> Result<Bits> {
    let page = store.get(start, BlockKind::Bitmap)?;
    let bits = page.read(|bytes| Bits::from_block(bytes, len));
    if page.header().owner.get() != group || !bits.all_taken(0, 1) {
        return Err(Error::Corrupt {
            what: "bitmap",
            place: format!("block {start}"),
            detail: "it is not that of its group, or has its own block as free".into(),
        });
    }
    Ok(bits)
}
