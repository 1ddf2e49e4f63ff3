//! A small file system in memory, to test the mount without the engine.
//!
//! Beside the usual it has: a file named `gate`, whose reads wait until the test opens the gate; a name, `damaged`, that
//! no listing comes past; whole-file flock locks whose waiters can be seen; and group permission checked by
//! supplementary groups.

mod operations;

use narufs_fuse::operations::NewNode;
use narufs_fuse::session::{LockReply, RequestContext};
use narufs_fuse::types::*;
use narufs_fuse::wire::{OpenFlags, ROOT_ID};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

const KEPT: Duration = Duration::from_secs(3600);
const DAMAGED: &[u8] = b"damaged";

#[derive(Default)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    parent: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    lookups: u64,
    opens: u64,
}

#[derive(Default)]
struct Locks {
    held: HashMap<u64, u64>,
    waiting: Vec<(u64, u64, LockReply)>,
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
}

/// The file system.
pub struct MemFs {
    state: Mutex<State>,
    locks: Mutex<Locks>,
    /// A lock has begun to wait.
    queued: Condvar,
    gate: Mutex<Gate>,
    gate_moved: Condvar,
    /// The flags for files that are opened.
    open_flags: OpenFlags,
}

#[derive(Default)]
struct Gate {
    open: bool,
    waiting: usize,
    destroyed: bool,
    syncs: usize,
}

fn err<T>(errno: i32) -> Result<T> {
    Err(Errno(errno))
}

impl State {
    fn node(&mut self, id: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&id).ok_or(Errno(libc::ESTALE))
    }

    fn dir(&mut self, id: u64) -> Result<&mut Node> {
        let node = self.node(id)?;
        if node.attr.mode & libc::S_IFMT == libc::S_IFDIR { Ok(node) } else { err(libc::ENOTDIR) }
    }

    fn find(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        self.dir(parent)?.names.get(name).copied().ok_or(Errno(libc::ENOENT))
    }

    fn entry(&mut self, id: u64) -> Result<Entry> {
        let node = self.node(id)?;
        node.lookups += 1;
        let attr = node.attr;
        Ok(Entry { nodeid: id, generation: 1, attr, entry_timeout: KEPT, attr_timeout: KEPT })
    }

    fn make(
        &mut self,
        ctx: &RequestContext<'_>,
        parent: u64,
        name: Option<&[u8]>,
        new: &NewNode,
    ) -> Result<u64> {
        let id = self.next;
        if let Some(name) = name {
            let dir = self.dir(parent)?;
            if dir.names.contains_key(name) {
                return err(libc::EEXIST);
            }
            dir.names.insert(name.to_vec(), id);
        }
        self.next += 1;
        let mode = new.mode & !new.umask;
        let nlink = u32::from(name.is_some());
        let attr = Attr {
            ino: id,
            mode,
            nlink,
            uid: ctx.uid,
            gid: ctx.gid,
            rdev: new.rdev,
            blksize: 4096,
            ..Attr::default()
        };
        self.nodes.insert(id, Node { attr, parent, ..Node::default() });
        Ok(id)
    }

    fn remove(&mut self, parent: u64, name: &[u8], directory: bool) -> Result<()> {
        let id = self.find(parent, name)?;
        let node = self.node(id)?;
        let is_dir = node.attr.mode & libc::S_IFMT == libc::S_IFDIR;
        match (is_dir, directory) {
            (true, false) => return err(libc::EISDIR),
            (false, true) => return err(libc::ENOTDIR),
            (true, true) if !node.names.is_empty() => return err(libc::ENOTEMPTY),
            _ => {}
        }
        node.attr.nlink -= 1;
        self.dir(parent)?.names.remove(name);
        self.collect(id);
        Ok(())
    }

    fn collect(&mut self, id: u64) {
        let unused = |node: &Node| node.attr.nlink == 0 && node.lookups == 0 && node.opens == 0;
        if id != ROOT_ID && self.nodes.get(&id).is_some_and(unused) {
            self.nodes.remove(&id);
        }
    }
}

impl MemFs {
    pub fn new(open_flags: OpenFlags) -> Self {
        let attr =
            Attr { ino: ROOT_ID, mode: libc::S_IFDIR | 0o777, nlink: 2, blksize: 4096, ..Attr::default() };
        let root = Node { attr, parent: ROOT_ID, ..Node::default() };
        MemFs {
            state: Mutex::new(State { nodes: HashMap::from([(ROOT_ID, root)]), next: 2 }),
            locks: Mutex::default(),
            queued: Condvar::new(),
            gate: Mutex::default(),
            gate_moved: Condvar::new(),
            open_flags,
        }
    }

    /// Waits until so many reads stand before the gate.
    pub fn wait_for_readers(&self, count: usize) {
        let mut gate = self.gate.lock();
        while gate.waiting < count {
            self.gate_moved.wait(&mut gate);
        }
    }

    pub fn open_gate(&self) {
        self.gate.lock().open = true;
        self.gate_moved.notify_all();
    }

    pub fn is_destroyed(&self) -> bool {
        self.gate.lock().destroyed
    }

    pub fn syncs(&self) -> usize {
        self.gate.lock().syncs
    }

    /// Waits until so many locks wait.
    pub fn wait_for_lockers(&self, count: usize) {
        let mut locks = self.locks.lock();
        while locks.waiting.len() != count {
            self.queued.wait(&mut locks);
        }
    }

    /// How often an inode has been looked up and opened and not yet given back.
    pub fn references(&self, nodeid: u64) -> u64 {
        self.state.lock().node(nodeid).map_or(0, |node| node.lookups + node.opens)
    }

    /// Replaces a file's data behind the kernel's back; gives its number.
    pub fn replace(&self, name: &[u8], data: &[u8]) -> u64 {
        let mut state = self.state.lock();
        let id = state.find(ROOT_ID, name).expect("the file");
        let node = state.node(id).expect("the file");
        node.data = data.to_vec();
        node.attr.size = data.len() as u64;
        id
    }

    fn opened(&self, state: &mut State, id: u64) -> Result<Opened> {
        state.node(id)?.opens += 1;
        Ok(Opened { fh: id, flags: self.open_flags })
    }

    fn close(&self, id: u64) {
        let mut state = self.state.lock();
        if let Some(node) = state.nodes.get_mut(&id) {
            node.opens = node.opens.checked_sub(1).expect("no more is closed than was opened");
            state.collect(id);
        }
    }

    fn unlock(&self, mut locks: MutexGuard<'_, Locks>, node: u64, owner: u64) {
        if locks.held.get(&node) != Some(&owner) {
            return;
        }
        locks.held.remove(&node);
        while let Some(at) = locks.waiting.iter().position(|(other, ..)| *other == node) {
            let (_, owner, reply) = locks.waiting.remove(at);
            self.queued.notify_all();
            if reply.granted() {
                locks.held.insert(node, owner);
                return;
            }
        }
    }
}

fn stamp(node: &mut Node) {
    node.attr.size = node.data.len() as u64;
    node.attr.blocks = node.attr.size.div_ceil(512);
    node.attr.mtime.secs += 1;
}
