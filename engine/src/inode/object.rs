//! An inode in memory.

use super::times::Times;
use super::{FileType, Holds, Lent, Time};
#[cfg(feature = "baselines")]
use crate::baseline::LockBaseline;
use crate::error::{Error, Result};
use crate::format::{
    EXTENT_MAX_DEPTH, EXTENT_ROOT_ENTRIES, I64, INODE_INLINE_SIZE, INODE_INLINE_XATTR_SIZE, INODE_SIZE,
    INODES_PER_BLOCK, Inode, InodeFlags, MAX_FILE_SIZE, NatEntry, Nid,
};
#[cfg(not(feature = "baselines"))]
use crate::lock::FileLock;
use crate::lock::{BucketLocks, BytesLock, InodeLock};
use crate::pages::FileData;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Margin, OnceLock, RwLock};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Where an inode lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeLocation {
    /// The node block.
    pub block: u64,
    /// The slot in it, below 16.
    pub slot: u8,
}

impl InodeLocation {
    /// The bytes of the slot in the node block.
    pub fn range(self) -> std::ops::Range<usize> {
        let start = usize::from(self.slot) * INODE_SIZE;
        start..start + INODE_SIZE
    }
}

/// An inode in memory.
///
/// `lock` guards the *logged image*: what the slot holds after the last record about it. An operation drafts
/// a changed image ([`InodeObj::draft`]), stages it, commits, and installs it ([`InodeObj::install`]); when the
/// commit fails the image stays. Times and size run ahead of the image: writing a file changes them alone,
/// and they reach the image with the next record about the inode (times), or once the data is down (size).
/// The times of a directory whose lock is only shared are staged by themselves, by `Meta::stage_dir_time`.
///
/// Its lines are its own: a thread that locks one inode must not slow down another that locks its neighbour in memory.
#[derive(Debug)]
#[repr(C)]
pub struct InodeObj {
    _before: Margin,
    nid: Nid,
    generation: u32,
    place: InodeLocation,
    file_type: FileType,
    /// The logged image.
    pub lock: InodeLock<Inode>,
    /// Lookup counts and open files.
    pub holds: Holds,
    size: AtomicU64,
    times: Times,
    /// Used since the table's hand passed.
    pub(super) referenced: AtomicBool,
    /// Number of names as the image has it, for those that do not lock.
    nlink: AtomicU32,
    /// Type and permissions likewise.
    mode: AtomicU32,
    /// What everyone may do: see [`InodeObj::everyone_may`].
    everyone: AtomicU8,
    /// It was made by this process: no lookup count of it is a predecessor's.
    made_here: bool,
    /// It was made without a name, never to get one.
    unlinkable: AtomicBool,
    /// It may have `security.capability`: it is not known that it has not.
    may_have_capability: AtomicBool,
    /// Whether attributes lie beside the image, as it has it.
    has_attributes: AtomicBool,
    buckets: OnceLock<Box<BucketLocks>>,
    data: OnceLock<Box<FileData>>,
    #[cfg(feature = "baselines")]
    locked_by: LockBaseline,
    /// How many have the file open for writing.
    writers: AtomicU32,
    /// What a cache above may hold of the file.
    pub lent: Lent,
    /// What `acl` has parsed of the inode's attributes; changed with the lock held exclusively.
    pub acls: RwLock<Option<Arc<crate::acl::Acls>>>,
    _behind: Margin,
}

/// A changed image on its way to the slot.
#[derive(Debug, Clone, Copy)]
pub struct Draft {
    /// The image to be.
    pub image: Inode,
    folded: [i64; 3],
}

