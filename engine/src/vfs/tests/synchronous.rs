//! Where each change is durable when it returns, a crash after that leaves it.

use super::crash::{after, begin, begin_synchronous, media, read_of};
use super::*;
use crate::format::JournalKind;
use crate::sim::Crash;

const PAGE: usize = crate::device::BLOCK_SIZE;

/// What a change leaves: it is run on files `f` (of three pages) and `g`, and then asked of each state of a crash.
struct Change {
    what: &'static str,
    run: fn(&Vfs) -> Result<()>,
    holds: fn(&Vfs) -> bool,
}

fn open(fs: &Vfs, flags: OpenFlags) -> Result<FileHandle> {
    let nid = fs.lookup(&root(), ROOT_NID, b"f")?.nid;
    fs.open(&root(), nid, OpenFlags::READ_WRITE | flags)
}

fn set(fs: &Vfs, set: SetAttr) -> Result<()> {
    let nid = fs.lookup(&root(), ROOT_NID, b"f")?.nid;
    fs.setattr(&root(), nid, None, &set).map(drop)
}

fn holds(fs: &Vfs, bytes: &[u8]) -> bool {
    read_of(fs, "f").is_ok_and(|found| found == bytes)
}

const CHANGES: [Change; 10] = [
    Change {
        what: "a write",
        run: |fs| fs.write(&root(), &open(fs, OpenFlags::empty())?, 0, b"new", WriteFlags::empty()).map(drop),
        holds: |fs| read_of(fs, "f").is_ok_and(|found| found.starts_with(b"new")),
    },
    Change {
        what: "a batch that waits for nothing",
        run: |fs| {
            let (handle, mut batch) = (open(fs, OpenFlags::empty())?, Batch::default());
            fs.stage(&mut batch, &handle, 0, b"new")?;
            fs.commit_batch(&root(), batch, BatchDurability::Ordered)
        },
        holds: |fs| read_of(fs, "f").is_ok_and(|found| found.starts_with(b"new")),
    },
    Change {
        what: "a truncation within a page",
        run: |fs| set(fs, SetAttr { size: Some(PAGE as u64 + 7), ..SetAttr::default() }),
        holds: |fs| holds(fs, &[1; PAGE + 7]),
    },
    Change {
        what: "a truncation to nothing",
        run: |fs| set(fs, SetAttr { size: Some(0), ..SetAttr::default() }),
        holds: |fs| holds(fs, &[]),
    },
    Change {
        what: "a file that is opened to be written anew",
        run: |fs| open(fs, OpenFlags::TRUNCATE).map(|handle| fs.release(handle, None)),
        holds: |fs| holds(fs, &[]),
    },
    Change {
        what: "a file made longer",
        run: |fs| set(fs, SetAttr { size: Some(5 * PAGE as u64), ..SetAttr::default() }),
        holds: |fs| holds(fs, &[&[1; 3 * PAGE][..], &[0; 2 * PAGE]].concat()),
    },
    Change {
        what: "a hole",
        run: |fs| {
            let handle = open(fs, OpenFlags::empty())?;
            fs.fallocate(&root(), &handle, FallocateMode::PunchHole, 0, 2 * PAGE as u64)
        },
        holds: |fs| holds(fs, &[&[0; 2 * PAGE][..], &[1; PAGE]].concat()),
    },
    Change {
        what: "a mode",
        run: |fs| set(fs, SetAttr { mode: Some(0o600), ..SetAttr::default() }),
        holds: |fs| fs.lookup(&root(), ROOT_NID, b"f").is_ok_and(|entry| entry.attr.perm == 0o600),
    },
    Change {
        what: "a new name",
        run: |fs| fs.rename(&root(), ROOT_NID, b"g", ROOT_NID, b"h", RenameFlags::empty()),
        holds: |fs| read_of(fs, "h").is_ok() && read_of(fs, "g").is_err(),
    },
    Change {
        what: "a removal",
        run: |fs| fs.unlink(&root(), ROOT_NID, b"g"),
        holds: |fs| read_of(fs, "g").is_err(),
    },
];

#[test]
fn what_a_synchronous_mount_has_changed_survives_a_crash_at_once() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        for change in &CHANGES {
            let sim = media(kind, 8192);
            let run = begin_synchronous(kind, &sim);
            let fs = run.fs();
            for name in ["f", "g"] {
                let nid = file(fs, &root(), ROOT_NID, name).nid;
                let handle = fs.open(&root(), nid, OpenFlags::READ_WRITE).expect("there");
                fs.write(&root(), &handle, 0, &[1; 3 * PAGE], WriteFlags::empty()).expect("room");
                fs.release(handle, None);
            }
            (change.run)(fs).unwrap_or_else(|e| panic!("{}: {e}", change.what));
            after(&sim, sim.events(), 1, 6, |state, crash: Crash| {
                let next = begin(kind, &state.restart());
                assert!((change.holds)(next.fs()), "{kind:?}, {crash:?}: {} is gone", change.what);
            });
        }
    }
}
