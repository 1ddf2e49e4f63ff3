//! What is made and removed leaves nothing in memory, whether or not a round comes.

use super::crash::{begin, media};
use super::*;
use crate::format::JournalKind;
use crate::lane;
use crate::volume::Running;
use crate::volume::scratch::{ScratchOptions, make_on};

/// Makes and removes what has metadata pages of its own: files that are alone in their block of inodes, and
/// directories. What is listed as dirty is dirty, and no more than there was.
fn come_and_go(fs: &Vfs) {
    let store = fs.meta().store();
    // Each lane has pages of its own, and keeps them: a thread that moves would seem to leave some behind.
    lane::pin(Some(0));
    let round = |n: u64| {
        let (entry, handle, _) =
            fs.create(&root(), ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("room");
        if n.is_multiple_of(2) {
            fs.release(handle, None);
            fs.forget(entry.nid, 1);
            fs.unlink(&root(), ROOT_NID, b"f").expect("there");
        } else {
            fs.unlink(&root(), ROOT_NID, b"f").expect("there");
            fs.release(handle, None);
            fs.forget(entry.nid, 1);
        }
        let made = dir(fs, &root(), ROOT_NID, "d");
        fs.forget(made.nid, 1);
        fs.rmdir(&root(), ROOT_NID, b"d").expect("empty");
    };
    (0..20).for_each(round);
    let before = store.pages();
    for n in 0..400 {
        round(n);
        let (_, dirty) = store.pages();
        assert_eq!(store.dirty.listed(), dirty, "after {n} rounds");
    }
    let after = store.pages();
    lane::pin(None);
    assert!(after.0 <= before.0 + 4 && after.1 <= before.1 + 4, "{before:?}, then {after:?}");
}

#[test]
fn what_a_scratch_file_system_has_removed_leaves_memory() {
    for spill in [None, Some(4096)] {
        let mut options = ScratchOptions::with_memory(2 << 20);
        options.files.background = false;
        let device = spill.map(|blocks| Arc::new(MemoryDevice::new(blocks)) as _);
        let (mounted, files) = make_on(&options, device).expect("enough of both");
        let running = Running::start(mounted.checkpointer(), &files).expect("made");
        come_and_go(running.fs());
    }
}

#[test]
fn what_a_durable_file_system_has_removed_leaves_memory() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let run = begin(kind, &media(kind, 3000));
        come_and_go(run.fs());
        run.end();
    }
}
