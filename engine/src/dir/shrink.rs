//! How a directory gives room back: its last buckets join those that they were split from, which is a split undone.
//!
//! # When
//! Bucket b, 2^k <= b < 2^(k+1), was split from b - 2^k, whose hashes come just before its own. A *group* is the last
//! [`GROUP`] buckets, with those that they were split from. Neighbours by number lie far apart by hash: so the group is
//! a sample of the whole directory, whatever order names are removed in. Those of its last buckets that have one k are
//! joined while the entries of the group fill no more than a quarter of its buckets. What comes of that is half full
//! on average, so that many names must be made before anything is split again, and as many removed before the halves
//! join again: nobody pays for both with one name.
//!
//! A removal that leaves little in a block looks whether there is something to join, one in eight of them. A thread
//! that removes names in the order of hashes finds the last of them in few buckets, and one of those may be among the
//! last for long, too full to be joined; so the removals that empty a block go on for as long as there is something to
//! join, up to a bound ([`Left::groups`]). In a large directory that bound is about half of the buckets: where the last
//! names in the order of hashes are, there is the last bucket of each power of two, and each of these is in the way
//! until a few blocks are left in it. Beyond [`MOST_AT_ANY_TIME`] groups it is also a matter of time: somebody waits.
//!
//! # One record
//! The entries of a group's last buckets move into the chains of the others, which are written anew; the last buckets'
//! blocks are unmapped and freed, with their overflow. All that, with the number of buckets, is one record: a crash
//! leaves the group as it was or joined. What it logs is bounded by what it may join: a quarter of a group's bytes, and
//! [`MOST_BLOCKS`] blocks to be freed.
//!
//! # What is seen when
//! [`Dir::shrink`] has the directory exclusively, as [`Dir::grow`] has: a thread that looks for a name has it shared
//! from the number of buckets to the bucket, and any thread that let it go in between asks again which bucket it is. It
//! is called with nothing locked, after the operation that removed the name: there is nothing to wait for in a circle.
//! That operation is done; if its directory cannot be made smaller (no room for a longer chain, a journal that fails),
//! it stays as it is.
//!
//! [`Dir::is_sparse`] is what makes most removals leave it at that: it has the directory shared and no bucket, so that
//! nobody waits for it. Chains do not change meanwhile, but of a change of a block it may see one piece without the
//! next, and so read lengths that are none: it takes what it reads for a guess, and what cannot be for no. A thread
//! that changes something asks again with the directory in hand.
//!
//! A reader of the directory knows a cookie and no bucket. Joined buckets are neighbours in the order of cookies, and
//! entries keep theirs: the bucket where a cookie belongs ends later than it did, and begins at or before it.

use super::bucket::{pack, used};
use super::{Dir, DirBlocks};
use crate::device::BLOCK_SIZE;
use crate::error::Result;
use crate::format::{BUCKET_START, Inode};
use crate::store::{Handle, PageRef};
use std::ops::Range;

/// Most buckets that one record joins with others.
pub(crate) const GROUP: u32 = 8;
/// Slots that [`Dir::shrink`] takes at the most, the directory's inode included, but for unmapping a group's blocks:
/// a quarter of a group is logged, a block that is not full for each bucket with an overflow.
pub(crate) const SHRINK_SLOTS: u32 = super::split_slots(3);
/// Most blocks of a group of several buckets: what is freed is logged block by block. Two chains alone may be longer.
const MOST_BLOCKS: usize = 64;
/// Bytes of dentries in a block.
const ROOM: usize = BLOCK_SIZE - BUCKET_START;
/// Groups that a removal may join however long it takes.
pub(crate) const MOST_AT_ANY_TIME: u32 = 64;
/// Entries of a block that are few.
const FEW: u16 = 16;

/// What a removal has left in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// Enough, or it is another's turn to look.
    Much,
    /// Little.
    Little,
    /// Nothing.
    Nothing,
}

