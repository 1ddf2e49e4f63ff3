//! What the kernel keeps of what was written, and the server does not have yet.

use crate::support::{Served, pattern, served_with};
use narufs_fuse::Caching;
use narufs_fuse::mount::Io;
use rustix::fs::{SeekFrom, seek};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

fn cached() -> Served {
    served_with(Caching::Exclusive, |options| options.io = Io::Cached)
}

fn new(m: &Served, name: &str) -> File {
    File::options().read(true).write(true).create_new(true).open(m.at(name)).unwrap()
}

fn what_the_kernel_keeps_is_no_hole() {
    let m = cached();
    let file = new(&m, "file");
    let data = pattern(10 << 20, 1);
    file.write_all_at(&data, 0).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(0));
    assert_eq!(seek(&file, SeekFrom::Data(5 << 20)), Ok(5 << 20));
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(10 << 20));
    // As programs copy that look for holes.
    let copied = std::process::Command::new("cp").arg(m.at("file")).arg(m.at("copy")).status().unwrap();
    assert!(copied.success());
    assert!(fs::read(m.at("copy")).unwrap() == data);
}

on_each_transport!(what_the_kernel_keeps_is_no_hole,);
