//! Crashes of a file system whose journal is not the engine's own: what was synced is there.

use super::crash::{after, begin_on, content, media};
use super::*;
use crate::baseline::{Baselines, JournalBaseline};
use crate::format::JournalKind;

const JOURNALS: [JournalBaseline; 3] = [JournalBaseline::Jbd2, JournalBaseline::Fine, JournalBaseline::Paper];

/// Written, synced and dropped without unmount, wherever and however: the next mount, with whichever journal, finds it.
#[test]
fn what_was_synced_in_a_baseline_is_recovered_by_every_journal() {
    for journal in JOURNALS {
        for kind in [JournalKind::Pmem, JournalKind::Ssd] {
            let sim = media(kind, 1024);
            let baselines = Baselines { journal, ..Baselines::default() };
            let run = begin_on(kind, &sim, baselines);
            let fs = run.fs();
            let (old, handle, _) =
                fs.create(&root(), ROOT_NID, b"old", 0o644, OpenFlags::READ_WRITE).expect("room");
            fs.write(&root(), &handle, 0, &[7; 10_000], WriteFlags::empty()).expect("room");
            let gone = dir(fs, &root(), ROOT_NID, "gone");
            fs.fsync(&handle, false).expect("memory");
            fs.checkpointer().checkpoint().expect("memory");
            fs.rmdir(&root(), ROOT_NID, b"gone").expect("empty");
            fs.forget(gone.nid, 1);
            fs.write(&root(), &handle, 5000, &[8; 300], WriteFlags::empty()).expect("room");
            fs.fsync(&handle, false).expect("memory");
            let synced = sim.events();
            for n in 0..12 {
                file(fs, &root(), ROOT_NID, &format!("later{n}"));
                if n % 4 == 3 {
                    run.store().commit_upto(run.store().tail(), Durability::Power).expect("memory");
                }
            }
            let (mut most, mut states) = (0, 0);
            for next in [journal, JournalBaseline::Ours] {
                after(&sim, synced, 7, 2, |state, crash| {
                    let again = state.restart();
                    let run = begin_on(kind, &again, Baselines { journal: next, ..Baselines::default() });
                    let fs = run.fs();
                    let found = fs.lookup(&root(), ROOT_NID, b"old").expect("synced");
                    assert_eq!(found.nid, old.nid);
                    let mut expected = vec![7; 10_000];
                    expected[5000..5300].fill(8);
                    assert!(content(fs, found.nid) == expected, "{journal:?} {kind:?} {crash:?}: {state}");
                    assert_eq!(errno(fs.lookup(&root(), ROOT_NID, b"gone")), libc::ENOENT);
                    most = most.max(names(fs, ROOT_NID).len());
                    states += 1;
                    file(fs, &root(), ROOT_NID, "new");
                    run.end();
                });
            }
            assert!(states > 4 && most >= 12, "{journal:?} {kind:?}: {most} names in {states} states");
        }
    }
}
