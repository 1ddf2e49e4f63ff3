//! A directory of a mounted file system, by system calls. Absolute symlinks resolve within the directory.

use crate::acl;
use crate::model::{Outcome, Shown, Tree, Value};
use crate::op::{Durable, Exists, Op, When};
use crate::target::Target;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags, XattrFlags};
use std::collections::BTreeMap;
use std::io::{IoSlice, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The target.
#[derive(Debug)]
pub struct DirTarget {
    root: OwnedFd,
    path: PathBuf,
    /// What makes the whole file system durable, where syncfs(2) does not reach it.
    pub sync_all: Option<fn(&Path) -> std::io::Result<()>>,
}

type Errno = rustix::io::Errno;

impl DirTarget {
    /// The directory must be empty.
    ///
    /// # Errors
    /// What opening the directory answered.
    pub fn new(path: &Path) -> std::io::Result<DirTarget> {
        let root = fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(DirTarget { root, path: path.into(), sync_all: None })
    }

    fn open_dir(&self, path: &str) -> Result<OwnedFd, Errno> {
        fs::openat2(
            &self.root,
            if path.is_empty() { "/" } else { path },
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        )
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p str), Errno> {
        let (dir, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
        Ok((self.open_dir(dir)?, if name.is_empty() { "." } else { name }))
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<std::fs::File, Errno> {
        let (dir, name) = self.parent(path)?;
        let nonblock = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&dir, name, flags | nonblock, Mode::from(0o644)).map(std::fs::File::from)
    }

    /// Opens a regular file; the generated operations answer ENXIO for what is neither file, directory nor link.
    fn file(&self, path: &str, flags: OFlags) -> Result<std::fs::File, Errno> {
        let (dir, name) = self.parent(path)?;
        let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => self.open(path, flags),
            libc::S_IFLNK => Err(Errno::LOOP),
            libc::S_IFDIR => Err(Errno::ISDIR),
            _ => Err(Errno::NXIO),
        }
    }

    fn try_apply(&mut self, op: &Op) -> Result<Value, std::io::Error> {
        let mode = Mode::from(0o644);
        match op {
            Op::Create { path, exclusive } => {
                let (dir, name) = self.parent(path)?;
                let exists = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
                match exists {
                    Err(Errno::NOENT) => {
                        let x = if *exclusive { OFlags::EXCL } else { OFlags::empty() };
                        fs::openat(&dir, name, OFlags::CREATE | OFlags::WRONLY | x, mode)?;
                    }
                    Err(e) => return Err(e.into()),
                    Ok(_) if *exclusive => return Err(Errno::EXIST.into()),
                    Ok(_) => drop(self.file(path, OFlags::WRONLY)?),
                }
            }
            Op::Mkdir { path } => {
                let (dir, name) = self.parent(path)?;
                fs::mkdirat(&dir, name, Mode::from(0o755))?;
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)?;
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                fs::unlinkat(&dir, name, AtFlags::empty())?;
            }
            Op::Mknod { path, node } => {
                let (dir, name) = self.parent(path)?;
                let kind = fs::FileType::from_raw_mode(node.bits());
                fs::mknodat(&dir, name, kind, mode, u64::from(node.rdev()))?;
            }
            Op::Symlink { target, path } => {
                let (dir, name) = self.parent(path)?;
                fs::symlinkat(target.as_str(), &dir, name)?;
            }
            Op::Link { from, to } => {
                let (from_dir, from_name) = self.parent(from)?;
                fs::statat(&from_dir, from_name, AtFlags::SYMLINK_NOFOLLOW)?;
                let (to_dir, to_name) = self.parent(to)?;
                fs::linkat(&from_dir, from_name, &to_dir, to_name, AtFlags::empty())?;
            }
            Op::Rename { from, to, flags } => {
                let (from_dir, from_name) = self.parent(from)?;
                let (to_dir, to_name) = self.parent(to)?;
                let flags = RenameFlags::from_bits_retain(*flags);
                fs::renameat_with(&from_dir, from_name, &to_dir, to_name, flags)?;
            }
            Op::Write { path, offset, len, fill, durable } => {
                let f = self.file(path, OFlags::RDWR | sync_flag(*durable))?;
                f.write_all_at(&vec![*fill; *len as usize], *offset)?;
                sync_after(&f, *durable)?;
            }
            Op::Batch { paths, offset, len, fill, is_synced } => {
                let files = [self.file(&paths[0], OFlags::RDWR)?, self.file(&paths[1], OFlags::RDWR)?];
                for file in files {
                    file.write_all_at(&vec![*fill; *len as usize], *offset)?;
                    if *is_synced {
                        file.sync_all()?;
                    }
                }
            }
            Op::Append { path, len, fill } => {
                self.file(path, OFlags::WRONLY | OFlags::APPEND)?.write_all(&vec![*fill; *len as usize])?;
            }
            Op::Rewrite { path, len, fill, direct } => {
                self.file(path, OFlags::WRONLY | OFlags::TRUNC)?.write_all(&vec![*fill; *len as usize])?;
                if let Some(block) = (len / 4096).checked_sub(1).filter(|_| *direct) {
                    let f = self.file(path, OFlags::RDWR | OFlags::DIRECT)?;
                    write_direct(&f, u64::from(block), 1, *fill)?;
                }
            }
            Op::WriteDirect { path, block, blocks, fill, durable } => {
                let f = self.file(path, OFlags::RDWR | OFlags::DIRECT | sync_flag(*durable))?;
                write_direct(&f, *block, *blocks, *fill)?;
                sync_after(&f, *durable)?;
            }
            Op::Truncate { path, size } => self.file(path, OFlags::RDWR)?.set_len(*size)?,
            Op::Fallocate { path, mode, offset, len } => {
                let f = self.file(path, OFlags::RDWR)?;
                fs::fallocate(&f, FallocateFlags::from_bits_retain(mode.bits()), *offset, *len)?;
            }
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let source = self.file(from, OFlags::RDONLY)?;
                let target = self.file(to, OFlags::RDWR)?;
                let (mut at, mut out, mut left) = (*from_offset, *to_offset, *len);
                while left > 0 {
                    match fs::copy_file_range(&source, Some(&mut at), &target, Some(&mut out), left as usize)?
                    {
                        0 => break,
                        n => left -= n as u64,
                    }
                }
            }
            Op::Tmpfile { dir, path, len, fill } => {
                let (parent, name) = self.parent(dir)?;
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::NOFOLLOW;
                let stat = fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                match stat.st_mode & libc::S_IFMT {
                    libc::S_IFDIR => {}
                    libc::S_IFLNK => return Err(Errno::LOOP.into()),
                    _ => return Err(Errno::NOTDIR.into()),
                }
                let fd = fs::openat(&parent, name, flags, mode)?;
                let mut f = std::fs::File::from(fd);
                f.write_all(&vec![*fill; *len as usize])?;
                let (to_dir, to_name) = self.parent(path)?;
                fs::linkat(f.as_fd(), "", &to_dir, to_name, AtFlags::EMPTY_PATH)?;
            }
            Op::Fsync { path } => self.file(path, OFlags::RDONLY)?.sync_all()?,
            Op::Fdatasync { path } => self.file(path, OFlags::RDONLY)?.sync_data()?,
            Op::FsyncDir { path } => {
                let (parent, name) = self.parent(path)?;
                let stat = fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
                    return Err(Errno::NOTDIR.into());
                }
                fs::fsync(self.open_dir(path)?)?;
            }
            Op::SyncAll => match self.sync_all {
                Some(sync) => sync(&self.path)?,
                None => fs::syncfs(&self.root)?,
            },
            Op::SetXattr { path, name, len, fill, exists } => {
                let at = self.resolved(path)?;
                let flags = match exists {
                    Exists::Any => XattrFlags::empty(),
                    Exists::No => XattrFlags::CREATE,
                    Exists::Yes => XattrFlags::REPLACE,
                };
                fs::lsetxattr(&at, name.as_str(), &vec![*fill; *len as usize], flags)?;
            }
            Op::SetAcl { path, default, uid, perm } => {
                let name = if *default { acl::DEFAULT } else { acl::ACCESS };
                fs::lsetxattr(self.resolved(path)?, name, &acl::list(*uid, *perm), XattrFlags::empty())?;
            }
            Op::RemoveXattr { path, name } => {
                fs::lremovexattr(self.resolved(path)?, name.as_str())?;
            }
            Op::Chmod { path, mode } => {
                let (dir, name) = self.parent(path)?;
                let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
                    return Err(Errno::OPNOTSUPP.into());
                }
                fs::chmodat(&dir, name, Mode::from(*mode), AtFlags::empty())?;
            }
            Op::Chown { path, uid, gid } => {
                let (dir, name) = self.parent(path)?;
                let (uid, gid) = (fs::Uid::from_raw(*uid), fs::Gid::from_raw(*gid));
                fs::chownat(&dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::KillSuid { path } => {
                let f = self.file(path, OFlags::RDWR)?;
                let old = fs::fstat(&f)?.st_mode;
                let setgid = if old & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
                fs::fchmod(&f, Mode::from(old & 0o7777 & !(libc::S_ISUID | setgid)))?;
            }
            Op::Utimens { path, atime, mtime } => {
                let (dir, name) = self.parent(path)?;
                let spec = |when: When| match when {
                    When::Omit => fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
                    When::Now => fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
                    When::At(ns) => fs::Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 },
                };
                let times = fs::Timestamps { last_access: spec(*atime), last_modification: spec(*mtime) };
                fs::utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::Read { path, offset, len } => {
                let f = self.file(path, OFlags::RDONLY)?;
                let mut buf = vec![0; *len as usize];
                let mut got = 0;
                while got < buf.len() {
                    match f.read_at(&mut buf[got..], offset + got as u64)? {
                        0 => break,
                        n => got += n,
                    }
                }
                buf.truncate(got);
                return Ok(Value::Bytes(buf));
            }
        }
        Ok(Value::Unit)
    }

    /// A path by which the kernel finds the inode itself, whatever symlinks lie in its middle.
    fn resolved(&self, path: &str) -> Result<PathBuf, Errno> {
        use std::os::fd::AsRawFd;
        let (dir, name) = self.parent(path)?;
        let real = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).map_err(|_| Errno::IO)?;
        Ok(real.join(name))
    }

    fn show(
        &self,
        path: &str,
        tree: &mut Tree,
        inodes: &mut BTreeMap<u64, Vec<String>>,
    ) -> std::io::Result<()> {
        let at = self.path.join(path.trim_start_matches('/'));
        let meta = std::fs::symlink_metadata(&at)?;
        let nanos = |s: i64, n: i64| s.saturating_mul(1_000_000_000).saturating_add(n);
        let times = (nanos(meta.atime(), meta.atime_nsec()), nanos(meta.mtime(), meta.mtime_nsec()));
        let mut data = Vec::new();
        let mut xattrs = BTreeMap::new();
        match meta.mode() & libc::S_IFMT {
            libc::S_IFREG => {
                let flags = OFlags::RDONLY | OFlags::NOATIME;
                std::fs::File::from(fs::open(&at, flags, Mode::empty())?).read_to_end(&mut data)?;
            }
            libc::S_IFLNK => data = std::fs::read_link(&at)?.into_os_string().into_encoded_bytes(),
            _ => {}
        }
        if meta.is_file() || meta.is_dir() {
            let mut names = vec![0; 4096];
            let n = fs::llistxattr(&at, &mut names[..])?;
            for name in names[..n].split(|b| *b == 0).filter(|s| s.starts_with(b"user.")) {
                let name = String::from_utf8_lossy(name).into_owned();
                let mut value = vec![0; 4096];
                let n = fs::lgetxattr(&at, name.as_str(), &mut value[..])?;
                value.truncate(n);
                xattrs.insert(name, value);
            }
        }
        inodes.entry(meta.ino()).or_default().push(path.into());
        let is_dir = meta.is_dir();
        let shown = Shown {
            mode: meta.mode(),
            nlink: meta.nlink() as u32,
            uid: meta.uid(),
            gid: meta.gid(),
            rdev: meta.rdev() as u32,
            data,
            xattrs,
            times: Some(times),
            touched: false,
            same_as: String::new(),
        };
        tree.insert(path.into(), shown);
        if is_dir {
            for entry in std::fs::read_dir(&at)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                // What mkfs of other file systems puts into an empty root.
                if path == "/" && name == "lost+found" {
                    continue;
                }
                let below = if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
                self.show(&below, tree, inodes)?;
            }
        }
        Ok(())
    }
}

