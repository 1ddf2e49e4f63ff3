//! Both doors open at once: what a program changes through the library shows in the mount at once, and is trusted there
//! until it changes again.

use crate::support::{BLOCK, Served, served_with};
use narufs_engine::path::Files;
use narufs_engine::vfs::{FallocateMode, SetAttr, SetTime};
use narufs_fuse::Caching;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn both_doors() -> (Served, Files) {
    let served = served_with(Caching::Shared, |_| {});
    let files = Files::new(Arc::clone(served.fs()));
    (served, files)
}

fn names_made_moved_and_taken_by_the_library_show_at_once() {
    let (m, library) = both_doors();
    fs::create_dir(m.at("d")).unwrap();
    // The kernel knows that it is not there, what the listing is, and how the directory looks.
    assert_eq!(fs::metadata(m.at("d/new")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(names(&m.at("d")), [""; 0]);
    drop(library.create("/d/new").unwrap());
    assert_eq!(fs::metadata(m.at("d/new")).unwrap().len(), 0);
    assert_eq!(names(&m.at("d")), ["new"]);
    library.create_dir("/d/sub").unwrap();
    assert_eq!(
        (names(&m.at("d")), fs::metadata(m.at("d")).unwrap().nlink()),
        (vec!["new".into(), "sub".into()], 3)
    );
    library.hard_link("/d/new", "/d/other").unwrap();
    assert_eq!(fs::metadata(m.at("d/new")).unwrap().nlink(), 2);
    library.rename("/d/new", "/d/moved").unwrap();
    assert_eq!(fs::metadata(m.at("d/new")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::metadata(m.at("d/moved")).unwrap().nlink(), 2);
    library.remove_file("/d/other").unwrap();
    assert_eq!(fs::metadata(m.at("d/moved")).unwrap().nlink(), 1);
    library.symlink("moved", "/d/link").unwrap();
    assert_eq!(fs::read_link(m.at("d/link")).unwrap(), Path::new("moved"));
    library.remove_file("/d/link").unwrap();
    library.symlink("elsewhere", "/d/link").unwrap();
    assert_eq!(fs::read_link(m.at("d/link")).unwrap(), Path::new("elsewhere"));
    library.remove_dir("/d/sub").unwrap();
    assert_eq!(names(&m.at("d")), ["link", "moved"]);
    assert_eq!(fs::metadata(m.at("d")).unwrap().nlink(), 2);
}

fn a_directory_moved_by_the_library_is_found_where_it_is() {
    let (m, library) = both_doors();
    fs::create_dir_all(m.at("a/b/c")).unwrap();
    fs::write(m.at("a/b/c/file"), "text").unwrap();
    let held = File::open(m.at("a/b/c/file")).unwrap();
    library.create_dir("/z").unwrap();
    library.rename("/a/b", "/z/b").unwrap();
    assert_eq!(fs::read(m.at("z/b/c/file")).unwrap(), b"text");
    assert_eq!(fs::metadata(m.at("a/b")).unwrap_err().kind(), ErrorKind::NotFound);
    let mut found = [0; 4];
    held.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"text");
}

fn bytes_and_attributes_changed_by_the_library_show_at_once() {
    let (m, library) = both_doors();
    let path = m.at("file");
    fs::write(&path, vec![1; 3 * BLOCK as usize]).unwrap();
    let seen = File::open(&path).unwrap();
    let byte = |at: u64| {
        let mut one = [0];
        seen.read_exact_at(&mut one, at).map(|()| one[0]).map_err(|e| e.kind())
    };
    assert_eq!((byte(0), byte(BLOCK), byte(2 * BLOCK)), (Ok(1), Ok(1), Ok(1)));
    let mine = library
        .open("/file", narufs_engine::path::OpenOptions { read: true, write: true, ..Default::default() })
        .unwrap();
    mine.write_at(&[2; 10], BLOCK).unwrap();
    assert_eq!((byte(0), byte(BLOCK), byte(BLOCK + 10)), (Ok(1), Ok(2), Ok(1)));
    mine.append(&[3]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 3 * BLOCK + 1);
    assert_eq!(byte(3 * BLOCK), Ok(3));
    mine.set_len(BLOCK + 1).unwrap();
    assert_eq!((byte(BLOCK), byte(BLOCK + 1)), (Ok(2), Err(ErrorKind::UnexpectedEof)));
    mine.set_len(2 * BLOCK).unwrap();
    assert_eq!((byte(BLOCK), byte(BLOCK + 1)), (Ok(2), Ok(0)), "what was cut does not come back");
    mine.allocate(FallocateMode::PunchHole, 0, BLOCK).unwrap();
    assert_eq!(byte(0), Ok(0));
    let set = SetAttr { mode: Some(0o600), mtime: SetTime::At(7_000_000_000), ..SetAttr::default() };
    library.set_attributes("/file", &set).unwrap();
    let now = fs::metadata(&path).unwrap();
    assert_eq!((now.mode() & 0o7777, now.mtime()), (0o600, 7));
    drop(library.create("/file").unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(byte(0), Err(ErrorKind::UnexpectedEof));
}

/// A counter that only grows, written by the library and read by the mount: what the mount shows after a write has
/// returned is never older than that.
fn the_mount_never_shows_what_was_before_a_call_that_has_returned() {
    let (m, library) = both_doors();
    let mine = library.create("/count").unwrap();
    mine.write_at(&0u64.to_le_bytes(), 0).unwrap();
    fs::write(m.at("made0"), "").unwrap();
    for count in 1..=400 {
        fs::write(m.at(&format!("removed{count}")), "").unwrap();
    }
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let seen = File::open(m.at("count")).unwrap();
                while !done.load(Ordering::Acquire) {
                    let least = written.load(Ordering::Acquire);
                    let mut bytes = [0; 8];
                    seen.read_exact_at(&mut bytes, 0).unwrap();
                    assert!(u64::from_le_bytes(bytes) >= least);
                    assert!(m.at(&format!("made{least}")).exists(), "{least}");
                    assert!(!m.at(&format!("removed{least}")).exists(), "{least}");
                }
            });
        }
        for count in 1..=400u64 {
            drop(library.create(format!("/made{count}")).unwrap());
            library.remove_file(format!("/removed{count}")).unwrap();
            mine.write_at(&count.to_le_bytes(), 0).unwrap();
            written.store(count, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
}

on_each_transport!(
    names_made_moved_and_taken_by_the_library_show_at_once,
    a_directory_moved_by_the_library_is_found_where_it_is,
    bytes_and_attributes_changed_by_the_library_show_at_once,
    the_mount_never_shows_what_was_before_a_call_that_has_returned,
);
