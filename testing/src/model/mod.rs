//! The reference model: what a POSIX file system does, in maps, for uid 0.

mod apply;
mod show;

use crate::acl;
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shown {
    /// `S_IFMT` and permission bits.
    pub mode: u32,
    /// Names; of a directory its own, ".", and ".." of each subdirectory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device.
    pub rdev: u32,
    /// Content of a file, target of a symlink.
    pub data: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Access and change of content: of a model as utimens set them, if nothing has changed them since.
    pub times: Option<(i64, i64)>,
    /// Of a model: the time of the last change of content is that of a change in this run.
    pub touched: bool,
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
    rdev: u32,
    /// Shared by the copies of a model until one of them changes it.
    data: Arc<Vec<u8>>,
    children: BTreeMap<String, usize>,
    xattrs: BTreeMap<String, Vec<u8>>,
    times: Option<(i64, i64)>,
    touched: bool,
}

impl Node {
    fn new(mode: u32) -> Node {
        Node {
            mode,
            uid: 0,
            gid: 0,
            rdev: 0,
            data: Arc::default(),
            children: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            times: None,
            touched: true,
        }
    }

    fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// What a change by an unprivileged task takes: setuid, and setgid where the group may execute.
    fn kill_suid(&mut self) {
        let setgid = if self.mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
        self.mode &= !(libc::S_ISUID | setgid);
    }
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
        self.nodes.insert(id, Node::new(mode));
        id
    }

    /// What is made next gets this identity, which nothing has had.
    pub(crate) fn next_is(&mut self, id: usize) {
        self.next = id;
    }

    fn node(&mut self, id: usize) -> &mut Node {
        self.nodes.get_mut(&id).expect("ids in the model are never dangling")
    }

    /// The type of what has this identity.
    pub(crate) fn kind(&self, id: usize) -> u32 {
        self.nodes[&id].kind()
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

    /// How often it is named; of a directory its own names, ".", and ".." of each subdirectory.
    pub(crate) fn links(&self, id: usize) -> u32 {
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

    /// Its content has changed now, and so have its times.
    fn touch(&mut self, id: usize) {
        let node = self.node(id);
        (node.times, node.touched) = (None, true);
    }

    /// Its times may have changed.
    fn blur(&mut self, id: usize) {
        let node = self.node(id);
        (node.times, node.touched) = (None, false);
    }

    /// Makes what a path names; its directory, or `from` in its place, hands down group and lists.
    fn insert(&mut self, path: &str, mode: u32, from: Option<usize>) -> Result<usize, i32> {
        let (dir, name) = self.parent(path)?;
        if self.nodes[&dir].children.contains_key(name) {
            return Err(libc::EEXIST);
        }
        let id = self.add(mode);
        let above = self.nodes[&from.unwrap_or(dir)].clone();
        let node = self.node(id);
        if above.mode & libc::S_ISGID != 0 {
            node.gid = above.gid;
            if node.kind() == libc::S_IFDIR {
                node.mode |= libc::S_ISGID;
            }
        }
        if let Some(default) = above.xattrs.get(acl::DEFAULT).filter(|_| node.kind() != libc::S_IFLNK) {
            let both = acl::mode(default) & mode;
            node.mode = node.mode & !0o777 | both;
            node.xattrs.insert(acl::ACCESS.into(), acl::with_mode(default, both));
            if node.kind() == libc::S_IFDIR {
                node.xattrs.insert(acl::DEFAULT.into(), default.clone());
            }
        }
        self.node(dir).children.insert(name.into(), id);
        self.touch(dir);
        Ok(id)
    }

    fn write(&mut self, id: usize, offset: u64, bytes: &[u8]) {
        let data = Arc::make_mut(&mut self.node(id).data);
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if data.len() < end {
            data.resize(end, 0);
        }
        data[start..end].copy_from_slice(bytes);
        // Recorded with its data, and by fsync alone.
        self.blur(id);
    }
}
