//! The metadata of a mounted image: inodes by nid, directories, the slots of inodes; and what `file` needs of it: where
//! blocks lie, blocks set aside and allocated, and records about one file.
//!
//! Every change is one record of the journal: all or nothing. What takes more than one (`multi_record`) logs an
//! intent first, so that the next mount goes on with it.
//!
//! What this leaves to others: which operation changes what, with which locks, and permissions (`vfs`); when data
//! become durable, and in which order (`file`).
//!
//! Lock order, for every caller: range, credits, write-back mutex of the file, and below them what is taken here (the
//! inode lock, page latches, the allocator).

#![deny(unsafe_code)]

mod change;
mod dir_blocks;
mod file_blocks;
mod free_inode;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod hooks;
mod inode_space;
mod install;
mod log;
mod multi_record;
mod several;
mod staged;

#[cfg(feature = "baselines")]
pub use crate::nat::IdWork;
pub use change::{Blocks, Change, Insert, Logged, MAX_NEW_RUNS, MAX_RUNS, Mapping, Need, ROOM_CHANGED};
pub(crate) use free_inode::FREE_SLOTS;
pub use inode_space::{InodeSpace, NewSlot};
pub use log::Room;
pub(crate) use log::{INODE_SLOTS, KEY_BYTES};

use crate::alloc::{Alloc, Reservation, VolatileExtent};
use crate::dir::{DentryCache, Dir, NameHash};
use crate::error::{Error, Result};
use crate::format::{BlockKind, FileType, Inode, Nid};
use crate::inode::{Holds, InodeLocation, InodeObj, InodeTable, image_bytes, location_of, verify};
use crate::journal::Durability;
use crate::lock::{LockClass, Rank};
use crate::store::{Handle, PageRef, Store};
use crate::sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::mem::offset_of;

/// The metadata of an image.
pub struct Meta {
    pub(crate) store: Arc<Store>,
    pub(crate) alloc: Alloc,
    pub(crate) space: Arc<InodeSpace>,
    pub(crate) table: InodeTable,
    pub(crate) known: DentryCache,
    hash: NameHash,
    read_only: bool,
    pub(crate) durability: Durability,
    step: u32,
    pub(crate) reserved: Mutex<Reservation>,
    /// Blocks that are allocated and in no record, by their first.
    pub(crate) volatile: Mutex<BTreeMap<u64, VolatileExtent>>,
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) hooks: hooks::Hooks,
}

impl Meta {
    /// The metadata of a mounted image: `inodes` is how many inodes not in use may stay in memory, and how many names
    /// walks remember; `durability` how far a record travels before fsync returns, `step` how many extents one record of a
    /// long operation touches at most.
    pub fn new(
        store: Arc<Store>,
        alloc: Alloc,
        space: Arc<InodeSpace>,
        read_only: bool,
        durability: Durability,
        inodes: usize,
        step: u32,
    ) -> Meta {
        Meta {
            hash: NameHash::new(&store.superblock().hash_key),
            reserved: Mutex::new(Reservation::empty(&alloc)),
            volatile: Mutex::default(),
            table: InodeTable::new(inodes),
            known: DentryCache::new(inodes, &store.superblock().hash_key),
            store,
            alloc,
            space,
            read_only,
            durability,
            step,
            #[cfg(all(test, not(any(loom, shuttle))))]
            hooks: hooks::Hooks::default(),
        }
    }

    /// Where inodes come from and go: for comparisons.
    #[cfg(feature = "baselines")]
    pub fn space(&self) -> &Arc<InodeSpace> {
        &self.space
    }

