//! The chains of attribute blocks.

use super::image;
use super::issue::{IssueKind, Location};
use super::state::State;
use crate::Result;
use crate::device::IoBuf;
use crate::format::{
    BLOCK_HEADER_SIZE, BlockKind, Inode, XATTR_MAX_BLOCKS, XATTR_ROOM, XATTR_START, XattrEntry,
};
use crate::xattr;
use zerocopy::FromBytes;

/// Bytes before an attribute's name.
const ENTRY: usize = size_of::<XattrEntry>();

/// Checks and claims the chain of an inode; whether the inode was changed.
pub(super) fn check(state: &mut State<'_>, inode: &mut Inode) -> Result<bool> {
    let nid = inode.nid.get();
    let mut chain: Vec<(u64, IoBuf)> = Vec::new();
    let mut bytes = Vec::new();
    let mut next = inode.xattr_block.get();
    while next != 0 {
        match open(state, inode, next, chain.len()) {
            Ok(block) => {
                let len = length(&block);
                bytes.extend_from_slice(&block[XATTR_START..XATTR_START + len]);
                let after = image::word(&block, BLOCK_HEADER_SIZE);
                state.claim_metadata(next);
                chain.push((next, block));
                next = after;
            }
            Err(why) => {
                state.found(IssueKind::Xattr, Location::both(nid, next), why);
                return cut(state, inode, chain, &bytes);
            }
        }
    }
    if sound(&bytes) < bytes.len() {
        let place = Location::both(nid, inode.xattr_block.get());
        state.found(IssueKind::Xattr, place, "an attribute is cut short, or cannot be one".into());
        return cut(state, inode, chain, &bytes);
    }
    if let Some(record) = state.records.get_mut(nid) {
        record.blocks += chain.len() as u64;
    }
    Ok(false)
}

/// The value of an attribute in a chain that has been checked.
pub(super) fn value(state: &State<'_>, inode: &Inode, name: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut next = inode.xattr_block.get();
    for _ in 0..XATTR_MAX_BLOCKS {
        if next == 0 {
            break;
        }
        let block = state.image.get(next, BlockKind::Xattr).ok()?;
        bytes.extend_from_slice(block.get(XATTR_START..XATTR_START + length(&block))?);
        next = image::word(&block, BLOCK_HEADER_SIZE);
    }
    xattr::find(&xattr::parse(&bytes)?, name).map(<[u8]>::to_vec)
}

fn length(block: &[u8]) -> usize {
    (image::word(block, BLOCK_HEADER_SIZE + 8) & 0xffff_ffff) as usize
}

fn open(state: &State<'_>, inode: &Inode, block: u64, so_far: usize) -> Result<IoBuf, String> {
    if !state.image.holds(block) {
        return Err("it lies outside of what can be allocated".into());
    }
    let bytes = state.image.get(block, BlockKind::Xattr)?;
    if let Some(why) = image::foreign(&bytes, inode.nid.get(), inode.generation.get()) {
        return Err(why);
    }
    if length(&bytes) > XATTR_ROOM {
        return Err("it holds more bytes than fit".into());
    }
    if so_far == XATTR_MAX_BLOCKS || state.claims.has(block) {
        return Err("the chain does not end, or meets another".into());
    }
    Ok(bytes)
}

/// Bytes of the whole attributes at the start.
fn sound(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(Ok((head, _))) = bytes.get(at..).map(XattrEntry::read_from_prefix) {
        let (name, value) = (usize::from(head.name_len.get()), head.value_len.get() as usize);
        let end = at + ENTRY + name + value;
        if name == 0 || name > 255 || end > bytes.len() {
            break;
        }
        at = end;
    }
    at
}

/// Ends the chain after the last whole attribute. Blocks that it no longer needs are nobody's.
fn cut(state: &mut State<'_>, inode: &mut Inode, chain: Vec<(u64, IoBuf)>, bytes: &[u8]) -> Result<bool> {
    let mut rest = sound(bytes);
    let mut left = rest;
    let mut needed = 0;
    for (_, block) in &chain {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(length(block));
        needed += 1;
    }
    if let Some(record) = state.records.get_mut(inode.nid.get()) {
        record.blocks += needed as u64;
    }
    for (index, (block, mut buf)) in chain.into_iter().enumerate().take(needed) {
        let len = length(&buf).min(rest);
        rest -= len;
        buf[BLOCK_HEADER_SIZE + 8..BLOCK_HEADER_SIZE + 12].copy_from_slice(&(len as u32).to_le_bytes());
        if index + 1 == needed {
            buf[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8].fill(0);
        }
        state.image.put(block, BlockKind::Xattr, buf)?;
    }
    if needed == 0 {
        inode.xattr_block.set(0);
        return Ok(true);
    }
    Ok(false)
}
