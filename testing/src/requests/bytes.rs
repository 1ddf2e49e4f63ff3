//! Steps that read and write files which exist.

use super::Row;
use super::scene::{FILE_BYTES, PAGE, Scene, file, name, overwrite, stat, write};
use rustix::fs::{self, FallocateFlags, OFlags};
use rustix::io::Result;

fn pages(s: &Scene, n: usize) -> Result<()> {
    s.file(&name(n), 4 * PAGE)
}

fn large(s: &Scene, n: usize) -> Result<()> {
    s.file(&name(n), 1 << 20)
}

fn read(s: &Scene, n: usize) -> Result<()> {
    s.read(&name(n))
}

/// What the kernel has of a file that it has read, and looked at since.
fn read_and_stat(s: &Scene, n: usize) -> Result<()> {
    read(s, n)?;
    stat(s, n)
}

fn append(s: &Scene, n: usize) -> Result<()> {
    write(&s.opened(&name(n), OFlags::WRONLY | OFlags::APPEND)?, 100)
}

fn page(s: &Scene, n: usize) -> Result<()> {
    overwrite(&s.opened(&name(n), OFlags::WRONLY)?, PAGE)
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new("open, read, close of a file of 3,000 bytes, the first time", read)
            .of(file)
            .unseen()
            .after(stat),
        Row::new("open, read, close of a file of 3,000 bytes, the first time, stat", read_and_stat)
            .of(file)
            .unseen()
            .after(stat),
        Row::new("open, read, close of a file of 1 MiB, the first time", read).of(large).unseen().after(stat),
        Row::new("open, read, close of a cached file", read).of(file).after(read),
        Row::new("open, read, close of a cached file, stat", read_and_stat).of(file).after(read_and_stat),
        Row::new("append of 100 bytes to a cached file", append).of(file).after(read_and_stat),
        Row::new("append of 100 bytes to a file that nobody has read", append).of(file).unseen().after(stat),
        Row::new("append of 100 bytes to a file appended to before", append).of(file).after(append),
        Row::new("ten appends of 100 bytes to a cached file, one open", |s, n| {
            let file = s.opened(&name(n), OFlags::WRONLY | OFlags::APPEND)?;
            (0..10).try_for_each(|_| write(&file, 100))
        })
        .of(file)
        .after(read_and_stat),
        Row::new("overwrite of a cached page", page).of(pages).after(read_and_stat),
        Row::new("overwrite of a cached page, stat", |s, n| {
            page(s, n)?;
            stat(s, n)
        })
        .of(pages)
        .after(read_and_stat),
        Row::new("ten overwrites of a cached page, one open", |s, n| {
            let file = s.opened(&name(n), OFlags::WRONLY)?;
            (0..10).try_for_each(|_| overwrite(&file, PAGE))
        })
        .of(pages)
        .after(read_and_stat),
        Row::new("overwrite of 100 bytes of a cached page", |s, n| {
            overwrite(&s.opened(&name(n), OFlags::WRONLY)?, 100)
        })
        .of(pages)
        .after(read_and_stat),
        Row::new("overwrite of 100 bytes of a page that nobody has read", |s, n| {
            overwrite(&s.opened(&name(n), OFlags::WRONLY)?, 100)
        })
        .of(pages)
        .unseen()
        .after(stat),
        Row::new("truncate and rewrite (O_TRUNC)", |s, n| {
            write(&s.opened(&name(n), OFlags::WRONLY | OFlags::TRUNC)?, FILE_BYTES)
        })
        .of(file)
        .after(read_and_stat),
        Row::new("ftruncate to half", |s, n| {
            fs::ftruncate(s.opened(&name(n), OFlags::WRONLY)?, FILE_BYTES as u64 / 2)
        })
        .of(file)
        .after(read_and_stat),
        Row::new("fallocate of 1 MiB", |s, n| {
            fs::fallocate(s.opened(&name(n), OFlags::WRONLY)?, FallocateFlags::empty(), 0, 1 << 20)
        })
        .of(file)
        .after(read_and_stat),
        Row::new("overwrite of a cached page, fsync", |s, n| {
            let file = s.opened(&name(n), OFlags::WRONLY)?;
            overwrite(&file, PAGE)?;
            fs::fsync(&file)
        })
        .of(pages)
        .after(read_and_stat),
        Row::new("fsync of a file that nobody has changed", |s, n| {
            fs::fsync(s.opened(&name(n), OFlags::RDONLY)?)
        })
        .of(file)
        .after(read_and_stat),
    ]
}
