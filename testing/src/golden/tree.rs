//! A tree as lines of a manifest, seen through system calls or through the library.

use narufs_engine::path::Files;
use narufs_engine::vfs::{Context, FileType};
use rustix::fs::{lgetxattr, llistxattr};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What a line tells of a name.
struct Entry {
    path: Vec<u8>,
    mode: u32,
    nlink: u64,
    owner: (u32, u32),
    rdev: u64,
    /// Content of a file, target of a symlink.
    content: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    fn line(mut self) -> String {
        self.attributes.sort();
        let attributes = self.attributes.iter().map(|(name, value)| {
            format!(" {}={}:{:08x}", name.escape_ascii(), value.len(), crc32c::crc32c(value))
        });
        let attributes: String = attributes.collect();
        format!(
            "{} mode={:o} nlink={} uid={} gid={} rdev={} size={} crc32c={:08x}{attributes}",
            self.path.escape_ascii(),
            self.mode,
            self.nlink,
            self.owner.0,
            self.owner.1,
            self.rdev,
            self.content.len(),
            crc32c::crc32c(&self.content)
        )
    }
}

fn child(parent: &[u8], name: &[u8]) -> Vec<u8> {
    [parent, b"/", name].concat()
}

/// The lines of what is mounted at a directory, sorted.
///
/// # Errors
/// Those of the system calls.
pub fn mounted(root: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut left = vec![Vec::new()];
    while let Some(dir) = left.pop() {
        for entry in
            fs::read_dir(root.join(std::ffi::OsStr::from_bytes(dir.strip_prefix(b"/").unwrap_or(&dir))))?
        {
            let entry = entry?;
            let path = child(&dir, entry.file_name().as_bytes());
            let real = entry.path();
            let found = fs::symlink_metadata(&real)?;
            let file_type = found.file_type();
            let content = if file_type.is_file() {
                fs::read(&real)?
            } else if file_type.is_symlink() {
                fs::read_link(&real)?.into_os_string().into_vec()
            } else {
                Vec::new()
            };
            let is_node = file_type.is_char_device() || file_type.is_block_device();
            lines.push(
                Entry {
                    path: path.clone(),
                    mode: found.mode(),
                    nlink: found.nlink(),
                    owner: (found.uid(), found.gid()),
                    rdev: if is_node { found.rdev() } else { 0 },
                    content,
                    attributes: attributes(&real)?,
                }
                .line(),
            );
            if file_type.is_dir() {
                left.push(path);
            }
        }
    }
    lines.sort();
    Ok(lines)
}

fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; 1 << 16];
    let len = llistxattr(path, &mut names[..])?;
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let read = |name: &[u8]| {
        let mut value = vec![0; 1 << 16];
        let len = lgetxattr(path, name, &mut value[..])?;
        Ok((name.to_vec(), value[..len].to_vec()))
    };
    names.map(read).collect()
}

/// The lines of what the library has mounted, sorted.
///
/// # Errors
/// Those of the engine.
pub fn files(files: &Files, fs: &narufs_engine::vfs::Vfs) -> narufs_engine::Result<Vec<String>> {
    let root = Context::root();
    let mut lines = Vec::new();
    let mut left = vec![Vec::new()];
    while let Some(dir) = left.pop() {
        for entry in files.read_dir(if dir.is_empty() { b"/" } else { &dir[..] })? {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = child(&dir, &entry.name);
            let found = files.symlink_metadata(&path)?;
            let content = match found.file_type {
                FileType::Regular => files.read(&path)?,
                FileType::Symlink => files.read_link(&path)?,
                _ => Vec::new(),
            };
            let names = fs.listxattr(&root, found.nid)?;
            let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let read = |name: &[u8]| Ok((name.to_vec(), fs.getxattr(&root, found.nid, name)?));
            lines.push(
                Entry {
                    path: path.clone(),
                    mode: found.mode(),
                    nlink: found.nlink.into(),
                    owner: (found.uid, found.gid),
                    rdev: found.rdev.into(),
                    content,
                    attributes: names.map(read).collect::<narufs_engine::Result<_>>()?,
                }
                .line(),
            );
            if found.file_type == FileType::Directory {
                left.push(path);
            }
        }
    }
    lines.sort();
    Ok(lines)
}
