//! Reading a directory in the order of cookies.

use super::hash::{bucket_of, hash_of, hashes_of};
use super::{Dir, DirBlocks};
use crate::error::Result;
use crate::format::{FIRST_COOKIE, Inode, Nid};
use crate::inode::FileType;
use std::ops::ControlFlow;

/// An entry, copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedDentry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode.
    pub nid: Nid,
    /// The place in the directory's order.
    pub cookie: u64,
    /// Type of the inode.
    pub file_type: FileType,
}

/// The entries of one bucket that come after a cookie.
#[derive(Debug)]
pub(crate) struct Page {
    /// In ascending order of cookies.
    pub entries: Vec<OwnedDentry>,
    /// Where the rest of the directory begins; `None` at its end. All its cookies are greater.
    pub next: Option<u64>,
}

impl<B: DirBlocks> Dir<'_, B> {
    /// The bucket that [`Dir::read`] looks into.
    pub(crate) fn bucket_after(&self, image: &Inode, cookie: u64) -> u32 {
        match image.buckets.get() {
            0 => 0,
            // The next cookie: the last one of a bucket leads on to the following bucket.
            buckets => bucket_of(hash_of(cookie.saturating_add(1).min(i64::MAX as u64)), buckets),
        }
    }

    /// The entries with cookies above `cookie` in the bucket where that cookie belongs. Buckets are contiguous
    /// ranges of cookies, so going on from `next` meets every entry that stays exactly once, whatever is
    /// inserted, removed or split in between.
    pub(crate) fn read(&self, image: &Inode, cookie: u64) -> Result<Page> {
        let buckets = image.buckets.get();
        if buckets == 0 {
            return Ok(Page { entries: Vec::new(), next: None });
        }
        let bucket = self.bucket_after(image, cookie);
        let mut entries = Vec::new();
        for page in self.chain(None, image, bucket)? {
            self.walk(None, &page, |_, d| {
                if d.cookie > cookie {
                    let (nid, cookie, file_type) = (d.nid, d.cookie, d.file_type);
                    entries.push(OwnedDentry { name: d.name.to_vec(), nid, cookie, file_type });
                }
                ControlFlow::<()>::Continue(())
            })?;
        }
        entries.sort_unstable_by_key(|e| e.cookie);
        let last = super::hash::cookie_base(*hashes_of(bucket, buckets).end()) | 0xff;
        let end = last >= i64::MAX as u64;
        Ok(Page { entries, next: (!end).then_some(last.max(FIRST_COOKIE - 1)) })
    }
}
