//! What takes the right to mount, done at one directory, with the options of the command line.
//!
//! It keeps nothing: what it finds at its directory is what there is, whoever has mounted that.

use super::{Act, Answer};
use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::options::OptionList;
use crate::server::{kernel_options, source};
use crate::utab;
use narufs_fuse::binding::{Caching, as_mounted};
use narufs_fuse::mount::{self, Made};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What it was told.
pub struct Acting<'o> {
    point: PathBuf,
    source: PathBuf,
    options: &'o OptionList,
}

impl Acting<'_> {
    /// For the mount of this command line.
    pub fn new<'o>(args: &Mount, options: &'o OptionList) -> Result<Acting<'o>, Failure> {
        let point =
            mount::place(args.dir()).map_err(|e| Failure::about(Status::MountFailed, args.dir(), e))?;
        Ok(Acting { point, source: source(args, options)?, options })
    }

    /// Where it mounts.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Does it.
    pub(super) fn act(&self, act: &Act) -> (Answer, Vec<OwnedFd>) {
        let outcome = match *act {
            Act::Mount { read_only } => match self.mount(read_only) {
                Ok(Made { device, descriptor, abort }) => {
                    return (Answer::Mounted { device }, [descriptor].into_iter().chain(abort).collect());
                }
                Err(e) => Err(e),
            },
            Act::Unmount { device, busy } => mount::unmount_device(&self.point, device, busy),
            Act::Set { device, what, value } => match mount::is_at(&self.point, device) {
                Ok(true) => what.set(device, value).map(|()| true),
                found => found,
            },
            // A server that is killed leaves its entry to the next.
            Act::Enter => Ok(utab::enter(&self.source, &self.point).map(std::mem::forget).is_some()),
            Act::Leave => {
                drop(utab::Entry::left(&self.point));
                Ok(true)
            }
        };
        Answer::of(outcome)
    }

    fn mount(&self, read_only: bool) -> io::Result<Made> {
        let mut kernel = kernel_options(&self.source, self.options);
        kernel.read_only = read_only || self.options.read_only;
        mount::make(&self.point, &as_mounted(&kernel, Caching::Exclusive)?)
    }
}
