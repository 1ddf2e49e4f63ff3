//! `narufs umount`: ends a mount and waits for its server.

use crate::args::Umount;
use crate::failure::{Failure, Status};
use narufs_fuse::control::ServerProcess;
use narufs_fuse::mount::{self, IfBusy, mountinfo};
use std::path::Path;

/// Unmounts, and returns when everything is on the device.
pub fn run(args: &Umount) -> Result<(), Failure> {
    let point = point_of(&args.dir)?;
    if mount::is_dead(&point) {
        // Its server was killed: there is nobody to wait for, the image is as the last one left it.
        return mount::unmount(&point, IfBusy::Detach).map_err(|e| busy_or(&args.dir, e));
    }
    let server = ServerProcess::of(&point).map_err(|e| {
        Failure::about(Status::Failed, &args.dir, format_args!("its server does not answer: {e}"))
    })?;
    let how = if args.lazy { IfBusy::Detach } else { IfBusy::Refuse };
    mount::unmount(&point, how).map_err(|e| busy_or(&args.dir, e))?;
    if args.lazy {
        return Ok(());
    }
    server.wait().map_err(|e| {
        Failure::new(Status::Failed, format!("waiting for server {}: {e}", server.pid.as_raw_nonzero()))
    })
}

/// The mount point, if a narufs is mounted there.
pub fn point_of(dir: &Path) -> Result<std::path::PathBuf, Failure> {
    let point = mount::place(dir).map_err(|e| Failure::about(Status::Failed, dir, e))?;
    match mountinfo::find(&point) {
        Ok(Some(entry)) if entry.is_ours() => Ok(point),
        Ok(_) => Err(Failure::not_ours(dir)),
        Err(e) => Err(Failure::new(Status::Failed, format!("/proc/self/mountinfo: {e}"))),
    }
}

fn busy_or(dir: &Path, e: std::io::Error) -> Failure {
    if e.raw_os_error() == Some(libc::EBUSY) {
        let dir = dir.display();
        return Failure::new(
            Status::Failed,
            format!("{dir} is in use: close what is open there (fuser -vm {dir} shows it), or use --lazy"),
        );
    }
    Failure::about(Status::Failed, dir, e)
}
