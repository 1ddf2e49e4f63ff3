//! POSIX access lists as the operations use them: owner, one named user, owning group, mask, others.
//!
//! Written from acl(5), not with the engine's own code: the model must not share its mistakes.

/// The attribute of the list that governs access.
pub const ACCESS: &str = "system.posix_acl_access";
/// The attribute of the list that a directory hands down.
pub const DEFAULT: &str = "system.posix_acl_default";

const VERSION: u32 = 2;
const NOBODY: u32 = u32::MAX;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// A list's value: `rw-` for the owner, `perm` for the user, `r--` for the group, the mask that allows both, and
/// `r--` for others.
pub fn list(uid: u32, perm: u16) -> Vec<u8> {
    let entries = [
        (USER_OBJ, 6, NOBODY),
        (USER, perm, uid),
        (GROUP_OBJ, 4, NOBODY),
        (MASK, perm | 4, NOBODY),
        (OTHER, 4, NOBODY),
    ];
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// The permissions of an entry of a list that [`list`] has made.
fn perm(value: &mut [u8], tag: u16) -> Option<&mut u8> {
    let entry = value[4..].chunks_exact_mut(8).find(|entry| entry[..2] == tag.to_le_bytes())?;
    Some(&mut entry[2])
}

/// The permission bits that a mode shows of a list: the mask stands for the group.
pub fn mode(value: &[u8]) -> u32 {
    let mut value = value.to_vec();
    let mut of = |tag| perm(&mut value, tag).map_or(0, |p| u32::from(*p));
    of(USER_OBJ) << 6 | of(MASK) << 3 | of(OTHER)
}

/// The list after a chmod.
pub fn with_mode(value: &[u8], mode: u32) -> Vec<u8> {
    let mut value = value.to_vec();
    for (tag, shift) in [(USER_OBJ, 6), (MASK, 3), (OTHER, 0)] {
        if let Some(p) = perm(&mut value, tag) {
            *p = (mode >> shift & 7) as u8;
        }
    }
    value
}
