//! Whether a directory is the tree that it has to be: every name, and of each its type, permissions, size, time of
//! the last change, target and bytes.

use super::tree::{Entry, Kind, Tree};
use crate::workload::Seen;
use crate::{Error, Result};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What whoever made a copy has kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Everything.
    All,
    /// What git keeps: of permissions whether a file may be executed, no times; its own directory is passed over.
    Git,
}

/// Compares `root` with the tree.
///
/// # Errors
/// [`Error::Wrong`] with the first difference; what cannot be read is one of [`Error::Io`].
pub(super) fn compare(root: &Path, tree: &Tree, kept: Kept) -> Result<Seen> {
    let mut wanted: HashMap<&str, &Entry> = tree.entries.iter().map(|e| (e.path.as_str(), e)).collect();
    let (mut seen, mut left) = (Seen::default(), vec![String::new()]);
    let mut part = vec![0; 256 << 10];
    while let Some(directory) = left.pop() {
        for name in names(&root.join(&directory))? {
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            if kept == Kept::Git && path == ".git" {
                continue;
            }
            let Some(entry) = wanted.remove(path.as_str()) else {
                return Err(Error::Wrong(format!("{path} is there and should not be")));
            };
            if entry.kind == Kind::Directory {
                left.push(path);
            }
            seen.files += 1;
            seen.bytes += one(&root.join(&entry.path), entry, kept, &mut part)?;
        }
    }
    match wanted.keys().min() {
        Some(missing) => Err(Error::Wrong(format!("{missing} is missing"))),
        None => Ok(seen),
    }
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let at = |e| Error::io("list", &directory.display().to_string(), e);
    let each = std::fs::read_dir(directory).map_err(at)?;
    // A name that is no text is none of the tree's, whatever stands for its bytes.
    each.map(|entry| Ok(entry.map_err(at)?.file_name().to_string_lossy().into_owned())).collect()
}

/// Compares one entry; gives the bytes that were read.
fn one(path: &Path, entry: &Entry, kept: Kept, part: &mut [u8]) -> Result<u64> {
    let at = |op| move |e| Error::io(op, &path.display().to_string(), e);
    let wrong = |what: String| Err(Error::Wrong(format!("{}: {what}", entry.path)));
    let found = std::fs::symlink_metadata(path).map_err(at("stat"))?;
    let (is, wanted) = (
        kind(&found),
        match entry.kind {
            Kind::Directory => "a directory",
            Kind::File(..) => "a file",
            Kind::Link(_) => "a symbolic link",
        },
    );
    if is != wanted {
        return wrong(format!("{is}, not {wanted}"));
    }
    let mask = match (kept, &entry.kind) {
        (_, Kind::Link(_)) | (Kept::Git, Kind::Directory) => 0,
        (Kept::Git, Kind::File(..)) => 0o100,
        (Kept::All, _) => 0o7777,
    };
    if (found.mode() ^ entry.mode) & mask != 0 {
        return wrong(format!("mode {:04o}, not {:04o}", found.mode() & 0o7777, entry.mode));
    }
    if kept == Kept::All && found.mtime() != entry.mtime as i64 {
        return wrong(format!("changed at {}, not at {}", found.mtime(), entry.mtime));
    }
    match &entry.kind {
        Kind::Directory => Ok(0),
        Kind::Link(target) => {
            let leads = std::fs::read_link(path).map_err(at("readlink"))?;
            if leads == Path::new(target) { Ok(0) } else { wrong(format!("leads to {}", leads.display())) }
        }
        Kind::File(bytes, _) if found.len() != bytes.size => {
            wrong(format!("{} bytes, not {}", found.len(), bytes.size))
        }
        Kind::File(bytes, crc) => match checksum(path, part).map_err(at("read"))? {
            (read, _) if read != bytes.size => wrong(format!("{read} bytes are read, not {}", bytes.size)),
            (_, other) if other != *crc => wrong("other bytes than were written".into()),
            (read, _) => Ok(read),
        },
    }
}

fn kind(found: &Metadata) -> &'static str {
    match found.file_type() {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_file() => "a file",
        kind if kind.is_fifo() => "a pipe",
        _ => "neither file, directory nor link",
    }
}

