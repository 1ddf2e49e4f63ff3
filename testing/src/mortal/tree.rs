//! What a directory holds, in lines that two directories have in common if they hold the same.

use super::cases::OLD;
use crc32c::crc32c;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxFlags, StatxTimestamp, fsync, lgetxattr, llistxattr, open, readlink,
    statx,
};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Times of the past were set by somebody; others say that it was changed.
pub fn time(at: &StatxTimestamp) -> String {
    if at.tv_sec < OLD + 1000 { format!("{}.{}", at.tv_sec, at.tv_nsec) } else { "changed".to_owned() }
}

/// What is there, a line each, in the order of names; `measured`: with the room that files take.
///
/// # Errors
/// Those of the calls.
pub fn look(at: &Path, measured: bool) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    walk(at, "", measured, &mut lines)?;
    Ok(lines)
}

fn walk(at: &Path, name: &str, measured: bool, lines: &mut Vec<String>) -> io::Result<()> {
    let mut line = format!("/{name} {}", attributes(CWD, at)?);
    let found = fs::symlink_metadata(at)?;
    for (attribute, value) in attributes_of(at)? {
        line += &format!(" {attribute}={value:?}");
    }
    if found.is_symlink() {
        line += &format!(" -> {:?}", readlink(at, Vec::new())?);
    }
    if found.is_file() {
        line +=
            &format!(" {}", content(&open(at, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, measured)?);
    }
    lines.push(line);
    if found.is_dir() {
        let mut names = Vec::new();
        for entry in fs::read_dir(at)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        for below in names {
            walk(&at.join(&below), &format!("{name}/{below}"), measured, lines)?;
        }
    }
    Ok(())
}

/// What statx(2) says, asked of the server.
///
/// # Errors
/// Those of the call.
pub fn attributes(dir: impl AsFd, path: &Path) -> io::Result<String> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let is = statx(dir, path, flags, StatxFlags::BASIC_STATS)?;
    let size = if u32::from(is.stx_mode) & libc::S_IFMT == libc::S_IFDIR { 0 } else { is.stx_size };
    Ok(format!(
        "{:o} {}:{} links {} size {size} device {}:{} {}",
        is.stx_mode,
        is.stx_uid,
        is.stx_gid,
        is.stx_nlink,
        is.stx_rdev_major,
        is.stx_rdev_minor,
        time(&is.stx_mtime)
    ))
}

/// The bytes of a file, from the server.
///
/// # Errors
/// Those of the calls.
pub fn content(file: &OwnedFd, measured: bool) -> io::Result<String> {
    use std::os::unix::fs::FileExt;
    let mut blocks = String::new();
    if measured {
        fsync(file)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        blocks = format!(" in {} sectors", statx(file, "", flags, StatxFlags::BASIC_STATS)?.stx_blocks);
    }
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    let (file, mut bytes) = (fs::File::from(file.try_clone()?), Vec::new());
    let mut piece = vec![0; 1 << 17];
    loop {
        match file.read_at(&mut piece, bytes.len() as u64)? {
            0 => break,
            len => bytes.extend_from_slice(&piece[..len]),
        }
    }
    Ok(format!("{} bytes {:08x}{blocks}", bytes.len(), crc32c(&bytes)))
}

fn attributes_of(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0u8; 4096];
    let len = llistxattr(path, &mut names)?;
    let mut all = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 4096];
        let len = lgetxattr(path, name, &mut value)?;
        value.truncate(len);
        all.push((String::from_utf8_lossy(name).into_owned(), value));
    }
    all.sort();
    Ok(all)
}
