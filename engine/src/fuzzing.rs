//! Arbitrary images for fuzzers: bytes become changes of a small populated image, which is then checked,
//! repaired, or mounted and read. Nothing that media hold may panic, hang or loop.
//!
//! The targets in `fuzz/` call these functions, and so does a test here, which needs no fuzzer.

use crate::device::{BLOCK_SIZE, BlockDevice, Cause, IoBuf, MemoryDevice, Request};
use crate::file::DataOptions;
use crate::format::{BLOCK_HEADER_SIZE, BlockHeader, INODE_SIZE, JournalKind, ROOT_NID, checksum_seed};
use crate::fsck::{self, Options};
use crate::journal::ring_bytes;
use crate::mkfs::{FormatOptions, finish_image, format};
use crate::mount::{Media, MountOptions, RingMedia, mount};
use crate::pmem::{HeapMemory, PersistentMemory};
use crate::sync::{Arc, OnceLock};
use crate::vfs::{AssembleOptions, Context, FsOptions, OpenFlags, Running, WriteFlags};
use crate::{Result, superblock};
use zerocopy::FromBytes;

const BLOCKS: u64 = 400;
const SLOTS: u64 = 4096;

/// An image and its ring, as bytes.
struct Base {
    image: Vec<u8>,
    ring: Vec<u8>,
}

fn assemble_options(read_only: bool) -> AssembleOptions {
    AssembleOptions {
        fs: FsOptions { read_only, ..FsOptions::default() },
        data: DataOptions::with_memory(1 << 20),
        inodes: 64,
        background: false,
        ..AssembleOptions::default()
    }
}

fn mount_options(read_only: bool) -> MountOptions {
    MountOptions { background: false, read_only, ..MountOptions::default() }
}

fn populate() -> Result<Base> {
    let device = Arc::new(MemoryDevice::new(BLOCKS));
    let ring = Arc::new(HeapMemory::new(ring_bytes(SLOTS).expect("small")));
    let options = FormatOptions {
        journal: JournalKind::Emulated,
        journal_slots: Some(SLOTS),
        double_write_blocks: Some(8),
        ..FormatOptions::default()
    };
    format(&*device, &options)?;
    let media = Media { device: device.clone(), ring: RingMedia::Mapped(ring.clone()), staging_file: None };
    let mounted = mount(media, &mount_options(false))?;
    let running = Running::start(mounted.store(), &assemble_options(false))?;
    let (fs, ctx) = (Arc::clone(running.fs()), Context::root());
    let dir = fs.mkdir(&ctx, ROOT_NID, b"dir", 0o755)?.nid;
    for n in 0..60u64 {
        let name = format!("a file with a name {n}");
        let (_, handle, _) = fs.create(&ctx, dir, name.as_bytes(), 0o644, OpenFlags::READ_WRITE)?;
        for page in 0..n % 12 {
            fs.write(&ctx, &handle, page * 2 * BLOCK_SIZE as u64, &[n as u8; 100], WriteFlags::empty())?;
        }
        fs.release(handle, None);
    }
    fs.symlink(&ctx, ROOT_NID, b"link", b"dir")?;
    drop(fs);
    running.stop()?;
    mounted.unmount()?;
    let whole = Request::read(0, IoBuf::zeroed(BLOCKS as usize * BLOCK_SIZE), Cause::Fsck);
    let image = device.run(vec![whole])?.iter().flat_map(|buf| buf.to_vec()).collect();
    let mut bytes = vec![0; ring.len()];
    ring.read(0, &mut bytes);
    Ok(Base { image, ring: bytes })
}

