//! Directories: names to inodes, in buckets of 4 KiB that linear hashing finds.
//!
//! Everything is staged on a [`Handle`]; locks are the caller's. What needs which:
//! - [`Dir::lookup`], [`Dir::vacancy`], [`Dir::read`]: the directory shared, the bucket shared;
//! - [`Dir::insert`], [`Dir::fill_vacancy`], [`Dir::remove`], [`Dir::replace`]: the directory shared, the bucket exclusively
//!   (or the directory exclusively); they change bytes of existing blocks only;
//! - [`Dir::is_sparse`]: the directory shared;
//! - [`Dir::grow`], [`Dir::shrink`], [`Dir::is_empty`] for rmdir: the directory exclusively.
//!
//! Invariants: an entry lies in the bucket of its name's hash; cookies are unique in the directory, made of
//! the hash, and fixed for the entry's life; a split moves entries between two buckets and changes none, nor does its
//! reverse. What is read from media is verified before it is used; a loop of overflow blocks ends at [`MAX_CHAIN`].
//!
//! Where a directory's blocks come from is behind [`DirBlocks`]. What walks of paths remember of names: [`DentryCache`].

pub(crate) mod bucket;
mod change;
pub(crate) mod dentry_cache;
mod grow;
#[cfg(test)]
mod grow_tests;
pub(crate) mod hash;
#[cfg(all(test, loom))]
mod loom_models;
mod read;
mod search;
mod shrink;
#[cfg(test)]
mod shrink_tests;
#[cfg(test)]
mod tests;

pub(crate) use bucket::Dentry;
pub(crate) use dentry_cache::DentryCache;
pub(crate) use grow::{GROW_SLOTS, OVERFLOW_SLOTS, PATIENCE, Splits, USUAL_CHAINS, most_splits, split_slots};
pub(crate) use hash::{NameHash, bucket_of};
pub(crate) use shrink::{GROUP, Left, MOST_AT_ANY_TIME, SHRINK_SLOTS};

use crate::error::{Error, Result};
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, Inode, MAX_NAME, Nid};
use crate::inode::FileType;
use crate::store::{Handle, PageRef, Store};
use bucket::{Fault, Spot};
use change::Patches;
use search::Gap;
use std::ops::ControlFlow;

/// Most blocks of a bucket. Keyed hashes keep chains at one or two.
pub(crate) const MAX_CHAIN: usize = 64;

/// Slots that an insertion, removal or replacement takes at the most, beside those of inodes.
pub(crate) const ENTRY_SLOTS: u32 = 4;

/// Where the blocks of directories come from.
pub(crate) trait DirBlocks {
    /// The block of a bucket, as the image (and what the handle has staged) maps it.
    fn block_of(&self, h: Option<&Handle>, image: &Inode, bucket: u32) -> Result<u64>;
    /// Allocates a block for the new last bucket and maps it in the image; counts it in `blocks`.
    fn add_bucket(&self, h: &mut Handle, image: &mut Inode, bucket: u32) -> Result<u64>;
    /// Allocates an overflow block, near `goal`, and counts it.
    fn add_overflow(&self, h: &mut Handle, image: &mut Inode, goal: u64) -> Result<u64>;
    /// Unmaps and frees the blocks of the buckets from `first` on, up to [`GROUP`] of them, and discounts them.
    fn drop_buckets(&self, h: &mut Handle, image: &mut Inode, first: u32) -> Result<()>;
    /// Frees an overflow block, and discounts it.
    fn free_overflow(&self, h: &mut Handle, image: &mut Inode, block: u64) -> Result<()>;
}

/// A directory as these functions need it.
pub(crate) struct Dir<'a, B> {
    /// The pages.
    pub store: &'a Store,
    /// The blocks.
    pub blocks: &'a B,
    /// The hash of the image.
    pub hash: &'a NameHash,
    /// The directory.
    pub nid: Nid,
    /// Its generation.
    pub generation: u32,
}

/// An entry that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The inode.
    pub nid: Nid,
    /// Its type.
    pub file_type: FileType,
    /// The entry's cookie.
    pub cookie: u64,
}

/// Whether an entry was put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Insertion {
    /// It is staged.
    Done,
    /// Its bucket has no room: [`Dir::grow`], then again.
    Full,
}

impl Hit {
    fn of(dentry: Dentry) -> Hit {
        Hit { nid: dentry.nid, file_type: dentry.file_type, cookie: dentry.cookie }
    }
}

/// Where a name can go.
#[derive(Debug)]
pub(crate) struct Vacancy {
    /// None if every cookie of the hash is taken.
    cookie: Option<u64>,
    room: Option<(PageRef, Gap)>,
    /// The bucket is to get room first.
    grows: bool,
}

