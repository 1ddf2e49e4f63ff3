//! Mounting by mount(2).

use super::options::{FuseOptions, SUBTYPE};
use crate::sys;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Mounts at `point`; gives the descriptor that the kernel speaks over.
pub fn mount(point: &Path, options: &FuseOptions) -> io::Result<OwnedFd> {
    let fd = sys::open_fuse_device().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(e.kind(), "/dev/fuse is missing: load the kernel's fuse module (modprobe fuse)")
        }
        _ => e,
    })?;
    let mut data = vec![
        format!("fd={}", fd.as_raw_fd()),
        "rootmode=40000".to_owned(),
        format!("user_id={}", rustix::process::getuid().as_raw()),
        format!("group_id={}", rustix::process::getgid().as_raw()),
    ];
    data.extend(options.fuse_options());
    let data = CString::new(data.join(",")).map_err(io::Error::other)?;
    let kind = format!("fuse.{SUBTYPE}");
    rustix::mount::mount(options.source.as_str(), point, kind, options.flags(), data.as_c_str())?;
    Ok(fd)
}
