//! Requests of a mount that outlives its server: each is noted while it is in service, and one that the kernel sends once
//! more is not done twice.
//!
//! What this leaves to others: what a note says (`narufs_engine::takeover::requests`), and when the kernel sends
//! requests once more ([`server`](crate::server)).
//!
//! Invariants: a request is noted before anything is done for it, and until its reply is sent; a request that was done
//! is answered from its note alone, and its note stays until then. What has no reply is not noted: the kernel does not
//! send it again.

use super::dispatch::done;
use super::{RequestContext, Session, WriteReply};
use crate::operations::{Operations, Write};
use crate::supervision::{MOST_ATTEMPTS, Supervision};
use crate::transport::Reply;
use crate::wire::*;
use narufs_engine::planted::kill::{self, Step};
use narufs_engine::planted::{self, Bug};
use narufs_engine::takeover::{Left, Requests, Taken};

/// How a request is to be served.
enum Noted {
    /// As any other.
    New(Option<Taken>),
    /// As any other that is sent once more.
    Again(Taken),
    /// Its effect is there: it is to be answered.
    Done(Left, Taken),
    /// Servers have died of it: it is to be refused.
    Refused(Taken),
}

/// Notes a request.
fn note(supervision: &Supervision, header: &InHeader) -> Noted {
    let memory = supervision.memory();
    if header.unique & UNIQUE_RESEND != 0
        && let Some((left, taken)) = Requests::resume(memory, header.unique)
    {
        // One is counted already. The end of a server that had not taken it up yet says nothing about it.
        let was_in_service = left.server + 1 == memory.incarnation();
        let more = if was_in_service { supervision.weight() - 1 } else { 0 };
        taken.add_attempts(more);
        let attempts = left.attempts + more;
        return match left.done && !planted::is(Bug::DoneAgain) {
            true => Noted::Done(left, taken),
            false if attempts < MOST_ATTEMPTS => Noted::Again(taken),
            false => {
                let Left { opcode, nodeid, .. } = left;
                tracing::error!(
                    opcode,
                    nodeid,
                    "servers have died of a request, which was answered with EIO: report it"
                );
                Noted::Refused(taken)
            }
        };
    }
    Noted::New(Requests::take(memory, header.unique, header.opcode, header.nodeid))
}

/// Whether the kernel waits for a reply, and sends a request again that was not answered.
pub(crate) fn is_replied_to(header: &InHeader) -> bool {
    let silent = [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt, Opcode::NotifyReply];
    !silent.iter().any(|opcode| *opcode as u32 == header.opcode)
}

/// Whether a part of it is as good as nothing to the kernel, and all of it can be written once more: pages of its cache, and
/// what it writes directly, but not to the end.
fn is_to_be_whole(args: &WriteIn) -> bool {
    let is_cached = WriteFlags::from_bits_truncate(args.write_flags).contains(WriteFlags::CACHE);
    is_cached || args.flags as i32 & (libc::O_DIRECT | libc::O_APPEND) == libc::O_DIRECT
}

impl<O: Operations> Session<O> {
    /// Serves a request of a mount that outlives its server.
    pub(super) fn serve_noted(
        &self,
        supervision: &Supervision,
        header: &InHeader,
        request: RequestParts<'_>,
        mut reply: Reply<'_>,
    ) {
        let (taken, left) = match note(supervision, header) {
            Noted::New(taken) => (taken, None),
            Noted::Again(taken) => (Some(taken), None),
            Noted::Done(left, taken) => (Some(taken), Some(left)),
            Noted::Refused(taken) => {
                reply.keep(taken);
                return reply.error(libc::EIO);
            }
        };
        kill::step(Step::Noted);
        let entered = taken.map(|taken| {
            let entered = taken.enter();
            reply.keep(taken);
            entered
        });
        self.answer(request, left.as_ref(), reply);
        drop(entered);
        kill::step(Step::Freed);
    }

    /// Answers a request whose effect is there. What changes nothing, or does the same a second time, is done again: the
    /// kernel keeps others away from the file until it is answered.
    pub(super) fn answer_done(
        &self,
        ctx: &RequestContext<'_>,
        node: u64,
        op: Op<'_>,
        left: &Left,
        reply: Reply<'_>,
    ) {
        let ops = &*self.operations;
        match op {
            Op::Mknod { .. } | Op::Mkdir { .. } | Op::Symlink { .. } | Op::Link { .. } => {
                self.entry(reply, ops.made(ctx, node, left.nid));
            }
            Op::Create { args, .. } | Op::Tmpfile(args) => {
                self.created(reply, args.flags, ops.made_and_opened(ctx, node, left.nid, args.flags as i32));
            }
            // What was written in part, and is to be whole, is written anew, or the kernel is told why not.
            Op::Write { args, data } if !is_to_be_whole(&args) || left.written >= data.len() as u64 => {
                let reply = WriteReply { handle: reply.defer() };
                ops.written(ctx, node, &Write::from(&args), left.written as usize, reply);
            }
            Op::Unlink { .. } | Op::Rmdir { .. } => {
                ops.removed(node);
                done(reply, Ok(()));
            }
            Op::Rename { to, .. } => {
                ops.renamed(node, to.parent, to.flags);
                done(reply, Ok(()));
            }
            Op::Setxattr { name, .. } | Op::Removexattr { name } => {
                ops.attribute_changed(node, name);
                done(reply, Ok(()));
            }
            // A move of what lies behind a range: nothing else of this kind is decided by a record.
            Op::Fallocate(_) => done(reply, Ok(())),
            other => self.call(ctx, node, other, reply),
        }
    }
}
