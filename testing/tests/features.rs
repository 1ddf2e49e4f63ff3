//! What docs/FORMAT.md says that this build does with an image of other features or another version, held against what
//! it does with the golden images: the table under "Versions and features", cell by cell.

use narufs_engine::device::{BlockDevice, MemoryDevice};
use narufs_engine::format::{Compat, FORMAT_VERSION, Features, Incompat, RoCompat, Superblock};
use narufs_engine::mkfs::{FormatOptions, format};
use narufs_engine::volume::{ImageOptions, Media, RingMedia};
use narufs_engine::{Error, fsck, superblock};
use narufs_testing::golden::manifest;
use narufs_testing::golden::media::{device, differences, media, mounted};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DOCUMENT: &str = include_str!("../../docs/FORMAT.md");
const COLUMNS: &str =
    "| an image with | mount | read-only mount | recovery | fsck | fsck --repair | mkfs over it | info |";

/// Rows of the table: what the image has, and the cells.
fn rows() -> Vec<(&'static str, Vec<&'static str>)> {
    let table = DOCUMENT.lines().skip_while(|line| *line != COLUMNS).skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        (cells.next().unwrap_or_default(), cells.collect())
    });
    rows.collect()
}

/// Images that another build has left: killed ones, and ones that were unmounted.
fn sets() -> Vec<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v1/features");
    ["ssd-killed", "emulated-killed", "ssd-clean", "emulated-clean"].map(|name| build.join(name)).into()
}

/// Gives an image what a row speaks of. Of each word, the lowest and the highest bit that nothing has a name for.
fn change(sb: &mut Superblock, what: &str) {
    let unknown = |known: u64| (1 << known.trailing_ones()) | 1 << 63;
    match what {
        "known features only" => {}
        "an unknown bit in `compat`" => sb.compat = unknown(Compat::all().bits()).into(),
        "an unknown bit in `ro_compat`" => sb.ro_compat = unknown(RoCompat::all().bits()).into(),
        "an unknown bit in `incompat`" => sb.incompat = unknown(Incompat::all().bits()).into(),
        "a higher `version`" => sb.version = (FORMAT_VERSION + 1).into(),
        "`version` 0" => sb.version = 0.into(),
        _ => panic!("the test does not know how to make {what}"),
    }
}

/// The media of a set with that in both copies of the superblock.
fn changed(set: &Path, what: &str) -> (Media, Superblock) {
    let media = media(set).expect("an image");
    let mut sb = superblock::read(&*media.device).expect("an image");
    change(&mut sb, what);
    for _copy in 0..2 {
        superblock::write(&*media.device, &mut sb).expect("memory");
    }
    (media, sb)
}

fn writes(device: &dyn BlockDevice) -> u64 {
    device.counters().iter().map(|cause| cause.write_bytes).sum()
}

fn ring(media: &Media) -> Vec<u8> {
    let (RingMedia::Mapped(memory) | RingMedia::Ssd(memory)) = &media.ring else { panic!("it is in memory") };
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes);
    bytes
}

/// What a command does; if it refuses, nothing may have been written.
fn outcome<T>(media: &Media, done: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let before = (writes(&*media.device), ring(media));
    let result = done();
    if let Err(why) = &result {
        assert!(before == (writes(&*media.device), ring(media)), "it writes before it refuses: {why}");
        assert!(!why.contains('\n') && !why.is_empty(), "{why:?} is not one line");
    }
    result
}

fn mount(media: &Media, read_only: bool) -> Result<Vec<String>, String> {
    let options = ImageOptions { read_only, ..ImageOptions::default() };
    mounted(media, &options, |found, files| {
        if !read_only {
            files.create("/new").and_then(|file| file.sync_all()).expect("room");
            files.remove_file("/new").expect("there");
        }
        found
    })
}

fn check(media: &Media, repair: bool) -> Result<(), String> {
    let report = fsck::check(media, &fsck::Options { repair, ..fsck::Options::default() });
    let report = report.map_err(|e| match e {
        Error::Refused(why) => why,
        other => panic!("it is no refusal: {other}"),
    })?;
    assert_eq!(report.issues, []);
    Ok(())
}

/// The bits of an image, whatever they are.
fn bits(device: &dyn BlockDevice) -> [u64; 3] {
    let sb = superblock::read_with_any_features(device).expect("an image");
    [sb.compat.get(), sb.ro_compat.get(), sb.incompat.get()]
}

