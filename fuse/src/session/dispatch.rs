//! From a request to a call of an operation, and from its result to the reply.

use super::resumed::is_replied_to;
use super::{DoneReply, LockReply, RequestContext, Session, WriteReply};
use crate::control::{SERVER_PID, SERVER_STAYS, SUPERVISOR_PID, SYNC, SYNC_POWER};
use crate::operations::{Ioctl, NewNode, Operations, Release, Write};
use crate::transport::{Reply, Service};
use crate::types::{Entry, Lock, Opened, Result, SetAttr};
use crate::wire::dirent::{DirSink, looked_up};
use crate::wire::*;
use narufs_engine::planted::kill::{self, Kind, Serving, Step};
use narufs_engine::takeover::Left;
use zerocopy::IntoBytes;

impl<O: Operations> Service for Session<O> {
    fn serve(&self, request: RequestParts<'_>, reply: Reply<'_>) {
        let _serving = request.header().map(|header| Serving::of(Kind::of(header.opcode)));
        kill::step(Step::Read);
        if let Some(header) = request.header() {
            self.requests.count(&header);
        }
        match (&self.supervision, request.header()) {
            (Some(supervision), Some(header)) if is_replied_to(&header) => {
                self.serve_noted(supervision, &header, request, reply);
            }
            _ => self.answer(request, None, reply),
        }
    }
}

impl<O: Operations> Session<O> {
    /// Does what is asked, and answers; `left`: it was done by an earlier server.
    pub(super) fn answer(&self, request: RequestParts<'_>, left: Option<&Left>, reply: Reply<'_>) {
        match parse(request, self.features.setxattr_ext()) {
            Ok((header, op, extensions)) => {
                let ctx = &RequestContext {
                    unique: header.unique,
                    uid: header.uid,
                    gid: header.gid,
                    pid: header.pid,
                    extensions,
                    requests: &self.requests,
                    latencies: &self.latencies,
                };
                match left {
                    None => self.call(ctx, header.nodeid, op, reply),
                    Some(left) => self.answer_done(ctx, header.nodeid, op, left, reply),
                }
            }
            Err(malformed) => {
                tracing::debug!("request refused: {malformed}");
                reply.error(malformed.errno());
            }
        }
    }

