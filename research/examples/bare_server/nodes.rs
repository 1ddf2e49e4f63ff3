//! Files and names in memory.

use narufs_fuse::operations::NewNode;
use narufs_fuse::session::RequestContext;
use narufs_fuse::types::{Attr, Errno, Result, Time};
use narufs_fuse::wire::ROOT_ID;
use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Default)]
pub struct Node {
    pub attr: Attr,
    pub parent: u64,
    pub target: Vec<u8>,
    /// Names, and their places in the list of the directory.
    pub names: HashMap<Vec<u8>, u64>,
    pub list: BTreeMap<u64, (Vec<u8>, u64)>,
    pub lookups: u64,
}

pub struct Nodes {
    pub all: HashMap<u64, Node>,
    /// The next inode; also the next place in a list, so that places go up.
    pub next: u64,
}

pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

impl Nodes {
    pub fn node(&mut self, id: u64) -> Result<&mut Node> {
        self.all.get_mut(&id).ok_or(Errno(libc::ESTALE))
    }

    pub fn find(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        let node = self.node(parent)?;
        let place = node.names.get(name).ok_or(Errno(libc::ENOENT))?;
        node.list.get(place).map(|(_, id)| *id).ok_or(Errno(libc::EIO))
    }

    pub fn name(&mut self, parent: u64, name: &[u8], id: u64) -> Result<()> {
        let place = self.next + 2;
        self.next += 1;
        let node = self.node(parent)?;
        if node.names.contains_key(name) {
            return Err(Errno(libc::EEXIST));
        }
        node.names.insert(name.to_vec(), place);
        node.list.insert(place, (name.to_vec(), id));
        (node.attr.mtime, node.attr.ctime) = (now(), now());
        Ok(())
    }

    pub fn unname(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        let node = self.node(parent)?;
        let place = node.names.remove(name).ok_or(Errno(libc::ENOENT))?;
        (node.attr.mtime, node.attr.ctime) = (now(), now());
        node.list.remove(&place).map(|(_, id)| id).ok_or(Errno(libc::EIO))
    }

    pub fn make(&mut self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<u64> {
        let (id, time) = (self.next, now());
        self.next += 1;
        self.name(parent, name, id)?;
        let attr = Attr {
            ino: id,
            mode: new.mode & !new.umask,
            // A directory's links are not counted: 1 says so, and find looks into all.
            nlink: 1,
            uid: ctx.uid,
            gid: ctx.gid,
            rdev: new.rdev,
            blksize: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            ..Attr::default()
        };
        self.all.insert(id, Node { attr, parent, ..Node::default() });
        Ok(id)
    }

    pub fn remove(&mut self, parent: u64, name: &[u8], directory: bool) -> Result<()> {
        let id = self.find(parent, name)?;
        let node = self.node(id)?;
        match (node.attr.mode & libc::S_IFMT == libc::S_IFDIR, directory) {
            (true, false) => return Err(Errno(libc::EISDIR)),
            (false, true) => return Err(Errno(libc::ENOTDIR)),
            (true, true) if !node.names.is_empty() => return Err(Errno(libc::ENOTEMPTY)),
            _ => node.attr.nlink -= 1,
        }
        self.unname(parent, name)?;
        self.collect(id);
        Ok(())
    }

    /// A file has bytes up to here.
    pub fn wrote(&mut self, id: u64, end: u64) -> Result<()> {
        let attr = &mut self.node(id)?.attr;
        attr.size = attr.size.max(end);
        (attr.blocks, attr.mtime, attr.ctime) = (attr.size.div_ceil(512), now(), now());
        Ok(())
    }

    pub fn collect(&mut self, id: u64) {
        let unused = |node: &Node| node.attr.nlink == 0 && node.lookups == 0;
        if id != ROOT_ID && self.all.get(&id).is_some_and(unused) {
            self.all.remove(&id);
        }
    }
}
