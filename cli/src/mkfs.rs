//! `narufs mkfs`: makes a file system.

use crate::args::Mkfs;
use crate::failure::{Failure, Status};
use crate::output::say;
use crate::size::Size;
use narufs_engine::Error;
use narufs_engine::device::{BLOCK_SIZE, BlockDevice, ImageFile, open_device};
use narufs_engine::format::{JournalKind, SLOT_SIZE, SLOTS_PER_BLOCK, Superblock};
use narufs_engine::mkfs::{FormatOptions, format, holds_data};
use rustix::process::{getegid, geteuid};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of a new image file.
const DEFAULT_SIZE: u64 = 8 << 30;
/// Largest journal that is chosen unasked.
const LARGEST_JOURNAL: u64 = 256 << 20;
/// Makes the file system, and says what was made.
pub fn run(args: &Mkfs) -> Result<(), Failure> {
    make(args).map(|sb| report(args, &sb)).map_err(|why| Failure::about(Status::Failed, &args.image, why))
}

fn make(args: &Mkfs) -> Result<Superblock, String> {
    if !args.force && holds_data(&args.image).map_err(|e| e.to_string())? {
        return Err("it holds data already; use --force to overwrite them".into());
    }
    let device = open(args).map_err(|e| match e {
        Error::Errno(libc::ENOENT) => "no such directory".into(),
        e => e.to_string(),
    })?;
    let bytes = device.blocks() * BLOCK_SIZE as u64;
    let journal = args.journal_size.map_or((bytes / 16).clamp(1 << 20, LARGEST_JOURNAL), |s| s.0);
    let slots = journal / SLOT_SIZE as u64 / SLOTS_PER_BLOCK * SLOTS_PER_BLOCK;
    let (kind, path) = match (&args.journal, &args.journal_emulated) {
        (Some(path), _) => (JournalKind::Pmem, Some(absolute(path)?)),
        (None, Some(path)) => (JournalKind::Emulated, Some(absolute(path)?)),
        (None, None) => (JournalKind::Ssd, None),
    };
    let options = FormatOptions {
        journal_slots: Some(slots),
        journal: kind,
        journal_path: path,
        label: args.label.clone(),
        sparse: args.sparse,
        force: args.force,
        // Of a user who is not root, it would be of use to nobody if it were root's.
        owner: (geteuid().as_raw(), getegid().as_raw()),
        ..FormatOptions::default()
    };
    format(device.as_ref(), &options).map_err(|e| e.to_string())
}

fn open(args: &Mkfs) -> narufs_engine::Result<Arc<dyn BlockDevice>> {
    let image = &args.image;
    let there = std::fs::metadata(image).ok();
    let is_device = there.as_ref().is_some_and(|m| m.file_type().is_block_device());
    let length = there.as_ref().map_or(0, std::fs::Metadata::len);
    let size = match args.size {
        Some(size) => Some(size.0),
        None if is_device => None,
        None if length > 0 => Some(length),
        None => Some(DEFAULT_SIZE),
    };
    let blocks = size.map(|s| s / BLOCK_SIZE as u64);
    let file = match blocks {
        Some(blocks) if args.sparse => ImageFile::create_sparse(image, blocks)?,
        Some(blocks) => ImageFile::create(image, blocks)?,
        None => ImageFile::open(image)?,
    };
    Ok(open_device(file))
}

fn absolute(path: &Path) -> Result<String, String> {
    let path: PathBuf = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
    path.into_os_string().into_string().map_err(|_| "the journal's path is not UTF-8".into())
}

fn report(args: &Mkfs, sb: &Superblock) {
    let journal = Size(sb.ring_slots.get() * SLOT_SIZE as u64);
    let place = match (&args.journal, &args.journal_emulated) {
        (Some(path), _) => format!("in persistent memory at {}", path.display()),
        (None, Some(path)) => {
            format!("in emulated NVM at {} (survives the server's end, not the machine's)", path.display())
        }
        (None, None) => "on the image, staged in shared memory".to_owned(),
    };
    say!(
        "{}: {} narufs, journal of {journal} {place}",
        args.image.display(),
        Size(sb.blocks.get() * BLOCK_SIZE as u64)
    );
    say!("mount it: narufs mount {} DIR", args.image.display());
}