    pub(super) fn call(&self, ctx: &RequestContext<'_>, node: u64, op: Op<'_>, mut reply: Reply<'_>) {
        let ops = &*self.operations;
        match op {
            Op::Lookup { name } => self.entry(reply, ops.lookup(ctx, node, name)),
            Op::Forget(args) => {
                reply.none();
                ops.forget(node, args.nlookup);
            }
            Op::BatchForget(list) => {
                reply.none();
                list.for_each(|one| ops.forget(one.nodeid, one.nlookup));
            }
            Op::Getattr(args) => {
                let fh = (args.getattr_flags & GETATTR_FH != 0).then_some(args.fh);
                bytes(reply, ops.getattr(ctx, node, fh).map(|attributes| attributes.to_wire()));
            }
            Op::Statx(args) => {
                let fh = (args.getattr_flags & GETATTR_FH != 0).then_some(args.fh);
                bytes(reply, ops.statx(ctx, node, fh, args.sx_mask));
            }
            Op::Setattr(args) => {
                let result = ops.setattr(ctx, node, &SetAttr::from(&args));
                bytes(reply, result.map(|attributes| attributes.to_wire()));
            }
            Op::Readlink => data(reply, ops.readlink(ctx, node)),
            Op::Symlink { name, target } => self.entry(reply, ops.symlink(ctx, node, name, target)),
            Op::Mknod { args, name } => {
                let new = NewNode { mode: args.mode, umask: args.umask, rdev: args.rdev };
                self.entry(reply, ops.mknod(ctx, node, name, &new));
            }
            Op::Mkdir { args, name } => {
                let new = NewNode { mode: args.mode & 0o7777 | libc::S_IFDIR, umask: args.umask, rdev: 0 };
                self.entry(reply, ops.mkdir(ctx, node, name, &new));
            }
            Op::Unlink { name } => done(reply, ops.unlink(ctx, node, name)),
            Op::Rmdir { name } => done(reply, ops.rmdir(ctx, node, name)),
            Op::Rename { name, to } => {
                done(reply, ops.rename(ctx, (node, name), (to.parent, to.name), to.flags));
            }
            Op::Link { args, name } => self.entry(reply, ops.link(ctx, args.oldnodeid, node, name)),
            Op::Open(args) => {
                let kill = args.open_flags & OPEN_KILL_SUIDGID != 0;
                self.opened(reply, node, args.flags, false, ops.open(ctx, node, args.flags as i32, kill));
            }
            Op::Opendir(args) => {
                self.opened(reply, node, args.flags, true, ops.opendir(ctx, node, args.flags as i32));
            }
            Op::Create { args, name } => {
                let new = NewNode { mode: args.mode, umask: args.umask, rdev: 0 };
                self.created(reply, args.flags, ops.create(ctx, node, name, &new, args.flags as i32));
            }
            Op::Tmpfile(args) => {
                let new = NewNode { mode: args.mode, umask: args.umask, rdev: 0 };
                self.created(reply, args.flags, ops.tmpfile(ctx, node, &new, args.flags as i32));
            }
            Op::Read(args) => match reply.buffer(args.size as usize) {
                Some(buffer) => match ops.read(ctx, node, &args, buffer) {
                    // Data that the caller does not take needs no undoing.
                    Ok(read) => drop(reply.buffered(read.min(args.size as usize))),
                    Err(errno) => reply.error(errno.0),
                },
                None => reply.error(libc::EINVAL),
            },
            Op::Write { args, data } => {
                let reply = WriteReply { handle: reply.defer() };
                let mut write = Write::from(&args);
                if ctx.unique & UNIQUE_RESEND != 0 {
                    // Part of it may be there already, and the end of the file behind that.
                    write.open_flags &= !libc::O_APPEND;
                }
                ops.write_then(ctx, node, &write, data, reply);
            }
            Op::Flush(args) => done(reply, ops.flush(ctx, node, args.fh, args.lock_owner)),
            Op::Release(args) => {
                ops.release(node, &release(&args));
                done(reply, Ok(()));
            }
            Op::Releasedir(args) => {
                ops.releasedir(node, &release(&args));
                done(reply, Ok(()));
            }
            Op::Fsync(args) => {
                let reply = DoneReply { handle: reply.defer() };
                ops.fsync_then(ctx, node, args.fh, args.fsync_flags & FSYNC_FDATASYNC != 0, reply);
            }
            Op::Fsyncdir(args) => {
                let reply = DoneReply { handle: reply.defer() };
                ops.fsyncdir_then(ctx, node, args.fh, args.fsync_flags & FSYNC_FDATASYNC != 0, reply);
            }
            Op::Syncfs => done(reply, ops.syncfs(ctx, node)),
            Op::Readdir(args) => self.names(ctx, reply, node, &args, false),
            Op::Readdirplus(args) => self.names(ctx, reply, node, &args, true),
            Op::Statfs => bytes(reply, ops.statfs(ctx, node)),
            Op::Setxattr { args, name, value } => {
                let kill = args.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
                done(reply, ops.setxattr(ctx, node, name, value, args.flags as i32, kill));
            }
            Op::Getxattr { args, name } => sized(reply, args.size, ops.getxattr(ctx, node, name)),
            Op::Listxattr(args) => sized(reply, args.size, ops.listxattr(ctx, node)),
            Op::Removexattr { name } => done(reply, ops.removexattr(ctx, node, name)),
            Op::Access(args) => done(reply, ops.access(ctx, node, args.mask as i32)),
            Op::Getlk(args) => {
                let found = ops.getlk(ctx, node, &lock(&args));
                bytes(
                    reply,
                    found.map(|Lock { start, end, kind, pid, .. }| LkOut {
                        lk: FileLock { start, end, kind: kind as u32, pid },
                    }),
                );
            }
            Op::Setlk(args) => done(reply, ops.setlk(ctx, node, &lock(&args))),
            Op::Setlkw(args) => {
                let handle = reply.defer();
                ops.setlkw(ctx, node, &lock(&args), LockReply { handle });
                self.interrupted_before(ctx.unique);
            }
            Op::Interrupt(args) => {
                reply.none();
                self.interrupt(args.unique);
            }
            Op::Fallocate(args) => {
                let range = (args.offset, args.length);
                done(reply, ops.fallocate(ctx, node, args.fh, range, args.mode as i32));
            }
            Op::Lseek(args) => {
                let found = ops.lseek(ctx, node, args.fh, args.offset, args.whence as i32);
                bytes(reply, found.map(|offset| LseekOut { offset }));
            }
            Op::CopyFileRange(mut args) => {
                // This form's answer has 32 bits.
                args.len = args.len.min(u64::from(u32::MAX) & !0xfff);
                let copied = ops.copy_file_range(ctx, node, &args);
                bytes(reply, copied.map(|size| WriteOut { size: size as u32, padding: 0 }));
            }
            Op::CopyFileRange64(args) => {
                let copied = ops.copy_file_range(ctx, node, &args);
                bytes(reply, copied.map(|bytes_copied| CopyFileRangeOut { bytes_copied }));
            }
            Op::Ioctl { args, data } => {
                let out_size = args.out_size as usize;
                let call = Ioctl { fh: args.fh, command: args.cmd, argument: args.arg, data, out_size };
                let result = match args.cmd {
                    SERVER_PID => Ok(std::process::id().to_ne_bytes().to_vec()),
                    SUPERVISOR_PID => Ok(self.supervisor().to_ne_bytes().to_vec()),
                    SERVER_STAYS => Ok(u32::from(self.stays).to_ne_bytes().to_vec()),
                    SYNC => ops.syncfs(ctx, node).map(|()| Vec::new()),
                    SYNC_POWER => ops.sync_power(ctx, node).map(|()| Vec::new()),
                    _ => ops.ioctl(ctx, node, &call),
                };
                match result {
                    Ok(out) if out.len() <= out_size => {
                        let head = IoctlOut { result: 0, flags: 0, in_iovs: 0, out_iovs: 0 };
                        unneeded(reply.bytes(&[head.as_bytes(), &out]));
                    }
                    Ok(_) => reply.error(libc::EINVAL),
                    Err(errno) => reply.error(errno.0),
                }
            }
            Op::Destroy => {
                self.destroy();
                done(reply, Ok(()));
            }
            Op::NotifyReply => reply.none(),
            Op::Init { .. } => reply.error(libc::EIO),
            // Files here are always ready, and their blocks are nobody else's to see.
            Op::Poll(_) | Op::Bmap(_) | Op::Setupmapping | Op::Removemapping => reply.error(libc::ENOSYS),
        }
    }

