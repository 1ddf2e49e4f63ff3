//! What golden images hold, made by system calls on a mount.

use rustix::fs::{FallocateFlags, FileType, Mode, XattrFlags, fallocate, makedev, mknodat, setxattr};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;

/// Bytes that compress well, and differ from file to file.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at / 4096 + 1) * (seed + 3) + at % 7) as u8).collect()
}

/// An access list: owner, a user, a group, the mask, others.
fn access_list() -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 6] =
        [(1, 7, NONE), (2, 6, 1234), (4, 5, NONE), (8, 4, 4321), (16, 7, NONE), (32, 1, NONE)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// What operations on names and attributes leave, none of which waits for a sync. Sizes do: all files are empty.
pub(super) fn names_alone(root: &Path) -> io::Result<()> {
    let dir = root.join("a directory");
    fs::create_dir_all(dir.join("below/it"))?;
    fs::set_permissions(&dir, Permissions::from_mode(0o2750))?;
    for n in 0..40 {
        File::create(dir.join(format!("empty-{n:02}")))?;
    }
    for n in (0..40).step_by(5) {
        fs::remove_file(dir.join(format!("empty-{n:02}")))?;
    }
    chown(dir.join("empty-01"), Some(1000), Some(1001))?;
    fs::set_permissions(dir.join("empty-02"), Permissions::from_mode(0o4711))?;
    fs::rename(dir.join("empty-03"), root.join("renamed"))?;
    fs::rename(dir.join("empty-04"), dir.join("empty-06"))?;
    fs::rename(dir.join("below"), root.join("moved"))?;
    for n in 0..3 {
        fs::hard_link(dir.join("empty-07"), root.join(format!("link-{n}")))?;
    }
    fs::remove_file(root.join("link-1"))?;
    links_and_nodes(root, "a directory/empty-08")?;
    File::create(root.join("attributes"))?;
    attributes(&root.join("attributes"))?;
    setxattr(root.join("moved"), "system.posix_acl_default", &access_list(), XattrFlags::empty())?;
    File::create(root.join("moved/inherits"))?;
    Ok(())
}

fn links_and_nodes(root: &Path, target: &str) -> io::Result<()> {
    symlink(target, root.join("short symlink"))?;
    symlink("x/".repeat(700), root.join("long symlink"))?;
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("device", FileType::CharacterDevice, makedev(1, 3)),
        ("socket", FileType::Socket, 0),
    ] {
        mknodat(rustix::fs::CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device)?;
    }
    Ok(())
}

fn attributes(file: &Path) -> io::Result<()> {
    setxattr(file, "user.small", b"a value", XattrFlags::empty())?;
    setxattr(file, "user.large", &pattern(40, 9000), XattrFlags::empty())?;
    Ok(setxattr(file, "system.posix_acl_access", &access_list(), XattrFlags::empty())?)
}

/// Each feature once.
pub(super) fn first_files(root: &Path) -> io::Result<()> {
    let dir = root.join("a directory");
    fs::create_dir_all(dir.join("below/it"))?;
    fs::set_permissions(&dir, Permissions::from_mode(0o2750))?;
    for n in 0..24 {
        fs::write(dir.join(format!("small-{n:02}")), pattern(n, n * 700))?;
    }
    chown(dir.join("small-03"), Some(1000), Some(1001))?;
    fs::set_permissions(dir.join("small-04"), Permissions::from_mode(0o4711))?;
    for n in 0..3 {
        fs::hard_link(dir.join("small-05"), root.join(format!("link-{n}")))?;
    }
    links_and_nodes(root, "a directory/small-06")?;
    let holes = File::create(root.join("holes"))?;
    holes.write_all_at(&pattern(30, 9000), 0)?;
    holes.write_all_at(&pattern(31, 300_000), 1 << 20)?;
    fallocate(&holes, FallocateFlags::empty(), 2 << 20, 256 << 10)?;
    holes.write_all_at(b"in what is unwritten", (2 << 20) + 70_000)?;
    fallocate(&holes, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, (1 << 20) + 8192, 65_536)?;
    for n in 0..40u64 {
        // Many extents.
        holes.write_all_at(b"apart", (4 << 20) + n * 40_960)?;
    }
    fs::write(root.join("attributes"), "with attributes")?;
    attributes(&root.join("attributes"))?;
    setxattr(dir.join("below"), "system.posix_acl_default", &access_list(), XattrFlags::empty())?;
    fs::write(dir.join("below/inherits"), "an access list")?;
    fs::write(root.join("large"), pattern(50, 3 << 20))?;
    let synced = File::create(root.join("synced"))?;
    synced.write_all_at(&pattern(60, 500), 0)?;
    synced.sync_all()
}

/// A directory that was larger.
pub(super) fn big_directory(root: &Path) -> io::Result<()> {
    let dir = root.join("many");
    fs::create_dir(&dir)?;
    let name = |n: u32| dir.join(format!("a name of some length, and its number: {n:04}"));
    for n in 0..300 {
        File::create(name(n))?;
    }
    (0..300).filter(|n| n % 3 == 0).try_for_each(|n| fs::remove_file(name(n)))
}

/// A file that is synced again and again.
pub(super) fn overwrites(root: &Path) -> io::Result<()> {
    let synced = OpenOptions::new().write(true).open(root.join("synced"))?;
    for n in 0..20 {
        // What an fsync of few bytes leaves in the journal.
        synced.write_all_at(&pattern(n, 300), n as u64 * 1000)?;
        synced.sync_data()?;
    }
    Ok(())
}

/// Changes on top of what was synced; gives back a file that has no name any more.
pub(super) fn later_files(root: &Path) -> io::Result<File> {
    let dir = root.join("a directory");
    OpenOptions::new().append(true).open(dir.join("small-10"))?.write_all(&pattern(70, 5000))?;
    OpenOptions::new().write(true).open(dir.join("small-20"))?.set_len(3000)?;
    fs::rename(dir.join("small-11"), root.join("renamed"))?;
    fs::rename(dir.join("small-12"), dir.join("small-13"))?;
    fs::rename(dir.join("below"), root.join("moved"))?;
    fs::remove_file(dir.join("small-14"))?;
    fs::remove_file(root.join("link-1"))?;
    setxattr(root.join("attributes"), "user.small", b"another value", XattrFlags::empty())?;
    fs::write(root.join("unsynced"), pattern(80, 20_000))?;
    let gone = File::create_new(root.join("without a name"))?;
    gone.write_all_at(&pattern(90, 600_000), 0)?;
    fs::remove_file(root.join("without a name"))?;
    // What nobody synced is not promised when the server is killed.
    for name in ["unsynced", "a directory/small-10"] {
        File::open(root.join(name))?.sync_all()?;
    }
    Ok(gone)
}
