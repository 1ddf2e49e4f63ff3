//! The broker itself.
//!
//! It reads nothing but what its server asks, in a few words of known kinds, and does what it was told by its command line.

use super::acting::Acting;
use super::mounter::Mounter;
use super::{Act, Answer, Question};
use crate::args::Mount;
use crate::failure::{Failure, Status};
use crate::metrics::address::Address;
use crate::options::OptionList;
use crate::supervisor::adopted::start_by;
use crate::supervisor::channel;
use narufs_fuse::mount::process::protect_from_reclaim;
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
    let acting = Acting::new(args, options)?;
    let mut broker = Broker { acting, mounter: Mounter::own(), options, arguments, has_mounted: false };
    while let Some((question, along)) = channel::receive(&socket, true).map_err(failed)? {
        let (answer, descriptors) = broker.answer(question, along);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        // Who is gone does not hear it, and is found to be gone above.
        if let Err(e) = channel::send(&socket, &answer, &descriptors) {
            tracing::debug!("the server does not hear: {e}");
        }
    }
    Ok(())
}

/// What it was told, and has done.
struct Broker<'o> {
    acting: Acting<'o>,
    /// Who may mount, if not this process.
    mounter: Option<Mounter>,
    options: &'o OptionList,
    arguments: Vec<OsString>,
    has_mounted: bool,
}

impl Broker<'_> {
    fn answer(&mut self, question: Question, along: Vec<OwnedFd>) -> (Answer, Vec<OwnedFd>) {
        let outcome = match question {
            Question::Act(act) => return self.act(&act),
            Question::Unlisten => {
                self.options.metrics.iter().for_each(Address::remove);
                Ok(self.options.metrics.is_some())
            }
            Question::Supervise => match along.into_iter().next() {
                Some(left) => start_by(&self.arguments, left).map(|()| true),
                None => Err(io::ErrorKind::InvalidInput.into()),
            },
        };
        Answer::of(outcome)
    }

    fn act(&mut self, act: &Act) -> (Answer, Vec<OwnedFd>) {
        if matches!(act, Act::Mount { .. }) && std::mem::replace(&mut self.has_mounted, true) {
            return Answer::of(Err(Errno::BUSY.into()));
        }
        match &self.mounter {
            Some(mounter) => mounter.ask(act).unwrap_or_else(|e| Answer::of(Err(e))),
            None => self.acting.act(act),
        }
    }
}
