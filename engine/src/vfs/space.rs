//! The NAT and the orphan table of an image as one place where inodes come from and go.

use super::{InodeSpace, NewSlot};
use crate::alloc::Alloc;
use crate::error::Result;
use crate::format::{Intent, NatEntry, Nid, OrphanEntry, Position, U32, U64};
use crate::nat::Nat;
use crate::orphan::{OrphanId, Orphans};
use crate::store::{Handle, PageRef, Store};
use crate::sync::{Arc, Mutex};
use std::collections::HashMap;

type DentryCache = Mutex<HashMap<(Nid, u32), (OrphanId, OrphanEntry)>>;

/// Shards of what is known of the orphan table.
const SHARDS: usize = 16;

/// See [`InodeSpace`]. It remembers where each inode's entry in the orphan table lies.
#[derive(Debug)]
pub struct ImageSpace {
    nat: Nat,
    orphans: Orphans,
    known: Arc<[DentryCache; SHARDS]>,
}

impl ImageSpace {
    /// Loads both from a mounted image.
    pub fn load(store: &Arc<Store>, alloc: &Alloc) -> Result<ImageSpace> {
        let space = ImageSpace {
            nat: Nat::load(store, alloc)?,
            orphans: Orphans::load(store, alloc)?,
            known: Arc::default(),
        };
        for (id, entry) in space.orphans.entries()? {
            let key = (entry.nid.get(), entry.intent.get());
            space.known[shard(key.0)].lock().insert(key, (id, entry));
        }
        Ok(space)
    }

    /// The NAT: it must hear of commits, and be asked to save its hints at unmount.
    pub fn nat(&self) -> &Nat {
        &self.nat
    }
}

fn shard(nid: Nid) -> usize {
    nid as usize % SHARDS
}

impl InodeSpace for ImageSpace {
    fn place(&self, nid: Nid) -> Result<Option<NatEntry>> {
        if nid == 0 { Ok(None) } else { self.nat.lookup(nid) }
    }

    fn allocate<'s>(&'s self, h: &mut Handle<'s>) -> Result<NewSlot> {
        let new = self.nat.allocate(h)?;
        Ok(NewSlot { nid: new.nid, generation: new.generation, node: new.node, slot: new.slot })
    }

    fn free<'s>(&'s self, h: &mut Handle<'s>, nid: Nid, node: &PageRef, slot: u8) -> Result<()> {
        self.nat.free(h, nid, node, slot)
    }

    fn begin_intent(
        &self,
        h: &mut Handle<'_>,
        nid: Nid,
        generation: u32,
        intent: Intent,
        args: [u64; 2],
    ) -> Result<()> {
        let key = (nid, intent as u32);
        if self.known[shard(nid)].lock().contains_key(&key) {
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
        self.known[shard(nid)].lock().insert(key, (id, entry));
        let known = Arc::clone(&self.known);
        h.on_abort(move || {
            known[shard(nid)].lock().remove(&key);
        });
        Ok(())
    }

    fn note_progress(&self, h: &mut Handle<'_>, nid: Nid, intent: Intent, progress: u64) -> Result<()> {
        let found = self.known[shard(nid)].lock().get(&(nid, intent as u32)).cloned();
        match found {
            Some((id, entry)) => {
                self.orphans.update(h, &id, OrphanEntry { progress: U64::new(progress), ..entry })
            }
            None => Ok(()),
        }
    }

    fn end_intent(&self, h: &mut Handle<'_>, nid: Nid, intent: Intent) -> Result<()> {
        let key = (nid, intent as u32);
        let found = self.known[shard(nid)].lock().get(&key).cloned();
        if let Some((id, _)) = found {
            self.orphans.remove(h, id)?;
            let known = Arc::clone(&self.known);
            h.on_commit(move |_| {
                known[shard(nid)].lock().remove(&key);
            });
        }
        Ok(())
    }

    fn durable(&self, upto: Position) {
        self.nat.durable(upto);
    }

    fn used_nids(&self, nat_block: u64) -> Option<u16> {
        self.nat.used(nat_block)
    }

    fn save_hints(&self) -> Result<()> {
        self.nat.save_hints()
    }

    fn entries(&self) -> Vec<OrphanEntry> {
        self.known
            .iter()
            .flat_map(|k| k.lock().values().map(|(_, entry)| *entry).collect::<Vec<_>>())
            .collect()
    }
}
