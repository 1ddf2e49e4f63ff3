//! One conversation with the kernel: from requests to operations and back.
//!
//! [`init`] agrees on features, `dispatch` turns each request into a call of [`Operations`] and its result into a
//! reply, [`groups`] finds a caller's supplementary groups, [`requests`] counts, `resumed` notes what is in service for
//! a server that may have to go on with it.
//!
//! What it leaves to others: threads and descriptors (`transport`), the mount itself (`mount`), what operations
//! do.
//!
//! Invariants: a lookup count or an open file that the kernel was told of in a reply that it did not take is given
//! back; INTERRUPT reaches a waiting lock whichever of the two requests is served first.

mod dispatch;
pub mod groups;
pub mod init;
pub mod requests;
mod resumed;

pub(crate) use resumed::is_replied_to;

pub use init::{Config, Features, Negotiated, negotiate};

use crate::mount::Transport;
use crate::operations::Operations;
use crate::server::Notifier;
use crate::supervision::Supervision;
use crate::transport::ReplyHandle;
use crate::transport::latency::{AllLatencies, Latencies};
use crate::transport::uring::queues;
use crate::types::{Errno, Result};
use crate::wire::WriteOut;
use crate::wire::extension::{Extensions, SecurityContext};
use parking_lot::Mutex;
use requests::Requests;
use std::collections::VecDeque;
use std::sync::{Arc, Once};
use zerocopy::IntoBytes;

/// Interrupts that arrived before their request had begun to wait; older ones are of requests long finished.
const UNMATCHED_INTERRUPTS: usize = 64;

/// One conversation.
pub struct Session<O> {
    operations: Arc<O>,
    features: Features,
    unmatched: Mutex<VecDeque<u64>>,
    destroyed: Once,
    requests: Requests,
    latencies: AllLatencies,
    /// Where the mount outlives this server.
    supervision: Option<Arc<Supervision>>,
    /// Whether this process goes on when it is over.
    stays: bool,
}

impl<O: Operations> Session<O> {
    /// A conversation in which `features` were agreed on.
    pub fn new(operations: Arc<O>, features: Features) -> Self {
        operations.init(&features);
        // A line for each core of the machine: those that serve may be any of them.
        let requests = Requests::new(queues().unwrap_or(1).into());
        let (unmatched, destroyed) = (Mutex::default(), Once::new());
        let (latencies, supervision, stays) = (AllLatencies::default(), None, false);
        Session { operations, features, unmatched, destroyed, requests, latencies, supervision, stays }
    }

    /// The same, in a process that is there for more than this.
    pub fn beside_others(self, stays: bool) -> Self {
        Session { stays, ..self }
    }

    /// The same, where the mount outlives this server: what is in service is noted.
    pub fn supervised(self, supervision: Option<Arc<Supervision>>) -> Self {
        Session { supervision, ..self }
    }

    /// Who starts the next server; 0: nobody.
    fn supervisor(&self) -> u32 {
        self.supervision.as_ref().map_or(0, |supervision| supervision.supervisor())
    }

    /// What was agreed on.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Tells the operations which way requests come.
    pub fn served_by(&self, transport: Transport) {
        self.operations.served_by(transport);
    }

    /// Tells the operations how the kernel is told to drop what it has cached.
    pub fn notified_by(&self, notifier: &Notifier) {
        self.operations.notified_by(notifier);
    }

    /// Has the times of what a port answers counted with those of the others.
    pub fn measures(&self, port: Option<&Arc<Latencies>>) {
        port.into_iter().for_each(|port| self.latencies.include(Arc::clone(port)));
    }

    /// All requests so far.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// How long they took.
    pub fn latencies(&self) -> &AllLatencies {
        &self.latencies
    }

    /// What they are for.
    pub fn operations(&self) -> &O {
        &self.operations
    }

    /// Ends the conversation, and returns when that is done; to be called when no request is being served any more.
    pub fn destroy(&self) {
        self.destroyed.call_once(|| self.operations.destroy());
    }

    fn interrupt(&self, unique: u64) {
        // Remembered first: a lock that begins to wait from now on looks here after it has been queued.
        {
            let mut unmatched = self.unmatched.lock();
            if unmatched.len() == UNMATCHED_INTERRUPTS {
                unmatched.pop_front();
            }
            unmatched.push_back(unique);
        }
        if self.operations.interrupt(unique) {
            self.unmatched.lock().retain(|&other| other != unique);
        }
    }

    /// To be called when a request that can be interrupted has been queued.
    fn interrupted_before(&self, unique: u64) {
        let mut unmatched = self.unmatched.lock();
        let before = unmatched.len();
        unmatched.retain(|&other| other != unique);
        let found = unmatched.len() != before;
        drop(unmatched);
        if found {
            self.operations.interrupt(unique);
        }
    }
}

/// Who asks, and for which request.
pub struct RequestContext<'a> {
    /// The request's id.
    pub unique: u64,
    /// The caller's user for file access.
    pub uid: u32,
    /// The caller's group for file access.
    pub gid: u32,
    /// The calling thread; 0 if it is of another pid name space.
    pub pid: u32,
    extensions: Extensions<'a>,
    requests: &'a Requests,
    latencies: &'a AllLatencies,
}

impl RequestContext<'_> {
    /// Whether the caller is in this group. Costs a read of /proc unless it is the caller's own group, the kernel
    /// has said so, or the caller was asked about just before.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.extensions.groups().any(|other| other == gid) || self.groups().contains(&gid)
    }

    /// All supplementary groups of the caller. Costs a read of /proc unless it was asked about just before.
    pub fn groups(&self) -> Arc<[u32]> {
        groups::groups(self.pid, self.uid, self.gid)
    }

    /// All requests of this conversation so far.
    pub fn requests(&self) -> &Requests {
        self.requests
    }

    /// How long they took.
    pub fn latencies(&self) -> &AllLatencies {
        self.latencies
    }

    /// Security attributes that the new inode is to have from its birth.
    pub fn security(&self) -> impl Iterator<Item = SecurityContext<'_>> {
        self.extensions.security()
    }
}

/// The answer to a request whose end another thread may see; it can be sent from any thread.
#[derive(Debug)]
pub struct DoneReply {
    handle: ReplyHandle,
}

impl DoneReply {
    /// Answers.
    pub fn done(self, result: Result<()>) {
        match result {
            // A caller that is gone needs no answer.
            Ok(()) => drop(self.handle.bytes(&[])),
            Err(errno) => self.handle.error(errno.0),
        }
    }
}

/// The answer to a write; it can be sent from any thread.
#[derive(Debug)]
pub struct WriteReply {
    handle: ReplyHandle,
}

impl WriteReply {
    /// Answers with the number of bytes written.
    pub fn done(self, result: Result<usize>) {
        match result {
            // A caller that is gone needs no answer.
            Ok(size) => {
                drop(self.handle.bytes(&[WriteOut { size: size as u32, padding: 0 }.as_bytes()]));
            }
            Err(errno) => self.handle.error(errno.0),
        }
    }
}

/// The answer to a lock that is waited for; it can be sent from any thread.
#[derive(Debug)]
pub struct LockReply {
    handle: ReplyHandle,
}

impl LockReply {
    /// The request's id, by which [`Operations::interrupt`] names it.
    pub fn unique(&self) -> u64 {
        self.handle.unique()
    }

    /// The lock is held. False: the caller is gone, and the lock must be dropped again.
    #[must_use]
    pub fn granted(self) -> bool {
        self.handle.bytes(&[]).is_ok()
    }

    /// The lock will not be held.
    pub fn error(self, errno: Errno) {
        self.handle.error(errno.0);
    }
}
