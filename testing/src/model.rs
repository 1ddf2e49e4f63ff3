//! The reference model: what a POSIX file system does, in maps, for uid 0.

use crate::op::{Falloc, Op};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an operation answers: a count of bytes, bytes read, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Unit,
    /// Bytes.
    Bytes(Vec<u8>),
}

/// An answer, or an errno.
pub type Outcome = Result<Value, i32>;

/// What one name shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// `S_IFMT` and permission bits.
    pub mode: u32,
    /// Names; of a directory its own, ".", and ".." of each subdirectory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Content of a file, target of a symlink.
    pub data: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Set by utimens and not changed since.
    pub times: Option<(i64, i64)>,
    /// The first path, in order, of the same inode: shows which names are links.
    pub same_as: String,
}

/// A whole tree, by path.
pub type Tree = BTreeMap<String, Shown>;

#[derive(Debug, Clone)]
struct Node {
    mode: u32,
    uid: u32,
    gid: u32,
    /// Shared by the copies of a model until one of them changes it.
    data: Arc<Vec<u8>>,
    children: BTreeMap<String, usize>,
    xattrs: BTreeMap<String, Vec<u8>>,
    times: Option<(i64, i64)>,
}

/// The model.
#[derive(Debug, Clone)]
pub struct Model {
    nodes: BTreeMap<usize, Node>,
    next: usize,
}

const ROOT: usize = 0;

impl Default for Model {
    fn default() -> Self {
        let mut m = Model { nodes: BTreeMap::new(), next: 0 };
        m.add(libc::S_IFDIR | 0o755);
        m
    }
}

impl Model {
    fn add(&mut self, mode: u32) -> usize {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(
            id,
            Node {
                mode,
                uid: 0,
                gid: 0,
                data: Arc::default(),
                children: BTreeMap::new(),
                xattrs: BTreeMap::new(),
                times: None,
            },
        );
        id
    }

    fn node(&mut self, id: usize) -> &mut Node {
        self.nodes.get_mut(&id).expect("ids in the model are never dangling")
    }

    fn kind(&self, id: usize) -> u32 {
        self.nodes[&id].mode & libc::S_IFMT
    }