impl Target for DirTarget {
    fn apply(&mut self, op: &Op) -> Outcome {
        self.try_apply(op).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
    }

    fn tree(&mut self) -> Result<Tree, String> {
        let (mut tree, mut inodes) = (Tree::new(), BTreeMap::new());
        self.show("/", &mut tree, &mut inodes).map_err(|e| format!("{}: {e}", self.path.display()))?;
        name_links(&mut tree, &inodes);
        Ok(tree)
    }
}

fn sync_flag(durable: Durable) -> OFlags {
    match durable {
        Durable::Dsync => OFlags::DSYNC,
        Durable::Sync => OFlags::SYNC,
        _ => OFlags::empty(),
    }
}

fn sync_after(file: &std::fs::File, durable: Durable) -> std::io::Result<()> {
    match durable {
        Durable::Fsync => file.sync_all(),
        Durable::Fdatasync => file.sync_data(),
        _ => Ok(()),
    }
}

fn write_direct(file: &std::fs::File, block: u64, blocks: u32, fill: u8) -> Result<(), Errno> {
    // The kernel wants aligned memory: take an aligned part of a larger vector.
    let len = blocks as usize * 4096;
    let buf = vec![fill; len + 4096];
    let skip = buf.as_ptr().align_offset(4096);
    let slices = [IoSlice::new(&buf[skip..skip + len])];
    let n = rustix::io::pwritev(file, &slices, block * 4096)?;
    if n == len { Ok(()) } else { Err(Errno::IO) }
}

/// Fills `same_as`: the least path of each inode.
pub fn name_links(tree: &mut Tree, inodes: &BTreeMap<u64, Vec<String>>) {
    for paths in inodes.values() {
        let least = paths.iter().min().cloned().unwrap_or_default();
        for p in paths {
            if let Some(s) = tree.get_mut(p) {
                s.same_as = least.clone();
            }
        }
    }
}
