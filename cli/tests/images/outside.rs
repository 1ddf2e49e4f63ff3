//! Copies of images whose journal lies outside: it is the original's, and no copy redoes or voids what it holds.

use crate::support::{Work, mounted, narufs, options};
use narufs_engine::path::OpenOptions;
use narufs_engine::volume::Origin;
use narufs_engine::{Error, Fs};

/// That it is refused however it is mounted, for what it is said to be; nothing is changed.
fn is_refused(image: &str, journal: &str, origins: &[Origin], words: &str) {
    let bytes = |path: &str| std::fs::read(path).expect("there");
    let before = (bytes(image), bytes(journal));
    for origin in origins {
        for read_only in [true, false] {
            let mut options = options(*origin);
            options.image.read_only = read_only;
            match Fs::mount(image, &options) {
                Err(Error::Refused(why)) if why.contains(words) && why.contains("-o moved") => {}
                Err(e) => panic!("{e}"),
                // What is clean can be looked at.
                Ok(fs) => assert!(read_only && words == "may need it", "{:?}", fs.unmount()),
            }
        }
    }
    assert!(before == (bytes(image), bytes(journal)), "something was written");
}

fn write(fs: &Fs, path: &str) {
    let options = OpenOptions { write: true, create: true, ..Default::default() };
    let file = fs.open(path, options).expect("made");
    file.write_at(path.as_bytes(), 0).expect("room");
    file.sync_all().expect("it works");
}

fn has(fs: &Fs, paths: &[&str]) {
    for path in paths {
        assert_eq!(fs.read(path).expect("synced"), path.as_bytes());
    }
}

/// That a check says that it is a copy without its journal.
fn is_found(words: &[&str]) {
    let said = narufs(words);
    assert!(said.status == 4 && said.out.contains("made after an unmount"), "{said:?}");
}

const UNKNOWN: [Origin; 2] = [Origin::Unknown, Origin::Copied];

/// An image, its journal, and where a copy is to be.
fn made(work: &Work) -> [String; 3] {
    let journal = work.at("journal");
    let image = work.mkfs("image", &["--journal-emulated", &journal, "--journal-size", "16M"]);
    [image, journal, work.at("copy")]
}

#[test]
fn a_copy_of_a_mounted_image_is_not_taken_for_an_empty_one() {
    let work = Work::new();
    let [image, journal, copy] = made(&work);
    let fs = mounted(&image, Origin::Unknown);
    write(&fs, "/early");
    fs.sync_power().expect("it works");
    std::fs::copy(&image, &copy).expect("room");
    write(&fs, "/late");
    drop(fs);
    // Of an original that was killed, and of one that was unmounted, of which nothing is left in the journal.
    is_refused(&copy, &journal, &UNKNOWN, "not unmounted cleanly");
    is_found(&["fsck", &copy]);
    is_found(&["fsck", &copy, "--copied"]);
    let fs = mounted(&image, Origin::Unknown);
    has(&fs, &["/early", "/late"]);
    fs.unmount().expect("it works");
    is_refused(&copy, &journal, &UNKNOWN, "not unmounted cleanly");
    is_found(&["fsck", &copy]);
    let fs = mounted(&image, Origin::Unknown);
    has(&fs, &["/early", "/late"]);
    fs.unmount().expect("it works");
}

#[test]
fn a_clean_copy_leaves_the_journal_of_its_dead_original_alone() {
    let work = Work::new();
    let [image, journal, copy] = made(&work);
    let fs = mounted(&image, Origin::Unknown);
    write(&fs, "/early");
    fs.unmount().expect("it works");
    std::fs::copy(&image, &copy).expect("room");
    let fs = mounted(&image, Origin::Unknown);
    write(&fs, "/late");
    drop(fs);
    is_refused(&copy, &journal, &UNKNOWN, "may need it");
    narufs(&["fsck", &copy]).done();
    let fs = mounted(&image, Origin::Unknown);
    has(&fs, &["/early", "/late"]);
    fs.unmount().expect("it works");
    is_refused(&copy, &journal, &UNKNOWN, "may need it");
    // Restored, it goes on in the place of the other.
    std::fs::rename(&copy, &image).expect("there");
    is_refused(&image, &journal, &UNKNOWN, "may need it");
    let fs = mounted(&image, Origin::Moved);
    has(&fs, &["/early"]);
    assert!(fs.metadata("/late").is_err());
    write(&fs, "/later");
    drop(fs);
    let fs = mounted(&image, Origin::Unknown);
    has(&fs, &["/early", "/later"]);
    fs.unmount().expect("it works");
}

#[test]
fn an_image_that_was_moved_goes_on_with_its_journal_outside() {
    let work = Work::new();
    let [image, journal, copy] = made(&work);
    let fs = mounted(&image, Origin::Unknown);
    write(&fs, "/early");
    drop(fs);
    // By its name alone, and as between file systems.
    std::fs::rename(&image, &copy).expect("there");
    let fs = mounted(&copy, Origin::Unknown);
    has(&fs, &["/early"]);
    write(&fs, "/late");
    drop(fs);
    std::fs::copy(&copy, &image).expect("room");
    std::fs::remove_file(&copy).expect("there");
    is_refused(&image, &journal, &UNKNOWN, "not unmounted cleanly");
    narufs(&["fsck", &image, "--moved"]).done();
    let fs = mounted(&image, Origin::Moved);
    has(&fs, &["/early", "/late"]);
    drop(fs);
    let fs = mounted(&image, Origin::Unknown);
    has(&fs, &["/early", "/late"]);
    fs.unmount().expect("it works");
}