    /// The directory and last name of a path; symlinks are not followed in the generated paths' middles.
    fn parent<'p>(&self, path: &'p str) -> Result<(usize, &'p str), i32> {
        let (dir, name) = path.rsplit_once('/').ok_or(libc::EINVAL)?;
        let mut at = ROOT;
        for part in dir.split('/').filter(|p| !p.is_empty()) {
            at = self.step(at, part, 0)?;
            if self.kind(at) != libc::S_IFDIR {
                return Err(libc::ENOTDIR);
            }
        }
        Ok((at, name))
    }

    /// One component, through symlinks (their targets are absolute).
    fn step(&self, dir: usize, name: &str, depth: u32) -> Result<usize, i32> {
        if depth > 40 {
            return Err(libc::ELOOP);
        }
        let id = *self.nodes[&dir].children.get(name).ok_or(libc::ENOENT)?;
        if self.kind(id) == libc::S_IFLNK {
            let target = String::from_utf8_lossy(&self.nodes[&id].data).into_owned();
            return self.walk(&target, depth + 1);
        }
        Ok(id)
    }

    fn walk(&self, path: &str, depth: u32) -> Result<usize, i32> {
        let mut at = ROOT;
        for part in path.split('/').filter(|p| !p.is_empty()) {
            if self.kind(at) != libc::S_IFDIR {
                return Err(libc::ENOTDIR);
            }
            at = self.step(at, part, depth)?;
        }
        Ok(at)
    }

    /// The inode of a path without following a symlink at its end.
    fn find(&self, path: &str) -> Result<usize, i32> {
        if path == "/" {
            return Ok(ROOT);
        }
        let (dir, name) = self.parent(path)?;
        self.nodes[&dir].children.get(name).copied().ok_or(libc::ENOENT)
    }

    /// As `open(path, O_NOFOLLOW | flags)` of a regular file for the generated operations.
    fn file(&self, path: &str, writes: bool) -> Result<usize, i32> {
        let id = self.find(path)?;
        match self.kind(id) {
            libc::S_IFREG => Ok(id),
            libc::S_IFLNK => Err(libc::ELOOP),
            libc::S_IFDIR if writes => Err(libc::EISDIR),
            libc::S_IFDIR => Err(libc::EISDIR),
            _ => Err(libc::ENXIO),
        }
    }

    fn links(&self, id: usize) -> u32 {
        let names: usize =
            self.nodes.values().map(|n| n.children.values().filter(|c| **c == id).count()).sum();
        if self.kind(id) == libc::S_IFDIR {
            let below =
                self.nodes[&id].children.values().filter(|c| self.kind(**c) == libc::S_IFDIR).count() as u32;
            return 2 + below;
        }
        names as u32
    }

    fn drop_unnamed(&mut self) {
        let named: Vec<usize> =
            self.nodes.values().flat_map(|n| n.children.values().copied()).chain([ROOT]).collect();
        self.nodes.retain(|id, _| named.contains(id));
    }

    fn is_below(&self, id: usize, ancestor: usize) -> bool {
        id == ancestor || self.nodes[&ancestor].children.values().any(|c| self.is_below(id, *c))
    }

    fn touch(&mut self, id: usize) {
        self.node(id).times = None;
    }

    fn insert(&mut self, path: &str, mode: u32, data: Vec<u8>) -> Outcome {
        let (dir, name) = self.parent(path)?;
        if self.nodes[&dir].children.contains_key(name) {
            return Err(libc::EEXIST);
        }
        let id = self.add(mode);
        self.node(id).data = Arc::new(data);
        self.node(dir).children.insert(name.into(), id);
        self.touch(dir);
        Ok(Value::Unit)
    }

    fn write(&mut self, id: usize, offset: u64, bytes: &[u8]) {
        let data = Arc::make_mut(&mut self.node(id).data);
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if data.len() < end {
            data.resize(end, 0);
        }
        data[start..end].copy_from_slice(bytes);
        self.touch(id);
    }

    /// Does an operation.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Create { path, exclusive } => match self.find(path) {
                Ok(_) if *exclusive => Err(libc::EEXIST),
                Ok(_) => self.file(path, true).map(|_| Value::Unit),
                Err(libc::ENOENT) => self.insert(path, libc::S_IFREG | 0o644, Vec::new()),
                Err(e) => Err(e),
            },
            Op::Mkdir { path } => self.insert(path, libc::S_IFDIR | 0o755, Vec::new()),
            Op::Mkfifo { path } => self.insert(path, libc::S_IFIFO | 0o644, Vec::new()),
            Op::Symlink { target, path } => {
                self.insert(path, libc::S_IFLNK | 0o777, target.clone().into_bytes())
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
            Op::Write { path, offset, len, fill, .. } => {
                let id = self.file(path, true)?;
                self.write(id, *offset, &vec![*fill; *len as usize]);
                Ok(Value::Unit)
            }
            Op::WriteDirect { path, block, blocks, fill } => {
                let id = self.file(path, true)?;
                self.write(id, block * 4096, &vec![*fill; *blocks as usize * 4096]);
                Ok(Value::Unit)
            }
            Op::Append { path, len, fill } => {
                let id = self.file(path, true)?;
                let end = self.nodes[&id].data.len() as u64;
                self.write(id, end, &vec![*fill; *len as usize]);
                Ok(Value::Unit)
            }
            Op::Rewrite { path, len, fill } => {
                let id = self.file(path, true)?;
                self.node(id).data = Arc::default();
                self.write(id, 0, &vec![*fill; *len as usize]);
                Ok(Value::Unit)
            }
            Op::Truncate { path, size } => {
                let id = self.file(path, true)?;
                Arc::make_mut(&mut self.node(id).data).resize(*size as usize, 0);
                self.touch(id);
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
                self.insert(path, libc::S_IFREG | 0o644, vec![*fill; *len as usize])
            }
            Op::Fsync { path } | Op::Fdatasync { path } => self.file(path, false).map(|_| Value::Unit),
            Op::FsyncDir { path } => match self.kind(self.find(path)?) {
                libc::S_IFDIR => Ok(Value::Unit),
                libc::S_IFLNK => Err(libc::ENOTDIR),
                _ => Err(libc::ENOTDIR),
            },
            Op::SyncAll => Ok(Value::Unit),
            Op::SetXattr { path, name, len, fill } => {
                let id = self.find(path)?;
                if !matches!(self.kind(id), libc::S_IFREG | libc::S_IFDIR) {
                    return Err(libc::EPERM);
                }
                self.node(id).xattrs.insert(name.clone(), vec![*fill; *len as usize]);
                Ok(Value::Unit)
            }
            Op::RemoveXattr { path, name } => {
                let id = self.find(path)?;
                if !matches!(self.kind(id), libc::S_IFREG | libc::S_IFDIR) {
                    return Err(libc::EPERM);
                }
                self.node(id).xattrs.remove(name).map(|_| Value::Unit).ok_or(libc::ENODATA)
            }
            Op::Chmod { path, mode } => {
                let id = self.find(path)?;
                if self.kind(id) == libc::S_IFLNK {
                    return Err(libc::EOPNOTSUPP);
                }
                let n = self.node(id);
                n.mode = n.mode & libc::S_IFMT | mode;
                Ok(Value::Unit)
            }
            Op::Chown { path, uid, gid } => {
                let id = self.find(path)?;
                let n = self.node(id);
                (n.uid, n.gid) = (*uid, *gid);
                Ok(Value::Unit)
            }
            Op::Utimens { path, atime, mtime } => {
                let id = self.find(path)?;
                self.node(id).times = Some((*atime, *mtime));
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
        self.touch(id);
        Ok(Value::Unit)
    }

    /// The identity of what a path names, without following a symlink at its end; it is never used again.
    pub fn identity(&self, path: &str) -> Option<usize> {
        self.find(path).ok()
    }

    /// The content of the regular file with an identity, if it exists.
    pub fn content(&self, id: usize) -> Option<&Arc<Vec<u8>>> {
        self.nodes.get(&id).filter(|n| n.mode & libc::S_IFMT == libc::S_IFREG).map(|n| &n.data)
    }

    /// The times that utimens set, if nothing has changed them since.
    pub fn times(&self, path: &str) -> Option<(i64, i64)> {
        self.find(path).ok().and_then(|id| self.nodes[&id].times)
    }

    /// Some path of an inode.
    pub fn path_of(&self, id: usize) -> Option<String> {
        self.path_below("", ROOT, id)
    }

    fn path_below(&self, path: &str, dir: usize, id: usize) -> Option<String> {
        if dir == id {
            return Some(if path.is_empty() { "/".into() } else { path.into() });
        }
        let children = &self.nodes[&dir].children;
        children.iter().find_map(|(name, child)| self.path_below(&format!("{path}/{name}"), *child, id))
    }

    /// Identities of all regular files.
    pub fn files(&self) -> Vec<usize> {
        self.nodes.keys().copied().filter(|id| self.kind(*id) == libc::S_IFREG).collect()
    }

    /// Everything there is to see.
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut first = BTreeMap::new();
        self.show("/", ROOT, &mut tree, &mut first);
        let names: BTreeMap<usize, String> = first
            .iter()
            .map(|(id, paths): (&usize, &Vec<String>)| (*id, paths.iter().min().cloned().unwrap_or_default()))
            .collect();
        for (id, paths) in &first {
            for p in paths {
                if let Some(s) = tree.get_mut(p) {
                    s.same_as = names[id].clone();
                }
            }
        }
        tree
    }

    fn show(&self, path: &str, id: usize, tree: &mut Tree, first: &mut BTreeMap<usize, Vec<String>>) {
        let n = &self.nodes[&id];
        first.entry(id).or_default().push(path.into());
        tree.insert(
            path.into(),
            Shown {
                mode: n.mode,
                nlink: self.links(id),
                uid: n.uid,
                gid: n.gid,
                data: n.data.to_vec(),
                xattrs: n.xattrs.clone(),
                times: n.times,
                same_as: String::new(),
            },
        );
        for (name, child) in &n.children {
            let below = if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
            self.show(&below, *child, tree, first);
        }
    }
}
