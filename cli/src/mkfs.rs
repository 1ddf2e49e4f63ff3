//! `narufs mkfs`: makes a file system.

use crate::args::Mkfs;
use crate::failure::{Failure, Status};
use crate::output::say;
use crate::size::Size;
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::format::{JournalKind, SLOT_SIZE, SLOTS_PER_BLOCK, Superblock};
use narufs_engine::{Error, FormatOptions, format};
use rustix::process::{getegid, geteuid};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Size of a new image file.
const DEFAULT_SIZE: u64 = 8 << 30;

/// Makes the file system, and says what was made.
pub fn run(args: &Mkfs) -> Result<(), Failure> {
    make(args).map(|sb| report(args, &sb)).map_err(|why| Failure::about(Status::Failed, &args.image, why))
}

fn make(args: &Mkfs) -> Result<Superblock, String> {
    format(&args.image, &options(args)?).map_err(|e| match e {
        Error::Errno(libc::ENOENT) => "no such directory".into(),
        e => e.to_string(),
    })
}

/// What is asked for.
fn options(args: &Mkfs) -> Result<FormatOptions, String> {
    let slots = |size: u64| size / SLOT_SIZE as u64 / SLOTS_PER_BLOCK * SLOTS_PER_BLOCK;
    let (kind, path) = match (&args.journal, &args.journal_emulated) {
        (Some(path), _) => (JournalKind::Pmem, Some(absolute(path)?)),
        (None, Some(path)) => (JournalKind::Emulated, Some(absolute(path)?)),
        (None, None) => (JournalKind::Ssd, None),
    };
    Ok(FormatOptions {
        blocks: blocks(args),
        journal_slots: args.journal_size.map(|size| slots(size.0)),
        journal: kind,
        journal_path: path,
        label: args.label.clone(),
        sparse: args.sparse,
        force: args.force,
        // Of a user who is not root, it would be of use to nobody if it were root's.
        owner: (geteuid().as_raw(), getegid().as_raw()),
        ..FormatOptions::default()
    })
}

/// The size that is asked for; none: as a device has it.
fn blocks(args: &Mkfs) -> Option<u64> {
    let there = std::fs::metadata(&args.image).ok();
    let is_device = there.as_ref().is_some_and(|found| found.file_type().is_block_device());
    let length = there.map_or(0, |found| found.len());
    let size = match args.size {
        Some(size) => Some(size.0),
        None if is_device => None,
        None if length > 0 => Some(length),
        None => Some(DEFAULT_SIZE),
    };
    size.map(|s| s / BLOCK_SIZE as u64)
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
