//! What a state shows when it is mounted, and whether it is sound afterwards.

use super::acked::{Allowed, Found};
use super::{database, git, mail, oracle, postgres};
use crate::dir_target::DirTarget;
use crate::lib_target::LibTarget;
use crate::model::Tree;
use crate::target::Target;
use narufs_engine::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, MemoryDevice, Request};
use narufs_engine::fsck;
use narufs_engine::journal::ring_bytes;
use narufs_engine::pmem::{DurabilityLevel, HeapMemory, PersistentMemory};
use narufs_engine::superblock;
use narufs_engine::vfs::{AtimePolicy, VfsOptions};
use narufs_engine::volume::{AssembleOptions, ImageOptions, Media, RingMedia, Running, mount};
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;

/// The file system of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// In the library, in memory.
    Narufs,
    /// Linux's own, by a loop device.
    Ext4,
}

/// The load of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Files that are made, renamed and removed, and a log.
    Files,
    /// Databases of SQLite.
    Databases,
    /// Repositories of git.
    Git,
    /// Stores of mail.
    Mail,
    /// A server of PostgreSQL.
    Postgres,
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Load, String> {
        match text {
            "files" => Ok(Load::Files),
            "sqlite" => Ok(Load::Databases),
            "git" => Ok(Load::Git),
            "mail" => Ok(Load::Mail),
            "postgres" => Ok(Load::Postgres),
            other => Err(format!("{other}: neither files, sqlite, git, mail nor postgres")),
        }
    }
}

/// Whether a state is as promised, of the disk and, where the journal is there, of persistent memory: recovers, reads everything,
/// unmounts, checks; the last operation of each process that is there.
///
/// # Errors
/// Why it is not, in words.
pub fn judge(
    kind: Kind,
    load: Load,
    bytes: &[u8],
    memory: Option<&[u8]>,
    allowed: &Allowed,
) -> Result<Found, String> {
    let tree = match kind {
        Kind::Narufs => narufs(bytes, memory),
        Kind::Ext4 => ext4(bytes),
    }?;
    match load {
        Load::Files => oracle::judge(&tree, allowed),
        Load::Databases => database::judge(&tree, allowed),
        Load::Git => git::judge(&tree, allowed),
        Load::Mail => mail::judge(&tree, allowed),
        Load::Postgres => postgres::judge(&tree, allowed),
    }
}

/// Writes what a tree has below a path into a directory.
pub(super) fn copy(tree: &Tree, from: &str, to: &Path) -> std::io::Result<()> {
    for (path, shown) in tree.range(format!("{from}/")..) {
        let Some(name) = path.strip_prefix(from).and_then(|name| name.strip_prefix('/')) else { break };
        if name.is_empty() {
            continue;
        }
        let to = to.join(name);
        match shown.mode & libc::S_IFMT {
            libc::S_IFDIR => std::fs::create_dir(&to)?,
            _ => std::fs::write(&to, &shown.data)?,
        }
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(shown.mode & 0o777))?;
    }
    Ok(())
}

/// The state as a device in memory.
fn device(bytes: &[u8]) -> narufs_engine::Result<Arc<MemoryDevice>> {
    let device = MemoryDevice::new((bytes.len() / BLOCK_SIZE) as u64);
    // Blank blocks are there already.
    let writes = written(bytes).map(|(block, bytes)| {
        let mut buf = IoBuf::zeroed(BLOCK_SIZE);
        buf.copy_from_slice(bytes);
        Request::write(block, buf, Cause::Superblock)
    });
    device.run(writes.collect())?;
    Ok(Arc::new(device))
}

fn narufs(bytes: &[u8], memory: Option<&[u8]>) -> Result<Tree, String> {
    let said = |what: &'static str| move |e: narufs_engine::Error| format!("{what}: {e}");
    let device = device(bytes).map_err(said("a device in memory"))?;
    let sb = superblock::read(device.as_ref()).map_err(said("superblock"))?;
    let len = ring_bytes(sb.ring_slots.get()).ok_or("the journal is larger than memory can be")?;
    let kept = match memory {
        Some(memory) => Some(journal(len, memory)?),
        None => None,
    };
    let media = || {
        let ring = match &kept {
            Some(kept) => RingMedia::Mapped(kept.clone()),
            // The loss of power took what was staged.
            None => RingMedia::Ssd(Arc::new(HeapMemory::with_durability(len, DurabilityLevel::Process))),
        };
        Media::new(device.clone(), ring)
    };
    let options = ImageOptions { background: false, lanes: 1, ..ImageOptions::default() };
    let mounted = mount(media(), &options).map_err(said("recovery"))?;
    mounted.store().check_writable().map_err(said("recovery"))?;
    let fs = VfsOptions { atime: AtimePolicy::Never, ..VfsOptions::default() };
    let options = AssembleOptions { fs, background: false, ..AssembleOptions::default() };
    let running = Running::start(mounted.checkpointer(), &options).map_err(said("start"))?;
    let tree = LibTarget::new(running.fs()).tree();
    running.stop().and_then(|()| mounted.unmount()).map_err(said("unmount"))?;
    let report = fsck::check(&media(), &fsck::Options::default()).map_err(said("fsck"))?;
    if report.issues.is_empty() { tree } else { Err(format!("fsck: {:?}", report.issues)) }
}

/// A journal in memory that survives a loss of power.
fn journal(len: usize, bytes: &[u8]) -> Result<Arc<HeapMemory>, String> {
    let bytes =
        bytes.get(..len).ok_or_else(|| format!("the journal has {len} bytes, its copy {}", bytes.len()))?;
    let memory = HeapMemory::with_durability(len, DurabilityLevel::Power);
    memory.write(0, bytes);
    Ok(Arc::new(memory))
}

fn ext4(bytes: &[u8]) -> Result<Tree, String> {
    let told = |e: std::io::Error| e.to_string();
    let work = tempfile::tempdir().map_err(told)?;
    let (image, dir) = (work.path().join("image"), work.path().join("dir"));
    sparse(&image, bytes).and_then(|()| std::fs::create_dir(&dir)).map_err(told)?;
    command("mount", &["-t", "ext4", "-o", "loop,noatime"], &[&image, &dir])?;
    let tree = DirTarget::new(&dir).map_err(told).and_then(|mut target| target.tree());
    command("umount", &[], &[&dir])?;
    command("e2fsck", &["-fn"], &[&image])?;
    tree
}

/// A file with these bytes, of which blank blocks take no room.
fn sparse(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    written(bytes).try_for_each(|(block, bytes)| file.write_all_at(bytes, block * BLOCK_SIZE as u64))
}

/// The blocks that are not blank, by number.
fn written(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    (0..).zip(bytes.chunks_exact(BLOCK_SIZE)).filter(|(_, block)| **block != [0; BLOCK_SIZE])
}

fn command(program: &str, options: &[&str], paths: &[&Path]) -> Result<(), String> {
    let output =
        Command::new(program).args(options).args(paths).output().map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().replace('\n', "; "));
    Err(format!("{program}: {}: {}", output.status, said.join("; ")))
}
