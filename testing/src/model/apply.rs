//! What each operation does, and what it answers.

use super::{Model, Node, Outcome, Value};
use crate::acl;
use crate::op::{Durable, Exists, Falloc, Op, When};
use std::sync::Arc;

impl Node {
    fn set_times(&mut self, atime: When, mtime: When) {
        let old = self.times;
        let time = |when, old: Option<i64>| match when {
            When::At(time) => Some(time),
            When::Omit => old,
            When::Now => None,
        };
        self.times = time(atime, old.map(|t| t.0)).zip(time(mtime, old.map(|t| t.1)));
        match mtime {
            When::Now => self.touched = true,
            When::At(_) => self.touched = false,
            When::Omit => {}
        }
    }
}

impl Model {
    /// A file that was written: what makes all durable makes the times durable too.
    fn synced(&mut self, id: usize, durable: Durable) {
        if matches!(durable, Durable::Sync | Durable::Fsync) {
            self.touch(id);
        }
    }

    /// The inode that a path names, if it may have an attribute of this name.
    fn may_have(&self, path: &str, name: &str) -> Result<usize, i32> {
        let id = self.find(path)?;
        let plain = matches!(self.kind(id), libc::S_IFREG | libc::S_IFDIR);
        if name.starts_with("user.") && !plain { Err(libc::EPERM) } else { Ok(id) }
    }