impl Vacancy {
    /// Whether [`Dir::grow`] must come first.
    pub(crate) fn grows(&self) -> bool {
        self.grows
    }
}

/// An entry, and where it lies. It holds as long as the bucket is locked, and until the handle changes the bucket.
#[derive(Debug)]
pub(crate) struct Located {
    page: PageRef,
    spot: Spot,
    hit: Hit,
}

impl Located {
    /// The entry.
    pub(crate) fn hit(&self) -> Hit {
        self.hit
    }
}

/// EINVAL, ENAMETOOLONG or nothing.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME {
        return Err(Error::Errno(libc::ENAMETOOLONG));
    }
    if name.is_empty() || name.iter().any(|c| matches!(c, 0 | b'/')) {
        return Err(Error::Errno(libc::EINVAL));
    }
    Ok(())
}

impl<B: DirBlocks> Dir<'_, B> {
    /// The bucket of a name; 0 where there is none yet.
    pub(crate) fn bucket_of(&self, image: &Inode, name: &[u8]) -> u32 {
        match image.buckets.get() {
            0 => 0,
            buckets => bucket_of(self.hash.of(name), buckets),
        }
    }

    /// The entry of a name.
    pub(crate) fn lookup(&self, h: Option<&Handle>, image: &Inode, name: &[u8]) -> Result<Option<Hit>> {
        Ok(self.locate(h, image, name)?.map(|found| found.hit))
    }

    /// Where a name can go, or what has it already. It holds as long as the bucket is locked.
    pub(crate) fn vacancy(
        &self,
        h: Option<&Handle>,
        image: &Inode,
        name: &[u8],
    ) -> Result<Result<Vacancy, Hit>> {
        if image.buckets.get() == 0 {
            return Ok(Ok(Vacancy { cookie: None, room: None, grows: true }));
        }
        let hash = self.hash.of(name);
        let mut ties = [0u64; 4];
        let mut room = None;
        let there = self.each(h, image, bucket_of(hash, image.buckets.get()), |page, bytes| {
            let gap = bucket::gap(bytes, hash, name, room.is_none(), |cookie| {
                let tie = cookie as u8;
                ties[usize::from(tie / 64)] |= 1 << (tie % 64);
            });
            match gap? {
                Err(there) => return Ok(Some(Hit::of(there))),
                Ok(Some(gap)) => room = Some((page.clone(), gap)),
                Ok(None) => {}
            }
            Ok(None)
        })?;
        if let Some(hit) = there {
            return Ok(Err(hit));
        }
        let word = ties.iter().position(|w| *w != u64::MAX);
        let tie = word.map(|word| word as u64 * 64 + u64::from(ties[word].trailing_ones()));
        let cookie = tie.map(|tie| hash::cookie_base(hash) + tie);
        Ok(Ok(Vacancy { grows: cookie.is_some() && room.is_none(), cookie, room }))
    }

    /// Puts an entry where its name can go.
    pub(crate) fn fill_vacancy(
        &self,
        h: &mut Handle,
        vacancy: Vacancy,
        name: &[u8],
        nid: Nid,
        file_type: FileType,
    ) -> Result<Insertion> {
        if vacancy.grows() {
            return Ok(Insertion::Full);
        }
        let (Some(cookie), Some((page, gap))) = (vacancy.cookie, vacancy.room) else {
            return Err(Error::Errno(libc::ENOSPC));
        };
        let dentry = Dentry { name, nid, cookie, file_type };
        let patches = h.read(&page, |bytes| bucket::insert(bytes, gap, &dentry));
        let patches = patches.map_err(|detail| self.damaged(&page, detail))?;
        self.patch(h, &page, &patches);
        Ok(Insertion::Done)
    }

    /// Puts an entry in.
    ///
    /// # Errors
    /// EEXIST: the name is there already.
    pub(crate) fn insert(
        &self,
        h: &mut Handle,
        image: &Inode,
        name: &[u8],
        nid: Nid,
        file_type: FileType,
    ) -> Result<Insertion> {
        match self.vacancy(Some(h), image, name)? {
            Ok(vacancy) => self.fill_vacancy(h, vacancy, name, nid, file_type),
            Err(_) => Err(Error::Errno(libc::EEXIST)),
        }
    }

    /// Takes an entry out, if it is there.
    pub(crate) fn remove(&self, h: &mut Handle, image: &Inode, name: &[u8]) -> Result<Left> {
        match self.locate(Some(h), image, name)? {
            Some(found) => self.take(h, &found),
            None => Ok(Left::Much),
        }
    }

    /// Takes an entry out that was located.
    pub(crate) fn take(&self, h: &mut Handle, found: &Located) -> Result<Left> {
        let taken = h.read(&found.page, |bytes| {
            let count = bucket::header(bytes).map_or(0, |header| header.count.get());
            Ok((bucket::remove(bytes, found.spot)?, Left::of(bytes, count)))
        });
        let (patches, left) = taken.map_err(|fault: Fault| self.damaged(&found.page, fault))?;
        self.patch(h, &found.page, &patches);
        Ok(left)
    }

    /// Makes a name lead to another inode, if it is there; what it led to.
    pub(crate) fn replace(
        &self,
        h: &mut Handle,
        image: &Inode,
        name: &[u8],
        nid: Nid,
        file_type: FileType,
    ) -> Result<Option<Hit>> {
        let Some(found) = self.locate(Some(h), image, name)? else { return Ok(None) };
        let patches = h.read(&found.page, |bytes| bucket::replace(bytes, found.spot, nid, file_type));
        let patches = patches.map_err(|detail| self.damaged(&found.page, detail))?;
        self.patch(h, &found.page, &patches);
        Ok(Some(found.hit))
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self, h: Option<&Handle>, image: &Inode) -> Result<bool> {
        for bucket in 0..image.buckets.get() {
            let entry = |_: &PageRef, bytes: &[u8]| bucket::walk(bytes, |_, _| ControlFlow::Break(()));
            if self.each(h, image, bucket, entry)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The entry of a name, and where it lies.
    pub(crate) fn locate(&self, h: Option<&Handle>, image: &Inode, name: &[u8]) -> Result<Option<Located>> {
        if image.buckets.get() == 0 {
            return Ok(None);
        }
        let hash = self.hash.of(name);
        self.each(h, image, bucket_of(hash, image.buckets.get()), |page, bytes| {
            let found = bucket::find(bytes, hash, name)?;
            Ok(found.map(|(spot, dentry)| Located { page: page.clone(), spot, hit: Hit::of(dentry) }))
        })
    }

    /// The blocks of a bucket, each verified to be of this directory and bucket.
    pub(crate) fn chain(&self, h: Option<&Handle>, image: &Inode, bucket: u32) -> Result<Vec<PageRef>> {
        let mut chain = Vec::with_capacity(1);
        self.each(h, image, bucket, |page, _| {
            chain.push(page.clone());
            Ok(None::<()>)
        })?;
        Ok(chain)
    }

    /// Shows each block of a bucket, verified to be of this directory and bucket, until `f` returns something. A page's
    /// latch is held meanwhile: `f` takes no lock and reads no other page.
    fn each<R>(
        &self,
        h: Option<&Handle>,
        image: &Inode,
        bucket: u32,
        mut f: impl FnMut(&PageRef, &[u8]) -> Result<Option<R>, Fault>,
    ) -> Result<Option<R>> {
        let mut next = self.blocks.block_of(h, image, bucket)?;
        for _ in 0..MAX_CHAIN {
            let page = match h {
                Some(h) => h.get(next, BlockKind::Bucket)?,
                None => self.store.get(next, BlockKind::Bucket)?,
            };
            let seen = self.with_bytes(h, &page, |bytes| {
                let header = bucket::header_of(bytes, self.nid, self.generation, bucket)?;
                Ok((f(&page, bytes)?, header.next.get()))
            });
            match seen.map_err(|fault: Fault| self.damaged(&page, fault))? {
                (None, 0) => return Ok(None),
                (None, after) => next = after,
                (found, _) => return Ok(found),
            }
        }
        Err(Error::Corrupt {
            what: "directory",
            place: format!("nid {}", self.nid),
            detail: format!("the overflow of bucket {bucket} does not end"),
        })
    }

    fn with_bytes<R>(&self, h: Option<&Handle>, page: &PageRef, f: impl FnOnce(&[u8]) -> R) -> R {
        match h {
            Some(h) => h.read(page, f),
            None => page.read(|bytes| f(bytes)),
        }
    }

    fn walk<R>(
        &self,
        h: Option<&Handle>,
        page: &PageRef,
        visit: impl FnMut(Spot, Dentry) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        self.with_bytes(h, page, |bytes| bucket::walk(bytes, visit))
            .map_err(|detail| self.damaged(page, detail))
    }

    fn patch(&self, h: &mut Handle, page: &PageRef, patches: &Patches) {
        for (at, bytes) in patches.iter() {
            h.edit(page, at..at + bytes.len()).copy_from_slice(bytes);
        }
    }

    /// Puts the bytes after a block's header.
    fn fill(&self, h: &mut Handle, page: &PageRef, body: &[u8]) {
        h.edit(page, BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + body.len()).copy_from_slice(body);
    }

    fn damaged(&self, page: &PageRef, detail: &str) -> Error {
        Error::Corrupt {
            what: "directory block",
            place: format!("nid {}, block {}", self.nid, page.block()),
            detail: detail.to_string(),
        }
    }
}