/// Holds a cell of the columns "mount" to "fsck --repair" against what was done.
fn is_as_said<T>(cell: &str, done: &Result<T, String>, kept: bool, at: &str) {
    match (cell, done) {
        ("yes" | "in memory, nothing is written", Ok(_)) => {}
        ("yes, the bit is kept", Ok(_)) => assert!(kept, "{at}: the bit is lost"),
        ("refused", Err(_)) => {}
        ("refused, names `-o ro`", Err(why)) => assert!(why.contains("-o ro"), "{at}: {why}"),
        (said, Ok(_)) => panic!("{at}: docs/FORMAT.md says {said:?}, and it is done"),
        (said, Err(why)) => panic!("{at}: docs/FORMAT.md says {said:?}, and it is refused: {why}"),
    }
}

fn over(device: &MemoryDevice, force: bool) -> Result<Superblock, String> {
    format(device, &FormatOptions { force, ..FormatOptions::default() }).map_err(|e| e.to_string())
}

#[test]
fn an_image_of_other_features_is_used_as_the_format_s_page_says() {
    let rows = rows();
    assert_eq!(rows.len(), 6, "{rows:?}");
    for (what, cells) in rows {
        let &[write, read, recovery, look, repair, mkfs, info] = &cells[..] else { panic!("{cells:?}") };
        for set in sets() {
            let at = |column: &str| format!("{what}, {column}, {}", set.display());
            let expected = manifest(&set).expect("a manifest");
            let is_whole = |found: &[String], at: &str| {
                let odd = differences(found, &expected);
                assert!(odd.0.is_empty() && odd.1.is_empty(), "{at}: {odd:?}");
            };

            let (media, sb) = changed(&set, what);
            let is_kept =
                || bits(&*media.device) == [sb.compat, sb.ro_compat, sb.incompat].map(|bits| bits.get());
            let before = (writes(&*media.device), ring(&media));
            let done = outcome(&media, || mount(&media, true));
            is_as_said(read, &done, true, &at("read-only mount"));
            // Killed images are recovered for it, in memory.
            if let Ok(found) = done {
                is_whole(&found, &at("recovery"));
            }
            assert!(before == (writes(&*media.device), ring(&media)), "{}: it writes", at("read-only mount"));
            let done = outcome(&media, || check(&media, false));
            is_as_said(look, &done, true, &at("fsck"));
            let done = outcome(&media, || mount(&media, false));
            is_as_said(write, &done, done.is_err() || is_kept(), &at("mount"));
            match (recovery, &done) {
                ("yes", Ok(found)) => is_whole(found, &at("recovery")),
                ("refused" | "in memory, nothing is written", Err(_)) => {}
                other => panic!("{}: {other:?}", at("recovery")),
            }

            let (media, sb) = changed(&set, what);
            let is_kept =
                || bits(&*media.device) == [sb.compat, sb.ro_compat, sb.incompat].map(|bits| bits.get());
            let done = outcome(&media, || check(&media, true));
            is_as_said(repair, &done, done.is_err() || is_kept(), &at("fsck --repair"));

            let (media, _) = changed(&set, what);
            let shown = superblock::read_with_any_features(&*media.device);
            assert_eq!(info, if shown.is_ok() { "shown" } else { "refused" }, "{}", at("info"));
            assert_eq!(mkfs, "with `--force`", "{}", at("mkfs"));
            let device = copy(&set, what);
            let refused = over(&device, false).expect_err("there is an image");
            assert!(refused.contains("--force"), "{}: {refused}", at("mkfs"));
            over(&device, true).unwrap_or_else(|e| panic!("{}: {e}", at("mkfs --force")));
        }
    }
}

/// The image alone.
fn copy(set: &Path, what: &str) -> Arc<MemoryDevice> {
    let device = device(set).expect("blocks");
    let mut sb = superblock::read(&*device).expect("an image");
    change(&mut sb, what);
    for _copy in 0..2 {
        superblock::write(&*device, &mut sb).expect("memory");
    }
    device
}

#[test]
fn the_features_of_this_build_are_those_of_the_format_s_page() {
    let says = "This build writes version 1 of both, and knows one feature: `incompat` bit 0, `BATCHES`";
    assert!(DOCUMENT.contains(says), "docs/FORMAT.md says something else: so should this test");
    let known = Features { compat: Compat::all(), ro_compat: RoCompat::all(), incompat: Incompat::all() };
    let ours = Features { incompat: Incompat::BATCHES, ..Features::default() };
    assert_eq!((FORMAT_VERSION, known), (1, ours));
    for set in sets() {
        assert_eq!(bits(&*device(&set).expect("blocks")), [0; 3], "{}", set.display());
    }
}
