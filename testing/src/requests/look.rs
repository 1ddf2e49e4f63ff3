//! Steps that change nothing.

use super::Row;
use super::scene::{FILE_BYTES, Scene, directory, file, missing, name, setxattr, stat, stat_missing};
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, Result};

/// Directories in a walk, and the file at its end.
const COMPONENTS: usize = 10;

fn tree(s: &Scene, n: usize) -> Result<()> {
    let mut path = name(n);
    for _ in 1..COMPONENTS {
        fs::mkdirat(&s.dir, &path, Mode::from(0o700))?;
        path += "/d";
    }
    s.file(&path, FILE_BYTES)
}

fn walk(s: &Scene, n: usize) -> Result<()> {
    s.stat(&(name(n) + &"/d".repeat(COMPONENTS - 1)))
}

fn list(s: &Scene, n: usize) -> Result<()> {
    s.list(&name(n), false).map(drop)
}

fn list_and_look(s: &Scene, n: usize) -> Result<()> {
    s.list(&name(n), true).map(drop)
}

fn link(s: &Scene, n: usize) -> Result<()> {
    fs::symlinkat("where it leads", &s.dir, name(n))
}

fn readlink(s: &Scene, n: usize) -> Result<()> {
    fs::readlinkat(&s.dir, name(n), Vec::new()).map(drop)
}

fn with_attribute(s: &Scene, n: usize) -> Result<()> {
    file(s, n)?;
    setxattr(s, n)
}

fn getxattr(s: &Scene, n: usize) -> Result<()> {
    let mut value = [0; 64];
    fs::fgetxattr(s.opened(&name(n), OFlags::RDONLY)?, "user.x", &mut value).map(drop)
}

fn listxattr(s: &Scene, n: usize) -> Result<()> {
    let mut names = [0; 64];
    fs::flistxattr(s.opened(&name(n), OFlags::RDONLY)?, &mut names).map(drop)
}

fn getxattr_missing(s: &Scene, n: usize) -> Result<()> {
    missing(getxattr(s, n), Errno::NODATA)
}

fn lock(s: &Scene, n: usize) -> Result<()> {
    let file = s.opened(&name(n), OFlags::RDWR)?;
    fs::flock(&file, FlockOperation::LockExclusive)?;
    fs::flock(&file, FlockOperation::Unlock)?;
    fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::fcntl_lock(&file, FlockOperation::NonBlockingUnlock)
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new("stat of a file, the first time", stat).of(file).unseen(),
        Row::new("stat of a file seen before", stat).of(file).after(stat),
        Row::new("stat of a name that is not there, the first time", stat_missing),
        Row::new("stat of a name that is not there, seen before", stat_missing).after(stat_missing),
        Row::new("access of a file seen before", |s, n| {
            fs::accessat(&s.dir, name(n), fs::Access::READ_OK, fs::AtFlags::empty())
        })
        .of(file)
        .after(stat),
        Row::new("walk of ten components, directories of mode 0700, the first time", walk).of(tree).unseen(),
        Row::new("walk of ten components, directories of mode 0700, seen before", walk).of(tree).after(walk),
        Row::new("readlink, the first time", readlink).of(link).unseen(),
        Row::new("readlink, seen before", readlink).of(link).after(readlink),
        Row::new("listing of a directory of ten files, the first time", list).of(directory).unseen(),
        Row::new("listing of a directory of ten files, seen before", list).of(directory).after(list),
        Row::new("listing of a directory of ten files and stat of each, the first time", list_and_look)
            .of(directory)
            .unseen(),
        Row::new("listing of a directory of ten files and stat of each, seen before", list_and_look)
            .of(directory)
            .after(list_and_look),
        Row::new("statfs", |s, _| fs::fstatfs(&s.dir).map(drop)),
        Row::new("flock and fcntl lock, taken and dropped", lock).of(file).after(stat),
        Row::new("getxattr of user.x", getxattr).of(with_attribute).after(getxattr),
        Row::new("getxattr of user.x where there is none", getxattr_missing).of(file).after(getxattr_missing),
        Row::new("listxattr", listxattr).of(with_attribute).after(listxattr),
    ]
}
