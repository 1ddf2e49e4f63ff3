//! Files for a journal as a process leaves them that is killed while it makes them.

use super::*;
use crate::device::{ImageFile, open_device};
use crate::mkfs::format;
use crate::pmem::{EmulationCosts, unlink};
use std::path::Path;

#[test]
fn a_file_that_was_made_and_has_no_size_is_made_anew() {
    let dir = tempfile::tempdir().expect("a place");
    for kind in [JournalKind::Ssd, JournalKind::Emulated] {
        let image = dir.path().join(format!("image of {kind:?}"));
        let device = open_device(ImageFile::create_sparse(&image, 4000).expect("room"));
        let ring = dir.path().join("ring");
        let options = FormatOptions {
            journal: kind,
            journal_slots: Some(4096),
            journal_path: (kind == JournalKind::Emulated).then(|| ring.display().to_string()),
            sparse: true,
            ..FormatOptions::default()
        };
        let sb = format(device.as_ref(), &options).expect("large enough");
        drop(device);
        let journal = (kind == JournalKind::Emulated).then_some(ring.as_path());
        let path = journal.map_or_else(|| staging_path(&sb.uuid), Path::to_owned);
        let mounted = || {
            std::fs::write(&path, []).expect("room");
            let media = open(&image, journal, EmulationCosts::default(), &super::options())?;
            mount(media, &super::options())
        };
        let outcome = mounted().and_then(Mounted::unmount);
        unlink(&path).expect("it may be gone");
        assert_eq!(outcome, Ok(()), "{kind:?}");
        // Someone who makes it at this moment has it locked.
        std::fs::write(&path, []).expect("room");
        let other = std::fs::File::open(&path).expect("just made");
        rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
        let media = open(&image, journal, EmulationCosts::default(), &super::options());
        unlink(&path).expect("it is there");
        assert!(matches!(media.map(drop), Err(Error::InUse(_))), "{kind:?}");
    }
}