impl InodeObj {
    /// The inode that `image` shows. The image comes from [`verify`] or was made by the caller.
    pub fn new(place: InodeLocation, file_type: FileType, image: Inode, holds: Holds) -> InodeObj {
        let nid = image.nid.get();
        InodeObj {
            _before: Margin::new(),
            nid,
            generation: image.generation.get(),
            place,
            file_type,
            lock: InodeLock::new(nid, image),
            made_here: holds.is_gone(),
            holds,
            size: AtomicU64::new(image.size.get()),
            times: Times::new(times_of(&image)),
            referenced: AtomicBool::new(true),
            nlink: AtomicU32::new(image.nlink.get()),
            mode: AtomicU32::new(u32::from(image.mode.get())),
            everyone: AtomicU8::new(granted_to_all(&image)),
            unlinkable: AtomicBool::new(false),
            may_have_capability: AtomicBool::new(
                file_type == FileType::Regular && image.xattr_block.get() != 0,
            ),
            has_attributes: AtomicBool::new(image.xattr_block.get() != 0),
            buckets: OnceLock::new(),
            data: OnceLock::new(),
            #[cfg(feature = "baselines")]
            locked_by: LockBaseline::Ours,
            writers: AtomicU32::new(0),
            lent: Lent::new(),
            acls: RwLock::new(None),
            _behind: Margin::new(),
        }
    }

    /// Identity.
    pub fn nid(&self) -> Nid {
        self.nid
    }
    /// Generation of the identity.
    pub fn generation(&self) -> u32 {
        self.generation
    }
    /// Where its slot is.
    pub fn place(&self) -> InodeLocation {
        self.place
    }
    /// Type.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }
    /// The locks of a directory's buckets.
    pub fn bucket_locks(&self) -> &BucketLocks {
        self.buckets.get_or_init(|| Box::new(BucketLocks::new(self.nid)))
    }

    /// Size in bytes as readers see it; of a file whose data are on their way the image may be behind.
    pub fn size(&self) -> u64 {
        // Relaxed: a lone number; that of a file in use is its data's, which orders it.
        self.data.get().map_or_else(|| self.size.load(Ordering::Relaxed), |data| data.size())
    }
    /// The content of a regular file, made now if need be.
    pub fn data(&self) -> &FileData {
        // Relaxed: nobody changes the size before the data are made.
        self.data
            .get_or_init(|| Box::new(FileData::new(self.bytes_lock(), self.size.load(Ordering::Relaxed))))
    }
    #[cfg(not(feature = "baselines"))]
    fn bytes_lock(&self) -> BytesLock {
        BytesLock::for_file(self.nid)
    }
    #[cfg(feature = "baselines")]
    fn bytes_lock(&self) -> BytesLock {
        BytesLock::chosen(self.nid, self.locked_by)
    }
    /// Its bytes are guarded so; to be said before anybody asks for them.
    #[cfg(feature = "baselines")]
    pub fn locked_by(mut self, by: LockBaseline) -> InodeObj {
        self.locked_by = by;
        self
    }
    /// The same, if somebody has asked for it.
    pub fn made_data(&self) -> Option<&FileData> {
        self.data.get().map(|data| &**data)
    }
    /// How many have the file open for writing.
    pub fn writers(&self) -> &AtomicU32 {
        &self.writers
    }
    /// Whether its data holds nothing that media lack.
    pub fn is_idle(&self) -> bool {
        self.data.get().is_none_or(|data| data.is_idle())
    }
    /// An operation of many records on its data was given up between two of them: nobody may use them until the next
    /// mount, which goes on with it.
    pub fn poison(&self) {
        self.data().poison();
    }
    /// Whether no operation on its data was given up half-way.
    pub fn is_usable(&self) -> bool {
        self.data.get().is_none_or(|data| data.check_usable().is_ok())
    }
    /// Blocks that its data will take beside those of the image.
    pub fn delayed_blocks(&self) -> u64 {
        self.data.get().map_or(0, |data| data.delayed_blocks())
    }
    /// Whether this process has made it, and so has given all lookup counts of it.
    pub fn is_made_here(&self) -> bool {
        self.made_here
    }
    /// Once it has no name it shall get none: a temporary file opened exclusively, and what has lost its last.
    pub fn forbid_links(&self) {
        // Relaxed: its maker alone knows it yet, or has its lock exclusively, as a thread that asks has.
        self.unlinkable.store(true, Ordering::Relaxed);
    }
    /// Whether it may get no name once it has none.
    pub fn is_unlinkable(&self) -> bool {
        // Relaxed: as in `forbid_links`.
        self.unlinkable.load(Ordering::Relaxed)
    }
    /// Whether it may have `security.capability`.
    pub fn may_have_capability(&self) -> bool {
        // Relaxed: set before the attribute is, with the lock held exclusively; a thread that sets one and writes
        // meanwhile has not said which comes first.
        self.may_have_capability.load(Ordering::Relaxed)
    }
    /// Notes whether it may have one, with the lock held.
    pub fn note_capability(&self, may_have: bool) {
        // Relaxed: as in `may_have_capability`. Directories have none that anybody heeds.
        self.may_have_capability.store(may_have && !self.is_dir(), Ordering::Relaxed);
    }
    /// Whether it has attributes in a block of their own, for those that do not lock.
    pub fn has_attributes(&self) -> bool {
        // Relaxed: a lone hint; a thread that must know it exactly holds the lock.
        self.has_attributes.load(Ordering::Relaxed)
    }
    /// Number of names.
    pub fn nlink(&self) -> u32 {
        // Relaxed: a lone number; a thread that must know it exactly holds the lock.
        self.nlink.load(Ordering::Relaxed)
    }
    /// Type and permissions.
    pub fn mode(&self) -> u32 {
        // Relaxed: a lone number; a thread that must know it exactly holds the lock.
        self.mode.load(Ordering::Relaxed)
    }
    /// What everyone may do with it, as in a mode's lowest three bits: what its owner, its group and all others may, if
    /// no attribute, which might be an access list, lies beside it.
    pub fn everyone_may(&self) -> u8 {
        // Relaxed: it changes with the lock held exclusively, so that a thread that has seen it before or after the
        // change by way of the lock, or was told of it, sees it so here.
        self.everyone.load(Ordering::Relaxed)
    }
    /// The times, for a caller that will compare them with later ones.
    pub fn show_times(&self) -> [Time; 3] {
        self.times.show()
    }
    /// Last access, change of content, change of the inode.
    pub fn times(&self) -> [Time; 3] {
        self.times.get()
    }

