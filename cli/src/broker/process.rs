//! The broker itself.
//!
//! It reads nothing but what its server asks, in a few words of known kinds, and does what it was told by its command line.

use super::{Answer, Question};
use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::metrics::address::Address;
use crate::options::OptionList;
use crate::server::{kernel_options, source};
use crate::supervisor::adopted::start_by;
use crate::supervisor::channel;
use crate::utab;
use narufs_fuse::binding::{Caching, as_mounted};
use narufs_fuse::mount::process::protect_from_reclaim;
use narufs_fuse::mount::{self, Made};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Acts for the server at the other end of standard input, until that ends.
pub fn run(args: &Mount, options: &OptionList, arguments: Vec<OsString>) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::about(Status::MountFailed, args.dir(), e);
    // What asks to end is for the server, which may have something to ask yet.
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&asked)).map_err(failed)?;
    }
    protect_from_reclaim();
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(|e| failed(e.into()))?;
    let null = std::fs::File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(null).map_err(|e| failed(e.into()))?;
    let broker = Acting {
        point: mount::place(args.dir()).map_err(failed)?,
        source: source(args, options)?,
        options,
        arguments,
    };
    let mut acts = Acts { has_mounted: false, entry: None };
    loop {
        let (question, along) = match channel::receive(&socket, true) {
            Ok(Some(heard)) => heard,
            Ok(None) => {
                // A server that is killed leaves its entry, and the mount, to the next.
                std::mem::forget(acts.entry.take());
                return Ok(());
            }
            Err(e) => return Err(failed(e)),
        };
        let (answer, descriptors) = broker.answer(&mut acts, question, along);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        // Who is gone does not hear it, and is found to be gone above.
        if let Err(e) = channel::send(&socket, &answer, &descriptors) {
            tracing::debug!("the server does not hear: {e}");
        }
    }
}

/// What it was told.
struct Acting<'o> {
    point: PathBuf,
    source: PathBuf,
    options: &'o OptionList,
    arguments: Vec<OsString>,
}

/// What it has done.
struct Acts<'p> {
    has_mounted: bool,
    entry: Option<utab::Entry<'p>>,
}

impl Acting<'_> {
    fn answer<'p>(
        &'p self,
        acts: &mut Acts<'p>,
        question: Question,
        along: Vec<OwnedFd>,
    ) -> (Answer, Vec<OwnedFd>) {
        let outcome = match question {
            Question::Mount { read_only } => match self.mount(acts, read_only) {
                Ok(Made { device, descriptor, abort }) => {
                    return (Answer::Mounted { device }, [descriptor].into_iter().chain(abort).collect());
                }
                Err(e) => Err(e),
            },
            Question::Unmount { device, busy } => mount::unmount_device(&self.point, device, busy),
            Question::Set { device, what, value } => match mount::is_at(&self.point, device) {
                Ok(true) => what.set(device, value).map(|()| true),
                found => found,
            },
            Question::Enter => {
                acts.entry = utab::enter(&self.source, &self.point);
                Ok(acts.entry.is_some())
            }
            Question::Leave => Ok(acts.entry.take().is_some()),
            Question::Unlisten => {
                self.options.metrics.iter().for_each(Address::remove);
                Ok(self.options.metrics.is_some())
            }
            Question::Supervise => match along.into_iter().next() {
                Some(left) => start_by(&self.arguments, left).map(|()| true),
                None => Err(io::ErrorKind::InvalidInput.into()),
            },
        };
        let answer = match outcome {
            Ok(done) => Answer::Done(done),
            Err(e) => Answer::Refused { errno: e.raw_os_error(), why: e.to_string() },
        };
        (answer, Vec::new())
    }

    fn mount(&self, acts: &mut Acts<'_>, read_only: bool) -> io::Result<Made> {
        if std::mem::replace(&mut acts.has_mounted, true) {
            return Err(Errno::BUSY.into());
        }
        let mut kernel = kernel_options(&self.source, self.options);
        kernel.read_only = read_only || self.options.read_only;
        mount::make(&self.point, &as_mounted(&kernel, Caching::Exclusive)?)
    }
}