    /// Does an operation.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Create { path, exclusive } => match self.find(path) {
                Ok(_) if *exclusive => Err(libc::EEXIST),
                Ok(_) => self.file(path, true).map(|_| Value::Unit),
                Err(libc::ENOENT) => self.insert(path, libc::S_IFREG | 0o644, None).map(|_| Value::Unit),
                Err(e) => Err(e),
            },
            Op::Mkdir { path } => self.insert(path, libc::S_IFDIR | 0o755, None).map(|_| Value::Unit),
            Op::Mknod { path, node } => {
                let id = self.insert(path, node.bits() | 0o644, None)?;
                self.node(id).rdev = node.rdev();
                Ok(Value::Unit)
            }
            Op::Symlink { target, path } => {
                let id = self.insert(path, libc::S_IFLNK | 0o777, None)?;
                self.node(id).data = Arc::new(target.clone().into_bytes());
                Ok(Value::Unit)
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                let id = self.find(path)?;
                if self.kind(id) != libc::S_IFDIR {
                    return Err(libc::ENOTDIR);
                }
                if !self.nodes[&id].children.is_empty() {
                    return Err(libc::ENOTEMPTY);
                }
                self.node(dir).children.remove(name);
                self.touch(dir);
                self.drop_unnamed();
                Ok(Value::Unit)
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                let id = self.find(path)?;
                if self.kind(id) == libc::S_IFDIR {
                    return Err(libc::EISDIR);
                }
                self.node(dir).children.remove(name);
                self.touch(dir);
                self.drop_unnamed();
                Ok(Value::Unit)
            }
            Op::Link { from, to } => {
                let id = self.find(from)?;
                let (dir, name) = self.parent(to)?;
                if self.nodes[&dir].children.contains_key(name) {
                    return Err(libc::EEXIST);
                }
                if self.kind(id) == libc::S_IFDIR {
                    return Err(libc::EPERM);
                }
                self.node(dir).children.insert(name.into(), id);
                self.touch(dir);
                Ok(Value::Unit)
            }
            Op::Rename { from, to, flags } => self.rename(from, to, *flags),
            Op::Write { path, offset, len, fill, durable } => {
                let id = self.file(path, true)?;
                self.write(id, *offset, &vec![*fill; *len as usize]);
                self.synced(id, *durable);
                Ok(Value::Unit)
            }
            Op::WriteDirect { path, block, blocks, fill, durable } => {
                let id = self.file(path, true)?;
                self.write(id, block * 4096, &vec![*fill; *blocks as usize * 4096]);
                self.synced(id, *durable);
                Ok(Value::Unit)
            }
            Op::Append { path, len, fill } => {
                let id = self.file(path, true)?;
                let end = self.nodes[&id].data.len() as u64;
                self.write(id, end, &vec![*fill; *len as usize]);
                Ok(Value::Unit)
            }
            Op::Rewrite { path, len, fill, .. } => {
                let id = self.file(path, true)?;
                self.node(id).data = Arc::default();
                self.write(id, 0, &vec![*fill; *len as usize]);
                Ok(Value::Unit)
            }
            Op::Truncate { path, size } => {
                let id = self.file(path, true)?;
                Arc::make_mut(&mut self.node(id).data).resize(*size as usize, 0);
                self.blur(id);
                Ok(Value::Unit)
            }
            Op::Fallocate { path, mode, offset, len } => self.fallocate(path, *mode, *offset, *len),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let source = self.file(from, false)?;
                let target = self.file(to, true)?;
                let data = &self.nodes[&source].data;
                let start = (*from_offset as usize).min(data.len());
                let end = (start + *len as usize).min(data.len());
                let bytes = data[start..end].to_vec();
                // Beyond the end of the source there is nothing that could overlap.
                if source == target && from_offset.abs_diff(*to_offset) < bytes.len() as u64 {
                    return Err(libc::EINVAL);
                }
                if !bytes.is_empty() {
                    self.write(target, *to_offset, &bytes);
                }
                Ok(Value::Unit)
            }
            Op::Tmpfile { dir, path, len, fill } => {
                let id = self.find(dir)?;
                match self.kind(id) {
                    libc::S_IFDIR => {}
                    libc::S_IFLNK => return Err(libc::ELOOP),
                    _ => return Err(libc::ENOTDIR),
                }
                let id = self.insert(path, libc::S_IFREG | 0o644, Some(id))?;
                self.node(id).data = Arc::new(vec![*fill; *len as usize]);
                self.blur(id);
                Ok(Value::Unit)
            }
            Op::Batch { paths, offset, len, fill, .. } => {
                let files = [self.file(&paths[0], true)?, self.file(&paths[1], true)?];
                for id in files {
                    self.write(id, *offset, &vec![*fill; *len as usize]);
                }
                Ok(Value::Unit)
            }
            Op::Fsync { path } | Op::Fdatasync { path } => self.file(path, false).map(|_| Value::Unit),
            Op::FsyncDir { path } => match self.kind(self.find(path)?) {
                libc::S_IFDIR => Ok(Value::Unit),
                libc::S_IFLNK => Err(libc::ENOTDIR),
                _ => Err(libc::ENOTDIR),
            },
            Op::SyncAll => Ok(Value::Unit),
            Op::SetXattr { path, name, len, fill, exists } => {
                let id = self.may_have(path, name)?;
                let has = self.nodes[&id].xattrs.contains_key(name);
                match exists {
                    Exists::No if has => return Err(libc::EEXIST),
                    Exists::Yes if !has => return Err(libc::ENODATA),
                    _ => {}
                }
                self.node(id).xattrs.insert(name.clone(), vec![*fill; *len as usize]);
                Ok(Value::Unit)
            }
            Op::SetAcl { path, default, uid, perm } => {
                let id = self.find(path)?;
                let value = acl::list(*uid, *perm);
                let node = self.node(id);
                match node.kind() {
                    libc::S_IFLNK => return Err(libc::EOPNOTSUPP),
                    libc::S_IFDIR => {}
                    _ if *default => return Err(libc::EACCES),
                    _ => {}
                }
                if !default {
                    node.mode = node.mode & !0o777 | acl::mode(&value);
                }
                node.xattrs.insert(if *default { acl::DEFAULT } else { acl::ACCESS }.into(), value);
                Ok(Value::Unit)
            }
            Op::RemoveXattr { path, name } => {
                let id = self.may_have(path, name)?;
                let removed = self.node(id).xattrs.remove(name);
                let is_list = name == acl::ACCESS || name == acl::DEFAULT;
                if removed.is_some() || is_list { Ok(Value::Unit) } else { Err(libc::ENODATA) }
            }
            Op::Chmod { path, mode } => {
                let id = self.find(path)?;
                if self.kind(id) == libc::S_IFLNK {
                    return Err(libc::EOPNOTSUPP);
                }
                let n = self.node(id);
                n.mode = n.kind() | mode;
                if let Some(list) = n.xattrs.get_mut(acl::ACCESS) {
                    *list = acl::with_mode(list, *mode);
                }
                Ok(Value::Unit)
            }
            Op::Chown { path, uid, gid } => {
                let id = self.find(path)?;
                let n = self.node(id);
                (n.uid, n.gid) = (*uid, *gid);
                if n.kind() != libc::S_IFDIR {
                    n.kill_suid();
                }
                Ok(Value::Unit)
            }
            Op::KillSuid { path } => {
                let id = self.file(path, true)?;
                self.node(id).kill_suid();
                Ok(Value::Unit)
            }
            Op::Utimens { path, atime, mtime } => {
                let id = self.find(path)?;
                self.node(id).set_times(*atime, *mtime);
                Ok(Value::Unit)
            }
            Op::Read { path, offset, len } => {
                let id = self.file(path, false)?;
                let node = self.node(id);
                // Reading may move the access time.
                node.times = None;
                let start = (*offset as usize).min(node.data.len());
                let end = (start + *len as usize).min(node.data.len());
                Ok(Value::Bytes(node.data[start..end].to_vec()))
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str, flags: u32) -> Outcome {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let source = *self.nodes[&from_dir].children.get(from_name).ok_or(libc::ENOENT)?;
        let target = self.nodes[&to_dir].children.get(to_name).copied();
        let is_dir = |m: &Model, id: usize| m.kind(id) == libc::S_IFDIR;
        if flags == libc::RENAME_NOREPLACE && target.is_some() {
            return Err(libc::EEXIST);
        }
        if flags == libc::RENAME_EXCHANGE && target.is_none() {
            return Err(libc::ENOENT);
        }
        if is_dir(self, source) && self.is_below(to_dir, source) {
            return Err(libc::EINVAL);
        }
        if let Some(t) = target
            && is_dir(self, t)
            && self.is_below(from_dir, t)
        {
            return Err(if flags == libc::RENAME_EXCHANGE { libc::EINVAL } else { libc::ENOTEMPTY });
        }
        if Some(source) == target {
            return Ok(Value::Unit);
        }
        if flags == libc::RENAME_EXCHANGE {
            let t = target.ok_or(libc::ENOENT)?;
            self.node(from_dir).children.insert(from_name.into(), t);
            self.node(to_dir).children.insert(to_name.into(), source);
        } else {
            if let Some(t) = target {
                match (is_dir(self, source), is_dir(self, t)) {
                    (true, false) => return Err(libc::ENOTDIR),
                    (false, true) => return Err(libc::EISDIR),
                    (true, true) if !self.nodes[&t].children.is_empty() => return Err(libc::ENOTEMPTY),
                    _ => {}
                }
            }
            self.node(from_dir).children.remove(from_name);
            self.node(to_dir).children.insert(to_name.into(), source);
        }
        self.touch(from_dir);
        self.touch(to_dir);
        self.drop_unnamed();
        Ok(Value::Unit)
    }

    fn fallocate(&mut self, path: &str, mode: Falloc, offset: u64, len: u64) -> Outcome {
        let id = self.file(path, true)?;
        let size = self.nodes[&id].data.len() as u64;
        let aligned = offset.is_multiple_of(4096) && len.is_multiple_of(4096);
        let (start, end) = (offset as usize, (offset + len) as usize);
        let data = Arc::make_mut(&mut self.node(id).data);
        match mode {
            Falloc::Allocate if end > data.len() => data.resize(end, 0),
            Falloc::Allocate | Falloc::AllocateKeep => {}
            Falloc::Punch | Falloc::Zero | Falloc::ZeroKeep => {
                if mode == Falloc::Zero && end > data.len() {
                    data.resize(end, 0);
                }
                let end = end.min(data.len());
                if start < end {
                    data[start..end].fill(0);
                }
            }
            Falloc::Collapse => {
                if !aligned || offset + len >= size {
                    return Err(libc::EINVAL);
                }
                data.drain(start..end);
            }
            Falloc::Insert => {
                if !aligned || offset >= size {
                    return Err(libc::EINVAL);
                }
                data.splice(start..start, std::iter::repeat_n(0, len as usize));
            }
        }
        self.blur(id);
        Ok(Value::Unit)
    }
}