    /// The metadata pages.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// How far a record travels before fsync returns.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Whether there are no operations that change something.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether there may be operations; they wait for credits with nothing in hand that comes behind these.
    fn may_begin(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::Errno(libc::EROFS));
        }
        drop(Rank::new(LockClass::Credits, 0).waiting());
        Ok(())
    }

    /// Starts an operation: takes credits, before any lock but growth and range.
    pub(crate) fn begin(&self, slots: u32) -> Result<Handle<'_>> {
        self.may_begin()?;
        self.store.begin(self.allowed(slots))
    }

    /// As [`Meta::begin`], for what frees, or is the rest of what others see begun ([`Store::begin_rest`]).
    pub(crate) fn begin_rest(&self, slots: u32) -> Result<Handle<'_>> {
        self.may_begin()?;
        self.store.begin_rest(self.allowed(slots))
    }

    /// What a record may have of `slots`: an operation's bound is far above what it takes as a rule, and a tiny
    /// ring would refuse it.
    pub(crate) fn allowed(&self, slots: u32) -> u32 {
        self.store.journal().map_or(slots, |journal| slots.min(journal.max_record_slots()))
    }

    /// Extents that one step of a long operation touches: fewer where records are small.
    pub(crate) fn step(&self) -> u32 {
        (self.allowed(8 * self.step) / 8).max(1)
    }

    /// As [`Meta::begin`] for what writes data home: it may use the reserve, for others wait for it.
    pub(crate) fn begin_reserve(&self, slots: u32) -> Result<Handle<'_>> {
        self.may_begin()?;
        self.store.begin_reserve(self.allowed(slots))
    }

    /// The inode of a nid that somebody may hold no more: ESTALE if it is gone.
    pub(crate) fn inode(&self, nid: Nid) -> Result<Arc<InodeObj>> {
        let found = self.table.get_or_load(nid, || self.load(nid))?;
        found.filter(|inode| !inode.holds.is_gone()).ok_or(Error::Errno(libc::ESTALE))
    }

    /// The inode that a directory entry leads to, which must exist.
    pub(crate) fn named(&self, nid: Nid) -> Result<Arc<InodeObj>> {
        self.table.get_or_load(nid, || self.load(nid))?.ok_or_else(|| Error::Corrupt {
            what: "directory entry",
            place: format!("nid {nid}"),
            detail: "it leads to a free inode".into(),
        })
    }

    /// Reads an inode into memory; `None`: the nid is free.
    pub(crate) fn load(&self, nid: Nid) -> Result<Option<InodeObj>> {
        let Some(entry) = self.space.place(nid)? else { return Ok(None) };
        let place = location_of(nid, &entry)?;
        let slot = self.store.get(place.block, BlockKind::Node)?.read(|bytes| bytes[place.range()].to_vec());
        let (file_type, image) = verify(nid, &entry, &slot)?;
        Ok(Some(self.object(place, file_type, image, Holds::new(0))))
    }

    /// An inode in memory, whose bytes are guarded as the mount has chosen.
    pub(crate) fn object(
        &self,
        place: InodeLocation,
        file_type: FileType,
        image: Inode,
        holds: Holds,
    ) -> InodeObj {
        let inode = InodeObj::new(place, file_type, image, holds);
        #[cfg(feature = "baselines")]
        let inode = inode.locked_by(self.store.baselines().lock);
        inode
    }

    /// The node page of an inode.
    pub(crate) fn node(&self, inode: &InodeObj) -> Result<PageRef> {
        self.store.get(inode.place().block, BlockKind::Node)
    }

    /// Stages an image. The caller holds the inode's lock exclusively. ESTALE if the inode was freed: its slot
    /// may be another's.
    pub(crate) fn stage(&self, h: &mut Handle<'_>, inode: &InodeObj, image: &Inode) -> Result<()> {
        if image.nid.get() == 0 {
            return Err(Error::Errno(libc::ESTALE));
        }
        let node = h.get(inode.place().block, BlockKind::Node)?;
        Meta::stage_on(h, &node, inode, image);
        Ok(())
    }

    /// The same for a thread that has the page.
    pub(crate) fn stage_on(h: &mut Handle<'_>, node: &PageRef, inode: &InodeObj, image: &Inode) {
        h.edit(node, inode.place().range()).copy_from_slice(image_bytes(image));
    }

    /// Stages new times of a directory whose lock is shared.
    pub(crate) fn stage_dir_time(&self, h: &mut Handle<'_>, dir: &InodeObj, at: i64) -> Result<()> {
        let node = self.node(dir)?;
        let offset = dir.place().range().start + offset_of!(Inode, mtime);
        let mut both = [0; 16];
        both.as_chunks_mut::<8>().0.fill(at.to_le_bytes());
        h.write_if_newer(&node, offset, &both);
        Ok(())
    }

    /// The entries of a directory.
    pub(crate) fn dir(&self, inode: &InodeObj) -> Dir<'_, Meta> {
        Dir {
            store: &self.store,
            blocks: self,
            hash: &self.hash,
            nid: inode.nid(),
            generation: inode.generation(),
        }
    }

    /// Logs the times of an inode that wait in memory.
    pub(crate) fn log_times(&self, inode: &InodeObj) -> Result<()> {
        if !inode.has_lazy_times() || inode.holds.is_gone() {
            return Ok(());
        }
        let mut h = self.begin(4)?;
        let mut image = inode.lock.write();
        if image.nid.get() == 0 {
            return Ok(());
        }
        let draft = inode.draft(&image);
        self.stage(&mut h, inode, &draft.image)?;
        let _installing = self.commit(h)?;
        inode.install(&mut image, &draft);
        Ok(())
    }

    /// Logs the times of inodes that could leave memory but for them, if there are many.
    pub(crate) fn log_waiting_times(&self) {
        self.log_times_of(&self.table.take_waiting());
    }

    /// Logs the times of these; those that cannot be logged wait on.
    pub(crate) fn log_times_of(&self, inodes: &[Arc<InodeObj>]) {
        for inode in inodes {
            if let Err(e) = self.log_times(inode) {
                tracing::warn!(nid = inode.nid(), "its times stay in memory: {e}");
            }
        }
    }
}

impl std::fmt::Debug for Meta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meta").field("inodes", &self.table.len()).finish_non_exhaustive()
    }
}
