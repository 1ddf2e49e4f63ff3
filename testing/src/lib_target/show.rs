//! What a mounted library shows, and the end of it all.

use super::{Held, LibTarget};
use crate::dir_target::name_links;
use crate::model::{Outcome, Shown, Tree};
use crate::op::Op;
use crate::target::{RECENT, Target};
use narufs_engine::error::{Error, Result};
use narufs_engine::format::Nid;
use narufs_engine::vfs::{FileType, OpenFlags};
use std::collections::BTreeMap;

impl<'f> LibTarget<'f> {
    fn show(
        &self,
        path: &str,
        at: &Held<'f>,
        tree: &mut Tree,
        inodes: &mut BTreeMap<u64, Vec<String>>,
    ) -> Result<(), String> {
        let said = |what: &'static str| move |e: Error| format!("{path}: {what}: {e}");
        let attr = self.fs.getattr(at.entry.nid).map_err(said("getattr"))?;
        // The root was made with the image, as a test may choose.
        if path != "/" && attr.btime < RECENT {
            return Err(format!("{path}: born at {}, before this run", attr.btime));
        }
        let mut data = Vec::new();
        let mut xattrs = BTreeMap::new();
        match attr.file_type {
            FileType::Regular => {
                let file = self.open(at.entry.nid, OpenFlags::NO_ATIME).map_err(said("open"))?;
                data = self.read(&file, 0, attr.size as usize).map_err(said("read"))?;
                if data.len() as u64 != attr.size {
                    return Err(format!("{path}: reads {} bytes of {}", data.len(), attr.size));
                }
            }
            FileType::Symlink => data = self.fs.readlink(at.entry.nid).map_err(said("readlink"))?,
            _ => {}
        }
        let names = self.fs.listxattr(&self.ctx, at.entry.nid).map_err(said("listxattr"))?;
        for name in names.split(|b| *b == 0).filter(|s| !s.is_empty()) {
            let value = self.fs.getxattr(&self.ctx, at.entry.nid, name).map_err(said("getxattr"))?;
            xattrs.insert(String::from_utf8_lossy(name).into_owned(), value);
        }
        inodes.entry(at.entry.nid).or_default().push(path.into());
        let shown = Shown {
            mode: attr.mode(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            data,
            xattrs,
            times: Some((attr.atime, attr.mtime)),
            touched: false,
            same_as: String::new(),
        };
        tree.insert(path.into(), shown);
        if attr.file_type == FileType::Directory {
            for name in self.names(at.entry.nid).map_err(said("readdir"))? {
                let below = if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
                let child = self.fs.lookup(&self.ctx, at.entry.nid, name.as_bytes());
                let child = self.hold(child.map_err(|e| format!("{below}: lookup: {e}"))?);
                self.show(&below, &child, tree, inodes)?;
            }
        }
        Ok(())
    }

    /// Names in a directory, but for "." and "..".
    pub(crate) fn names(&self, dir: Nid) -> Result<Vec<String>> {
        let handle = self.fs.opendir(&self.ctx, dir)?;
        let mut names = Vec::new();
        let read = self.fs.readdir(&handle, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
            }
            true
        });
        self.fs.releasedir(handle);
        read.map(|()| names)
    }

    /// Removes everything.
    ///
    /// # Errors
    /// What the first failing call answered.
    pub fn remove_all(&self) -> Result<()> {
        self.remove_below(self.root)
    }

    fn remove_below(&self, dir: Nid) -> Result<()> {
        for name in self.names(dir)? {
            let child = self.hold(self.fs.lookup(&self.ctx, dir, name.as_bytes())?);
            if child.entry.attr.file_type == FileType::Directory {
                self.remove_below(child.entry.nid)?;
                self.fs.rmdir(&self.ctx, dir, name.as_bytes())?;
            } else {
                self.fs.unlink(&self.ctx, dir, name.as_bytes())?;
            }
        }
        Ok(())
    }
}

impl Target for LibTarget<'_> {
    fn apply(&mut self, op: &Op) -> Outcome {
        self.try_apply(op).map_err(|e| e.errno())
    }

    fn tree(&mut self) -> Result<Tree, String> {
        let (mut tree, mut inodes) = (Tree::new(), BTreeMap::new());
        let root = self.root().map_err(|e| format!("the root: {e}"))?;
        self.show("/", &root, &mut tree, &mut inodes)?;
        name_links(&mut tree, &inodes);
        Ok(tree)
    }
}