    pub(super) fn entry(&self, reply: Reply<'_>, result: Result<Entry>) {
        match result {
            Ok(entry) => {
                if reply.bytes(&[entry.to_wire().as_bytes()]).is_err() && entry.nodeid != 0 {
                    self.operations.forget(entry.nodeid, 1);
                }
            }
            Err(errno) => reply.error(errno.0),
        }
    }

    fn open_out(&self, opened: &Opened) -> OpenOut {
        let open_flags = (opened.flags & self.features.open_flags()).bits();
        OpenOut { fh: opened.fh, open_flags, backing_id: 0 }
    }

    fn opened(&self, reply: Reply<'_>, node: u64, flags: u32, directory: bool, result: Result<Opened>) {
        match result {
            Ok(opened) => {
                if reply.bytes(&[self.open_out(&opened).as_bytes()]).is_err() {
                    self.close(node, opened.fh, flags, directory);
                }
            }
            Err(errno) => reply.error(errno.0),
        }
    }

    pub(super) fn created(&self, reply: Reply<'_>, flags: u32, result: Result<(Entry, Opened)>) {
        match result {
            Ok((entry, opened)) => {
                let parts = (entry.to_wire(), self.open_out(&opened));
                if reply.bytes(&[parts.0.as_bytes(), parts.1.as_bytes()]).is_err() {
                    self.close(entry.nodeid, opened.fh, flags, false);
                    self.operations.forget(entry.nodeid, 1);
                }
            }
            Err(errno) => reply.error(errno.0),
        }
    }

