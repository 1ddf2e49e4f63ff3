//! What cannot be is said in one line, before anything is written; what was begun is cleaned up.

mod support;

use narufs_bench::progress::Progress;
use narufs_bench::stop::Stop;
use narufs_bench::target::{Directory, Library, LibraryOptions};
use narufs_bench::{Error, Params};
use std::path::Path;
use support::*;

fn one_line(e: &Error) -> String {
    let said = e.to_string();
    assert!(!said.contains('\n') && !said.is_empty(), "{said}");
    said
}

#[test]
fn a_target_that_is_none_is_named() {
    let at = memory();
    let said = |path: &Path| one_line(&Directory::new(path, None).err().expect("refused"));
    assert!(said(&at.path().join("missing")).contains("no such directory"));
    std::fs::write(at.path().join("file"), "x").expect("room");
    assert!(said(&at.path().join("file")).contains("not a directory"));
    let library = Library::mount(&at.path().join("file"), "lib", LibraryOptions::default());
    assert!(one_line(&library.err().expect("refused")).contains("file"));
}

#[test]
fn a_target_that_cannot_be_written_to_is_named() {
    // Nobody makes directories there, not even root.
    let mut target = Directory::new(Path::new("/sys"), None).expect("a directory");
    let e = run(&mut target, &plan("DWOL", 1, small())).expect_err("refused");
    assert!(matches!(e, Error::Refused(_)) && one_line(&e).contains("cannot write here"), "{e}");
}

#[test]
fn too_little_space_is_found_before_anything_is_written() {
    let at = memory();
    for (name, params) in [
        ("DWTL", Params { size: Some(1 << 50), ..small() }),
        ("DWOL", Params { size: Some(1 << 50), spread: true, ..small() }),
        ("iozone", Params { memory: 1 << 50, ..small() }),
        ("tokubench", Params { files: Some(1 << 38), ..small() }),
    ] {
        let mut target = Recording::new(directory(&at));
        let e = run(&mut target, &plan(name, 2, params)).expect_err(name);
        let said = one_line(&e);
        assert!(said.contains("too little space") && said.contains("MiB are free"), "{said}");
        assert!(target.streams().is_empty(), "{name} has called before it knew");
        assert!(std::fs::read_dir(at.path()).expect("there").next().is_none());
    }
    let mut library = library(&at);
    let e = run(&mut library, &plan("DWTL", 1, Params { size: Some(1 << 40), ..small() })).expect_err("full");
    assert!(one_line(&e).contains("too little space"));
    library.unmount().expect("nothing is open");
}

#[test]
fn an_interruption_ends_the_run_and_removes_what_was_made() {
    let at = memory();
    for name in ["DWOL", "varmail", "tokubench", "iozone"] {
        let stop = Stop::default();
        let mut records = 0;
        let plan = narufs_bench::Plan { repeat: 1000, ..plan(name, 2, Params { ops: Some(50), ..small() }) };
        let end = narufs_bench::run(&mut directory(&at), &plan, &stop, &Progress::none(), |_| {
            records += 1;
            stop.set();
        });
        assert!(matches!(end, Err(Error::Interrupted)), "{name}: {end:?}");
        assert!((1..=6).contains(&records));
        assert!(std::fs::read_dir(at.path()).expect("there").next().is_none());
    }
    // Set before the first call, nothing is measured.
    let stop = Stop::default();
    stop.set();
    let end =
        narufs_bench::run(&mut directory(&at), &plan("MWCL", 1, small()), &stop, &Progress::none(), |_| {
            panic!("nothing was to be measured");
        });
    assert!(matches!(end, Err(Error::Interrupted)));
}
