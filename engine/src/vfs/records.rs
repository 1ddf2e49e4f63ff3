//! The upper bounds of records, in slots: what the least ring follows from.
//!
//! Each operation takes credits for its own bound before it locks anything. Work whose length has no bound goes
//! in steps; where even a step of the usual length does not fit, it takes shorter ones. The bounds here are
//! those that cannot be divided any further, at the greatest height that an extent tree can have.

use super::{attr::ATTR_SLOTS, names::MAKE_SLOTS, rename};
use crate::dir::{GROUP, GROW_SLOTS, PATIENCE, SHRINK_SLOTS};
use crate::extent::edit_slots;
use crate::format::{EXTENT_MAX_DEPTH, NAT_INDEX_PER_BLOCK, SLOT_PAYLOAD, XATTR_MAX_BLOCKS, XATTR_ROOM};
use crate::meta::FREE_SLOTS;
use crate::store::DELTA_HEADER_SIZE;
use crate::xattr;

/// An extent in the highest tree.
const DEEP_EDIT: u32 = edit_slots(EXTENT_MAX_DEPTH, 1);
/// All attributes that an inode can have.
const ALL_ATTRIBUTES: u32 = xattr::slots(XATTR_MAX_BLOCKS * XATTR_ROOM);

/// Extents that one record of a long operation touches, if not asked otherwise.
pub(crate) const STEP: u32 = 32;

/// What makes a name, with the attributes that its directory hands down and a long symlink's target.
const MAKE: u32 = MAKE_SLOTS + ALL_ATTRIBUTES;
/// Setting attributes, an access list among them.
const SET_ATTRIBUTES: u32 = ATTR_SLOTS + ALL_ATTRIBUTES;
/// Joining buckets of a directory.
const SHRINK: u32 = SHRINK_SLOTS + edit_slots(EXTENT_MAX_DEPTH, GROUP);
/// Giving a directory room.
const GROW: u32 = GROW_SLOTS + edit_slots(EXTENT_MAX_DEPTH, PATIENCE);
/// The last step of freeing an inode.
const FREE: u32 = edit_slots(EXTENT_MAX_DEPTH, STEP) + xattr::slots(0) + FREE_SLOTS + STEP;
/// A step of a truncation, a punched hole, a collapse, an insertion.
const LONG_STEP: u32 = edit_slots(EXTENT_MAX_DEPTH, STEP) + crate::meta::INODE_SLOTS;
/// One run of file data that goes home, with the removal that may go with it.
const WRITE_BACK: u32 = DEEP_EDIT + LONG_STEP;
/// One page of absorbed data.
const ABSORB: u32 =
    WRITE_BACK + (crate::device::BLOCK_SIZE + crate::meta::KEY_BYTES).div_ceil(SLOT_PAYLOAD) as u32;
/// The hints for the next mount, an index block at a time.
const HINTS: u32 = (NAT_INDEX_PER_BLOCK as usize * 8 + DELTA_HEADER_SIZE).div_ceil(SLOT_PAYLOAD) as u32;

const fn most(bounds: &[u32]) -> u32 {
    let (mut most, mut at) = (0, 0);
    while at < bounds.len() {
        if bounds[at] > most {
            most = bounds[at];
        }
        at += 1;
    }
    most
}

/// Slots of the largest record that an operation cannot do with less.
pub const LARGEST_RECORD: u32 = most(&[
    MAKE,
    SET_ATTRIBUTES,
    GROW,
    SHRINK,
    FREE,
    rename::RENAME_SLOTS,
    LONG_STEP,
    WRITE_BACK,
    ABSORB,
    HINTS,
]);
/// The same of what a checkpoint may wait for: it must fit the journal's reserve.
pub const LARGEST_RESERVE_RECORD: u32 = most(&[WRITE_BACK, FREE]);

/// The bounds by name, for the test that compares them with docs/FORMAT.md.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) const RECORDS: [(&str, u32); 10] = [
    ("MAKE", MAKE),
    ("SET_ATTRIBUTES", SET_ATTRIBUTES),
    ("GROW", GROW),
    ("SHRINK", SHRINK),
    ("FREE", FREE),
    ("LONG_STEP", LONG_STEP),
    ("WRITE_BACK", WRITE_BACK),
    ("ABSORB", ABSORB),
    ("LARGEST_RECORD", LARGEST_RECORD),
    ("LARGEST_RESERVE_RECORD", LARGEST_RESERVE_RECORD),
];
