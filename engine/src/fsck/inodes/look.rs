//! Node blocks as threads look at them: those in which nothing is wrong.

use super::{allowed_flags, size_problem, target_problem};
use crate::format::{INODES_PER_BLOCK, Inode, InodeFlags, Nid};
use crate::fsck::extents;
use crate::fsck::image::{Base, slot_of};
use crate::fsck::parallel::Rows;
use crate::fsck::seats::{Seat, read_seats};
use crate::inode::FileType;

/// What threads see in a chunk of node blocks.
pub(super) struct Looks {
    /// Writes before it was looked at.
    pub writes: u64,
    /// Of each block that is sound what its inodes say; none of an inode that claims more than its slot and data.
    pub blocks: Vec<Option<Vec<Option<Said>>>>,
}

/// What others need to know of an inode.
pub(super) struct Said {
    pub kind: FileType,
    pub nlink: u32,
    pub parent: Nid,
    pub flagged: bool,
    pub dead: bool,
}

impl Said {
    /// What an inode of this type says of itself.
    pub fn by(inode: &Inode, kind: FileType) -> Said {
        let has = |flag: InodeFlags| inode.flags.get() & flag.bits() != 0;
        let (flagged, dead) = (has(InodeFlags::ORPHAN), has(InodeFlags::DEAD));
        Said { kind, nlink: inode.nlink.get(), parent: inode.parent.get(), flagged, dead }
    }
}

pub(super) fn look(base: &Base, seats: &[Seat]) -> Looks {
    let writes = base.writes();
    let rows = read_seats(base, seats);
    let blocks = seats.chunk_by(|a, b| a.block == b.block).map(|seats| look_at(base, seats, &rows));
    Looks { writes, blocks: blocks.collect() }
}

/// One block: none if anything is not as it should be.
fn look_at(base: &Base, seats: &[Seat], rows: &Rows) -> Option<Vec<Option<Said>>> {
    let bytes = rows.get(seats.first()?.block)?;
    let taken = (0..INODES_PER_BLOCK).filter(|slot| slot_of(bytes, *slot).is_some_and(|i| i.nid.get() != 0));
    if taken.count() != seats.len() {
        return None;
    }
    let said = |seat: &Seat| {
        let inode = slot_of(bytes, seat.slot)?;
        let same = inode.nid.get() == seat.nid && inode.generation.get() == seat.generation;
        (same && base.inode_verifies(seat.block, seat.slot, &inode)).then(|| plain(base, &inode))
    };
    seats.iter().map(said).collect()
}

/// What an inode says whose fields hold, and that leads to no metadata: [`fields`] would find nothing.
fn plain(base: &Base, inode: &Inode) -> Option<Said> {
    let kind = FileType::from_mode(inode.mode.get().into())?;
    let holds = match kind {
        FileType::Directory => false,
        FileType::Symlink => target_problem(inode).is_none() && inode.extent_count == 0,
        FileType::Regular => extents::plain_runs(base, inode).is_some(),
        _ => inode.extent_count == 0,
    };
    let is_plain = holds
        && inode.flags.get() & !allowed_flags(kind).bits() == 0
        && inode.xattr_block.get() == 0
        && size_problem(kind, inode).is_none()
        && extents::root_problem(inode).is_none();
    is_plain.then(|| Said::by(inode, kind))
}
