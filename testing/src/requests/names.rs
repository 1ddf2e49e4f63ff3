//! Steps that make, move and remove names, one after the other in one directory.

use super::Row;
use super::scene::{
    AsUser, FILE_BYTES, PIECES, Scene, file, name, other, stat, stat_missing, user, write, write_from,
};
use rustix::fs::{self, AtFlags, Mode, OFlags, Uid};
use rustix::io::Result;

fn create(s: &Scene, n: usize, flags: OFlags) -> Result<()> {
    write(&s.created(&name(n), flags | OFlags::CREATE, 0o644)?, FILE_BYTES)
}

fn create_as_user(s: &Scene, n: usize) -> Result<()> {
    let user = AsUser::begin()?;
    create(s, n, OFlags::WRONLY | OFlags::EXCL)?;
    drop(user);
    Ok(())
}

/// The row's directory becomes somebody's, and the group's that everybody is in.
fn give_directory(s: &Scene, owner: Option<Uid>, mode: u32) -> Result<()> {
    fs::fchown(&s.dir, owner, Some(user().1))?;
    fs::fchmod(&s.dir, Mode::from(mode))
}

fn mkdir(s: &Scene, n: usize) -> Result<()> {
    fs::mkdirat(&s.dir, name(n), Mode::from(0o755))
}

fn rename(s: &Scene, n: usize) -> Result<()> {
    fs::renameat(&s.dir, name(n), &s.dir, other(n))
}

fn unlink(s: &Scene, n: usize) -> Result<()> {
    fs::unlinkat(&s.dir, name(n), AtFlags::empty())
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new("create, close (O_WRONLY, O_EXCL)", |s, n| s.new_file(&name(n)).map(drop)),
        Row::new("create, write of 3,000 bytes, close (O_WRONLY, O_EXCL)", |s, n| {
            create(s, n, OFlags::WRONLY | OFlags::EXCL)
        }),
        Row::new("the same of a name known not to be there (O_WRONLY, O_EXCL)", |s, n| {
            create(s, n, OFlags::WRONLY | OFlags::EXCL)
        })
        .after(stat_missing),
        Row::new("create, write of 3,000 bytes, close (O_WRONLY, O_TRUNC)", |s, n| {
            create(s, n, OFlags::WRONLY | OFlags::TRUNC)
        }),
        Row::new("the same of a name known not to be there (O_WRONLY, O_TRUNC)", |s, n| {
            create(s, n, OFlags::WRONLY | OFlags::TRUNC)
        })
        .after(stat_missing),
        Row::new("create, write of 3,000 bytes, close (O_RDWR, O_EXCL)", |s, n| {
            create(s, n, OFlags::RDWR | OFlags::EXCL)
        }),
        Row::new("create, three writes that begin within pages, close (O_RDWR, O_EXCL)", |s, n| {
            let file = s.created(&name(n), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o644)?;
            PIECES.iter().try_for_each(|bytes| write(&file, *bytes))
        }),
        Row::new("create, write, close by a user, in their own directory", create_as_user)
            .of(|s, _| give_directory(s, Some(user().0), 0o755)),
        Row::new("create, write, close by a user, in a directory of their group's", create_as_user)
            .of(|s, _| give_directory(s, None, 0o775)),
        Row::new(
            "create, write of 1 MiB from memory that begins with a page, close (O_WRONLY, O_EXCL)",
            |s, n| {
                let file = s.new_file(&name(n))?;
                write_from(&file, 1 << 20, 0)
            },
        ),
        Row::new(
            "create, write of 1 MiB from memory that begins within a page, close (O_WRONLY, O_EXCL)",
            |s, n| {
                let file = s.new_file(&name(n))?;
                write_from(&file, 1 << 20, 100)
            },
        ),
        Row::new("mkdir", mkdir),
        Row::new("mkdir of a name known not to be there", mkdir).after(stat_missing),
        Row::new("symlink", |s, n| fs::symlinkat("where it leads", &s.dir, name(n))),
        Row::new("link", |s, n| fs::linkat(&s.dir, name(n), &s.dir, other(n), AtFlags::empty()))
            .of(file)
            .after(stat),
        Row::new("unlink", unlink).of(file).after(stat),
        Row::new("rmdir", |s, n| fs::unlinkat(&s.dir, name(n), AtFlags::REMOVEDIR)).of(mkdir).after(stat),
        Row::new("rename to a free name", rename).of(file).after(stat),
        Row::new("rename over a file", rename)
            .of(|s, n| {
                file(s, n)?;
                s.file(&other(n), FILE_BYTES)
            })
            .after(|s, n| {
                stat(s, n)?;
                s.stat(&other(n))
            }),
        Row::new("write a temporary file, rename it over another", |s, n| {
            create(s, n, OFlags::WRONLY | OFlags::EXCL)?;
            rename(s, n)
        })
        .of(|s, n| s.file(&other(n), FILE_BYTES))
        .after(|s, n| s.stat(&other(n))),
        Row::new("write a temporary file, fsync, rename it over another", |s, n| {
            let file = s.new_file(&name(n))?;
            write(&file, FILE_BYTES)?;
            fs::fsync(&file)?;
            drop(file);
            rename(s, n)
        })
        .of(|s, n| s.file(&other(n), FILE_BYTES))
        .after(|s, n| s.stat(&other(n))),
        Row::new("create, write, close, unlink", |s, n| {
            create(s, n, OFlags::WRONLY | OFlags::EXCL)?;
            unlink(s, n)
        }),
    ]
}
