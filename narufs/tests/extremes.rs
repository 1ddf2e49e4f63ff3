//! Options with values that nobody means: answered in words, or as the most that there is; nothing overflows.

use narufs::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Around what a number of bytes, of blocks or of a file's length holds at the most.
const EXTREMES: [u64; 10] = [
    0,
    1,
    4095,
    1 << 40,
    1 << 52,
    i64::MAX as u64 - 4096,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 4096,
    u64::MAX,
];

/// What went wrong, unless it was told in words.
fn told(result: Result<Fs>) -> std::result::Result<Option<Fs>, String> {
    match result {
        Ok(fs) => Ok(Some(fs)),
        Err(e) if matches!(e.cause(), Cause::Refused(_) | Cause::Errno(_) | Cause::Device { .. }) => Ok(None),
        Err(e) => Err(format!("{e:?}")),
    }
}

fn used(fs: Fs) {
    fs.write("/f", "something").expect("room");
    assert_eq!(fs.read("/f").expect("there"), b"something");
    fs.close().expect("nothing is open");
}

fn image(at: &Path) -> std::path::PathBuf {
    let image = at.join("image");
    Fs::format(&image, &FormatOptions::new().size(16 << 20).force(true)).expect("room");
    image
}

#[test]
fn memory_of_a_mount() {
    let place = tempfile::tempdir().expect("a place");
    let image = image(place.path());
    for bytes in EXTREMES {
        let fs = Fs::open(&image, &MountOptions::new().memory(1 << 20).metadata_memory(bytes));
        used(fs.expect("a bound is no demand"));
        let fs = told(Fs::open(&image, &MountOptions::new().memory(bytes)));
        fs.expect("told in words").into_iter().for_each(used);
        used(Fs::open(&image, &MountOptions::new()).expect("as it was"));
    }
}

#[test]
fn memory_of_scratch_space() {
    let place = tempfile::tempdir().expect("a place");
    for bytes in EXTREMES {
        let fs = told(Fs::scratch(&ScratchOptions::new(bytes)));
        fs.expect("told in words").into_iter().for_each(used);
        let fs = told(Fs::scratch(&ScratchOptions::new(bytes).spill(place.path()).spill_size(16 << 20)));
        fs.expect("told in words").into_iter().for_each(used);
        let options = ScratchOptions::new(8 << 20).metadata_memory(bytes);
        let fs = told(Fs::scratch(&options.clone()));
        fs.expect("told in words").into_iter().for_each(used);
        let fs = told(Fs::scratch(&options.spill(place.path()).spill_size(16 << 20)));
        fs.expect("told in words").into_iter().for_each(used);
        if !(1 << 30..1 << 50).contains(&bytes) {
            let fs = told(Fs::scratch(&ScratchOptions::new(8 << 20).spill(place.path()).spill_size(bytes)));
            fs.expect("told in words").into_iter().for_each(used);
        }
    }
}

#[test]
fn sizes_and_windows() {
    let place = tempfile::tempdir().expect("a place");
    for bytes in EXTREMES.into_iter().filter(|bytes| !(1 << 30..1 << 50).contains(bytes)) {
        Fs::format(place.path().join("new"), &FormatOptions::new().size(bytes)).expect_err("no such size");
    }
    let image = image(place.path());
    let fs = Fs::open(&image, &MountOptions::new()).expect("a good image");
    for bytes in EXTREMES.into_iter().filter(|bytes| !(1 << 30..1 << 50).contains(bytes)) {
        assert!(fs.resize(Some(bytes)).is_err());
        fs.trim(bytes).expect("a bound");
    }
    used(fs);
    refused_windows(&image, |image| std::fs::read(image).expect("there"));
    // The image keeps a journal's path as words.
    let no_words = place.path().join(OsStr::from_bytes(b"ring\xff"));
    let before = std::fs::read(&image).expect("there");
    for journal in [Journal::Emulated(no_words.clone()), Journal::PersistentMemory(no_words.clone())] {
        let options = FormatOptions::new().size(16 << 20).journal(journal).force(true);
        let e = Fs::format(&image, &options).expect_err("no words");
        assert_eq!((e.errno(), e.path()), (libc::EINVAL, Some(&*no_words)), "{e}");
    }
    assert!(!no_words.exists() && std::fs::read(&image).expect("there") == before, "nothing is written");
    let ring = place.path().join("ring");
    let options = FormatOptions::new().size(16 << 20).journal(Journal::Emulated(ring.clone())).force(true);
    Fs::format(&image, &options).expect("room");
    let both = |image: &Path| [image, &ring].map(|path| std::fs::read(path).expect("there"));
    refused_windows(&image, both);
    let options = MountOptions::new().durability(Durability::Window(Duration::from_secs(1)));
    let before = both(&image);
    let e = Fs::open(&image, &options).expect_err("a journal in memory");
    assert!(e.to_string().contains("durability=power") && both(&image) == before, "{e}: nothing is written");
    Fs::open(&image, &options.read_only(true))
        .expect("nothing waits there")
        .close()
        .expect("nothing is open");
}

/// Windows that cannot be had change nothing.
fn refused_windows<T: PartialEq>(image: &Path, look: impl Fn(&Path) -> T) {
    for window in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(61), Duration::MAX] {
        let before = look(image);
        let e = Fs::open(image, &MountOptions::new().durability(Durability::Window(window))).unwrap_err();
        assert!(matches!(e.cause(), Cause::Refused(_)), "{e}");
        assert!(look(image) == before, "{window:?}: nothing is written");
    }
}