impl Left {
    /// What is left of a block, from which an entry is to be taken.
    pub(super) fn of(block: &[u8], count: u16) -> Left {
        match count.saturating_sub(1) {
            0 => Left::Nothing,
            left if left <= FEW && left % 8 == 0 && used(block).is_ok_and(|used| used <= ROOM * 3 / 8) => {
                Left::Little
            }
            _ => Left::Much,
        }
    }

    /// How many groups of a directory of so many buckets may be joined now.
    pub(crate) fn groups(self, buckets: u32) -> u32 {
        match self {
            Left::Much => 0,
            Left::Little => 4,
            Left::Nothing => (buckets / 2 / GROUP).max(MOST_AT_ANY_TIME),
        }
    }
}

impl<B: DirBlocks> Dir<'_, B> {
    /// Whether [`Dir::shrink`] would do something: a guess, if buckets are not locked.
    pub(crate) fn is_sparse(&self, image: &Inode) -> bool {
        self.sparse_group(None, image).is_ok_and(|group| group.is_some())
    }

    /// Joins the last buckets with those that they were split from, if there is little in them. Changes the image.
    /// False, and nothing is changed: there is nothing to join.
    pub(crate) fn shrink(&self, h: &mut Handle, image: &mut Inode) -> Result<bool> {
        let Some(group) = self.sparse_group(Some(h), image)? else { return Ok(false) };
        let base = 1 << group.start.ilog2();
        for bucket in group.clone() {
            let last = self.chain(Some(h), image, bucket)?;
            let chain = self.chain(Some(h), image, bucket - base)?;
            self.join(h, image, bucket - base, chain, &last)?;
            for (i, page) in last.iter().enumerate() {
                h.forget(page);
                if i > 0 {
                    self.blocks.free_overflow(h, image, page.block())?;
                }
            }
        }
        self.blocks.drop_buckets(h, image, group.start)?;
        image.buckets.set(group.start);
        image.size.set(u64::from(group.start) * BLOCK_SIZE as u64);
        Ok(true)
    }

    /// Puts what the blocks of `last` hold into the chain of a bucket.
    fn join(
        &self,
        h: &mut Handle,
        image: &mut Inode,
        bucket: u32,
        chain: Vec<PageRef>,
        last: &[PageRef],
    ) -> Result<()> {
        let more = self.copies(h, last);
        let more = self.entries(last, &more)?;
        if more.is_empty() && chain.len() == 1 {
            return Ok(());
        }
        let copies = self.copies(h, &chain);
        let mut entries = self.entries(&chain, &copies)?;
        entries.extend(more);
        self.fill_chain(h, image, chain, &pack(bucket, &entries))
    }

    /// The buckets to be joined, if those of their group are sparse.
    fn sparse_group(&self, h: Option<&Handle>, image: &Inode) -> Result<Option<Range<u32>>> {
        let buckets = image.buckets.get();
        let Some(last) = buckets.checked_sub(1).filter(|last| *last > 0) else { return Ok(None) };
        let base = 1 << last.ilog2();
        let group = buckets.saturating_sub(GROUP).max(1)..buckets;
        // A quarter of the blocks that the buckets begin with.
        let most = 2 * group.len() * ROOM / 4;
        let (mut bytes, mut blocks, mut first) = (0, 0, buckets);
        for bucket in group.rev() {
            let mut more = 0;
            for bucket in [bucket, bucket - (1 << bucket.ilog2())] {
                self.each(h, image, bucket, |_, block| {
                    bytes += used(block)?;
                    more += 1;
                    Ok(None::<()>)
                })?;
            }
            if bytes > most {
                return Ok(None);
            }
            blocks += more;
            if bucket + 1 == first && bucket >= base && (first == buckets || blocks <= MOST_BLOCKS) {
                first = bucket;
            }
        }
        Ok(Some(first..buckets))
    }
}
