//! Atomic batches: what others see of them, and what crashes leave.

use super::crash::{after, begin, content, idle, media};
use super::*;
use crate::format::JournalKind;
use crate::fsck::{Options, check};
use crate::planted::{Bug, plant};
use crate::sim::SimMedia;

pub(super) const KINDS: [JournalKind; 2] = [JournalKind::Pmem, JournalKind::Ssd];
pub(super) const FILES: [&str; 3] = ["a", "b", "c"];

/// A file with this content, synced.
pub(super) fn file(fs: &Vfs, name: &str, bytes: &[u8]) -> FileHandle {
    let handle = fs.create(&root(), ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE).expect("made").1;
    fs.write(&root(), &handle, 0, bytes, WriteFlags::empty()).expect("room");
    fs.fsync(&handle, false).expect("memory");
    handle
}

/// What the three files hold before the batch.
pub(super) fn old() -> [Vec<u8>; 3] {
    [vec![1; 3 * 4096], vec![2; 5000], Vec::new()]
}

/// Writes of a batch: file, offset, length, byte.
pub(super) type Writes = Vec<(usize, u64, usize, u8)>;

/// Overwritten pages, pages in part and twice, growth over a hole, a new file.
pub(super) fn some() -> Writes {
    vec![
        (0, 4096, 4096, 11),
        (0, 100, 50, 12),
        (0, 300, 20, 13),
        (1, 4900, 9000, 14),
        (0, 8192 + 4000, 600, 15),
        (1, 8 * 4096 + 10, 100, 16),
        (2, 4096, 700, 17),
        (0, 4096 + 512, 10, 18),
    ]
}

/// More than a record may hold: whole pages that spill, and what changes them afterwards.
pub(super) fn many() -> Writes {
    vec![
        (0, 0, 20 * 4096, 31),
        (1, 4900, 20 * 4096, 33),
        (0, 5 * 4096 + 7, 100, 32),
        (0, 6 * 4096, 4096, 38),
        (2, 4096 + 10, 9000, 34),
        (1, 40 * 4096 + 5, 10, 35),
        (0, 30 * 4096, 3 * 4096, 36),
        (0, 34 * 4096 + 1, 1, 37),
    ]
}

pub(super) fn apply(to: &mut [Vec<u8>; 3], writes: &Writes) {
    for (which, offset, len, byte) in writes {
        let (file, end) = (&mut to[*which], *offset as usize + len);
        file.resize(file.len().max(end), 0);
        file[*offset as usize..end].fill(*byte);
    }
}

pub(super) fn staged(fs: &Vfs, handles: &[FileHandle], writes: &Writes) -> Batch {
    let mut batch = Batch::default();
    for (which, offset, len, byte) in writes {
        fs.stage(&mut batch, &handles[*which], *offset, &vec![*byte; *len]).expect("room");
    }
    batch
}

pub(super) fn contents(fs: &Vfs) -> [Vec<u8>; 3] {
    FILES.map(|name| content(fs, fs.lookup(&root(), ROOT_NID, name.as_bytes()).expect("there").nid))
}

/// Sizes, and the first bytes that are neither old nor new.
pub(super) fn difference(was: &[Vec<u8>; 3], is: &[Vec<u8>; 3], now: &[Vec<u8>; 3]) -> String {
    let sizes = [was, is, now].map(|files| files.each_ref().map(Vec::len));
    let differs = |n: usize, at: usize| was[n].get(at) != now[n].get(at) && is[n].get(at) != now[n].get(at);
    let first = [0, 1, 2].map(|n| (0..now[n].len()).find(|at| differs(n, *at)).map(|at| (at, now[n][at])));
    let newer =
        [0, 1, 2].map(|n| (0..now[n].len().min(is[n].len())).filter(|at| is[n][*at] != now[n][*at]).count());
    format!("sizes {sizes:?}, {first:?}, {newer:?} bytes are not new")
}

