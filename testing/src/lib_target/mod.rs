//! The library as a target: paths resolved by lookups, one open file for each operation, as the kernel would
//! do it. Absolute symlinks resolve below the target's own root, so that several targets may share an image.

mod show;

use crate::acl;
use crate::model::Value;
use crate::op::{Durable, Exists, Op, When};
use narufs_engine::error::{Error, Result};
use narufs_engine::format::{Nid, ROOT_NID};
use narufs_engine::lock::Owner;
use narufs_engine::vfs::{
    Batch, BatchDurability, Context, Entry, FallocateMode, FileHandle, FileType, OpenFlags, RenameFlags,
    SetAttr, SetTime, Vfs, WriteFlags, XattrMode,
};

/// A directory of a mounted library, as uid 0.
pub struct LibTarget<'f> {
    fs: &'f Vfs,
    ctx: Context,
    root: Nid,
}

/// An inode with its lookup count, given back on drop.
struct Held<'f> {
    fs: &'f Vfs,
    entry: Entry,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.entry.nid, 1);
    }
}

/// An open file, given back on drop.
struct Opened<'f> {
    fs: &'f Vfs,
    handle: Option<FileHandle>,
}

impl Opened<'_> {
    fn get(&self) -> &FileHandle {
        match &self.handle {
            Some(handle) => handle,
            None => unreachable!("taken by drop alone"),
        }
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // The kernel flushes at each close; what it reports was not asked for here.
            let _ = self.fs.flush(&handle, Owner::Mount(0));
            self.fs.release(handle, None);
        }
    }
}

fn errno<T>(e: i32) -> Result<T> {
    Err(Error::Errno(e))
}

impl<'f> LibTarget<'f> {
    /// The whole image.
    pub fn new(fs: &'f Vfs) -> LibTarget<'f> {
        LibTarget { fs, ctx: Context::root(), root: ROOT_NID }
    }

    /// A directory of the root as the root of its own.
    ///
    /// # Errors
    /// What the lookup answered.
    pub fn below(fs: &'f Vfs, name: &str) -> Result<LibTarget<'f>> {
        let mut target = LibTarget::new(fs);
        let entry = fs.lookup(&target.ctx, ROOT_NID, name.as_bytes())?;
        // The directory stays: its nid is good without the count.
        fs.forget(entry.nid, 1);
        target.root = entry.nid;
        Ok(target)
    }

    fn hold(&self, entry: Entry) -> Held<'f> {
        Held { fs: self.fs, entry }
    }

    fn root(&self) -> Result<Held<'f>> {
        self.fs.by_handle(self.root, None).map(|entry| self.hold(entry))
    }

    /// One component, through symlinks.
    fn step(&self, dir: &Held<'f>, name: &str, depth: u32) -> Result<Held<'f>> {
        if depth > 40 {
            return errno(libc::ELOOP);
        }
        let found = self.hold(self.fs.lookup(&self.ctx, dir.entry.nid, name.as_bytes())?);
        if found.entry.attr.file_type == FileType::Symlink {
            let target = self.fs.readlink(found.entry.nid)?;
            return self.walk(&String::from_utf8_lossy(&target), depth + 1);
        }
        Ok(found)
    }

    fn walk(&self, path: &str, depth: u32) -> Result<Held<'f>> {
        let mut at = self.root()?;
        for part in path.split('/').filter(|p| !p.is_empty()) {
            if at.entry.attr.file_type != FileType::Directory {
                return errno(libc::ENOTDIR);
            }
            at = self.step(&at, part, depth)?;
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Held<'f>, &'p str)> {
        let (dir, name) = path.rsplit_once('/').ok_or(Error::Errno(libc::EINVAL))?;
        let dir = self.walk(dir, 0)?;
        if dir.entry.attr.file_type != FileType::Directory {
            return errno(libc::ENOTDIR);
        }
        Ok((dir, name))
    }

    /// The inode of a path without following a symlink at its end.
    fn find(&self, path: &str) -> Result<Held<'f>> {
        if path == "/" {
            return self.root();
        }
        let (dir, name) = self.parent(path)?;
        self.fs.lookup(&self.ctx, dir.entry.nid, name.as_bytes()).map(|entry| self.hold(entry))
    }