    /// Closes what was opened for a caller that is gone.
    fn close(&self, node: u64, fh: u64, flags: u32, directory: bool) {
        let release = Release { fh, open_flags: flags as i32, flags: ReleaseFlags::empty(), lock_owner: 0 };
        if directory {
            self.operations.releasedir(node, &release);
        } else {
            self.operations.release(node, &release);
        }
    }

    fn names(&self, ctx: &RequestContext<'_>, mut reply: Reply<'_>, node: u64, args: &ReadIn, plus: bool) {
        let Some(buffer) = reply.buffer(args.size as usize) else { return reply.error(libc::EINVAL) };
        let mut sink = DirSink::new(buffer, plus);
        let result = if plus {
            self.operations.readdirplus(ctx, node, args.fh, args.offset, &mut sink)
        } else {
            self.operations.readdir(ctx, node, args.fh, args.offset, &mut sink)
        };
        let used = sink.len();
        match result {
            // What was read before a failure is there, and counted: who goes on behind it meets the failure again.
            Err(errno) if used == 0 => reply.error(errno.0),
            _ => {
                if let (Err(not_taken), true) = (reply.buffered(used), plus) {
                    looked_up(not_taken).for_each(|nodeid| self.operations.forget(nodeid, 1));
                }
            }
        }
    }
}

/// A reply that was not taken and has nothing to undo.
fn unneeded(sent: std::io::Result<()>) {
    if let Err(e) = sent {
        tracing::debug!("reply not taken: {e}");
    }
}

pub(super) fn done(reply: Reply<'_>, result: Result<()>) {
    match result {
        Ok(()) => unneeded(reply.bytes(&[])),
        Err(errno) => reply.error(errno.0),
    }
}

fn bytes<T: IntoBytes + zerocopy::Immutable>(reply: Reply<'_>, result: Result<T>) {
    match result {
        Ok(value) => unneeded(reply.bytes(&[value.as_bytes()])),
        Err(errno) => reply.error(errno.0),
    }
}

fn data(reply: Reply<'_>, result: Result<Vec<u8>>) {
    match result {
        Ok(data) => unneeded(reply.bytes(&[&data])),
        Err(errno) => reply.error(errno.0),
    }
}

/// A value whose size alone is asked for with `size` 0.
fn sized(reply: Reply<'_>, size: u32, result: Result<Vec<u8>>) {
    match result {
        Ok(value) if size == 0 => {
            let out = GetxattrOut { size: value.len() as u32, padding: 0 };
            unneeded(reply.bytes(&[out.as_bytes()]));
        }
        Ok(value) if value.len() > size as usize => reply.error(libc::ERANGE),
        other => data(reply, other),
    }
}

fn release(args: &ReleaseIn) -> Release {
    Release {
        fh: args.fh,
        open_flags: args.flags as i32,
        flags: ReleaseFlags::from_bits_truncate(args.release_flags),
        lock_owner: args.lock_owner,
    }
}

fn lock(args: &LkIn) -> Lock {
    Lock {
        fh: args.fh,
        owner: args.owner,
        start: args.lk.start,
        end: args.lk.end,
        kind: args.lk.kind as i32,
        pid: args.lk.pid,
        flock: args.lk_flags & LK_FLOCK != 0,
    }
}
