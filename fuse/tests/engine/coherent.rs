//! Both doors open at once: what each has is the other's, too, where the kernel acts by what it knows itself.

use crate::mapped::Map;
use crate::support::{BLOCK, Served, served_with};
use narufs_engine::path::{Files, OpenOptions};
use narufs_fuse::Caching;
use rustix::fs::{OFlags, fcntl_setfl};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

fn both_doors() -> (Served, Files) {
    let served = served_with(Caching::Shared, |_| {});
    let files = Files::new(Arc::clone(served.fs()));
    (served, files)
}

fn to_write(library: &Files, path: &str) -> narufs_engine::path::File {
    library.open(path, OpenOptions { read: true, write: true, ..Default::default() }).unwrap()
}

fn appends_of_both_sides_follow_one_another() {
    let (m, library) = both_doors();
    fs::write(m.at("log"), "one ").unwrap();
    let mut there = File::options().append(true).open(m.at("log")).unwrap();
    let mut both = File::options().append(true).read(true).open(m.at("log")).unwrap();
    let mine = to_write(&library, "/log");
    mine.append(b"two ").unwrap();
    there.write_all(b"three ").unwrap();
    mine.append(b"four ").unwrap();
    both.write_all(b"five").unwrap();
    let expected = "one two three four five";
    assert_eq!(fs::read_to_string(m.at("log")).unwrap(), expected);
    assert_eq!(library.read("/log").unwrap(), expected.as_bytes());
    // What a program asks of a file that is open counts for it.
    fcntl_setfl(&both, OFlags::empty()).unwrap();
    both.write_all_at(b"ONE", 0).unwrap();
    assert_eq!(library.read("/log").unwrap(), b"ONE two three four five");
    // What was cut is no end either.
    mine.set_len(4).unwrap();
    there.write_all(b"six").unwrap();
    assert_eq!(library.read("/log").unwrap(), b"ONE six");
}

fn what_was_stored_through_a_map_comes_before_what_the_library_changes() {
    let (m, library) = both_doors();
    fs::write(m.at("f"), [0; BLOCK as usize]).unwrap();
    let there = File::options().read(true).write(true).open(m.at("f")).unwrap();
    let map = Map::of(&there, BLOCK as usize).unwrap();
    let mine = to_write(&library, "/f");
    map.put(0, 1);
    mine.write_at(&[2; 10], 100).unwrap();
    let now = library.read("/f").unwrap();
    assert_eq!((now[0], &now[99..111]), (1, &[0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0][..]));
    // Nor does it come back behind what has been cut.
    map.put(0, 3);
    mine.set_len(0).unwrap();
    assert_eq!(library.metadata("/f").unwrap().size, 0);
    mine.write_at(&[4], 0).unwrap();
    assert_eq!(library.read("/f").unwrap(), [4]);
}

fn a_map_shows_what_the_library_has_made_longer() {
    let (m, library) = both_doors();
    fs::write(m.at("f"), [1; BLOCK as usize]).unwrap();
    let there = File::options().read(true).write(true).open(m.at("f")).unwrap();
    let map = Map::of(&there, 4 * BLOCK as usize).unwrap();
    let block = BLOCK as usize;
    assert_eq!(map.get(0), 1);
    let mine = to_write(&library, "/f");
    mine.append(&[2; BLOCK as usize]).unwrap();
    assert_eq!((map.get(block), map.get(2 * block - 1)), (2, 2));
    mine.set_len(3 * BLOCK).unwrap();
    assert_eq!((map.get(2 * block), map.get(3 * block - 1)), (0, 0));
    mine.write_at(&[5], 4 * BLOCK - 1).unwrap();
    assert_eq!((map.get(3 * block), map.get(4 * block - 1)), (0, 5));
}

/// A shell in a directory, which says where it is when it is told to.
struct Inside(Child);

impl Inside {
    fn new(dir: &Path) -> Inside {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "while read -r line; do pwd -P; done"]).current_dir(dir);
        Inside(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Once more, and then no more.
    fn end(mut self) -> String {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.0.wait().unwrap().success());
        said
    }
}

/// Dropping a name takes those who are below it their way up, and detaches what is mounted there.
fn calls_of_the_library_that_change_nothing_leave_who_is_in_a_directory_there() {
    let (m, library) = both_doors();
    fs::create_dir(m.at("d")).unwrap();
    fs::write(m.at("d/file"), "").unwrap();
    fs::write(m.at("other"), "").unwrap();
    let inside = Inside::new(&m.at("d"));
    assert!(library.create_dir("/d").is_err());
    assert!(library.remove_dir("/d").is_err());
    assert!(library.remove_file("/d").is_err());
    assert!(library.rename("/d", "/other").is_err());
    assert!(library.rename("/other", "/d").is_err());
    assert!(library.hard_link("/other", "/d").is_err());
    assert!(library.symlink("anywhere", "/d").is_err());
    assert!(library.create("/d").is_err());
    library.rename("/d", "/d").unwrap();
    let there = fs::canonicalize(m.at("d")).unwrap();
    assert_eq!(Path::new(inside.end().trim_end()), there);
}

on_each_transport!(
    appends_of_both_sides_follow_one_another,
    what_was_stored_through_a_map_comes_before_what_the_library_changes,
    a_map_shows_what_the_library_has_made_longer,
    calls_of_the_library_that_change_nothing_leave_who_is_in_a_directory_there,
);
