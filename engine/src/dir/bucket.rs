//! One block of a bucket: dentries end to end. Pure functions over bytes; what they read they verify.
//!
//! Here is what a block says. How a name or a place for one is found in it: [`search`](super::search); how it is
//! changed: [`change`](super::change).

use crate::device::BLOCK_SIZE;
use crate::format::{
    BLOCK_HEADER_SIZE, BUCKET_START, BlockHeader, BucketHeader, DENTRY_HEADER_SIZE, DentryHeader,
    FIRST_COOKIE, Nid,
};
use crate::inode::FileType;
use std::ops::ControlFlow;
use zerocopy::FromBytes;

pub(crate) use super::change::{insert, pack, remove, replace};
pub(crate) use super::search::{find, gap};

/// What is wrong with a block.
pub(crate) type Fault = &'static str;

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dentry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode.
    pub nid: Nid,
    /// The place in the directory's order.
    pub cookie: u64,
    /// Type of the inode.
    pub file_type: FileType,
}

/// Where a dentry lies in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Its offset.
    pub at: usize,
    /// Offset of the dentry before it.
    pub previous: Option<usize>,
    /// Bytes from it to the next.
    pub(super) rec_len: usize,
}

/// Bytes that a name takes.
pub(crate) fn room_for(name: &[u8]) -> usize {
    (DENTRY_HEADER_SIZE + name.len()).next_multiple_of(8)
}

/// The header of a block's part of a bucket.
pub(crate) fn header(block: &[u8]) -> Option<BucketHeader> {
    BucketHeader::read_from_prefix(block.get(BLOCK_HEADER_SIZE..)?).ok().map(|(header, _)| header)
}

/// The same, if the block is of this bucket of this directory.
pub(crate) fn header_of(block: &[u8], nid: Nid, generation: u32, bucket: u32) -> Result<BucketHeader, Fault> {
    let (owner, rest) = BlockHeader::ref_from_prefix(block).map_err(|_| "a block is cut short")?;
    let (header, _) = BucketHeader::read_from_prefix(rest).map_err(|_| "a block is cut short")?;
    if owner.owner.get() != nid || owner.generation.get() != generation {
        return Err("it belongs to another inode");
    }
    if header.bucket.get() != bucket {
        return Err("it is part of another bucket");
    }
    Ok(header)
}

/// The bytes of a block, all of them.
pub(super) fn whole(block: &[u8]) -> Result<&[u8; BLOCK_SIZE], Fault> {
    block.first_chunk().ok_or("a block is cut short")
}

/// Bytes from the dentry at `at` to the next: whatever they are, the next lies further on and within the block, or is
/// its end.
#[inline]
pub(super) fn rec_len(block: &[u8; BLOCK_SIZE], at: usize) -> Result<usize, Fault> {
    let word = block.get(at + 16..at + 18).ok_or("a dentry is cut short")?;
    let rec_len = usize::from(u16::from_le_bytes([word[0], word[1]]));
    if rec_len < DENTRY_HEADER_SIZE || !rec_len.is_multiple_of(8) || at + rec_len > BLOCK_SIZE {
        return Err("a dentry has an impossible length");
    }
    Ok(rec_len)
}

/// The same, and how many of these bytes the dentry uses itself.
#[inline]
pub(super) fn extent_of(block: &[u8; BLOCK_SIZE], at: usize) -> Result<(usize, usize), Fault> {
    const SIZE: usize = DENTRY_HEADER_SIZE;
    let header: &[u8; SIZE] = block.get(at..).and_then(<[u8]>::first_chunk).ok_or("a dentry is cut short")?;
    let word = |at: usize| header[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
    let (nid, lengths) = (word(0), word(16));
    let rec_len = (lengths & 0xffff) as usize;
    let name_len = (lengths >> 16 & 0xff) as usize;
    let used = if nid == 0 { 0 } else { (SIZE + name_len).next_multiple_of(8) };
    if rec_len < SIZE || !rec_len.is_multiple_of(8) || used > rec_len || at + rec_len > BLOCK_SIZE {
        return Err("a dentry has an impossible length");
    }
    Ok((rec_len, used))
}

/// Bytes that the dentries of a block use.
pub(crate) fn used(block: &[u8]) -> Result<usize, Fault> {
    let block = whole(block)?;
    let (mut at, mut sum) = (BUCKET_START, 0);
    while at < BLOCK_SIZE {
        let (rec_len, used) = extent_of(block, at)?;
        at += rec_len;
        sum += used;
    }
    Ok(sum)
}

/// What the dentry at `at` says, which has `rec_len` bytes: nothing if it is free. The name lies within it; nothing
/// else is verified.
#[inline]
pub(super) fn dentry_at(
    block: &[u8; BLOCK_SIZE],
    at: usize,
    rec_len: usize,
) -> Result<Option<(&DentryHeader, &[u8])>, Fault> {
    let bytes = block.get(at..at + rec_len).ok_or("a dentry is cut short")?;
    let (header, rest) = DentryHeader::ref_from_prefix(bytes).map_err(|_| "a dentry is cut short")?;
    if header.nid.get() == 0 {
        return Ok(None);
    }
    match rest.get(..usize::from(header.name_len)) {
        None | Some([]) => Err("a name has an impossible length"),
        Some(name) => Ok(Some((header, name))),
    }
}

/// What a dentry in use says, verified.
pub(super) fn verified<'a>(header: &DentryHeader, name: &'a [u8]) -> Result<Dentry<'a>, Fault> {
    let cookie = header.cookie.get();
    if !(FIRST_COOKIE..1 << 63).contains(&cookie) {
        return Err("a cookie is out of bounds");
    }
    if matches!(name, b"." | b"..") || name.iter().any(|c| matches!(c, 0 | b'/')) {
        return Err("a name cannot be one");
    }
    let file_type = FileType::from_dt(header.file_type).ok_or("a file type is unknown")?;
    Ok(Dentry { name, nid: header.nid.get(), cookie, file_type })
}

/// Calls `visit` for each dentry in use.
///
/// # Errors
/// What is wrong with the block; nothing after the first fault was visited.
pub(crate) fn walk<'a, B>(
    block: &'a [u8],
    mut visit: impl FnMut(Spot, Dentry<'a>) -> ControlFlow<B>,
) -> Result<Option<B>, Fault> {
    let block = whole(block)?;
    let mut previous = None;
    let mut at = BUCKET_START;
    while at < BLOCK_SIZE {
        let rec_len = rec_len(block, at)?;
        if let Some((header, name)) = dentry_at(block, at, rec_len)?
            && let ControlFlow::Break(found) = visit(Spot { at, previous, rec_len }, verified(header, name)?)
        {
            return Ok(Some(found));
        }
        previous = Some(at);
        at += rec_len;
    }
    Ok(None)
}
