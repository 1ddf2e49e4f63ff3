//! `narufs info`: the same keys for every kind of image, in every state.

use narufs_engine::format::JournalKind;
use narufs_engine::mkfs::FormatOptions;

use crate::support::{Work, killed_after_sync, narufs, narufs_with_address_space, used};

const KEYS: [&str; 16] = [
    "block_size",
    "created_unix_s",
    "double_write_bytes",
    "features",
    "format_version",
    "groups",
    "journal",
    "journal_bytes",
    "journal_path",
    "label",
    "mount_epoch",
    "size_bytes",
    "state",
    "survives",
    "uuid",
    "journal_slots",
];

#[test]
fn the_keys_are_the_same_for_every_image() {
    let work = Work::new();
    let (emulated, _) = work.emulated("emulated");
    let ssd = work.mkfs("ssd", &["--journal-size", "1M", "--label", "a label"]);
    for (image, journal, survives) in [(&emulated, "emulated", "process"), (&ssd, "ssd", "power")] {
        for state in ["clean", "unclean", "clean"] {
            match state {
                "unclean" => killed_after_sync(image, 1),
                _ => used(image, |_| {}),
            }
            let info = narufs(&["info", image, "--json"]);
            info.done();
            let json = info.json();
            let mut keys: Vec<_> = json.as_object().expect("an object").keys().collect();
            let mut expected = KEYS.to_vec();
            keys.sort();
            expected.sort_unstable();
            assert_eq!(keys, expected);
            assert_eq!(
                (&json["state"], &json["journal"], &json["survives"]),
                (&state.into(), &journal.into(), &survives.into())
            );
            assert_eq!(
                (&json["size_bytes"], &json["journal_bytes"]),
                (&(64 << 20).into(), &(1 << 20).into())
            );
            assert_eq!(json["journal_path"].is_string(), journal == "emulated");
            let text = narufs(&["info", image]);
            text.done();
            assert!(text.out.contains(state) && text.out.contains("fsync survives"), "{text:?}");
        }
    }
    // Persistent memory is on no machine that tests run on; an image that was never mounted needs none.
    let pmem = work.at("pmem");
    let options = FormatOptions {
        blocks: Some(4096),
        journal: JournalKind::Pmem,
        sparse: true,
        ..FormatOptions::default()
    };
    narufs_engine::format(&pmem, &options).expect("room");
    let json = narufs(&["info", &pmem, "--json"]).json();
    assert_eq!((&json["journal"], &json["survives"]), (&"pmem".into(), &"power".into()));
    assert_eq!(json.as_object().expect("an object").len(), KEYS.len());
    narufs(&["info", &work.at("nothing")]).refused(1, "No such file");
}

/// The length of a file is anybody's to set.
#[test]
fn what_is_shown_takes_no_memory_for_the_length_of_an_image() {
    let work = Work::new();
    let (image, nothing) = (work.mkfs("image", &[]), work.at("nothing"));
    for path in [&image, &nothing] {
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
        // As long as most file systems have files.
        file.and_then(|file| file.set_len(12 << 40)).expect("no room is taken");
    }
    let in_little = |words: &[&str]| narufs_with_address_space(2 << 20, words);
    in_little(&["info", &nothing]).refused(1, "this is not a narufs image");
    let info = in_little(&["info", &image, "--json"]);
    info.done();
    assert_eq!(info.json()["size_bytes"], 64 << 20);
    let found = in_little(&["doctor", &nothing]);
    assert!(found.out.contains("this is not a narufs image"), "{found:?}");
    let found = in_little(&["doctor", &image]);
    assert!(found.out.contains("64.0 MiB, unmounted cleanly"), "{found:?}");
}

/// What narufs is measured against is in builds that ask for it, and nothing of it in any other.
#[test]
fn a_build_has_baselines_if_it_asks_for_them_and_not_else() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_narufs")).expect("it is there");
    let name = b"spill-blind-readahead";
    assert_eq!(program.windows(name.len()).any(|bytes| bytes == name), cfg!(feature = "baselines"));
}
