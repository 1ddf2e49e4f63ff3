//! What FUSE itself costs: a server that answers at once. Names and attributes are in memory, what is written is
//! dropped and counted, reads give zeros; so tar, find, cp and rm take what the kernel, the transport and the programs
//! take, and a mount of narufs what its engine takes on top.
//!
//! ```sh
//! cargo run --release -p narufs-research --example bare_server -- DIR [-o OPTION,...]
//! ```
//!
//! It serves until DIR is unmounted, and says then how often the kernel has asked for what. Options:
//!
//! - `transport=auto|dev|uring`: the way of requests
//! - `data=through|back|direct`: reads from the kernel's pages and each write a request; writes into them too; neither
//! - `no-names`, `no-attributes`, `no-lists`: the kernel keeps no names, no attributes, no lists of directories
//! - `no-opens`: OPEN and CREATE are not served, so that the kernel makes files by MKNOD and opens them by itself
//! - `default_permissions`: the kernel checks permissions; otherwise nobody does
//! - `xattr`: extended attributes and access lists are served, as if no file had any; what is set is dropped
//!
//! What this leaves to others: files of more than one name are counted right, but nothing else is proved here; a file
//! system in memory for tests is in fuse/tests/mount.

use narufs_fuse::control::STATS;
use narufs_fuse::mount::{FuseOptions, Permissions, Transport};
use narufs_fuse::operations::{Ioctl, NewNode, Release, Write};
use narufs_fuse::session::{Features, RequestContext};
use narufs_fuse::types::{Attr, Attributes, Entry, Errno, Opened, Result, SetAttr, SetTime, Time};
use narufs_fuse::wire::dirent::DirSink;
use narufs_fuse::wire::{CopyFileRangeIn, OpenFlags, ROOT_ID, ReadIn, StatfsOut};
use narufs_fuse::{Operations, Server, ServerConfig};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is counted: requests by what they ask for, and bytes that were written.
const ASKED: [&str; 19] = [
    "lookup",
    "forget",
    "getattr",
    "setattr",
    "readlink",
    "make",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "open",
    "read",
    "write",
    "release",
    "opendir",
    "readdir",
    "xattr",
    "copy",
    "bytes written",
];
/// The place of the bytes.
const WRITTEN: usize = ASKED.len() - 1;

#[derive(Default)]
struct Node {
    attr: Attr,
    parent: u64,
    target: Vec<u8>,
    /// Names, and their places in the list of the directory.
    names: HashMap<Vec<u8>, u64>,
    list: BTreeMap<u64, (Vec<u8>, u64)>,
    lookups: u64,
}

struct Nodes {
    all: HashMap<u64, Node>,
    /// The next inode; also the next place in a list, so that places go up.
    next: u64,
}

struct Bare {
    nodes: Mutex<Nodes>,
    counts: [AtomicU64; ASKED.len()],
    names: Duration,
    attributes: Duration,
    opened: OpenFlags,
    opens: bool,
    lists: AtomicBool,
    xattr: bool,
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

impl Nodes {
    fn node(&mut self, id: u64) -> Result<&mut Node> {
        self.all.get_mut(&id).ok_or(Errno(libc::ESTALE))
    }

    fn find(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        let node = self.node(parent)?;
        let place = node.names.get(name).ok_or(Errno(libc::ENOENT))?;
        node.list.get(place).map(|(_, id)| *id).ok_or(Errno(libc::EIO))
    }

