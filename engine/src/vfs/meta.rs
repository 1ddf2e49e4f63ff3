//! The metadata of an image as operations use it: inodes by nid, directories, attributes, the slots of inodes.

use super::{FsOptions, now};
use crate::alloc::{Alloc, Class, Extent, Reservation, VolatileExtent};
use crate::dir::{DentryCache, Dir, DirBlocks, GROUP, NameHash};
use crate::error::{Error, Result};
use crate::extent::{self, Root};
use crate::format::{BlockKind, Inode, InodeFlags, Intent, NatEntry, Nid, OrphanEntry, Position};
use crate::inode::{Holds, InodeObj, InodeTable, image_bytes, location_of, verify};
use crate::journal::Durability;
use crate::lock::{LockClass, Rank};
use crate::store::{Handle, PageRef, Store};
use crate::sync::{Arc, Mutex};
use crate::xattr;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Extents that an inode holds itself.
const INLINE_EXTENTS: u32 = crate::format::EXTENT_ROOT_ENTRIES as u32;
/// Slots that freeing an inode takes beside its blocks.
pub(super) const FREE_SLOTS: u32 = 10;

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

/// Where inodes come from and go: the seam of id allocation, and of the orphan table.
pub trait InodeSpace: Send + Sync {
    /// Where an inode lies; `None`: the nid is free.
    fn place(&self, nid: Nid) -> Result<Option<NatEntry>>;
    /// Takes a nid and a slot; they are free again if the handle aborts.
    fn allocate<'s>(&'s self, h: &mut Handle<'s>) -> Result<NewSlot>;
    /// Frees both.
    fn free<'s>(&'s self, h: &mut Handle<'s>, nid: Nid, node: &PageRef, slot: u8) -> Result<()>;
    /// Says that recovery has something to finish.
    fn begin_intent(
        &self,
        h: &mut Handle<'_>,
        nid: Nid,
        generation: u32,
        intent: Intent,
        args: [u64; 2],
    ) -> Result<()>;
    /// How far it has come, see [`crate::format::OrphanEntry::progress`].
    fn note_progress(&self, h: &mut Handle<'_>, nid: Nid, intent: Intent, progress: u64) -> Result<()>;
    /// It is finished, or not needed any more. Nothing if there is no such entry.
    fn end_intent(&self, h: &mut Handle<'_>, nid: Nid, intent: Intent) -> Result<()>;
    /// Every record below is durable against a loss of power: freed ids may be given out again.
    fn durable(&self, upto: Position);
    /// How many nids of a NAT block are in use, if that is known.
    fn used_nids(&self, nat_block: u64) -> Option<u16>;
    /// Leaves what makes the next mount's allocations faster. Everything is durable.
    fn save_hints(&self) -> Result<()>;
    /// What is not finished.
    fn entries(&self) -> Vec<OrphanEntry>;
}

/// The metadata of an image.
pub struct Meta {
    pub(super) store: Arc<Store>,
    pub(super) alloc: Alloc,
    pub(super) space: Arc<dyn InodeSpace>,
    pub(super) table: InodeTable,
    pub(super) known: DentryCache,
    hash: NameHash,
    pub(super) options: FsOptions,
    pub(super) durability: Durability,
    step: u32,
    pub(super) reserved: Mutex<Reservation>,
    /// Blocks that are picked and in no record, by their first.
    pub(super) volatile: Mutex<BTreeMap<u64, VolatileExtent>>,
}

impl Meta {
    /// The metadata of a mounted image: `inodes` is how many inodes not in use may stay in memory, and how many names
    /// walks remember; `wanted` how far a record travels before fsync returns, `step` how many extents one record of a
    /// long operation touches at most.
    pub fn new(
        store: Arc<Store>,
        alloc: Alloc,
        space: Arc<dyn InodeSpace>,
        options: FsOptions,
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
            options,
            durability,
            step,
        }
    }

    /// The metadata pages.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// How far a record travels before fsync returns.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Whether there may be operations; they wait for credits with nothing in hand that comes behind these.
    fn may_begin(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::Errno(libc::EROFS));
        }
        drop(Rank::new(LockClass::Credits, 0).waiting());
        Ok(())
    }

    /// Starts an operation: takes credits, before any lock but growth and range.
    pub(super) fn begin(&self, slots: u32) -> Result<Handle<'_>> {
        self.may_begin()?;
        self.store.begin(self.allowed(slots))
    }

    /// As [`Meta::begin`], for what frees, or is the rest of what others see begun ([`Store::begin_rest`]).
    pub(super) fn begin_rest(&self, slots: u32) -> Result<Handle<'_>> {
        self.may_begin()?;
        self.store.begin_rest(self.allowed(slots))
    }

    /// What a record may have of `slots`: an operation's bound is far above what it takes as a rule, and a tiny
    /// ring would refuse it.
    pub(super) fn allowed(&self, slots: u32) -> u32 {
        self.store.journal().map_or(slots, |journal| slots.min(journal.max_record_slots()))
    }

    /// Extents that one step of a long operation touches: fewer where records are small.
    pub(super) fn step(&self) -> u32 {
        (self.allowed(8 * self.step) / 8).max(1)
    }

    /// As [`Meta::begin`] for what writes data home: it may use the reserve, for others wait for it.
    pub(super) fn begin_reserve(&self, slots: u32) -> Result<Handle<'_>> {
        self.may_begin()?;
        self.store.begin_reserve(self.allowed(slots))
    }

    /// The inode of a nid that somebody may hold no more: ESTALE if it is gone.
    pub(super) fn inode(&self, nid: Nid) -> Result<Arc<InodeObj>> {
        let found = self.table.get_or_load(nid, || self.load(nid))?;
        found.filter(|inode| !inode.holds.is_gone()).ok_or(Error::Errno(libc::ESTALE))
    }

    /// The inode that a directory entry leads to, which must exist.
    pub(super) fn named(&self, nid: Nid) -> Result<Arc<InodeObj>> {
        self.table.get_or_load(nid, || self.load(nid))?.ok_or_else(|| Error::Corrupt {
            what: "directory entry",
            place: format!("nid {nid}"),
            detail: "it leads to a free inode".into(),
        })
    }

    fn load(&self, nid: Nid) -> Result<Option<InodeObj>> {
        let Some(entry) = self.space.place(nid)? else { return Ok(None) };
        let place = location_of(nid, &entry)?;
        let slot = self.store.get(place.block, BlockKind::Node)?.read(|bytes| bytes[place.range()].to_vec());
        let (file_type, image) = verify(nid, &entry, &slot)?;
        Ok(Some(InodeObj::new(place, file_type, image, Holds::new(0))))
    }

    /// The node page of an inode.
    pub(super) fn node(&self, inode: &InodeObj) -> Result<PageRef> {
        self.store.get(inode.place().block, BlockKind::Node)
    }

    /// Stages an image. The caller holds the inode's lock exclusively. ESTALE if the inode was freed: its slot
    /// may be another's.
    pub(super) fn stage(&self, h: &mut Handle<'_>, inode: &InodeObj, image: &Inode) -> Result<()> {
        if image.nid.get() == 0 {
            return Err(Error::Errno(libc::ESTALE));
        }
        let node = h.get(inode.place().block, BlockKind::Node)?;
        Meta::stage_on(h, &node, inode, image);
        Ok(())
    }

    /// The same for a thread that has the page.
    pub(super) fn stage_on(h: &mut Handle<'_>, node: &PageRef, inode: &InodeObj, image: &Inode) {
        h.edit(node, inode.place().range()).copy_from_slice(image_bytes(image));
    }

    /// Stages new times of a directory whose lock is shared.
    pub(super) fn stage_dir_time(&self, h: &mut Handle<'_>, dir: &InodeObj, at: i64) -> Result<()> {
        let node = self.node(dir)?;
        let offset = dir.place().range().start + offset_of!(Inode, mtime);
        let mut both = [0; 16];
        both.as_chunks_mut::<8>().0.fill(at.to_le_bytes());
        h.write_if_newer(&node, offset, &both);
        Ok(())
    }

    /// The entries of a directory.
    pub(super) fn dir(&self, inode: &InodeObj) -> Dir<'_, Meta> {
        Dir {
            store: &self.store,
            blocks: self,
            hash: &self.hash,
            nid: inode.nid(),
            generation: inode.generation(),
        }
    }

    /// A metadata block for an inode.
    pub(crate) fn take_block(&self, h: &mut Handle<'_>, image: &mut Inode, goal: Option<u64>) -> Result<u64> {
        let extent = self.alloc.allocate(h, 1, goal, Class::Metadata, None)?;
        image.blocks += 1;
        Ok(extent.start)
    }

    /// Frees a metadata block of an inode.
    pub(crate) fn give_block(&self, h: &mut Handle<'_>, image: &mut Inode, block: u64) -> Result<()> {
        self.alloc.free(h, Extent { start: block, len: 1 }, true)?;
        image.blocks.set(image.blocks.get().saturating_sub(1));
        Ok(())
    }

    /// Logs the times of an inode that wait in memory.
    pub(super) fn log_times(&self, inode: &InodeObj) -> Result<()> {
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
        let _carrying = self.commit(h)?;
        inode.install(&mut image, &draft);
        Ok(())
    }

    /// Stages the end of an inode without extent or attribute blocks: its blocks, slot and nid are free.
    pub(super) fn stage_end<'s>(
        &'s self,
        h: &mut Handle<'s>,
        inode: &InodeObj,
        image: &mut Inode,
    ) -> Result<()> {
        if image.flags.get() & InodeFlags::INLINE_SYMLINK.bits() == 0 {
            let mut root = Root::load(image)?;
            while !extent::remove(h, &self.alloc, &mut root, 0..extent::LOGICAL_END, INLINE_EXTENTS)?.done {}
            root.store(image);
        }
        let node = self.node(inode)?;
        self.space.free(h, inode.nid(), &node, inode.place().slot)
    }

    /// Logs the times of inodes that could leave memory but for them, if there are many.
    pub(super) fn log_waiting_times(&self) {
        for inode in self.table.take_waiting() {
            if let Err(e) = self.log_times(&inode) {
                tracing::warn!(nid = inode.nid(), "its times stay in memory: {e}");
            }
        }
    }

    /// Frees an inode that [`Holds::retire`] was won for. It has no name; its data is discarded. A failure
    /// leaves it to recovery: the orphan table names it.
    pub(super) fn free_inode(&self, inode: &Arc<InodeObj>) -> Result<()> {
        let budget = self.step();
        loop {
            let slots = {
                let image = inode.lock.read();
                // The bits of each extent or bucket, and the blocks of attributes.
                let tree =
                    if image.extent_depth > 0 { extent::edit_slots(image.extent_depth, budget) } else { 4 };
                let attributes = if image.xattr_block.get() > 0 { xattr::slots(0) } else { 0 };
                tree + attributes + FREE_SLOTS + if inode.is_dir() { budget } else { 0 }
            };
            let mut h = self.begin_rest(slots)?;
            let mut image = inode.lock.write();
            let mut draft = inode.draft(&image);
            let mut root = Root::load(&draft.image)?;
            let mut from = 0;
            if inode.is_dir() {
                let buckets = draft.image.buckets.get();
                let keep = buckets.saturating_sub(budget.div_ceil(4));
                from = u64::from(keep);
                for bucket in keep..buckets {
                    for (i, page) in self.dir(inode).chain(Some(&h), &image, bucket)?.iter().enumerate() {
                        h.forget(page);
                        if i > 0 {
                            self.alloc.free(&mut h, Extent { start: page.block(), len: 1 }, true)?;
                            root.blocks = root.blocks.saturating_sub(1);
                        }
                    }
                }
                draft.image.buckets.set(keep);
            }
            let progress = extent::remove(&mut h, &self.alloc, &mut root, from..extent::LOGICAL_END, budget)?;
            root.store(&mut draft.image);
            if progress.done && from == 0 {
                xattr::stage(self, &mut h, &mut draft.image, &[])?;
                let node = self.node(inode)?;
                self.space.free(&mut h, inode.nid(), &node, inode.place().slot)?;
                // The others are those of operations that were given up.
                for intent in
                    [Intent::Orphan, Intent::Truncate, Intent::Punch, Intent::Collapse, Intent::Insert]
                {
                    self.space.end_intent(&mut h, inode.nid(), intent)?;
                }
                let carrying = self.commit(h)?;
                *image = draft.image;
                // A thread that still has the object, to write its data home or to log its times, finds it freed.
                image.nid.set(0);
                drop(carrying);
                drop(image);
                self.table.remove(inode);
                return Ok(());
            }
            draft.image.ctime.set(now());
            self.stage(&mut h, inode, &draft.image)?;
            let _carrying = self.commit(h)?;
            inode.install(&mut image, &draft);
        }
    }
}

