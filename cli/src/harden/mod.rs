//! What a server gives up before it reads anything of an image but its superblock.
//!
//! An image may be a stranger's, and what the kernel's callers send comes from all users of the mount. What a fault in
//! reading either could be used for is bounded by what the process may do: so a server gives up all that it does not need
//! for as long as it lives, and has the rest done by a [`broker`](crate::broker).
//!
//! 1. Capabilities, every one, for ever: nothing that a server does takes any ([`narufs_fuse::mount::process`]).
//! 2. New privileges by programs that it would start; it cannot start any.
//! 3. Files but those that it has open, the image, the journal, and what the kernel tells by `/proc` and `/sys`
//!    ([`files`], by Landlock).
//! 4. System calls but those that it makes ([`calls`], by seccomp).
//!
//! Each is done as far as the kernel can; what it cannot is said once, at the level `debug`, and shown by `narufs stats`.
//!
//! What this leaves to others: what io_uring is asked to do, which no filter sees. Rings are restricted when they are made
//! (`narufs_engine::device`, `narufs_fuse::transport`).
//!
//! # Invariants
//! It is done while the process has one thread: Landlock and capabilities are of threads, and those that are started
//! later get what the first one has.

mod calls;
mod files;
mod install;
#[cfg(test)]
mod tests;

pub use files::Needs;

use narufs_engine::planted::kill;
use narufs_fuse::mount::process::{Hardening, give_up_capabilities};
use rustix::thread::set_no_new_privs;

/// Gives up what is not among the needs; what of it the kernel can do.
pub fn give_up(needs: &Needs, broker_pid: u32) -> Hardening {
    kill::open_plan();
    if !is_alone() {
        // What the other threads keep, this one would not have lost.
        tracing::error!("nothing is given up: the server has begun to work already");
        return Hardening { asked: true, broker_pid, ..Hardening::default() };
    }
    Hardening { broker_pid, ..give_up_here(needs) }
}

/// The same of this thread, and of those that it starts.
fn give_up_here(needs: &Needs) -> Hardening {
    let mut given_up = Hardening { asked: true, ..Hardening::default() };
    given_up.no_capabilities = done("capabilities", give_up_capabilities());
    given_up.no_new_privileges = done("new privileges", set_no_new_privs(true).map_err(Into::into));
    given_up.landlock = files::restrict(needs).unwrap_or_else(|e| {
        tracing::warn!("files stay reachable: {e}");
        0
    });
    given_up.seccomp = done("system calls", calls::restrict());
    given_up
}

/// Gives up making rings of io_uring, now that all of them are there.
pub fn close(given_up: &Hardening) {
    if given_up.seccomp {
        done("new rings of io_uring", calls::close());
    }
}

fn done(what: &str, outcome: std::io::Result<()>) -> bool {
    if let Err(e) = &outcome {
        tracing::debug!("{what} are not given up: {e}");
    }
    outcome.is_ok()
}

/// Whether this thread is the process's only one, but for those that the kernel works for its rings by.
fn is_alone() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let named = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    named.filter(|name| !name.starts_with("iou-")).count() <= 1
}
