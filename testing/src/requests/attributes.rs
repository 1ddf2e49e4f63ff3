//! Steps that change what is not a name and not a byte.

use super::Row;
use super::scene::{Scene, file, name, setxattr, stat, user};
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Result;

fn chmod(s: &Scene, n: usize) -> Result<()> {
    fs::chmodat(&s.dir, name(n), Mode::from(0o600), AtFlags::empty())
}

/// A time long ago, of access and change.
pub fn long_ago() -> Timestamps {
    let then = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    Timestamps { last_access: then, last_modification: then }
}

pub fn rows() -> Vec<Row> {
    vec![
        Row::new("chmod", chmod).of(file).after(stat),
        Row::new("chmod, stat", |s, n| {
            chmod(s, n)?;
            stat(s, n)
        })
        .of(file)
        .after(stat),
        Row::new("utimens", |s, n| fs::utimensat(&s.dir, name(n), &long_ago(), AtFlags::empty()))
            .of(file)
            .after(stat),
        Row::new("chown by root", |s, n| {
            fs::chownat(&s.dir, name(n), Some(user().0), Some(user().1), AtFlags::empty())
        })
        .of(file)
        .after(stat),
        Row::new("setxattr of user.x", setxattr).of(file).after(stat),
        Row::new("setxattr of user.x, stat", |s, n| {
            setxattr(s, n)?;
            stat(s, n)
        })
        .of(file)
        .after(stat),
        Row::new("removexattr of user.x", |s, n| {
            fs::fremovexattr(s.opened(&name(n), OFlags::RDONLY)?, "user.x")
        })
        .of(|s, n| {
            file(s, n)?;
            setxattr(s, n)
        })
        .after(stat),
    ]
}