impl DirBlocks for Meta {
    fn block_of(&self, h: Option<&Handle<'_>>, image: &Inode, bucket: u32) -> Result<u64> {
        let found = match h {
            Some(h) => extent::lookup_block(h, image, bucket)?,
            None => extent::lookup_block(&*self.store, image, bucket)?,
        };
        found.ok_or_else(|| Error::Corrupt {
            what: "directory",
            place: format!("nid {}", image.nid),
            detail: format!("bucket {bucket} has no block"),
        })
    }

    fn add_bucket(&self, h: &mut Handle<'_>, image: &mut Inode, bucket: u32) -> Result<u64> {
        let goal = match bucket.checked_sub(1) {
            Some(last) => Some(self.block_of(Some(h), image, last)? + 1),
            None => None,
        };
        let mut root = Root::load(image)?;
        let extent = self.alloc.allocate(h, 1, goal, Class::Metadata, None)?;
        extent::insert(h, &self.alloc, &mut root, bucket, extent, false, None)?;
        root.store(image);
        Ok(extent.start)
    }

    fn drop_buckets(&self, h: &mut Handle<'_>, image: &mut Inode, first: u32) -> Result<()> {
        let mut root = Root::load(image)?;
        let range = u64::from(first)..extent::LOGICAL_END;
        while !extent::remove(h, &self.alloc, &mut root, range.clone(), GROUP)?.done {}
        root.store(image);
        Ok(())
    }

    fn add_overflow(&self, h: &mut Handle<'_>, image: &mut Inode, goal: u64) -> Result<u64> {
        self.take_block(h, image, Some(goal))
    }

    fn free_overflow(&self, h: &mut Handle<'_>, image: &mut Inode, block: u64) -> Result<()> {
        self.give_block(h, image, block)
    }
}

impl std::fmt::Debug for Meta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meta").field("inodes", &self.table.len()).finish_non_exhaustive()
    }
}