    /// Opens a regular file, as the generated operations want it.
    fn file(&self, path: &str, flags: OpenFlags) -> Result<Opened<'f>> {
        let found = self.find(path)?;
        match found.entry.attr.file_type {
            FileType::Regular => self.open(found.entry.nid, flags),
            FileType::Symlink => errno(libc::ELOOP),
            FileType::Directory => errno(libc::EISDIR),
            _ => errno(libc::ENXIO),
        }
    }

    fn open(&self, nid: Nid, flags: OpenFlags) -> Result<Opened<'f>> {
        let handle = Some(self.fs.open(&self.ctx, nid, flags)?);
        Ok(Opened { fs: self.fs, handle })
    }

    fn write(&self, file: &Opened<'f>, offset: u64, len: usize, fill: u8) -> Result<()> {
        let bytes = vec![fill; len];
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let n = self.fs.write(&self.ctx, file.get(), at, &bytes[done..], WriteFlags::empty())?;
            if n == 0 {
                return errno(libc::EIO);
            }
            done += n;
        }
        Ok(())
    }

    /// Opens, writes, and makes that durable as asked for.
    fn write_durably(
        &self,
        path: &str,
        flags: OpenFlags,
        (offset, len): (u64, usize),
        fill: u8,
        durable: Durable,
    ) -> Result<()> {
        let flag = match durable {
            Durable::Dsync => OpenFlags::DSYNC,
            Durable::Sync => OpenFlags::SYNC,
            _ => OpenFlags::empty(),
        };
        let file = self.file(path, OpenFlags::READ_WRITE | flags | flag)?;
        self.write(&file, offset, len, fill)?;
        match durable {
            Durable::Fsync => self.fs.fsync(file.get(), false),
            Durable::Fdatasync => self.fs.fsync(file.get(), true),
            _ => Ok(()),
        }
    }

    fn read(&self, file: &Opened<'f>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let n = self.fs.read(file.get(), offset, &mut bytes)?;
        bytes.truncate(n);
        Ok(bytes)
    }

    fn create(&self, path: &str, exclusive: bool) -> Result<()> {
        match self.find(path) {
            Ok(_) if exclusive => errno(libc::EEXIST),
            Ok(_) => self.file(path, OpenFlags::WRITE_ONLY).map(drop),
            Err(Error::Errno(libc::ENOENT)) => {
                let (dir, name) = self.parent(path)?;
                let x = if exclusive { OpenFlags::EXCLUSIVE } else { OpenFlags::empty() };
                let flags = OpenFlags::WRITE_ONLY | x;
                let (entry, handle, _) =
                    self.fs.create(&self.ctx, dir.entry.nid, name.as_bytes(), 0o644, flags)?;
                let _held = self.hold(entry);
                drop(Opened { fs: self.fs, handle: Some(handle) });
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    fn tmpfile(&self, dir: &str, path: &str, len: u32, fill: u8) -> Result<()> {
        let found = self.find(dir)?;
        match found.entry.attr.file_type {
            FileType::Directory => {}
            FileType::Symlink => return errno(libc::ELOOP),
            _ => return errno(libc::ENOTDIR),
        }
        let (entry, handle) = self.fs.tmpfile(&self.ctx, found.entry.nid, 0o644, OpenFlags::READ_WRITE)?;
        let held = self.hold(entry);
        let file = Opened { fs: self.fs, handle: Some(handle) };
        self.write(&file, 0, len as usize, fill)?;
        let (to, name) = self.parent(path)?;
        let linked = self.fs.link(&self.ctx, held.entry.nid, to.entry.nid, name.as_bytes())?;
        drop(self.hold(linked));
        Ok(())
    }

    fn copy(&self, from: (&str, u64), to: (&str, u64), len: u64) -> Result<()> {
        let source = self.file(from.0, OpenFlags::empty())?;
        let target = self.file(to.0, OpenFlags::READ_WRITE)?;
        // What there is now: a copy within a file may put more behind that, which the next step would find.
        let there = self.fs.getattr_open(source.get()).size.saturating_sub(from.1);
        let (mut at, mut out, mut left) = (from.1, to.1, len.min(there));
        while left > 0 {
            match self.fs.copy_file_range(&self.ctx, source.get(), at, target.get(), out, left)? {
                0 => break,
                n => (at, out, left) = (at + n, out + n, left - n),
            }
        }
        Ok(())
    }

    fn set(&self, nid: Nid, handle: Option<&FileHandle>, set: SetAttr) -> Result<()> {
        self.fs.setattr(&self.ctx, nid, handle, &set).map(drop)
    }

    fn try_apply(&self, op: &Op) -> Result<Value> {
        let ctx = &self.ctx;
        match op {
            Op::Create { path, exclusive } => self.create(path, *exclusive)?,
            Op::Mkdir { path } => {
                let (dir, name) = self.parent(path)?;
                drop(self.hold(self.fs.mkdir(ctx, dir.entry.nid, name.as_bytes(), 0o755)?));
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                self.fs.rmdir(ctx, dir.entry.nid, name.as_bytes())?;
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                self.fs.unlink(ctx, dir.entry.nid, name.as_bytes())?;
            }
            Op::Mknod { path, node } => {
                let (dir, name) = self.parent(path)?;
                let (mode, rdev) = (node.bits() | 0o644, node.rdev());
                drop(self.hold(self.fs.mknod(ctx, dir.entry.nid, name.as_bytes(), mode, rdev)?));
            }
            Op::Symlink { target, path } => {
                let (dir, name) = self.parent(path)?;
                let made = self.fs.symlink(ctx, dir.entry.nid, name.as_bytes(), target.as_bytes())?;
                drop(self.hold(made));
            }
            Op::Link { from, to } => {
                let source = self.find(from)?;
                let (dir, name) = self.parent(to)?;
                drop(self.hold(self.fs.link(ctx, source.entry.nid, dir.entry.nid, name.as_bytes())?));
            }
            Op::Rename { from, to, flags } => {
                let (from_dir, from_name) = self.parent(from)?;
                let (to_dir, to_name) = self.parent(to)?;
                let flags = RenameFlags::from_bits_retain(*flags);
                let (source, target) = (from_dir.entry.nid, to_dir.entry.nid);
                self.fs.rename(ctx, source, from_name.as_bytes(), target, to_name.as_bytes(), flags)?;
            }
            Op::Write { path, offset, len, fill, durable } => {
                self.write_durably(path, OpenFlags::empty(), (*offset, *len as usize), *fill, *durable)?;
            }
            Op::Append { path, len, fill } => {
                let file = self.file(path, OpenFlags::WRITE_ONLY | OpenFlags::APPEND)?;
                self.write(&file, 0, *len as usize, *fill)?;
            }
            Op::Rewrite { path, len, fill, direct } => {
                let file = self.file(path, OpenFlags::WRITE_ONLY | OpenFlags::TRUNCATE)?;
                self.write(&file, 0, *len as usize, *fill)?;
                if let Some(block) = (len / 4096).checked_sub(1).filter(|_| *direct) {
                    let past = self.file(path, OpenFlags::READ_WRITE | OpenFlags::DIRECT)?;
                    self.write(&past, u64::from(block) * 4096, 4096, *fill)?;
                }
            }
            Op::WriteDirect { path, block, blocks, fill, durable } => {
                let range = (block * 4096, *blocks as usize * 4096);
                self.write_durably(path, OpenFlags::DIRECT, range, *fill, *durable)?;
            }
            Op::Truncate { path, size } => {
                let file = self.file(path, OpenFlags::READ_WRITE)?;
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                self.set(file.get().nid(), Some(file.get()), set)?;
            }
            Op::Fallocate { path, mode, offset, len } => {
                let file = self.file(path, OpenFlags::READ_WRITE)?;
                let mode = FallocateMode::from_kernel(mode.bits())?;
                self.fs.fallocate(ctx, file.get(), mode, *offset, *len)?;
            }
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy((from, *from_offset), (to, *to_offset), *len)?;
            }
            Op::Tmpfile { dir, path, len, fill } => self.tmpfile(dir, path, *len, *fill)?,
            Op::Batch { paths, offset, len, fill, is_synced } => {
                let bytes = vec![*fill; *len as usize];
                let files = [
                    self.file(&paths[0], OpenFlags::READ_WRITE)?,
                    self.file(&paths[1], OpenFlags::READ_WRITE)?,
                ];
                let mut batch = Batch::default();
                let staged = files.iter().try_for_each(|file| {
                    self.fs.fsync(file.get(), false)?;
                    self.fs.stage(&mut batch, file.get(), *offset, &bytes)
                });
                if let Err(e) = staged {
                    self.fs.drop_batch(batch);
                    return Err(e);
                }
                let durability = if *is_synced { BatchDurability::Synced } else { BatchDurability::Ordered };
                self.fs.commit_batch(ctx, batch, durability)?;
            }
            Op::Fsync { path } => self.fs.fsync(self.file(path, OpenFlags::empty())?.get(), false)?,
            Op::Fdatasync { path } => self.fs.fsync(self.file(path, OpenFlags::empty())?.get(), true)?,
            Op::FsyncDir { path } => {
                let found = self.find(path)?;
                if found.entry.attr.file_type != FileType::Directory {
                    return errno(libc::ENOTDIR);
                }
                let handle = self.fs.opendir(ctx, found.entry.nid)?;
                let synced = self.fs.fsync(&handle, false);
                self.fs.releasedir(handle);
                synced?;
            }
            Op::SyncAll => self.fs.syncfs()?,
            Op::SetXattr { path, name, len, fill, exists } => {
                let found = self.find(path)?;
                let value = vec![*fill; *len as usize];
                let mode = match exists {
                    Exists::Any => XattrMode::Any,
                    Exists::No => XattrMode::Create,
                    Exists::Yes => XattrMode::Replace,
                };
                self.fs.setxattr(ctx, found.entry.nid, name.as_bytes(), &value, mode)?;
            }
            Op::SetAcl { path, default, uid, perm } => {
                let found = self.find(path)?;
                let name = if *default { acl::DEFAULT } else { acl::ACCESS };
                let value = acl::list(*uid, *perm);
                self.fs.setxattr(ctx, found.entry.nid, name.as_bytes(), &value, XattrMode::Any)?;
            }
            Op::RemoveXattr { path, name } => {
                self.fs.removexattr(ctx, self.find(path)?.entry.nid, name.as_bytes())?;
            }
            Op::Chmod { path, mode } => {
                let found = self.find(path)?;
                if found.entry.attr.file_type == FileType::Symlink {
                    return errno(libc::EOPNOTSUPP);
                }
                self.set(found.entry.nid, None, SetAttr { mode: Some(*mode), ..SetAttr::default() })?;
            }
            Op::Chown { path, uid, gid } => {
                let set = SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() };
                self.set(self.find(path)?.entry.nid, None, set)?;
            }
            Op::KillSuid { path } => {
                let file = self.file(path, OpenFlags::READ_WRITE)?;
                let set = SetAttr { kill_suidgid: true, ..SetAttr::default() };
                self.set(file.get().nid(), Some(file.get()), set)?;
            }
            Op::Utimens { path, atime, mtime } => {
                let [atime, mtime] = [atime, mtime].map(|when| match when {
                    When::Omit => SetTime::Omit,
                    When::Now => SetTime::Now,
                    When::At(time) => SetTime::At(*time),
                });
                self.set(self.find(path)?.entry.nid, None, SetAttr { atime, mtime, ..SetAttr::default() })?;
            }
            Op::Read { path, offset, len } => {
                let file = self.file(path, OpenFlags::empty())?;
                return self.read(&file, *offset, *len as usize).map(Value::Bytes);
            }
        }
        Ok(Value::Unit)
    }
}