    /// The content was changed: mtime and ctime become the present, to be logged later; changes of one tick of the
    /// clock share a time unless somebody looks in between.
    pub fn touch_content(&self) {
        self.times.touch_content();
    }
    /// The content was read: atime becomes the present, to be logged later.
    pub fn touch_access(&self) {
        self.times.touch_access();
    }
    /// Times that are already staged by themselves become visible.
    pub fn show_content_time(&self, at: Time) {
        self.times.set_content(at);
    }
    /// Times that a predecessor has given it, to be logged later.
    pub fn bring_times(&self, mtime: Time, ctime: Time) {
        self.times.bring(mtime, ctime);
    }
    /// Whether times wait to be logged.
    pub fn has_lazy_times(&self) -> bool {
        self.times.are_lazy()
    }

    /// The image, with the times that run ahead of it, to be changed and staged. The caller holds `lock`.
    pub fn draft(&self, image: &Inode) -> Draft {
        let folded = self.times();
        let mut image = *image;
        [image.atime, image.mtime, image.ctime] = folded.map(I64::new);
        Draft { image, folded }
    }

    /// Makes a committed draft the logged image.
    pub fn install(&self, image: &mut Inode, draft: &Draft) {
        *image = draft.image;
        self.times.install(draft.folded, times_of(&draft.image));
        // Relaxed: lone numbers.
        self.size.store(image.size.get(), Ordering::Relaxed);
        self.nlink.store(image.nlink.get(), Ordering::Relaxed);
        self.mode.store(u32::from(image.mode.get()), Ordering::Relaxed);
        self.everyone.store(granted_to_all(image), Ordering::Relaxed);
        self.has_attributes.store(image.xattr_block.get() != 0, Ordering::Relaxed);
        self.settle_kept();
    }
}

