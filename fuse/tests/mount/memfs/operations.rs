//! What the kernel asks of the file system in memory.

use super::{DAMAGED, KEPT, MemFs, err, stamp};
use narufs_engine::blocking::about_to_block;
use narufs_fuse::Operations;
use narufs_fuse::operations::{NewNode, Release, Write};
use narufs_fuse::session::{LockReply, RequestContext};
use narufs_fuse::types::*;
use narufs_fuse::wire::dirent::DirSink;
use narufs_fuse::wire::{OpenFlags, ROOT_ID, ReadIn, StatfsOut, StatxOut};

impl Operations for MemFs {
    fn destroy(&self) {
        self.gate.lock().destroyed = true;
    }

    fn lookup(&self, _: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<Entry> {
        let mut state = self.state.lock();
        let id = state.find(parent, name)?;
        state.entry(id)
    }

    fn forget(&self, nodeid: u64, count: u64) {
        let mut state = self.state.lock();
        if let Some(node) = state.nodes.get_mut(&nodeid) {
            node.lookups = node.lookups.checked_sub(count).expect("no more is forgotten than was looked up");
            state.collect(nodeid);
        }
    }

    fn getattr(&self, _: &RequestContext<'_>, nodeid: u64, _: Option<u64>) -> Result<Attributes> {
        Ok(Attributes { attr: self.state.lock().node(nodeid)?.attr, timeout: KEPT })
    }

    fn statx(&self, ctx: &RequestContext<'_>, nodeid: u64, fh: Option<u64>, _: u32) -> Result<StatxOut> {
        let attr = self.getattr(ctx, nodeid, fh)?.attr;
        Ok(StatxOut::with_birth(&Attributes { attr, timeout: KEPT }, Time { secs: 7, nanos: 8 }))
    }

    fn setattr(&self, _: &RequestContext<'_>, nodeid: u64, change: &SetAttr) -> Result<Attributes> {
        let mut state = self.state.lock();
        let node = state.node(nodeid)?;
        if let Some(size) = change.size {
            node.data.resize(size as usize, 0);
            stamp(node);
        }
        if let Some(mode) = change.mode {
            node.attr.mode = node.attr.mode & libc::S_IFMT | mode & 0o7777;
        }
        node.attr.uid = change.uid.unwrap_or(node.attr.uid);
        node.attr.gid = change.gid.unwrap_or(node.attr.gid);
        if let Some(SetTime::At(time)) = change.mtime {
            node.attr.mtime = time;
        }
        Ok(Attributes { attr: node.attr, timeout: KEPT })
    }

    fn readlink(&self, _: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>> {
        Ok(self.state.lock().node(nodeid)?.data.clone())
    }

    fn symlink(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let mut state = self.state.lock();
        let new = NewNode { mode: libc::S_IFLNK | 0o777, umask: 0, rdev: 0 };
        let id = state.make(ctx, parent, Some(name), &new)?;
        let node = state.node(id)?;
        node.data = target.to_vec();
        stamp(node);
        state.entry(id)
    }

    fn mknod(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry> {
        let mut state = self.state.lock();
        let id = state.make(ctx, parent, Some(name), new)?;
        state.entry(id)
    }

    fn mkdir(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.mknod(ctx, parent, name, new)
    }

    fn unlink(&self, _: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()> {
        self.state.lock().remove(parent, name, false)
    }

    fn rmdir(&self, _: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()> {
        self.state.lock().remove(parent, name, true)
    }

    fn rename(&self, _: &RequestContext<'_>, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<()> {
        let mut state = self.state.lock();
        let id = state.find(from.0, from.1)?;
        match (state.find(to.0, to.1), flags) {
            (Ok(_), libc::RENAME_NOREPLACE) => return err(libc::EEXIST),
            (Ok(other), libc::RENAME_EXCHANGE) => {
                state.dir(from.0)?.names.insert(from.1.to_vec(), other);
                state.dir(to.0)?.names.insert(to.1.to_vec(), id);
                return Ok(());
            }
            (Ok(_), _) => state.remove(to.0, to.1, false)?,
            (Err(_), _) => {}
        }
        state.dir(from.0)?.names.remove(from.1);
        state.dir(to.0)?.names.insert(to.1.to_vec(), id);
        Ok(())
    }

    fn link(&self, _: &RequestContext<'_>, nodeid: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        let mut state = self.state.lock();
        state.dir(parent)?.names.insert(name.to_vec(), nodeid);
        state.node(nodeid)?.attr.nlink += 1;
        state.entry(nodeid)
    }

    fn open(&self, ctx: &RequestContext<'_>, nodeid: u64, flags: i32, _: bool) -> Result<Opened> {
        let mut state = self.state.lock();
        let node = state.node(nodeid)?;
        let class = match () {
            () if ctx.uid == 0 || ctx.uid == node.attr.uid => 6,
            () if ctx.in_group(node.attr.gid) => 3,
            () => 0,
        };
        if ctx.uid != 0 && node.attr.mode >> class & 4 == 0 {
            return err(libc::EACCES);
        }
        if flags & libc::O_TRUNC != 0 {
            node.data.clear();
            stamp(node);
        }
        self.opened(&mut state, nodeid)
    }

    fn create(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        name: &[u8],
        new: &NewNode,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        let mut state = self.state.lock();
        let id = match state.find(parent, name) {
            Ok(_) if flags & libc::O_EXCL != 0 => return err(libc::EEXIST),
            Ok(id) => id,
            Err(_) => state.make(ctx, parent, Some(name), new)?,
        };
        Ok((state.entry(id)?, self.opened(&mut state, id)?))
    }

    fn tmpfile(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        new: &NewNode,
        _: i32,
    ) -> Result<(Entry, Opened)> {
        let mut state = self.state.lock();
        let id = state.make(ctx, parent, None, new)?;
        Ok((state.entry(id)?, self.opened(&mut state, id)?))
    }

    fn read(&self, _: &RequestContext<'_>, nodeid: u64, read: &ReadIn, buffer: &mut [u8]) -> Result<usize> {
        let mut state = self.state.lock();
        if state.find(ROOT_ID, b"gate") == Ok(nodeid) {
            drop(state);
            about_to_block();
            let mut gate = self.gate.lock();
            gate.waiting += 1;
            self.gate_moved.notify_all();
            while !gate.open {
                self.gate_moved.wait(&mut gate);
            }
            drop(gate);
            state = self.state.lock();
        }
        let data = state.node(nodeid)?.data.get(read.offset as usize..).unwrap_or_default();
        let len = data.len().min(buffer.len());
        buffer[..len].copy_from_slice(&data[..len]);
        Ok(len)
    }

    fn write(&self, _: &RequestContext<'_>, nodeid: u64, write: &Write, data: &[u8]) -> Result<usize> {
        let mut state = self.state.lock();
        let node = state.node(nodeid)?;
        let start = write.offset as usize;
        if node.data.len() < start + data.len() {
            node.data.resize(start + data.len(), 0);
        }
        node.data[start..][..data.len()].copy_from_slice(data);
        stamp(node);
        Ok(data.len())
    }

    fn release(&self, nodeid: u64, release: &Release) {
        self.unlock(self.locks.lock(), nodeid, release.lock_owner);
        self.close(nodeid);
    }

    fn fsync(&self, _: &RequestContext<'_>, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn opendir(&self, _: &RequestContext<'_>, nodeid: u64, _: i32) -> Result<Opened> {
        self.state.lock().node(nodeid)?.opens += 1;
        Ok(Opened { fh: nodeid, flags: OpenFlags::empty() })
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        nodeid: u64,
        _: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let parent = state.dir(nodeid)?.parent;
        let names = state.dir(nodeid)?.names.clone();
        // Inode numbers make cookies that last while names come and go (no two names here share an inode).
        let mut all: Vec<_> = names.iter().map(|(name, id)| (id + 2, &name[..], *id)).collect();
        all.extend([(1, &b"."[..], nodeid), (2, b"..", parent)]);
        all.sort_unstable();
        for (next, name, id) in all.into_iter().filter(|(next, ..)| *next > offset) {
            if name == DAMAGED {
                return err(libc::EIO);
            }
            let kind = (state.node(id)?.attr.mode >> 12) as u8 & 15;
            let pushed = if sink.is_plus() && next > 2 {
                sink.fits(name.len()) && sink.push_entry(&state.entry(id)?, next, name)
            } else {
                sink.push(id, next, kind, name)
            };
            if !pushed {
                break;
            }
        }
        Ok(())
    }

    fn releasedir(&self, nodeid: u64, _: &Release) {
        self.close(nodeid);
    }

    fn fsyncdir(&self, _: &RequestContext<'_>, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn syncfs(&self, _: &RequestContext<'_>, _: u64) -> Result<()> {
        self.gate.lock().syncs += 1;
        Ok(())
    }

    fn statfs(&self, _: &RequestContext<'_>, _: u64) -> Result<StatfsOut> {
        let (bsize, namelen) = (4096, 255);
        let spare = [0; 6];
        Ok(StatfsOut {
            blocks: 100,
            bfree: 50,
            bavail: 40,
            files: 9,
            ffree: 8,
            bsize,
            namelen,
            frsize: 4096,
            padding: 0,
            spare,
        })
    }

    fn setxattr(
        &self,
        _: &RequestContext<'_>,
        nodeid: u64,
        name: &[u8],
        value: &[u8],
        _: i32,
        _: bool,
    ) -> Result<()> {
        self.state.lock().node(nodeid)?.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn getxattr(&self, _: &RequestContext<'_>, nodeid: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.state.lock().node(nodeid)?.xattrs.get(name).cloned().ok_or(Errno(libc::ENODATA))
    }

    fn listxattr(&self, _: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>> {
        let mut state = self.state.lock();
        Ok(state.node(nodeid)?.xattrs.keys().flat_map(|name| [&name[..], b"\0"].concat()).collect())
    }

    fn setlk(&self, _: &RequestContext<'_>, nodeid: u64, lock: &Lock) -> Result<()> {
        let mut locks = self.locks.lock();
        if lock.kind == libc::F_UNLCK {
            self.unlock(locks, nodeid, lock.owner);
        } else if locks.held.get(&nodeid).is_some_and(|owner| *owner != lock.owner) {
            return err(libc::EAGAIN);
        } else {
            locks.held.insert(nodeid, lock.owner);
        }
        Ok(())
    }

    fn setlkw(&self, _: &RequestContext<'_>, nodeid: u64, lock: &Lock, reply: LockReply) {
        let mut locks = self.locks.lock();
        if lock.kind == libc::F_UNLCK {
            self.unlock(locks, nodeid, lock.owner);
            assert!(reply.granted());
        } else if locks.held.get(&nodeid).is_some_and(|owner| *owner != lock.owner) {
            locks.waiting.push((nodeid, lock.owner, reply));
            self.queued.notify_all();
        } else if reply.granted() {
            locks.held.insert(nodeid, lock.owner);
        }
    }

    fn interrupt(&self, unique: u64) -> bool {
        let mut locks = self.locks.lock();
        let Some(at) = locks.waiting.iter().position(|(_, _, reply)| reply.unique() == unique) else {
            return false;
        };
        locks.waiting.remove(at).2.error(Errno(libc::EINTR));
        self.queued.notify_all();
        true
    }

    fn copy_file_range(
        &self,
        _: &RequestContext<'_>,
        nodeid: u64,
        copy: &narufs_fuse::wire::CopyFileRangeIn,
    ) -> Result<u64> {
        let mut state = self.state.lock();
        let from = state.node(nodeid)?.data.get(copy.off_in as usize..).unwrap_or_default();
        let piece = from[..from.len().min(copy.len as usize)].to_vec();
        let to = state.node(copy.nodeid_out)?;
        let start = copy.off_out as usize;
        to.data.resize(to.data.len().max(start + piece.len()), 0);
        to.data[start..][..piece.len()].copy_from_slice(&piece);
        stamp(to);
        Ok(piece.len() as u64)
    }
}