/// What crashes leave of a batch over these files; whether any has left a part of it.
pub(super) fn torn_by(kind: JournalKind, before: &Writes, writes: &Writes, bug: Option<Bug>) -> bool {
    let sim: SimMedia = media(kind, 1024);
    let run = begin(kind, &sim);
    let fs = run.fs();
    let handles: Vec<_> = FILES.iter().zip(old()).map(|(name, bytes)| file(fs, name, &bytes)).collect();
    let (mut was, mut is) = (old(), old());
    apply(&mut was, before);
    apply(&mut is, before);
    apply(&mut is, writes);
    if !before.is_empty() {
        let first = staged(fs, &handles, before);
        fs.commit_batch(&root(), first, BatchDurability::Synced).expect("memory");
    }
    fs.checkpointer().checkpoint().expect("memory");
    let from = sim.events();
    plant(bug);
    let batch = staged(fs, &handles, writes);
    assert_eq!(contents(fs), was, "nobody sees what is staged");
    let committed = fs.commit_batch(&root(), batch, BatchDurability::Synced);
    plant(None);
    committed.expect("memory");
    assert_eq!(contents(fs), is);
    let answered = sim.events();
    fs.checkpointer().checkpoint().expect("memory");
    drop(handles);
    run.end();
    let mut seen = [0, 0];
    let mut torn = false;
    let (total, most) = (answered - from, 150);
    after(&sim, from, total.div_ceil(most), 3, |state, _| {
        let again = state.restart();
        let report = check(&idle(kind, &again), &Options::default()).expect("memory");
        assert!(report.issues.is_empty(), "{kind:?}: {state}: {:?}", report.issues);
        let run = begin(kind, &again);
        let now = contents(run.fs());
        match [&was, &is].iter().position(|known| **known == now) {
            Some(which) => seen[which] += 1,
            None if bug.is_some() => torn = true,
            None => panic!("{kind:?}: {state}: {}", difference(&was, &is, &now)),
        }
        assert!(run.fs().meta().space.entries().is_empty(), "{kind:?}: {state}");
    });
    let behind = sim.events() - answered;
    after(&sim, answered, behind.div_ceil(60), 2, |state, crash| {
        let again = state.restart();
        let run = begin(kind, &again);
        let now = contents(run.fs());
        torn |= now != is;
        assert!(!torn || bug.is_some(), "{kind:?} {crash:?}: {state}: {}", difference(&was, &is, &now));
    });
    assert!(seen.iter().all(|n| *n > 0), "{kind:?}: {seen:?}");
    torn
}

#[test]
fn a_crash_leaves_all_of_a_batch_or_none() {
    for kind in KINDS {
        assert!(!torn_by(kind, &vec![], &some(), None), "{kind:?}");
        // Over pages that the journal has, and over what was grown by a batch.
        let more = vec![(1, 9 * 4096, 5000, 21), (0, 0, 4096, 22), (2, 0, 100, 23), (2, 6 * 4096, 1, 24)];
        assert!(!torn_by(kind, &some(), &more, None), "{kind:?}");
    }
}

/// What was truncated to nothing for a batch goes with its record, whether the files are closed before that or not.
#[test]
fn what_is_emptied_for_a_batch_is_old_or_new_after_a_crash() {
    for (kind, closes) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let mut handles: Vec<_> =
            FILES.iter().zip(old()).map(|(name, bytes)| file(fs, name, &bytes)).collect();
        fs.checkpointer().checkpoint().expect("memory");
        let from = sim.events();
        for handle in &handles {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            fs.setattr(&root(), handle.nid(), Some(handle), &set).expect("open");
        }
        let writes = vec![(0, 0, 5000, 41), (1, 4900, 9000, 42), (2, 3, 1, 43)];
        let mut is = [Vec::new(), Vec::new(), Vec::new()];
        apply(&mut is, &writes);
        let batch = staged(fs, &handles, &writes);
        if closes {
            handles.drain(..).for_each(|handle| fs.release(handle, None));
        }
        fs.commit_batch(&root(), batch, BatchDurability::Synced).expect("memory");
        assert_eq!(contents(fs), is);
        let answered = sim.events();
        fs.checkpointer().checkpoint().expect("memory");
        drop(handles);
        run.end();
        let mut seen = [0, 0];
        after(&sim, from, (sim.events() - from).div_ceil(100), 3, |state, crash| {
            let again = state.restart();
            let report = check(&idle(kind, &again), &Options::default()).expect("memory");
            assert!(report.issues.is_empty(), "{kind:?}: {state}: {:?}", report.issues);
            let run = begin(kind, &again);
            let now = contents(run.fs());
            let which = [old(), is.clone()].iter().position(|known| *known == now);
            let which = which
                .unwrap_or_else(|| panic!("{kind:?} {crash:?}: {state}: {}", difference(&old(), &is, &now)));
            seen[which] += 1;
        });
        assert!(seen.iter().all(|n| *n > 0), "{kind:?}: {seen:?}");
        after(&sim, answered, (sim.events() - answered).div_ceil(40), 2, |state, crash| {
            let run = begin(kind, &state.restart());
            let now = contents(run.fs());
            assert!(now == is, "{kind:?} {crash:?}: {state}: {}", difference(&old(), &is, &now));
        });
    }
}