fn granted_to_all(image: &Inode) -> u8 {
    let mode = image.mode.get();
    if image.xattr_block.get() == 0 { (mode >> 6 & mode >> 3 & mode & 7) as u8 } else { 0 }
}

fn times_of(image: &Inode) -> [Time; 3] {
    [image.atime, image.mtime, image.ctime].map(I64::get)
}

/// A fresh image of an inode without names.
pub fn fresh_image(nid: Nid, generation: u32, mode: u32, uid: u32, gid: u32, at: Time) -> Inode {
    let mut image = Inode::new_zeroed();
    image.mode.set(mode as u16);
    image.nid.set(nid);
    image.generation.set(generation);
    image.uid.set(uid);
    image.gid.set(gid);
    for time in [&mut image.atime, &mut image.mtime, &mut image.ctime, &mut image.btime] {
        time.set(at);
    }
    image
}

/// No inode has so many blocks: far more than the longest file, its extents and attributes.
const BLOCKS_END: u64 = 1 << 40;

/// Checks a slot read from media against the NAT entry that led to it.
pub fn verify(nid: Nid, entry: &NatEntry, slot: &[u8]) -> Result<(FileType, Inode)> {
    let bad = |detail: String| Error::Corrupt {
        what: "inode",
        place: format!("nid {nid}, block {}, slot {}", entry.block(), entry.slot()),
        detail,
    };
    let image = Inode::read_from_bytes(slot).map_err(|_| bad("no such slot".into()))?;
    if image.nid.get() != nid || image.generation.get() != entry.generation.get() {
        return Err(bad(format!("it is nid {} of generation {}", image.nid, image.generation)));
    }
    let file_type = FileType::from_mode(u32::from(image.mode.get()))
        .ok_or_else(|| bad(format!("mode {:o} has no type", image.mode)))?;
    let flags = InodeFlags::from_bits(image.flags.get())
        .ok_or_else(|| bad(format!("unknown flags {:#x}", image.flags)))?;
    let inline_size = if flags.contains(InodeFlags::INLINE_XATTR) {
        INODE_INLINE_SIZE - INODE_INLINE_XATTR_SIZE
    } else {
        INODE_INLINE_SIZE
    };
    let entries = inline_size * EXTENT_ROOT_ENTRIES / INODE_INLINE_SIZE;
    if image.extent_depth > EXTENT_MAX_DEPTH || usize::from(image.extent_count) > entries {
        return Err(bad("its extent root is out of bounds".into()));
    }
    let size = image.size.get();
    let bound = match file_type {
        FileType::Symlink if flags.contains(InodeFlags::INLINE_SYMLINK) => inline_size as u64,
        FileType::Symlink => libc::PATH_MAX as u64 - 1,
        _ => MAX_FILE_SIZE,
    };
    if size > bound || (file_type == FileType::Symlink && size == 0) {
        return Err(bad(format!("a size of {size} bytes is impossible")));
    }
    if image.blocks.get() >= BLOCKS_END {
        return Err(bad(format!("it cannot have {} blocks", image.blocks)));
    }
    if file_type == FileType::Directory && u64::from(image.buckets.get()) > MAX_FILE_SIZE / 4096 {
        return Err(bad("it has too many buckets".into()));
    }
    Ok((file_type, image))
}

/// The place of a NAT entry, if it can be one.
pub fn location_of(nid: Nid, entry: &NatEntry) -> Result<InodeLocation> {
    let place = InodeLocation { block: entry.block(), slot: entry.slot() };
    if usize::from(place.slot) >= INODES_PER_BLOCK {
        return Err(Error::Corrupt {
            what: "NAT entry",
            place: format!("nid {nid}"),
            detail: format!("slot {} does not exist", place.slot),
        });
    }
    Ok(place)
}

/// The bytes of an image.
pub fn image_bytes(image: &Inode) -> &[u8] {
    image.as_bytes()
}
