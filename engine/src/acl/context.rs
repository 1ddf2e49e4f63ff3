//! The caller.

use std::sync::OnceLock;

/// The caller: credentials of the calling task, and its umask.
#[derive(Debug, Clone)]
pub struct Context {
    /// File-system user id. 0 may do everything.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Process, for advisory locks and lazily read groups; 0 where unknown.
    pub pid: u32,
    /// Bits taken from the mode of what is created, unless the directory has a default ACL.
    pub umask: u32,
    is_checked: bool,
    is_by_kernel: bool,
    protects_links: bool,
    groups: OnceLock<Vec<u32>>,
    load_groups: fn(&Context) -> Vec<u32>,
}

impl Context {
    /// Credentials whose supplementary groups are asked from `load_groups` when a check first needs them.
    pub fn new(uid: u32, gid: u32, pid: u32, umask: u32, load_groups: fn(&Context) -> Vec<u32>) -> Context {
        let (umask, groups) = (umask & 0o777, OnceLock::new());
        let (is_checked, is_by_kernel, protects_links) = (false, false, false);
        Context { uid, gid, pid, umask, is_checked, is_by_kernel, protects_links, groups, load_groups }
    }

    /// The same, where something else has checked already that the caller may do what it asks for: the kernel, in front
    /// of a mount. They still own what they make.
    pub fn checked(self) -> Context {
        Context { is_checked: true, ..self }
    }

    /// The same, by way of the kernel that a mount serves: it knows of the changes that it asks for.
    pub fn by_kernel(self) -> Context {
        Context { is_by_kernel: true, ..self }
    }

    /// Whether the kernel knows of the changes.
    pub fn is_by_kernel(&self) -> bool {
        self.is_by_kernel
    }

    /// The same, where `fs.protected_hardlinks` holds for the caller, and nobody else sees to that.
    pub fn protecting_links(self) -> Context {
        Context { protects_links: true, ..self }
    }

    /// Whether a file of somebody else gets another name only if the caller may read and write it, and it is none that
    /// gives rights.
    pub fn protects_links(&self) -> bool {
        self.protects_links
    }

    /// Whether permissions were checked already.
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Credentials with known supplementary groups.
    pub fn with_groups(uid: u32, gid: u32, groups: Vec<u32>) -> Context {
        let ctx = Context::new(uid, gid, 0, 0, |_| Vec::new());
        ctx.groups.get_or_init(|| groups);
        ctx
    }

    /// Uid 0, umask 0.
    pub fn root() -> Context {
        Context::with_groups(0, 0, Vec::new())
    }

    /// Whether the caller is uid 0 and so has every capability.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.get_or_init(|| (self.load_groups)(self)).contains(&gid)
    }
}