fn checksum(path: &Path, part: &mut [u8]) -> std::io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let (mut bytes, mut crc) = (0, 0);
    loop {
        match file.read(part)? {
            0 => return Ok((bytes, crc)),
            n => {
                crc = crc32c::crc32c_append(crc, &part[..n]);
                bytes += n as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A difference that is planted in the tree.
    type Plant = fn(&Path, &Tree);

    fn file(tree: &Tree) -> &Entry {
        let file = tree.files_of().find(|(entry, bytes)| bytes.size > 100 && entry.mode == 0o644);
        file.expect("there are some").0
    }

    fn link(tree: &Tree) -> &Entry {
        tree.entries.iter().find(|e| matches!(e.kind, Kind::Link(_))).expect("there are some")
    }

    fn changed_at(path: &Path, mtime: u64) {
        let time = Timespec { tv_sec: mtime as i64, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("it is there");
    }

    /// Puts the entry's time back, so that the planted difference is the only one.
    fn back(root: &Path, entry: &Entry) {
        changed_at(&root.join(&entry.path), entry.mtime);
    }

    const PLANTS: [(&str, Plant); 9] = [
        ("should not be", |root, _| fs::write(root.join("one-more"), "").expect("room")),
        ("is missing", |root, tree| fs::remove_file(root.join(&file(tree).path)).expect("it is there")),
        ("mode 0600, not 0644", |root, tree| {
            let path = root.join(&file(tree).path);
            fs::set_permissions(path, Permissions::from_mode(0o600)).expect("chmod");
        }),
        ("mode 0711, not", |root, tree| {
            let path = root.join(&tree.entries[0].path);
            fs::set_permissions(path, Permissions::from_mode(0o711)).expect("chmod");
        }),
        ("other bytes", |root, tree| {
            let path = root.join(&file(tree).path);
            let mut bytes = fs::read(&path).expect("it is there");
            bytes[57] ^= 1;
            fs::write(&path, bytes).expect("room");
            back(root, file(tree));
        }),
        ("bytes, not", |root, tree| {
            let path = root.join(&file(tree).path);
            let size = fs::metadata(&path).expect("it is there").len();
            File::options().write(true).open(&path).and_then(|f| f.set_len(size - 1)).expect("cut");
            back(root, file(tree));
        }),
        ("changed at 7, not at", |root, tree| changed_at(&root.join(&file(tree).path), 7)),
        ("leads to elsewhere", |root, tree| {
            let path = root.join(&link(tree).path);
            fs::remove_file(&path).and_then(|()| symlink("elsewhere", &path)).expect("a link");
            back(root, link(tree));
        }),
        ("a directory, not a symbolic link", |root, tree| {
            let path = root.join(&link(tree).path);
            fs::remove_file(&path).and_then(|()| fs::create_dir(&path)).expect("a directory");
        }),
    ];

    #[test]
    fn every_planted_difference_is_found() {
        let at = tempfile::tempdir().expect("room");
        let tree = Tree::new(1, 0.005);
        let stop = Stop::default();
        for (number, (words, plant)) in PLANTS.iter().enumerate() {
            let root = at.path().join(number.to_string());
            tree.write_to(&root, &stop).expect("room");
            let seen = compare(&root, &tree, Kept::All).expect("it was just made");
            assert_eq!((seen.files, seen.bytes), (tree.entries.len() as u64, tree.bytes()));
            plant(&root, &tree);
            // Directories that something was done in have other times now.
            for entry in tree.entries.iter().filter(|e| e.kind == Kind::Directory) {
                changed_at(&root.join(&entry.path), entry.mtime);
            }
            let said = compare(&root, &tree, Kept::All).expect_err(words).to_string();
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn what_git_does_not_keep_is_no_difference() {
        let at = tempfile::tempdir().expect("room");
        let tree = Tree::new(1, 0.005);
        let root = at.path().join("tree");
        tree.write_to(&root, &Stop::default()).expect("room");
        let path = root.join(&file(&tree).path);
        fs::create_dir(root.join(".git")).expect("room");
        fs::set_permissions(&path, Permissions::from_mode(0o664)).expect("chmod");
        assert!(compare(&root, &tree, Kept::Git).is_ok());
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("chmod");
        assert!(compare(&root, &tree, Kept::Git).is_err(), "whether it may be executed is kept");
    }
}
