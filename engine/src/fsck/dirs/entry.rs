//! Reading the entries of a bucket's block that may be damaged, and writing them.

use super::Dir;
use crate::Result;
use crate::device::{BLOCK_SIZE, IoBuf};
use crate::dir::bucket::{Dentry, pack};
use crate::format::{
    BLOCK_HEADER_SIZE, BUCKET_START, BlockHeader, BlockKind, DENTRY_HEADER_SIZE, DentryHeader, Nid,
};
use crate::fsck::image;
use crate::fsck::state::State;
use crate::inode::FileType;
use zerocopy::FromBytes;

/// An entry as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub name: Vec<u8>,
    pub nid: Nid,
    pub cookie: u64,
    pub file_type: FileType,
}

/// The entries of a block, up to the first that has an impossible length.
pub(super) fn read_entries(block: &[u8]) -> (Vec<Entry>, Option<&'static str>) {
    let mut entries = Vec::new();
    let fault = visit_entries(block, |header, name| {
        entries.push(Entry {
            name: name.to_vec(),
            nid: header.nid.get(),
            cookie: header.cookie.get(),
            // An unknown type is put right by the inode's; sockets are rare enough to stand for it.
            file_type: FileType::from_dt(header.file_type).unwrap_or(FileType::Socket),
        });
    });
    (entries, fault)
}

/// Calls `visit` with each entry of a block and its name; what is wrong with the first that cannot be one.
pub(super) fn visit_entries<'b>(
    block: &'b [u8],
    mut visit: impl FnMut(DentryHeader, &'b [u8]),
) -> Option<&'static str> {
    let mut at = BUCKET_START;
    while at < BLOCK_SIZE {
        let Some((header, rest)) =
            block.get(at..BLOCK_SIZE).and_then(|b| DentryHeader::read_from_prefix(b).ok())
        else {
            return Some("an entry is cut short");
        };
        let rec_len = usize::from(header.rec_len.get());
        if rec_len < DENTRY_HEADER_SIZE || !rec_len.is_multiple_of(8) || at + rec_len > BLOCK_SIZE {
            return Some("an entry has an impossible length");
        }
        if header.nid.get() != 0 {
            let name_len = usize::from(header.name_len);
            if name_len == 0 || DENTRY_HEADER_SIZE + name_len > rec_len {
                return Some("a name has an impossible length");
            }
            visit(header, &rest[..name_len]);
        }
        at += rec_len;
    }
    None
}

/// A block of a bucket that leads to another, as of before anything that the journal ever held.
pub(super) fn bucket_block(dir: &Dir, bucket: u32, next: u64, entries: &[Entry]) -> IoBuf {
    let dentries: Vec<Dentry<'_>> = entries.iter().map(Entry::borrow).collect();
    let mut buf = image::fresh(BlockKind::Bucket, dir.nid, dir.generation);
    // What is left of a block's entries fits the block.
    let packed = &pack(bucket, &dentries)[0];
    buf[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + packed.len()].copy_from_slice(packed);
    buf[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8].copy_from_slice(&next.to_le_bytes());
    buf
}

/// Writes a block of a bucket: newer than all that was there before, and older than every record to come.
pub(super) fn write_bucket(
    state: &mut State<'_>,
    dir: &Dir,
    bucket: u32,
    block: u64,
    next: u64,
    entries: &[Entry],
) -> Result<()> {
    let mut buf = bucket_block(dir, bucket, next, entries);
    let at = std::mem::offset_of!(BlockHeader, position);
    buf[at..at + 8].copy_from_slice(&state.image.sb.next_position.get().to_le_bytes());
    state.image.put(block, BlockKind::Bucket, buf)
}

impl Entry {
    /// The entry, borrowed.
    pub fn borrow(&self) -> Dentry<'_> {
        Dentry { name: &self.name, nid: self.nid, cookie: self.cookie, file_type: self.file_type }
    }

    /// The name as it can be shown: what is not text is escaped.
    pub fn shown(&self) -> String {
        format!("\"{}\" (inode {})", self.name.escape_ascii(), self.nid)
    }
}
