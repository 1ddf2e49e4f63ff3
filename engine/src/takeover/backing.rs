//! The file that the memory lies in: one of the kernel's that has no name anywhere, so that it lives as long as its
//! descriptors.
//!
//! Where that may be had it lies in a tmpfs of its own, which is never attached to any place, for that alone gives shared
//! memory huge pages where the system gives it none by default (`shmem_enabled` is `never`): a server with some GiB of
//! frames then ends in a few milliseconds, where the kernel would take a tenth of a second to let go of each small page,
//! and its successor has the frames back at once. Otherwise it is a memfd.

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Result;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::os::fd::OwnedFd;

/// A new file of so many bytes, which can neither grow nor shrink, or which nobody but those who have its descriptor can
/// reach.
pub(super) fn create(len: usize) -> Result<OwnedFd> {
    let len = len as u64;
    match in_own_tmpfs() {
        Ok(file) => {
            rustix::fs::ftruncate(&file, len)?;
            Ok(file)
        }
        Err(e) => {
            tracing::debug!("memory without huge pages: {e}");
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("narufs-takeover", flags)?;
            rustix::fs::ftruncate(&file, len)?;
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file)
        }
    }
}

/// Whether a file is one that [`create`] has made: nobody else can have shortened it, or will.
pub(super) fn is_ours(file: &OwnedFd) -> Result<bool> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    // A file of a tmpfs says that it cannot be sealed: not so a memfd that is yet to be, which has no name either.
    let is_nameless = seals == SealFlags::SEAL && rustix::fs::fstat(file)?.st_nlink == 0;
    Ok(seals.contains(SealFlags::SHRINK) || is_nameless)
}

fn in_own_tmpfs() -> Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "source", "narufs-takeover")?;
    rustix::mount::fsconfig_set_string(&context, "huge", "advise")?;
    // As a memfd: what limits it is the memory that there is, or the control group's.
    rustix::mount::fsconfig_set_string(&context, "size", "0")?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    // O_EXCL: it never gets a name.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(&mount, ".", flags, Mode::RUSR | Mode::WUSR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_known_again_and_other_files_are_not() {
        let made = create(1 << 21).expect("a file");
        assert_eq!(rustix::fs::fstat(&made).map(|stat| stat.st_size), Ok(1 << 21));
        assert_eq!(is_ours(&made), Ok(true));
        let plain = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        assert_eq!(is_ours(&plain.expect("a file")), Ok(false));
        let named = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
        assert_ne!(is_ours(&named.as_file().try_clone().expect("a descriptor").into()), Ok(true));
    }
}
