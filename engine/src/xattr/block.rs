//! The chain of blocks that holds an inode's attributes.

use super::Attributes;
use crate::acl::Context;
use crate::alloc::Alloc;
use crate::error::{Error, Result};
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, Inode, U16, U32, U64, XATTR_MAX_BLOCKS, XATTR_ROOM, XATTR_START,
    XattrEntry, XattrHeader,
};
use crate::store::{Handle, PageRef, Store};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of all attributes of an inode.
const MOST_BYTES: usize = XATTR_MAX_BLOCKS * XATTR_ROOM;
/// Longest list of names: the kernel's XATTR_LIST_MAX.
const LONGEST_LIST: usize = 65_536;

/// Slots that [`stage`] takes for attributes of so many bytes in all, before or after, whichever is more.
pub(crate) const fn slots(bytes: usize) -> u32 {
    (bytes.div_ceil(XATTR_ROOM) as u32 + 1) * 22 + 8
}

fn damaged(image: &Inode, detail: &str) -> Error {
    Error::Corrupt {
        what: "extended attributes",
        place: format!("nid {}, block {}", image.nid, image.xattr_block),
        detail: detail.into(),
    }
}

/// The blocks of the chain with their headers.
fn chain(
    image: &Inode,
    get: impl Fn(u64) -> Result<PageRef>,
    header: impl Fn(&PageRef) -> XattrHeader,
) -> Result<Vec<(PageRef, XattrHeader)>> {
    let mut found = Vec::new();
    let mut next = image.xattr_block.get();
    while next != 0 {
        let page = get(next)?;
        let owner = page.header();
        if owner.owner != image.nid || owner.generation != image.generation {
            return Err(damaged(image, "a block belongs to another inode"));
        }
        let header = header(&page);
        if header.len.get() as usize > XATTR_ROOM || found.len() == XATTR_MAX_BLOCKS {
            return Err(damaged(image, "the chain is too long"));
        }
        next = header.next.get();
        found.push((page, header));
    }
    Ok(found)
}

/// The same of what is recorded.
fn recorded(store: &Store, image: &Inode) -> Result<Vec<(PageRef, XattrHeader)>> {
    chain(image, |block| store.get(block, BlockKind::Xattr), |page| page.read_as(BLOCK_HEADER_SIZE))
}

/// Blocks that the attributes of an inode take.
pub(crate) fn blocks(store: &Store, image: &Inode) -> Result<u64> {
    Ok(recorded(store, image)?.len() as u64)
}

/// All attributes of an inode.
pub(crate) fn read(store: &Store, image: &Inode) -> Result<Attributes> {
    let mut bytes = Vec::new();
    for (page, header) in recorded(store, image)? {
        let len = header.len.get() as usize;
        page.read(|block| bytes.extend_from_slice(&block[XATTR_START..XATTR_START + len]));
    }
    parse(&bytes).ok_or_else(|| damaged(image, "an attribute is cut short"))
}

/// The attributes that these bytes are; none where one cannot be one.
pub(crate) fn parse(mut rest: &[u8]) -> Option<Attributes> {
    let mut found = Attributes::new();
    while !rest.is_empty() {
        let (entry, tail) = XattrEntry::read_from_prefix(rest).ok()?;
        let (name, tail) = tail.split_at_checked(usize::from(entry.name_len.get()))?;
        let (value, tail) = tail.split_at_checked(entry.value_len.get() as usize)?;
        if name.is_empty() || name.len() > 255 {
            return None;
        }
        found.push((name.to_vec(), value.to_vec()));
        rest = tail;
    }
    Some(found)
}

/// Bytes of the list of all names, as listxattr(2) gives it to root.
pub(crate) fn len_of_list(attributes: &Attributes) -> usize {
    let listed = attributes.iter().filter(|(name, _)| super::is_listed(&Context::root(), name));
    listed.map(|(name, _)| name.len() + 1).sum()
}

/// Whether these are more than one inode may have: more than its blocks hold, or a list of names that no system call reads,
/// and longer than the one of `before`. Where it is too long already, attributes are changed and removed all the same.
pub(crate) fn are_too_many(attributes: &Attributes, before: usize) -> bool {
    let entry = size_of::<XattrEntry>();
    let bytes: usize = attributes.iter().map(|(name, value)| entry + name.len() + value.len()).sum();
    let list = len_of_list(attributes);
    bytes > MOST_BYTES || list > LONGEST_LIST && list > before
}

/// Gives an inode these attributes in place of those that it has: changes its image, takes and frees blocks.
///
/// # Errors
/// ENOSPC also where they are more than one inode may have.
pub(crate) fn stage(
    alloc: &Alloc,
    h: &mut Handle<'_>,
    image: &mut Inode,
    attributes: &[(Vec<u8>, Vec<u8>)],
) -> Result<()> {
    let mut bytes = Vec::new();
    for (name, value) in attributes {
        let entry = XattrEntry {
            value_len: U32::new(value.len() as u32),
            name_len: U16::new(name.len() as u16),
            reserved: U16::ZERO,
        };
        bytes.extend_from_slice(entry.as_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    if bytes.len() > MOST_BYTES {
        return Err(Error::Errno(libc::ENOSPC));
    }
    let old = chain(image, |b| h.get(b, BlockKind::Xattr), |page| h.view_as(page, BLOCK_HEADER_SIZE))?;
    let mut pages: Vec<PageRef> = old.into_iter().map(|(page, _)| page).collect();
    let parts: Vec<&[u8]> = bytes.chunks(XATTR_ROOM).collect();
    for page in pages.split_off(parts.len().min(pages.len())) {
        h.forget(&page);
        alloc.give_block(h, image, page.block())?;
    }
    while pages.len() < parts.len() {
        let goal = pages.last().map(|page| page.block() + 1);
        let block = alloc.take_block(h, image, goal)?;
        pages.push(h.init(block, BlockKind::Xattr, image.nid.get(), image.generation.get())?);
    }
    image.xattr_block.set(pages.first().map_or(0, |page| page.block()));
    for (i, (page, part)) in pages.iter().zip(parts).enumerate() {
        let next = pages.get(i + 1).map_or(0, |page| page.block());
        let header =
            XattrHeader { next: U64::new(next), len: U32::new(part.len() as u32), reserved: U32::ZERO };
        let body = h.edit(page, BLOCK_HEADER_SIZE..crate::device::BLOCK_SIZE);
        body[..size_of::<XattrHeader>()].copy_from_slice(header.as_bytes());
        body[size_of::<XattrHeader>()..][..part.len()].copy_from_slice(part);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_harm(bytes in proptest::collection::vec(0u8..20, 0..300)) {
            if let Some(found) = parse(&bytes) {
                prop_assert!(found.iter().all(|(name, _)| !name.is_empty()));
            }
        }
    }
}
