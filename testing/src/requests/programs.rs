//! What programs do for one file or directory: their own system calls, in their order (GNU tar 1.34,
//! coreutils 9.1, git).

use super::Row;
use super::attributes::long_ago;
use super::scene::{FILE_BYTES, PIECES, Scene, directory, missing, name, other, write};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, StatxFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::{self, Errno, Result};

const ACCESS_LIST: &str = "system.posix_acl_access";
/// The access list that says what mode 0644 says: owner, group, others.
const MINIMAL_LIST: [u8; 28] = [
    2, 0, 0, 0, //
    1, 0, 6, 0, 255, 255, 255, 255, //
    4, 0, 4, 0, 255, 255, 255, 255, //
    32, 0, 4, 0, 255, 255, 255, 255,
];

/// By `tar x`, as root.
fn unpack(s: &Scene, n: usize, pieces: &[usize]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = s.created(&name(n), flags, 0o600)?;
    pieces.iter().try_for_each(|bytes| write(&file, *bytes))?;
    let omitted = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
    fs::futimens(&file, &Timestamps { last_access: omitted, ..long_ago() })?;
    fs::fchown(&file, Some(Uid::ROOT), Some(Gid::ROOT))?;
    fs::fchmod(&file, Mode::from(0o644))
}

/// By `cp -a`, from a directory; `bytes` copies the file's.
fn copy(s: &Scene, n: usize, from: &OwnedFd, bytes: fn(&OwnedFd, &OwnedFd) -> Result<()>) -> Result<()> {
    let path = OFlags::PATH | OFlags::DIRECTORY;
    missing(s.opened(&name(n), path), Errno::NOENT)?;
    fs::statat(from, other(n), AtFlags::SYMLINK_NOFOLLOW)?;
    let nofollow = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = fs::openat(from, other(n), nofollow, Mode::empty())?;
    fs::fstat(&source)?;
    let target = s.created(&name(n), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o600)?;
    fs::fstat(&target)?;
    bytes(&source, &target)?;
    fs::futimens(&target, &long_ago())?;
    for _ in 0..2 {
        fs::flistxattr(&source, &mut [0_u8; 0])?;
    }
    missing(fs::fgetxattr(&source, ACCESS_LIST, &mut [0_u8; 132]), Errno::NODATA)?;
    fs::fstat(&source)?;
    fs::fsetxattr(&target, ACCESS_LIST, &MINIMAL_LIST, XattrFlags::empty())
}

/// By copy_file_range(2), until there is nothing more.
fn copy_range(source: &OwnedFd, target: &OwnedFd) -> Result<()> {
    while fs::copy_file_range(source, None, target, None, 1 << 30)? > 0 {}
    Ok(())
}

/// By read(2) and write(2), which is what is left between two file systems.
fn copy_bytes(source: &OwnedFd, target: &OwnedFd) -> Result<()> {
    match fs::copy_file_range(source, None, target, None, 1 << 30) {
        Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP) => {}
        other => return other.map(drop),
    }
    let mut buffer = vec![0; 1 << 17];
    loop {
        let bytes = io::read(source, &mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        io::write(target, &buffer[..bytes])?;
    }
}

fn elsewhere(s: &Scene, n: usize) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = fs::openat(&s.elsewhere, other(n), flags, Mode::from(0o644))?;
    write(&file, FILE_BYTES)
}

/// By `git checkout`.
fn check_out(s: &Scene, n: usize) -> Result<()> {
    s.stat_missing(&name(n))?;
    let file = s.created(&name(n), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o666)?;
    write(&file, FILE_BYTES)?;
    fs::fstat(&file)?;
    drop(file);
    s.stat(&name(n))
}

/// By `ls -l`.
fn show(s: &Scene, n: usize) -> Result<()> {
    let files = s.list(&name(n), false)?;
    let shown = StatxFlags::MODE
        | StatxFlags::NLINK
        | StatxFlags::UID
        | StatxFlags::GID
        | StatxFlags::MTIME
        | StatxFlags::SIZE;
    files.iter().try_for_each(|file| {
        let file = format!("{}/{file}", name(n));
        fs::statx(&s.dir, &file, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, shown)?;
        let path = s.path(&file);
        missing(fs::lgetxattr(&path, "security.selinux", &mut [0_u8; 255]), Errno::NODATA)?;
        missing(fs::getxattr(&path, ACCESS_LIST, &mut [0_u8; 0]), Errno::NODATA)
    })
}

/// By `find`, with a test that needs each file's attributes.
fn find(s: &Scene, n: usize) -> Result<()> {
    s.stat(&name(n))?;
    fs::fstat(s.opened(&name(n), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?)?;
    s.list(&name(n), true).map(drop)
}

/// By `rm -r`.
fn remove(s: &Scene, n: usize) -> Result<()> {
    s.stat(&name(n))?;
    let dir = s.opened(&name(n), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    fs::fstat(&dir)?;
    fs::fstatfs(&dir)?;
    let files = s.list(&name(n), false)?;
    files.iter().try_for_each(|file| fs::unlinkat(dir.as_fd(), file, AtFlags::empty()))?;
    fs::unlinkat(&s.dir, name(n), AtFlags::REMOVEDIR)
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new("`tar x`, a file of 3,000 bytes", |s, n| unpack(s, n, &[FILE_BYTES])),
        Row::new("`tar x`, a file of 20,000 bytes in three pieces", |s, n| unpack(s, n, &PIECES)),
        Row::new("`cp -a` of a file within the mount", |s, n| copy(s, n, &s.dir, copy_range))
            .of(|s, n| s.file(&other(n), FILE_BYTES))
            .after(|s, n| s.stat(&other(n))),
        Row::new("`cp -a` of a file from elsewhere", |s, n| copy(s, n, &s.elsewhere, copy_bytes))
            .of(elsewhere),
        Row::new("`git checkout`, a file", check_out),
        Row::new("`ls -l` of a directory of ten files, the first time", show).of(directory).unseen(),
        Row::new("`ls -l` of a directory of ten files, seen before", show).of(directory).after(show),
        Row::new("`find` through a directory of ten files, the first time", find).of(directory).unseen(),
        Row::new("`find` through a directory of ten files, the second time", find)
            .of(directory)
            .unseen()
            .after(find),
        Row::new("`find` through a directory of ten files, later", find).of(directory).after(|s, n| {
            find(s, n)?;
            find(s, n)
        }),
        Row::new("`rm -r` of a directory of ten files", remove)
            .of(directory)
            .after(|s, n| s.list(&name(n), true).map(drop)),
    ]
}
