//! What is known of each inode, in a few dozen bytes: memory grows with the inodes there are, not with names.

use crate::format::{NAT_PER_BLOCK, NatEntry, Nid, U32, U64};
use crate::inode::FileType;
use std::collections::BTreeMap;

/// One nid.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Record {
    /// As in its NAT entry; 0 while the nid is free.
    pub place: u64,
    /// Of the NAT entry.
    pub generation: u32,
    /// What the inode says.
    pub nlink: u32,
    /// Entries that lead to it.
    pub links: u32,
    /// Directories that are named in it.
    pub subdirs: u32,
    /// Its parent as the inode has it.
    pub parent: Nid,
    /// The directory that names it; for a directory.
    pub named_in: Nid,
    /// Blocks counted.
    pub blocks: u64,
    /// [`FileType`]; 0 where there is no sound inode.
    pub kind: u8,
    /// The inode has the orphan flag.
    pub flagged: bool,
    /// The directory says that it is removed.
    pub dead: bool,
    /// An orphan table says that it has no name.
    pub orphan: bool,
    /// An orphan table names it.
    pub listed: bool,
    /// It leads to the root; for a directory.
    pub reached: bool,
}

impl Record {
    /// Its type, if there is a sound inode.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_dt(self.kind).filter(|_| self.place != 0)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    /// The NAT entry.
    pub fn entry(&self) -> NatEntry {
        NatEntry { place: U64::new(self.place), generation: U32::new(self.generation), reserved: U32::ZERO }
    }

    /// Node block and slot.
    pub fn at(&self) -> (u64, usize) {
        (self.entry().block(), usize::from(self.entry().slot()))
    }
}

/// The nids of one NAT block.
struct Part {
    block: u64,
    records: Box<[Record]>,
}

/// All nids that have a NAT entry.
#[derive(Default)]
pub(super) struct Records {
    parts: BTreeMap<u64, Part>,
}

impl Records {
    /// Adds a NAT block.
    pub fn add(&mut self, index: u64, block: u64) {
        let records = vec![Record::default(); NAT_PER_BLOCK as usize].into_boxed_slice();
        self.parts.insert(index, Part { block, records });
    }

    /// The NAT block of an index.
    pub fn nat_block(&self, index: u64) -> Option<u64> {
        self.parts.get(&index).map(|part| part.block)
    }

    /// What is known of an inode.
    pub fn get(&self, nid: Nid) -> Option<&Record> {
        self.parts.get(&(nid / NAT_PER_BLOCK))?.records.get((nid % NAT_PER_BLOCK) as usize)
    }

    /// What is known of an inode, to be changed.
    pub fn get_mut(&mut self, nid: Nid) -> Option<&mut Record> {
        self.parts.get_mut(&(nid / NAT_PER_BLOCK))?.records.get_mut((nid % NAT_PER_BLOCK) as usize)
    }

    /// Every nid in use, in order.
    pub fn used(&self) -> impl Iterator<Item = (Nid, &Record)> {
        self.all().filter(|(_, record)| record.place != 0)
    }

    /// Every nid, free or not, but 0.
    pub fn all(&self) -> impl Iterator<Item = (Nid, &Record)> {
        self.parts
            .iter()
            .flat_map(|(index, part)| (index * NAT_PER_BLOCK..).zip(&part.records))
            .filter(|(nid, _)| *nid != 0)
    }

    /// Nids in use of one type.
    pub fn of_type(&self, file_type: FileType) -> Vec<Nid> {
        self.used().filter(|(_, r)| r.file_type() == Some(file_type)).map(|(nid, _)| nid).collect()
    }
}