/// The image with changes: each takes seven bytes, block (2), offset (2), value (2), and whether the block is
/// sealed again, so that what lies behind the checksums is reached too.
fn media(changes: &[u8]) -> Media {
    static BASE: OnceLock<Base> = OnceLock::new();
    let base = BASE.get_or_init(|| populate().expect("memory"));
    let mut image = base.image.clone();
    let uuid = &image[16..32];
    let seed = checksum_seed(uuid.try_into().expect("sixteen bytes"));
    for change in changes.chunks_exact(7).take(64) {
        let word = |at: usize| usize::from(u16::from_le_bytes([change[at], change[at + 1]]));
        let block = word(0) % BLOCKS as usize;
        let Some(page) = image.chunks_exact_mut(BLOCK_SIZE).nth(block) else { continue };
        let at = word(2) % (BLOCK_SIZE - 1);
        page[at..at + 2].copy_from_slice(&change[4..6]);
        if change[6] & 1 == 0 {
            continue;
        }
        let kind = BlockHeader::read_from_prefix(&*page).ok().and_then(|(header, _)| header.kind());
        let kind = kind.unwrap_or(crate::format::BlockKind::Node);
        // A block of data is no node block, but sealing it as one harms nobody here.
        if block as u64 > 1 && page[..INODE_SIZE.max(BLOCK_HEADER_SIZE)].iter().any(|b| *b != 0) {
            finish_image(seed, block as u64, kind, page);
        }
    }
    let device = MemoryDevice::new(BLOCKS);
    device.run(vec![Request::write(0, IoBuf::from_slice(&image), Cause::Fsck)]).expect("memory");
    let ring = HeapMemory::new(base.ring.len());
    ring.write(0, &base.ring);
    Media { device: Arc::new(device), ring: RingMedia::Mapped(Arc::new(ring)), staging_file: None }
}

/// Checks, repairs, and checks again: after a repair nothing is left that a repair could mend.
pub fn check_and_repair(changes: &[u8]) {
    let media = media(changes);
    let options = Options { repair: true, ..Options::default() };
    if fsck::check(&media, &Options::default()).is_err() {
        return;
    }
    fsck::check(&media, &options).expect("what can be checked can be repaired");
    let after = fsck::check(&media, &Options::default()).expect("it could be checked before");
    let mendable = after.issues.iter().find(|issue| matches!(issue.outcome, fsck::Outcome::Mendable));
    assert_eq!(mendable, None);
}

/// Mounts without writing, and reads what can be read.
pub fn mount_and_read(changes: &[u8]) {
    let media = media(changes);
    if superblock::read(&*media.device).is_err() {
        return;
    }
    let Ok(mounted) = mount(media, &mount_options(true)) else { return };
    let Ok(running) = Running::start(mounted.store(), &assemble_options(true)) else { return };
    let (fs, ctx) = (running.fs(), Context::root());
    let mut dirs = vec![ROOT_NID];
    let mut budget = 200;
    while let Some(dir) = dirs.pop() {
        let Ok(handle) = fs.opendir(&ctx, dir) else { continue };
        let mut found = Vec::new();
        // An error ends this directory and no other.
        let _ = fs.readdir(&handle, 2, &mut |entry| {
            found.push(entry.nid);
            found.len() < 100
        });
        fs.releasedir(handle);
        for nid in found {
            budget -= 1;
            if budget == 0 {
                return;
            }
            let Ok(attr) = fs.getattr(nid) else { continue };
            match attr.file_type {
                crate::inode::FileType::Directory => dirs.push(nid),
                crate::inode::FileType::Symlink => drop(fs.readlink(nid)),
                _ => {
                    let Ok(handle) = fs.open(&ctx, nid, OpenFlags::empty()) else { continue };
                    drop(fs.read(&handle, 0, &mut [0; 3 * BLOCK_SIZE]));
                    fs.release(handle, None);
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    /// Changes that mostly hit metadata.
    fn changes(seed: u64) -> Vec<u8> {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(1..12);
        let change = |random: &mut StdRng| {
            let block: u16 = random.random_range(0..120);
            let at: u16 =
                if random.random_bool(0.7) { random.random_range(32..700) } else { random.random() };
            let value: u16 =
                if random.random_bool(0.5) { random.random_range(0..300) } else { random.random() };
            let seal = u8::from(random.random_bool(0.8));
            [&block.to_le_bytes()[..], &at.to_le_bytes(), &value.to_le_bytes(), &[seal]].concat()
        };
        (0..count).flat_map(|_| change(&mut random)).collect()
    }

    fn each(f: impl Fn(&[u8])) {
        for seed in 0..150 {
            let changes = changes(seed);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&changes)));
            assert!(outcome.is_ok(), "seed {seed}");
        }
    }

    #[test]
    fn arbitrary_images_are_checked_and_repaired_without_harm() {
        each(check_and_repair);
    }

    #[test]
    fn arbitrary_images_are_mounted_and_read_without_harm() {
        each(mount_and_read);
    }
}