    fn name(&mut self, parent: u64, name: &[u8], id: u64) -> Result<()> {
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

    fn unname(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        let node = self.node(parent)?;
        let place = node.names.remove(name).ok_or(Errno(libc::ENOENT))?;
        (node.attr.mtime, node.attr.ctime) = (now(), now());
        node.list.remove(&place).map(|(_, id)| id).ok_or(Errno(libc::EIO))
    }

    fn make(&mut self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<u64> {
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

    fn remove(&mut self, parent: u64, name: &[u8], directory: bool) -> Result<()> {
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
    fn wrote(&mut self, id: u64, end: u64) -> Result<()> {
        let attr = &mut self.node(id)?.attr;
        attr.size = attr.size.max(end);
        (attr.blocks, attr.mtime, attr.ctime) = (attr.size.div_ceil(512), now(), now());
        Ok(())
    }

    fn collect(&mut self, id: u64) {
        let unused = |node: &Node| node.attr.nlink == 0 && node.lookups == 0;
        if id != ROOT_ID && self.all.get(&id).is_some_and(unused) {
            self.all.remove(&id);
        }
    }
}

impl Bare {
    fn new(options: &Options) -> Bare {
        let attr =
            Attr { ino: ROOT_ID, mode: libc::S_IFDIR | 0o755, nlink: 1, blksize: 4096, ..Attr::default() };
        let root = Node { attr, parent: ROOT_ID, ..Node::default() };
        Bare {
            nodes: Mutex::new(Nodes { all: HashMap::from([(ROOT_ID, root)]), next: ROOT_ID + 1 }),
            counts: Default::default(),
            names: options.names,
            attributes: options.attributes,
            opened: options.opened,
            opens: options.opens,
            lists: AtomicBool::new(options.lists),
            xattr: options.mount.xattr,
        }
    }

    fn asked(&self, what: &str) -> MutexGuard<'_, Nodes> {
        self.count(what, 1);
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, what: &str, by: u64) {
        let at = ASKED.iter().position(|known| *known == what);
        // Relaxed: nothing is handed over with a count; it is read when all threads have ended.
        at.map(|at| self.counts[at].fetch_add(by, Ordering::Relaxed));
    }

    fn serves_xattr(&self) -> Result<()> {
        self.count("xattr", 1);
        if self.xattr { Ok(()) } else { Err(Errno(libc::ENOSYS)) }
    }

    fn entry(&self, nodes: &mut Nodes, id: u64) -> Result<Entry> {
        let node = nodes.node(id)?;
        node.lookups += 1;
        let (entry_timeout, attr_timeout) = (self.names, self.attributes);
        Ok(Entry { nodeid: id, generation: 1, attr: node.attr, entry_timeout, attr_timeout })
    }
}

impl Operations for Bare {
    fn init(&self, features: &Features) {
        if !features.no_opendir() {
            // Relaxed: the mount's threads are started afterwards.
            self.lists.store(false, Ordering::Relaxed);
        }
    }

    fn lookup(&self, _: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<Entry> {
        let mut nodes = self.asked("lookup");
        match nodes.find(parent, name) {
            Ok(id) => self.entry(&mut nodes, id),
            Err(Errno(libc::ENOENT)) if !self.names.is_zero() => Ok(Entry::negative(self.names)),
            Err(e) => Err(e),
        }
    }

    fn forget(&self, nodeid: u64, count: u64) {
        let mut nodes = self.asked("forget");
        if let Ok(node) = nodes.node(nodeid) {
            node.lookups = node.lookups.saturating_sub(count);
            nodes.collect(nodeid);
        }
    }

    fn getattr(&self, _: &RequestContext<'_>, nodeid: u64, _: Option<u64>) -> Result<Attributes> {
        Ok(Attributes { attr: self.asked("getattr").node(nodeid)?.attr, timeout: self.attributes })
    }

    fn setattr(&self, _: &RequestContext<'_>, nodeid: u64, change: &SetAttr) -> Result<Attributes> {
        let mut nodes = self.asked("setattr");
        let attr = &mut nodes.node(nodeid)?.attr;
        let time = |of: Option<SetTime>, old: Time| match of {
            Some(SetTime::At(time)) => time,
            Some(SetTime::Now) => now(),
            None => old,
        };
        if let Some(mode) = change.mode {
            attr.mode = attr.mode & libc::S_IFMT | mode & 0o7777;
        }
        if let Some(size) = change.size {
            (attr.size, attr.blocks, attr.mtime) = (size, size.div_ceil(512), now());
        }
        (attr.uid, attr.gid) = (change.uid.unwrap_or(attr.uid), change.gid.unwrap_or(attr.gid));
        (attr.atime, attr.mtime) = (time(change.atime, attr.atime), time(change.mtime, attr.mtime));
        attr.ctime = now();
        Ok(Attributes { attr: *attr, timeout: self.attributes })
    }

    fn readlink(&self, _: &RequestContext<'_>, nodeid: u64) -> Result<Vec<u8>> {
        Ok(self.asked("readlink").node(nodeid)?.target.clone())
    }

    fn symlink(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        let mut nodes = self.asked("make");
        let id =
            nodes.make(ctx, parent, name, &NewNode { mode: libc::S_IFLNK | 0o777, umask: 0, rdev: 0 })?;
        let node = nodes.node(id)?;
        (node.target, node.attr.size) = (target.to_vec(), target.len() as u64);
        self.entry(&mut nodes, id)
    }

    fn mknod(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry> {
        let mut nodes = self.asked("make");
        let id = nodes.make(ctx, parent, name, new)?;
        self.entry(&mut nodes, id)
    }

    fn mkdir(&self, ctx: &RequestContext<'_>, parent: u64, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.mknod(ctx, parent, name, &NewNode { mode: new.mode | libc::S_IFDIR, ..*new })
    }

    fn unlink(&self, _: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()> {
        self.asked("unlink").remove(parent, name, false)
    }

    fn rmdir(&self, _: &RequestContext<'_>, parent: u64, name: &[u8]) -> Result<()> {
        self.asked("rmdir").remove(parent, name, true)
    }

    fn rename(&self, _: &RequestContext<'_>, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<()> {
        let mut nodes = self.asked("rename");
        let id = nodes.find(from.0, from.1)?;
        match (nodes.find(to.0, to.1), flags) {
            (_, flags) if flags & !libc::RENAME_NOREPLACE != 0 => return Err(Errno(libc::EINVAL)),
            (Ok(_), libc::RENAME_NOREPLACE) => return Err(Errno(libc::EEXIST)),
            (Ok(other), _) if other == id => return Ok(()),
            (Ok(_), _) => {
                let directory = nodes.node(id)?.attr.mode & libc::S_IFMT == libc::S_IFDIR;
                nodes.remove(to.0, to.1, directory)?;
            }
            (Err(_), _) => {}
        }
        nodes.unname(from.0, from.1)?;
        nodes.node(id)?.parent = to.0;
        nodes.name(to.0, to.1, id)
    }

    fn link(&self, _: &RequestContext<'_>, nodeid: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        let mut nodes = self.asked("link");
        nodes.name(parent, name, nodeid)?;
        nodes.node(nodeid)?.attr.nlink += 1;
        self.entry(&mut nodes, nodeid)
    }

    fn open(&self, _: &RequestContext<'_>, _: u64, _: i32, _: bool) -> Result<Opened> {
        self.count("open", 1);
        if self.opens { Ok(Opened { fh: 0, flags: self.opened }) } else { Err(Errno(libc::ENOSYS)) }
    }

    fn create(
        &self,
        ctx: &RequestContext<'_>,
        parent: u64,
        name: &[u8],
        new: &NewNode,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        if !self.opens {
            return Err(Errno(libc::ENOSYS));
        }
        let mut nodes = self.asked("make");
        let id = match nodes.find(parent, name) {
            Ok(_) if flags & libc::O_EXCL != 0 => return Err(Errno(libc::EEXIST)),
            Ok(id) => id,
            Err(_) => nodes.make(ctx, parent, name, new)?,
        };
        Ok((self.entry(&mut nodes, id)?, Opened { fh: 0, flags: self.opened }))
    }

    fn read(&self, _: &RequestContext<'_>, nodeid: u64, read: &ReadIn, buffer: &mut [u8]) -> Result<usize> {
        let size = self.asked("read").node(nodeid)?.attr.size;
        let len = (size.saturating_sub(read.offset)).min(buffer.len() as u64) as usize;
        buffer[..len].fill(0);
        Ok(len)
    }

    fn write(&self, _: &RequestContext<'_>, nodeid: u64, write: &Write, data: &[u8]) -> Result<usize> {
        self.asked("write").wrote(nodeid, write.offset + data.len() as u64)?;
        self.count("bytes written", data.len() as u64);
        Ok(data.len())
    }

    fn release(&self, _: u64, _: &Release) {
        self.count("release", 1);
    }

    fn fsync(&self, _: &RequestContext<'_>, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn opendir(&self, _: &RequestContext<'_>, _: u64, _: i32) -> Result<Opened> {
        self.count("opendir", 1);
        // Relaxed: see `init`.
        let kept = self.lists.load(Ordering::Relaxed);
        if kept { Err(Errno(libc::ENOSYS)) } else { Ok(Opened::default()) }
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        nodeid: u64,
        _: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<()> {
        let mut nodes = self.asked("readdir");
        let parent = nodes.node(nodeid)?.parent;
        for (place, name, id) in [(1, &b"."[..], nodeid), (2, b"..", parent)] {
            if offset < place && !sink.push(id, place, libc::DT_DIR, name) {
                return Ok(());
            }
        }
        let after = nodes.node(nodeid)?.list.range(offset.max(2) + 1..);
        let after: Vec<_> = after.take(2048).map(|(place, (name, id))| (*place, name.clone(), *id)).collect();
        for (place, name, id) in after {
            if !sink.fits(name.len()) {
                break;
            }
            let kind = (nodes.node(id)?.attr.mode >> 12) as u8 & 15;
            let pushed = match sink.is_plus() {
                true => sink.push_entry(&self.entry(&mut nodes, id)?, place, &name),
                false => sink.push(id, place, kind, &name),
            };
            if !pushed {
                break;
            }
        }
        Ok(())
    }

    fn releasedir(&self, _: u64, _: &Release) {}

    fn fsyncdir(&self, _: &RequestContext<'_>, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn syncfs(&self, _: &RequestContext<'_>, _: u64) -> Result<()> {
        Ok(())
    }

    fn setxattr(&self, _: &RequestContext<'_>, _: u64, _: &[u8], _: &[u8], _: i32, _: bool) -> Result<()> {
        self.serves_xattr()
    }

    fn getxattr(&self, _: &RequestContext<'_>, _: u64, _: &[u8]) -> Result<Vec<u8>> {
        self.serves_xattr()?;
        Err(Errno(libc::ENODATA))
    }

    fn listxattr(&self, _: &RequestContext<'_>, _: u64) -> Result<Vec<u8>> {
        self.serves_xattr().map(|()| Vec::new())
    }

    fn removexattr(&self, ctx: &RequestContext<'_>, nodeid: u64, name: &[u8]) -> Result<()> {
        self.getxattr(ctx, nodeid, name).map(drop)
    }

    fn copy_file_range(&self, _: &RequestContext<'_>, nodeid: u64, copy: &CopyFileRangeIn) -> Result<u64> {
        let mut nodes = self.asked("copy");
        let len = nodes.node(nodeid)?.attr.size.saturating_sub(copy.off_in).min(copy.len);
        nodes.wrote(copy.nodeid_out, copy.off_out + len)?;
        Ok(len)
    }

    /// `narufs stats` and `narufs bench` are told the counts; their own questions are not among them.
    fn ioctl(&self, _: &RequestContext<'_>, _: u64, call: &Ioctl<'_>) -> Result<Vec<u8>> {
        if call.command != STATS {
            return Err(Errno(libc::ENOTTY));
        }
        // Relaxed: a count that is being raised may be the old one.
        let count =
            |(name, count): (&&str, &AtomicU64)| format!("\"{name}\":{}", count.load(Ordering::Relaxed));
        let requests: Vec<String> = ASKED.iter().zip(&self.counts).take(WRITTEN).map(count).collect();
        Ok(format!("{{\"requests\":{{{}}}}}\0", requests.join(",")).into_bytes())
    }

    fn statfs(&self, _: &RequestContext<'_>, _: u64) -> Result<StatfsOut> {
        let (many, bsize) = (1 << 30, 4096);
        Ok(StatfsOut {
            blocks: many,
            bfree: many,
            bavail: many,
            files: many,
            ffree: many,
            bsize,
            namelen: 255,
            frsize: bsize,
            padding: 0,
            spare: [0; 6],
        })
    }
}

struct Options {
    mount: FuseOptions,
    config: ServerConfig,
    names: Duration,
    attributes: Duration,
    opened: OpenFlags,
    opens: bool,
    lists: bool,
}

impl Options {
    fn parse(words: &str) -> std::result::Result<Options, String> {
        let kept = Duration::from_secs(3600);
        let mut options = Options {
            mount: FuseOptions { permissions: Some(Permissions::Server), ..FuseOptions::new("bare") },
            config: ServerConfig::default(),
            names: kept,
            attributes: kept,
            opened: OpenFlags::KEEP_CACHE | OpenFlags::NOFLUSH,
            opens: true,
            lists: true,
        };
        options.mount.xattr = false;
        for word in words.split(',').filter(|word| !word.is_empty()) {
            match word {
                "data=through" => {}
                "data=back" => options.config.session.writeback_cache = true,
                "data=direct" => options.opened = OpenFlags::DIRECT_IO | OpenFlags::PARALLEL_DIRECT_WRITES,
                "no-names" => options.names = Duration::ZERO,
                "no-attributes" => options.attributes = Duration::ZERO,
                "no-lists" => options.lists = false,
                "no-opens" => options.opens = false,
                "xattr" => (options.mount.xattr, options.config.session.posix_acl) = (true, true),
                "default_permissions" => options.mount.permissions = Some(Permissions::Kernel),
                other => match other.strip_prefix("transport=").and_then(Transport::from_name) {
                    Some(transport) => options.mount.transport = transport,
                    None => return Err(format!("{other}: no such option")),
                },
            }
        }
        Ok(options)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (dir, options) = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [dir] => (*dir, ""),
        [dir, "-o", options] => (*dir, *options),
        _ => {
            return Err(
                "bare_server DIR [-o transport=,data=,no-names,no-attributes,no-lists,no-opens]".into()
            );
        }
    };
    let options = Options::parse(options)?;
    let bare = Arc::new(Bare::new(&options));
    let dir = Path::new(dir).canonicalize()?;
    let server = Server::start(Arc::clone(&bare), &dir, &options.mount, &options.config)?;
    println!("{} is served, transport={}", dir.display(), server.transport().name());
    server.wait();
    for (name, count) in ASKED.iter().zip(&bare.counts) {
        // Relaxed: all threads that count have ended.
        println!("{name:<14} {:>12}", count.load(Ordering::Relaxed));
    }
    Ok(())
}