/// Committed, and not yet durable: what goes home of it meanwhile comes behind its record.
#[test]
fn a_batch_that_nobody_waits_for_is_whole_while_it_goes_home() {
    for kind in KINDS {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let handles: Vec<_> = FILES.iter().zip(old()).map(|(name, bytes)| file(fs, name, &bytes)).collect();
        fs.checkpointer().checkpoint().expect("memory");
        let from = sim.events();
        let batch = staged(fs, &handles, &some());
        fs.commit_batch(&root(), batch, BatchDurability::Ordered).expect("memory");
        fs.syncfs().expect("memory");
        let (was, mut is) = (old(), old());
        apply(&mut is, &some());
        drop(handles);
        run.end();
        after(&sim, from, (sim.events() - from).div_ceil(100), 3, |state, crash| {
            let run = begin(kind, &state.restart());
            let now = contents(run.fs());
            let whole = now == was || now == is;
            assert!(whole, "{kind:?} {crash:?}: {state}: {}", difference(&was, &is, &now));
        });
    }
}

/// A file that ended within a page, and is in place with more than that: what a batch does to it, and what crashes leave.
fn cut_files(
    end: u64,
    append: Option<(u64, usize)>,
    writes: &[(u64, usize)],
    mut judge: impl FnMut(&[u8]) -> bool,
) {
    for kind in KINDS {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let handle = file(fs, "a", &[7; 8192]);
        fs.checkpointer().checkpoint().expect("memory");
        for size in [end + 100, end] {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(&root(), handle.nid(), Some(&handle), &set).expect("open");
            // What the second leaves in memory alone ends where the first has ended.
            if size > end {
                fs.fsync(&handle, false).expect("memory");
            }
        }
        if let Some((offset, len)) = append {
            fs.write(&root(), &handle, offset, &vec![9; len], WriteFlags::empty()).expect("room");
        }
        let from = sim.events();
        let mut batch = Batch::default();
        for (offset, len) in writes {
            fs.stage(&mut batch, &handle, *offset, &vec![9; *len]).expect("room");
        }
        fs.commit_batch(&root(), batch, BatchDurability::Synced).expect("memory");
        let live = content(fs, handle.nid());
        assert!(judge(&live), "{kind:?}: {live:?}");
        drop(handle);
        drop(run);
        after(&sim, from, 1, 4, |state, crash| {
            let run = begin(kind, &state.restart());
            let nid = run.fs().lookup(&root(), ROOT_NID, b"a").expect("there").nid;
            let now = content(run.fs(), nid);
            assert!(judge(&now), "{kind:?} {crash:?}: {state}: {} bytes, {now:?}", now.len());
        });
    }
}

#[test]
fn a_batch_records_the_size_of_a_file_that_it_makes_longer_alone() {
    // Unsynced, behind an end from which on its place holds what was cut off.
    cut_files(5000, Some((5000, 3000)), &[(0, 4096)], |now| {
        let is_cut = now.len() == 5100;
        is_cut || now.len() <= 8000 && now.iter().skip(5000).all(|byte| *byte == 9 || *byte == 0)
    });
}

