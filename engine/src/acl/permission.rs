//! What mode, list and credentials permit together.

use super::{Acl, Context, Tag};
use crate::error::{Error, Result};
use crate::format::FileType;

/// Read permission, as in a mode's lowest bits.
pub(crate) const READ: u32 = 4;
/// Write permission.
pub(crate) const WRITE: u32 = 2;
/// Execute or search permission.
pub(crate) const EXECUTE: u32 = 1;

/// Whose an inode is, and what its mode says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    /// Type.
    pub file_type: FileType,
    /// Permission bits.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// EACCES unless the caller has each of `want` (a combination of 4 read, 2 write, 1 execute or search).
pub(crate) fn check(ctx: &Context, owner: Owner, acl: Option<&Acl>, want: u32) -> Result<()> {
    if permits(ctx, owner, acl, want) { Ok(()) } else { Err(Error::Errno(libc::EACCES)) }
}

/// Whether the caller has each of `want`.
fn permits(ctx: &Context, owner: Owner, acl: Option<&Acl>, want: u32) -> bool {
    if ctx.is_checked() {
        return true;
    }
    if ctx.is_root() {
        // A thread that may do everything still cannot execute what nobody may execute.
        let executable = owner.file_type == FileType::Directory || owner.perm & 0o111 != 0;
        return want & EXECUTE == 0 || executable;
    }
    let granted = if ctx.uid == owner.uid {
        owner.perm >> 6
    } else if let Some(acl) = acl
        && owner.perm & 0o070 != 0
    {
        return by_list(ctx, owner, acl, want);
    } else if ctx.in_group(owner.gid) {
        owner.perm >> 3
    } else {
        owner.perm
    };
    granted & want == want
}

/// The rule of POSIX 1003.1e, for a caller that is not the owner: a named user gets their entry; a member of any of the
/// groups needs one of them that grants everything wanted; both are cut by the mask; others get the rest.
fn by_list(ctx: &Context, owner: Owner, acl: &Acl, want: u32) -> bool {
    let mask = acl.entries.iter().find(|e| e.tag == Tag::Mask).map_or(7, |e| u32::from(e.perm));
    let mut in_a_group = false;
    for entry in &acl.entries {
        let perm = u32::from(entry.perm);
        match entry.tag {
            Tag::UserObj | Tag::Mask => {}
            Tag::User if entry.id == ctx.uid => return perm & mask & want == want,
            Tag::User => {}
            Tag::GroupObj | Tag::Group => {
                let gid = if entry.tag == Tag::Group { entry.id } else { owner.gid };
                if ctx.in_group(gid) {
                    in_a_group = true;
                    if perm & want == want {
                        return perm & mask & want == want;
                    }
                }
            }
            Tag::Other => return !in_a_group && perm & want == want,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::acl;
    use super::*;

    const FILE: Owner = Owner { file_type: FileType::Regular, perm: 0o640, uid: 1, gid: 10 };

    fn user(uid: u32, groups: &[u32]) -> Context {
        Context::with_groups(uid, uid + 1000, groups.to_vec())
    }

    #[test]
    fn the_first_class_that_applies_decides() {
        assert!(permits(&user(1, &[]), FILE, None, READ | WRITE));
        assert!(!permits(&user(1, &[]), FILE, None, EXECUTE));
        assert!(permits(&user(2, &[10]), FILE, None, READ));
        assert!(!permits(&user(2, &[10]), FILE, None, WRITE));
        assert!(!permits(&user(2, &[11]), FILE, None, READ));
        let odd = Owner { perm: 0o077, ..FILE };
        assert!(!permits(&user(1, &[10]), odd, None, READ), "the owner does not fall through to the group");
    }

    #[test]
    fn root_executes_only_what_someone_may_execute() {
        assert!(permits(&Context::root(), FILE, None, READ | WRITE));
        assert!(!permits(&Context::root(), FILE, None, EXECUTE));
        assert!(permits(&Context::root(), Owner { perm: 0o010, ..FILE }, None, EXECUTE));
        let dir = Owner { file_type: FileType::Directory, perm: 0, ..FILE };
        assert!(permits(&Context::root(), dir, None, READ | WRITE | EXECUTE));
    }

    #[test]
    fn a_list_names_users_and_groups_below_its_mask() {
        let list = acl(&[
            (Tag::UserObj, 6, 0),
            (Tag::User, 7, 2),
            (Tag::GroupObj, 4, 0),
            (Tag::Group, 2, 20),
            (Tag::Mask, 6, 0),
            (Tag::Other, 1, 0),
        ]);
        let file = Owner { perm: list.mode(), ..FILE };
        let may = |uid, groups: &[u32], want| permits(&user(uid, groups), file, Some(&list), want);
        assert!(may(2, &[], READ | WRITE));
        assert!(!may(2, &[], EXECUTE), "the mask cuts a named user");
        assert!(may(3, &[10], READ) && !may(3, &[10], WRITE));
        assert!(may(3, &[20], WRITE) && !may(3, &[20], READ));
        assert!(!may(3, &[10, 20], READ | WRITE), "one group must grant all");
        assert!(!may(3, &[20], EXECUTE), "a member of a group does not fall through to others");
        assert!(may(4, &[], EXECUTE));
    }
}
