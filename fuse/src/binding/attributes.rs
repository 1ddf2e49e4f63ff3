//! Changes of attributes: by callers, and by a kernel that keeps times itself.

use super::convert::engine_attributes;
use super::engine::EngineOperations;
use crate::mount::Permissions;
use crate::session::RequestContext;
use crate::types::{Errno, Result, SetAttr};
use narufs_engine::vfs::{self, Context};

/// The attribute that gives a program more rights.
pub(super) const CAPABILITY: &[u8] = b"security.capability";

impl EngineOperations {
    /// Changes attributes; what they are then.
    pub(super) fn change_attributes(
        &self,
        ctx: &RequestContext<'_>,
        nodeid: u64,
        change: &SetAttr,
    ) -> Result<vfs::Attr> {
        let open = self.opened_for_change(nodeid, change.fh)?;
        let mut wanted = engine_attributes(change);
        // chown(2) that changes neither, and a cached write to a file with setuid by anybody, which takes that itself. Elsewhere
        // the former is refused to others; which of the two it is the kernel does not say.
        if wanted == vfs::SetAttr::default() && self.is_root_or_owner(ctx, nodeid)? {
            wanted.kill_suidgid = true;
        }
        let open = open.as_deref();
        let caller = self.caller(ctx, 0);
        // A ctime says that the times are the kernel's own, and that it has judged who may change them.
        Ok(if self.kernel_keeps_writes() && change.ctime.is_some() {
            let by_kernel = vfs::SetAttr { mode: None, uid: None, gid: None, ..wanted };
            let by_caller = vfs::SetAttr {
                mode: wanted.mode,
                uid: wanted.uid,
                gid: wanted.gid,
                ..vfs::SetAttr::default()
            };
            self.fs.setattr(&caller, nodeid, open, &by_caller)?;
            self.fs.setattr(&caller.checked(), nodeid, open, &by_kernel)?
        } else {
            self.fs.setattr(&caller, nodeid, open, &wanted)?
        })
    }

    fn is_root_or_owner(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<bool> {
        Ok(ctx.uid == 0 || ctx.uid == self.fs.getattr(nodeid)?.uid)
    }

    /// Removes [`CAPABILITY`]. The kernel asks for that before it asks for a change of a file, as whoever changes it; who wants
    /// that alone it lets do so only if he has the capability for it.
    ///
    /// Where the server checks permissions the kernel asks for anybody, and the change may be refused: that it takes the
    /// attribute along is the engine's to see to. It goes before the change only for root and for who owns the file; others
    /// are told that it has gone, for else the kernel would not ask for the change.
    pub(super) fn remove_capability(&self, ctx: &RequestContext<'_>, nodeid: u64) -> Result<()> {
        let may = match self.permissions {
            Permissions::Kernel => true,
            Permissions::Server => self.is_root_or_owner(ctx, nodeid)?,
        };
        if may {
            self.fs.removexattr(&Context::root(), nodeid, CAPABILITY)?;
        }
        Ok(())
    }

    /// ENOSYS where extended attributes are not to be had: the kernel then asks no more. It can go on removing them,
    /// for a remount asks in this way whether the server can write.
    pub(super) fn serves_xattr(&self) -> Result<()> {
        if self.xattr { Ok(()) } else { Err(Errno(libc::ENOSYS)) }
    }
}
