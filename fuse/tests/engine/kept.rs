//! What the kernel keeps of what was written, and the server does not have yet.

use crate::mapped::Map;
use crate::support::{BLOCK, Served, pattern, served_with};
use narufs_engine::path::{Files, OpenOptions};
use narufs_fuse::mount::Io;
use narufs_fuse::{Caching, control};
use rustix::fs::{SeekFrom, seek};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn cached() -> Served {
    served_with(Caching::Exclusive, |options| options.io = Io::Cached)
}

fn new(m: &Served, name: &str) -> File {
    File::options().read(true).write(true).create_new(true).open(m.at(name)).unwrap()
}

/// What the server has of a file.
fn at_server(m: &Served, path: &str) -> Vec<u8> {
    let file =
        Files::new(Arc::clone(m.fs())).open(path, OpenOptions { read: true, ..Default::default() }).unwrap();
    let mut bytes = vec![0; 16 << 20];
    let read = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(read);
    bytes
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

/// Syncs until the server has what it is to have. By itself the kernel would keep it for half a minute.
fn sync_until(m: &Served, has_it: impl Fn() -> bool) {
    let since = Instant::now();
    loop {
        control::sync(&m.point).unwrap();
        if has_it() {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(3), "the kernel keeps it");
    }
}

fn a_sync_has_the_kernel_send_what_it_keeps() {
    let m = cached();
    for round in 0..3 {
        let name = format!("file-{round}");
        let file = new(&m, &name);
        let data = pattern(5 << 20, round);
        file.write_all_at(&data, 0).unwrap();
        sync_until(&m, || at_server(&m, &format!("/{name}")) == data);
        drop(file);
    }
}

fn a_sync_has_the_kernel_send_what_was_stored_in_a_map() {
    let m = served_with(Caching::Exclusive, |_| {});
    let file = new(&m, "file");
    file.set_len(64 * BLOCK).unwrap();
    let map = Map::of(&file, 64 * BLOCK as usize).unwrap();
    for round in 1..4 {
        (0..64).for_each(|page| map.put(page * BLOCK as usize, round));
        let is_it = || at_server(&m, "/file").iter().step_by(BLOCK as usize).all(|byte| *byte == round);
        sync_until(&m, is_it);
    }
}

on_each_transport!(
    what_the_kernel_keeps_is_no_hole,
    a_sync_has_the_kernel_send_what_it_keeps,
    a_sync_has_the_kernel_send_what_was_stored_in_a_map,
);
