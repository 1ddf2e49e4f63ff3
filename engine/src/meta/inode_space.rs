//! The NAT and the orphan table of an image as one place where inodes come from and go.

use crate::alloc::Alloc;
use crate::error::{OnDamage, Result};
use crate::format::{Intent, NatEntry, Nid, OrphanEntry, Position, U32, U64};
use crate::nat::Nat;
use crate::orphan::{OrphanId, Orphans};
use crate::store::{Handle, PageRef, Store};
use crate::sync::{Arc, Mutex};
use std::collections::HashMap;
use std::ops::Range;

/// The orphan table's entries by nid and intent, with their places in it.
type LoggedIntents = Mutex<HashMap<(Nid, u32), (OrphanId, OrphanEntry)>>;

/// Shards of the intents.
const SHARDS: usize = 16;

/// A slot for a new inode.
#[derive(Debug)]
pub struct NewSlot {
    /// Its identity.
    pub nid: Nid,
    /// Its generation.
    pub generation: u32,
    /// The node block.
    pub node: PageRef,
    /// The slot in it.
    pub slot: u8,
}

/// Where inodes come from and go: nids and slots, and what recovery is to finish of them.
#[derive(Debug)]
pub struct InodeSpace {
    nat: Nat,
    orphans: Orphans,
    intents: Arc<[LoggedIntents; SHARDS]>,
}

impl InodeSpace {
    /// Loads both from a mounted image.
    pub fn load(store: &Arc<Store>, alloc: &Alloc) -> Result<InodeSpace> {
        InodeSpace::load_as(store, alloc, &mut OnDamage::Fail)
    }

    /// The same; where damage is borne with, what is unfinished stays so.
    pub fn load_as(store: &Arc<Store>, alloc: &Alloc, on_damage: &mut OnDamage) -> Result<InodeSpace> {
        let orphans = match Orphans::load(store, alloc) {
            Ok(orphans) => orphans,
            Err(e) => on_damage.bear(e).map(|()| Orphans::none(store, alloc))?,
        };
        let nat = Nat::load(store, alloc, on_damage)?;
        let space = InodeSpace { nat, orphans, intents: Arc::default() };
        for (id, entry) in space.orphans.entries()? {
            let key = (entry.nid.get(), entry.intent.get());
            space.intents[shard(key.0)].lock().insert(key, (id, entry));
        }
        Ok(space)
    }

    /// Where an inode lies; `None`: the nid is free.
    pub fn place(&self, nid: Nid) -> Result<Option<NatEntry>> {
        if nid == 0 { Ok(None) } else { self.nat.lookup(nid) }
    }

    /// Takes a nid and a slot; they are free again if the handle aborts.
    pub fn allocate<'s>(&'s self, h: &mut Handle<'s>) -> Result<NewSlot> {
        let new = self.nat.allocate(h)?;
        Ok(NewSlot { nid: new.nid, generation: new.generation, node: new.node, slot: new.slot })
    }

    /// Frees both.
    pub fn free<'s>(&'s self, h: &mut Handle<'s>, nid: Nid, node: &PageRef, slot: u8) -> Result<()> {
        self.nat.free(h, nid, node, slot)
    }

    /// Says that recovery has something to finish.
    pub fn begin_intent(
        &self,
        h: &mut Handle<'_>,
        nid: Nid,
        generation: u32,
        intent: Intent,
        args: [u64; 2],
    ) -> Result<()> {
        let key = (nid, intent as u32);
        if self.intents[shard(nid)].lock().contains_key(&key) {
            return Ok(());
        }
        let entry = OrphanEntry {
            nid: U64::new(nid),
            generation: U32::new(generation),
            intent: U32::new(intent as u32),
            arg0: U64::new(args[0]),
            arg1: U64::new(args[1]),
            progress: U64::ZERO,
        };
        let id = self.orphans.add(h, entry)?;
        self.intents[shard(nid)].lock().insert(key, (id, entry));
        let intents = Arc::clone(&self.intents);
        h.on_abort(move || {
            intents[shard(nid)].lock().remove(&key);
        });
        Ok(())
    }

    /// How far it has come, see [`crate::format::OrphanEntry::progress`].
    pub fn note_progress(&self, h: &mut Handle<'_>, nid: Nid, intent: Intent, progress: u64) -> Result<()> {
        let found = self.intents[shard(nid)].lock().get(&(nid, intent as u32)).cloned();
        match found {
            Some((id, entry)) => {
                self.orphans.update(h, &id, OrphanEntry { progress: U64::new(progress), ..entry })
            }
            None => Ok(()),
        }
    }

    /// Whether it was begun and has not ended.
    pub fn is_begun(&self, nid: Nid, intent: Intent) -> bool {
        self.intents[shard(nid)].lock().contains_key(&(nid, intent as u32))
    }

    /// It is finished, or not needed any more. Nothing if there is no such entry.
    pub fn end_intent(&self, h: &mut Handle<'_>, nid: Nid, intent: Intent) -> Result<()> {
        let key = (nid, intent as u32);
        let found = self.intents[shard(nid)].lock().get(&key).cloned();
        if let Some((id, _)) = found {
            self.orphans.remove(h, id)?;
            let intents = Arc::clone(&self.intents);
            h.on_commit(move |_| {
                intents[shard(nid)].lock().remove(&key);
            });
        }
        Ok(())
    }

    /// Every record below is durable against a loss of power: freed ids may be given out again.
    pub fn durable(&self, upto: Position) {
        self.nat.durable(upto);
    }

    /// What was done for nids so far.
    #[cfg(feature = "baselines")]
    pub fn id_work(&self) -> crate::nat::IdWork {
        self.nat.work()
    }

    /// Times what is done for nids from now on, or no more.
    #[cfg(feature = "baselines")]
    pub fn time_ids(&self, timed: bool) {
        self.nat.time_work(timed);
    }

    /// Makes so many blocks of the NAT whose nids are all in use, with no inodes behind them: a table as large as that
    /// of a file system with as many files, for comparisons.
    ///
    /// # Errors
    /// ENOSPC, and what the journal may meet.
    #[cfg(feature = "baselines")]
    pub fn fill_ids(&self, blocks: u64) -> Result<()> {
        match self.place(crate::format::ROOT_NID)? {
            Some(place) => self.nat.fill(blocks, place),
            None => Ok(()),
        }
    }

    /// How many nids of a NAT block are in use, if that is known.
    pub fn used_nids(&self, nat_block: u64) -> Option<u16> {
        self.nat.used(nat_block)
    }

    /// The nids of this NAT block that may be in use. `None`: there are no more blocks.
    pub fn possible_nids(&self, nat_block: u64) -> Option<Range<Nid>> {
        self.nat.possible(nat_block)
    }

    /// The inodes in use, and how many more so many free blocks make possible.
    pub fn count_inodes(&self, free_blocks: u64) -> (u64, u64) {
        let count = self.nat.count();
        (count.used, count.possible(free_blocks))
    }

    /// Leaves what makes the next mount's allocations faster. Everything is durable.
    pub fn save_hints(&self) -> Result<()> {
        self.nat.save_hints()
    }

    /// What is not finished.
    pub fn entries(&self) -> Vec<OrphanEntry> {
        self.intents
            .iter()
            .flat_map(|k| k.lock().values().map(|(_, entry)| *entry).collect::<Vec<_>>())
            .collect()
    }
}

fn shard(nid: Nid) -> usize {
    nid as usize % SHARDS
}
