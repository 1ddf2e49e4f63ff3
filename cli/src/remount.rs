//! `narufs mount -o remount,...`, which mount(8) calls as well: changes between read-only and writable, and the
//! flags that the kernel keeps to itself. The server goes on as it was started.

use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::options::is_for_mount;
use crate::umount;
use narufs_fuse::control;
use narufs_fuse::mount::{Atime, FuseOptions, mountinfo};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::path::Path;

/// What mount(8) adds of what it reads in /proc/mounts.
const TAKEN_ALONG: [&str; 4] = ["remount", "user_id", "group_id", "rootmode"];
/// An attribute that nobody has.
const NOT_THERE: &str = "user.narufs.not-there";

/// Whether this is to be a remount.
pub fn is_wanted(args: &Mount) -> bool {
    items(args).any(|item| item == "remount")
}

fn items(args: &Mount) -> impl Iterator<Item = &str> {
    args.options.iter().flat_map(|list| list.split(',')).filter(|item| !item.is_empty())
}

/// Remounts.
pub fn run(args: &Mount) -> Result<(), Failure> {
    let point = umount::point_of(args.dir())?;
    let dir = args.dir().display();
    let mut options = options_of(&point);
    let atime = options.atime;
    for item in items(args) {
        let name = item.split('=').next().unwrap_or(item);
        let ignored = TAKEN_ALONG.contains(&name) || is_for_mount(name);
        // Access times are the server's: the kernel would show another option, and nothing else would change.
        if !(ignored || options.apply(item) && options.atime == atime) {
            let why = format!("{name} cannot be changed by a remount: unmount {dir} and mount it anew");
            return Err(Failure::new(Status::MountUsage, why));
        }
    }
    if options.read_only {
        control::sync(&point).map_err(|e| failed(args.dir(), &e.to_string()))?;
    }
    let flags = options.flags();
    mount_remount(&point, flags, c"").map_err(|e| match e {
        Errno::BUSY => {
            failed(args.dir(), "files are open for writing (fuser -vm shows them): close them first")
        }
        e => failed(args.dir(), &e.to_string()),
    })?;
    // The kernel does not ask the server whether it can write; an attribute that is not there does.
    if !options.read_only && rustix::fs::removexattr(&point, NOT_THERE) == Err(Errno::ROFS) {
        let _ = mount_remount(&point, flags | MountFlags::RDONLY, c"");
        return Err(failed(args.dir(), "its server has the image read-only: unmount it and mount it anew"));
    }
    Ok(())
}

/// The flags that a mount has.
pub fn options_of(point: &Path) -> FuseOptions {
    let shown = mountinfo::find(point).ok().flatten().map(|entry| entry.options).unwrap_or_default();
    options_shown(&shown)
}

/// The flags that these, as the kernel shows them, are of.
fn options_shown(shown: &str) -> FuseOptions {
    let mut options = FuseOptions::new("");
    // The kernel shows what is taken away, and nothing of access times where each read changes them.
    (options.suid, options.dev, options.atime) = (true, true, Atime::Strict);
    for option in shown.split(',') {
        // Those that are no flags do not change.
        options.apply(option);
    }
    options
}

fn failed(dir: &Path, why: &str) -> Failure {
    Failure::about(Status::MountFailed, dir, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_times_are_told_from_what_the_kernel_shows() {
        let atime = |shown| options_shown(shown).atime;
        assert_eq!(atime("rw,nosuid,relatime,rw,user_id=0"), Atime::Relative);
        assert_eq!(atime("rw,noatime,rw"), Atime::Never);
        assert_eq!(atime("rw,nosuid,rw,user_id=0"), Atime::Strict);
    }
}
