//! POSIX access control lists: their form as extended attributes, and what they permit.
//!
//! This module judges lists; where they are kept is the business of `xattr`, when they change of `vfs`.

mod context;
mod list;
mod permission;

pub use context::Context;
pub(crate) use list::{Acl, Tag};
pub(crate) use permission::{EXECUTE, Owner, READ, WRITE, check};

use crate::error::Result;
use crate::sync::Arc;

/// Attribute of the list that governs access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute of the list that what is created in a directory starts with.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The lists of an inode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acls {
    /// Governs access; without it the mode alone does.
    pub access: Option<Arc<Acl>>,
    /// Of a directory: for what is created in it.
    pub default: Option<Arc<Acl>>,
}

impl Acls {
    /// The lists of two attributes as they were read.
    pub fn parse(access: Option<&[u8]>, default: Option<&[u8]>) -> Result<Acls> {
        let parse = |value: Option<&[u8]>| -> Result<Option<Arc<Acl>>> {
            value.map(|v| Acl::parse(v).map(Arc::new)).transpose()
        };
        Ok(Acls { access: parse(access)?, default: parse(default)? })
    }
}