#[test]
fn the_page_where_a_file_has_ended_has_zeros_behind_a_batch() {
    cut_files(400, None, &[(2000, 100), (12_288, 100)], |now| {
        let zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        match now.len() {
            400 | 500 => true,
            12_388 => zeros(&now[400..2000]) && zeros(&now[2100..12_288]),
            _ => false,
        }
    });
}

#[test]
#[cfg(feature = "planted-bugs")]
fn a_page_that_goes_home_early_is_noticed() {
    for kind in KINDS {
        assert!(torn_by(kind, &vec![], &some(), Some(Bug::BatchPageHomeEarly)), "{kind:?}");
    }
}

#[test]
fn what_is_staged_is_dropped_without_a_trace() {
    let sim = media(JournalKind::Ssd, 1024);
    let run = begin(JournalKind::Ssd, &sim);
    let fs = run.fs();
    let handles: Vec<_> = FILES.iter().zip(old()).map(|(name, bytes)| file(fs, name, &bytes)).collect();
    let batch = staged(fs, &handles, &some());
    assert_eq!((batch.files(), batch.pages()), (3, 9));
    fs.unlink(&root(), ROOT_NID, b"c").expect("there");
    fs.forget(handles[2].nid(), 1);
    handles.into_iter().for_each(|handle| fs.release(handle, None));
    assert_eq!(fs.meta().space.entries().len(), 1, "the batch has it open");
    fs.drop_batch(batch);
    assert_eq!(fs.meta().space.entries().len(), 0);
    assert_eq!(content(fs, fs.lookup(&root(), ROOT_NID, b"a").expect("there").nid), old()[0]);
    run.end();
}

#[test]
fn what_may_not_be_written_is_not_staged() {
    let sim = media(JournalKind::Ssd, 1024);
    let run = begin(JournalKind::Ssd, &sim);
    let fs = run.fs();
    let handle = file(fs, "a", &[1; 100]);
    let open = |flags| fs.open(&root(), handle.nid(), flags).expect("there");
    let mut batch = Batch::default();
    let refused = |batch: &mut Batch, handle: &FileHandle, offset| match fs.stage(batch, handle, offset, &[1])
    {
        Err(Error::Errno(errno)) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mut batch, &open(OpenFlags::empty()), 0), libc::EBADF);
    assert_eq!(refused(&mut batch, &open(OpenFlags::READ_WRITE | OpenFlags::APPEND), 0), libc::EINVAL);
    assert_eq!(refused(&mut batch, &handle, u64::MAX), libc::EFBIG);
    assert_eq!((batch.files(), batch.pages()), (0, 0));
    fs.stage(&mut batch, &handle, 0, &[]).expect("nothing");
    fs.commit_batch(&root(), batch, BatchDurability::Power).expect("nothing to do");
}

/// One that cuts, and one that removes, between the staging and the commit.
#[test]
fn a_batch_follows_what_others_have_done_meanwhile() {
    let sim = media(JournalKind::Pmem, 1024);
    let run = begin(JournalKind::Pmem, &sim);
    let fs = run.fs();
    let handles: Vec<_> = FILES.iter().zip(old()).map(|(name, bytes)| file(fs, name, &bytes)).collect();
    let batch = staged(fs, &handles, &some());
    let set = SetAttr { size: Some(10), ..SetAttr::default() };
    fs.setattr(&root(), handles[0].nid(), Some(&handles[0]), &set).expect("open");
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(&root(), handles[1].nid(), Some(&handles[1]), &set).expect("open");
    fs.unlink(&root(), ROOT_NID, b"c").expect("there");
    fs.commit_batch(&root(), batch, BatchDurability::Ordered).expect("memory");
    let mut want = [vec![1; 10], Vec::new(), Vec::new()];
    apply(&mut want, &some());
    for (handle, want) in handles.iter().zip(want) {
        assert_eq!(content(fs, handle.nid()), want);
    }
}
