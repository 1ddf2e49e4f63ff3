//! The media of a set, in memory, and the tree that they hold.

use super::{tree, unpack};
use narufs_engine::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, MemoryDevice, Request};
use narufs_engine::format::{JournalKind, SLOT_SIZE};
use narufs_engine::path::Files;
use narufs_engine::pmem::{HeapMemory, PersistentMemory};
use narufs_engine::superblock;
use narufs_engine::volume::{AssembleOptions, ImageOptions, Media, RingMedia, Running, mount};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The image of a set.
///
/// # Errors
/// Those of its files.
pub fn device(set: &Path) -> io::Result<Arc<MemoryDevice>> {
    let put = |device: &Arc<MemoryDevice>, block: u64, bytes: &[u8]| {
        let write = Request::write(block, IoBuf::from_slice(bytes), Cause::Fsck);
        device.run(vec![write]).expect("memory");
    };
    unpack(&set.join("image.gz"), |blocks| Arc::new(MemoryDevice::new(blocks)), put)
}

/// The media of a set, each time anew; a ring of zeros where none was left.
///
/// # Errors
/// Those of its files; what holds no superblock.
pub fn media(set: &Path) -> io::Result<Media> {
    let device = device(set)?;
    let sb = superblock::read(&*device).map_err(io::Error::other)?;
    let path = set.join("ring.gz");
    let memory = if path.exists() {
        let begin = |blocks: u64| Arc::new(HeapMemory::new(blocks as usize * BLOCK_SIZE));
        let put = |memory: &Arc<HeapMemory>, block: u64, bytes: &[u8]| {
            memory.write(block as usize * BLOCK_SIZE, bytes);
        };
        unpack(&path, begin, put)?
    } else {
        Arc::new(HeapMemory::new(BLOCK_SIZE + sb.ring_slots.get() as usize * SLOT_SIZE))
    };
    let ring = match JournalKind::from_u32(sb.journal_kind.get()) {
        Some(JournalKind::Ssd) => RingMedia::Ssd(memory),
        _ => RingMedia::Mapped(memory),
    };
    Ok(Media { device, ring, staging_file: None, owner: None })
}

/// Mounts media, gives the lines of the tree to `work` with the files, and unmounts.
///
/// # Errors
/// Those of the mount and of reading; damage that recovery has found.
pub fn mounted<R>(
    media: &Media,
    options: &ImageOptions,
    work: impl FnOnce(Vec<String>, &Files) -> R,
) -> Result<R, String> {
    let said = |e: narufs_engine::Error| e.to_string();
    let mounted = mount(media.clone(), options).map_err(said)?;
    if let Some(damage) = &mounted.recovery().damage {
        return Err(format!("recovery has found damage: {damage}"));
    }
    let mut assemble = AssembleOptions::default();
    assemble.fs.read_only = options.read_only;
    let running = Running::start(mounted.checkpointer(), &assemble).map_err(said)?;
    let files = Files::new(Arc::clone(running.fs()));
    let lines = tree::files(&files, running.fs()).map_err(said)?;
    let result = work(lines, &files);
    drop(files);
    running.stop().and_then(|()| mounted.unmount()).map_err(said)?;
    Ok(result)
}

/// What differs between two trees: lines of the first that are not in the second, and the other way round.
pub fn differences(found: &[String], expected: &[String]) -> (Vec<String>, Vec<String>) {
    let odd = |these: &[String], those: &[String]| {
        these.iter().filter(|line| !those.contains(line)).cloned().collect::<Vec<_>>()
    };
    (odd(found, expected), odd(expected, found))
}
