//! Extended attributes: names, who may touch them, and their place in a chain of blocks.
//!
//! This module leaves locks to `vfs`, and what is in an access list to `acl`.

mod block;

pub(crate) use block::{are_too_many, blocks, len_of_list, parse, read, slots, stage};

use crate::acl::{self, Context};
use crate::error::{Error, Result};
use crate::inode::FileType;

/// The attributes of an inode, in the order in which they were made.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// What a program may do beside its user's rights. It goes when the program changes.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// What is to be done with an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// See its value.
    Read,
    /// Set or remove it.
    Write,
}

/// Whether the caller may use a name at all; permission on the inode itself is checked besides for `user.`.
///
/// # Errors
/// ERANGE for an impossible name, EOPNOTSUPP for an unknown name space, EPERM or (reading) ENODATA.
pub(crate) fn check_name(
    ctx: &Context,
    name: &[u8],
    file_type: FileType,
    sticky_owner: Option<u32>,
    what: Use,
) -> Result<()> {
    if name.is_empty() || name.len() > 255 {
        return Err(Error::Errno(libc::ERANGE));
    }
    let after = |space: &[u8]| name.strip_prefix(space).filter(|rest| !rest.is_empty());
    let refused = Error::Errno(if what == Use::Read { libc::ENODATA } else { libc::EPERM });
    // The kernel has looked at the capabilities of who comes checked.
    let may_all = ctx.is_root() || ctx.is_checked();
    if after(b"user.").is_some() {
        let plain = matches!(file_type, FileType::Regular | FileType::Directory);
        let stranger = sticky_owner.is_some_and(|owner| owner != ctx.uid && !may_all);
        return match what {
            _ if !plain => Err(refused),
            Use::Write if stranger => Err(Error::Errno(libc::EPERM)),
            _ => Ok(()),
        };
    }
    if after(b"trusted.").is_some() {
        return if may_all { Ok(()) } else { Err(refused) };
    }
    if after(b"security.").is_some() {
        return match what {
            Use::Write if !may_all => Err(Error::Errno(libc::EPERM)),
            _ => Ok(()),
        };
    }
    if (name == acl::ACCESS || name == acl::DEFAULT) && file_type != FileType::Symlink {
        return Ok(());
    }
    Err(Error::Errno(libc::EOPNOTSUPP))
}

/// Whether a listing shows a name to the caller.
pub(crate) fn is_listed(ctx: &Context, name: &[u8]) -> bool {
    let hidden = name.starts_with(b"narufs.") || name.starts_with(b"trusted.") && !ctx.is_root();
    !hidden
}

/// The value of a name.
pub(crate) fn find<'a>(attributes: &'a Attributes, name: &[u8]) -> Option<&'a [u8]> {
    attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
}

/// Sets or, with `None`, removes a name.
pub(crate) fn put(attributes: &mut Attributes, name: &[u8], value: Option<Vec<u8>>) {
    match (attributes.iter().position(|(n, _)| n == name), value) {
        (Some(at), Some(value)) => attributes[at].1 = value,
        (Some(at), None) => drop(attributes.remove(at)),
        (None, Some(value)) => attributes.push((name.to_vec(), value)),
        (None, None) => {}
    }
}
