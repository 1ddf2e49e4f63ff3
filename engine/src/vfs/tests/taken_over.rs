//! What a successor knows of the requests and of the inodes that a predecessor has left.

use super::crash::{after, begin, begin_with, media, read_of};
use super::*;
use crate::format::JournalKind;
use crate::sync::Mutex;
use crate::takeover::testing::killed;
use crate::takeover::{Left, Prober, Requests, Takeover};
use std::collections::BTreeSet;
use std::mem::forget;
use std::sync::mpsc;

const KINDS: [JournalKind; 2] = [JournalKind::Pmem, JournalKind::Ssd];

/// A kernel that holds these inodes, and tells of each question.
struct Kernel {
    holds: Mutex<BTreeSet<Nid>>,
    asked: mpsc::Sender<Nid>,
}

impl Prober for Kernel {
    fn kernel_holds(&self, nid: Nid) -> bool {
        let held = self.holds.lock().contains(&nid);
        self.asked.send(nid).expect("the test is there");
        held
    }
}

/// Does something as request `unique`, which is never answered.
fn ask<T>(memory: &Arc<Takeover>, unique: u64, operation: impl FnOnce() -> T) -> T {
    let taken = Requests::take(memory, unique, 0, 0).expect("a free slot");
    let outcome = {
        let _entered = taken.enter();
        operation()
    };
    forget(taken);
    outcome
}

#[test]
fn what_was_done_is_known_and_what_failed_was_not_done() {
    for kind in KINDS {
        let sim = media(kind, 8192);
        let memory = Takeover::create(1).expect("memory");
        let first = begin_with(kind, &sim, Some(&memory));
        let fs = first.fs();
        let (ctx, top) = (root(), ROOT_NID);
        let made = ask(&memory, 2, || dir(fs, &ctx, top, "d")).nid;
        let plain = ask(&memory, 4, || file(fs, &ctx, top, "f")).nid;
        ask(&memory, 6, || fs.symlink(&ctx, top, b"s", &[b'x'; 2000])).expect("made");
        ask(&memory, 8, || fs.link(&ctx, plain, made, b"l")).expect("made");
        ask(&memory, 10, || fs.rename(&ctx, top, b"f", top, b"g", RenameFlags::empty())).expect("renamed");
        ask(&memory, 12, || fs.rename(&ctx, top, b"s", top, b"g", RenameFlags::empty())).expect("replaced");
        ask(&memory, 14, || fs.setxattr(&ctx, plain, b"user.a", b"1", XattrMode::Create)).expect("set");
        ask(&memory, 16, || fs.removexattr(&ctx, plain, b"user.a")).expect("removed");
        ask(&memory, 18, || fs.unlink(&ctx, made, b"l")).expect("unlinked");
        ask(&memory, 20, || fs.rmdir(&ctx, top, b"d")).expect("removed");
        let (nameless, open) =
            ask(&memory, 22, || fs.tmpfile(&ctx, top, 0o600, OpenFlags::READ_WRITE)).expect("made");
        ask(&memory, 24, || fs.write(&ctx, &open, 5, &[1; 9000], WriteFlags::empty())).expect("room");
        assert!(ask(&memory, 26, || fs.mkdir(&ctx, top, b"g", 0o755)).is_err());
        assert!(ask(&memory, 28, || fs.rmdir(&ctx, top, b"nothing")).is_err());
        ask(&memory, 30, || fs.getattr(top)).expect("there");
        forget((open, first));
        let next = killed(&memory);
        let second = begin_with(kind, &sim, Some(&next));
        let left = |unique| Requests::resume(&next, unique).map(|(left, _)| left);
        for unique in (2..=24).step_by(2) {
            assert!(left(unique).is_some_and(|left| left.done && left.attempts == 1), "{kind:?}, {unique}");
        }
        for unique in [26, 28, 30] {
            assert!(left(unique).is_some_and(|left| !left.done), "{kind:?}, {unique}");
        }
        assert_eq!(next.requests().all_left(), []);
        let _ = nameless;
        forget(second);
    }
}

#[test]
fn numbers_of_what_was_made_and_written_are_told() {
    let sim = media(JournalKind::Ssd, 8192);
    let memory = Takeover::create(1).expect("memory");
    let first = begin_with(JournalKind::Ssd, &sim, Some(&memory));
    let fs = first.fs();
    let (nameless, open) =
        ask(&memory, 2, || fs.tmpfile(&root(), ROOT_NID, 0o600, OpenFlags::READ_WRITE)).expect("made");
    ask(&memory, 4, || fs.write(&root(), &open, 0, &[1; 9000], WriteFlags::empty())).expect("room");
    forget((open, first));
    let next = killed(&memory);
    let _second = begin_with(JournalKind::Ssd, &sim, Some(&next));
    let left: Vec<Left> = [2, 4]
        .into_iter()
        .filter_map(|unique| Requests::resume(&next, unique).map(|(left, _)| left))
        .collect();
    assert_eq!(
        left.iter().map(|left| (left.nid, left.written)).collect::<Vec<_>>(),
        [(nameless.nid, 0), (0, 9000)]
    );
}

/// A judged request stays judged, whatever epoch the next recovery finds.
#[test]
fn a_second_death_before_the_answer_changes_nothing() {
    let sim = media(JournalKind::Ssd, 8192);
    let memory = Takeover::create(1).expect("memory");
    let first = begin_with(JournalKind::Ssd, &sim, Some(&memory));
    ask(&memory, 2, || dir(first.fs(), &root(), ROOT_NID, "d"));
    assert!(ask(&memory, 4, || first.fs().rmdir(&root(), ROOT_NID, b"x")).is_err());
    forget(first);
    let mut last = memory;
    for _ in 0..3 {
        last = killed(&last);
        forget(begin_with(JournalKind::Ssd, &sim, Some(&last)));
    }
    let done = |unique| Requests::resume(&last, unique).map(|(left, _)| left.done);
    assert_eq!((done(2), done(4)), (Some(true), Some(false)));
}

#[test]
fn an_inode_without_names_is_freed_when_the_kernel_has_it_no_more() {
    let kind = JournalKind::Ssd;
    let sim = media(kind, 8192);
    let memory = Takeover::create(1).expect("memory");
    let first = begin_with(kind, &sim, Some(&memory));
    let fs = first.fs();
    let [kept, lost] = [0, 1].map(|_| {
        let made = fs.tmpfile(&root(), ROOT_NID, 0o600, OpenFlags::READ_WRITE).expect("made");
        fs.write(&root(), &made.1, 0, b"content", WriteFlags::empty()).expect("room");
        fs.fsync(&made.1, false).expect("memory");
        made
    });
    // Named, and known to the kernel: it loses its name in the next process.
    let named = file(fs, &root(), ROOT_NID, "named");
    let numbers = (kept.0.nid, lost.0.nid);
    forget((kept.1, lost.1));
    let (kept, lost) = numbers;
    forget(first);
    let next = killed(&memory);
    let second = begin_with(kind, &sim, Some(&next));
    let fs = second.fs();
    let (asked, questions) = mpsc::channel();
    let kernel = Arc::new(Kernel { holds: Mutex::new([kept, named.nid].into()), asked });
    fs.unlink(&root(), ROOT_NID, b"named").expect("it is there");
    fs.ask_kernel(Arc::clone(&kernel) as Arc<dyn Prober>).expect("a thread");
    let first_three: BTreeSet<Nid> = (0..3).map(|_| questions.recv().expect("asked")).collect();
    assert_eq!(first_three, [kept, lost, named.nid].into());
    let read = |nid| {
        let file = fs.borrow(nid, OpenFlags::empty(), None)?;
        fs.read(&file, 0, &mut [0; 10])
    };
    assert_eq!((read(kept).ok(), read(named.nid).ok()), (Some(7), Some(0)));
    for nid in [kept, named.nid] {
        kernel.holds.lock().remove(&nid);
        fs.forget(nid, 3);
        assert_eq!(questions.recv(), Ok(nid));
    }
    // The last question is answered before the thread is gone; what it frees then is freed here.
    fs.forget_all();
    let made = fs.mkdir(&root(), ROOT_NID, b"after", 0o755).expect("there is room");
    assert_eq!(made.attr.nlink, 2);
    fs.fsync(&fs.opendir(&root(), ROOT_NID).expect("there"), false).expect("memory");
    forget(second);
    let third = begin_with(kind, &sim, None);
    for nid in [kept, lost, named.nid] {
        assert_eq!(errno(third.fs().getattr(nid)), libc::ESTALE);
    }
    assert!(third.fs().meta().space.entries().is_empty());
}

/// Who is in line to be asked about may get a name meanwhile.
#[test]
fn a_file_that_gets_a_name_before_the_kernel_is_asked_stays() {
    for kind in KINDS {
        let sim = media(kind, 8192);
        let memory = Takeover::create(1).expect("memory");
        let first = begin_with(kind, &sim, Some(&memory));
        let (entry, open) =
            first.fs().tmpfile(&root(), ROOT_NID, 0o600, OpenFlags::READ_WRITE).expect("made");
        first.fs().write(&root(), &open, 0, b"content", WriteFlags::empty()).expect("room");
        first.fs().fsync(&open, false).expect("memory");
        forget((open, first));
        let second = begin_with(kind, &sim, Some(&killed(&memory)));
        let fs = second.fs();
        fs.link(&root(), entry.nid, ROOT_NID, b"named").expect("it is there");
        fs.forget(entry.nid, 2);
        fs.forget_all();
        assert_eq!(read_of(fs, "named").expect("it is a file's name"), b"content");
        second.end();
    }
}

/// What is rewritten from nothing is old or new, whichever server began and whichever way it ends.
#[test]
fn what_was_being_replaced_by_a_killed_server_is_old_or_new_after_a_loss_of_power() {
    for kind in KINDS {
        let sim = media(kind, 8192);
        let memory = Takeover::create(256).expect("memory");
        let first = begin_with(kind, &sim, Some(&memory));
        let (old, new) = (vec![1; 3 * 4096 + 5], vec![2; 2 * 4096 + 7]);
        let fs = first.fs();
        let handle = fs.create(&root(), ROOT_NID, b"f", 0o644, OpenFlags::READ_WRITE).expect("room").1;
        fs.write(&root(), &handle, 0, &old, WriteFlags::empty()).expect("room");
        fs.fsync(&handle, false).expect("memory");
        let size = SetAttr { size: Some(0), ..SetAttr::default() };
        fs.setattr_open(&root(), &handle, &size).expect("open for writing");
        fs.write(&root(), &handle, 0, &new, WriteFlags::empty()).expect("room");
        forget((handle, first));
        let second = begin_with(kind, &sim, Some(&killed(&memory)));
        let fs = second.fs();
        assert!(read_of(fs, "f").expect("there") == new);
        let other = fs.create(&root(), ROOT_NID, b"other", 0o644, OpenFlags::READ_WRITE).expect("room").1;
        fs.fsync(&other, false).expect("memory");
        forget((other, second));
        after(&sim, sim.events(), 1, 8, |state, crash| {
            let third = begin(kind, &state.restart());
            let seen = read_of(third.fs(), "f").expect("there");
            assert!(seen == old || seen == new, "{kind:?}, {crash:?}: {} bytes", seen.len());
        });
    }
}

/// What the first server has promised is not promised to others by the next.
#[test]
fn a_full_image_is_taken_over() {
    for kind in KINDS {
        let sim = media(kind, 1024);
        let memory = Takeover::create(256).expect("memory");
        let first = begin_with(kind, &sim, Some(&memory));
        let fs = first.fs();
        let ballast = fs.create(&root(), ROOT_NID, b"ballast", 0o644, OpenFlags::READ_WRITE).expect("room").1;
        let files: Vec<_> = (0..120)
            .map(|n| {
                let name = format!("f{n}");
                fs.create(&root(), ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE).expect("room").1
            })
            .collect();
        let available = fs.meta().alloc.statfs_available();
        fs.fallocate(
            &root(),
            &ballast,
            FallocateMode::Allocate { keep_size: false },
            0,
            (available - 90) * 4096,
        )
        .expect("room");
        let write = |file: &FileHandle| fs.write(&root(), file, 0, &[7; 4096], WriteFlags::empty());
        let written = files.iter().take_while(|file| write(file).is_ok()).count();
        assert!(written < files.len(), "it is full");
        forget((ballast, files, first));
        let second = begin_with(kind, &sim, Some(&killed(&memory)));
        for n in 0..written {
            assert!(read_of(second.fs(), &format!("f{n}")).expect("there") == [7; 4096], "{kind:?}, {n}");
        }
        second.end();
        let third = begin(kind, &sim);
        for n in 0..written {
            assert!(read_of(third.fs(), &format!("f{n}")).expect("there") == [7; 4096], "{kind:?}, {n}");
        }
    }
}

/// Everything of a file that a program sees.
fn seen(fs: &Vfs, nid: Nid) -> (Vec<u8>, i64, i64) {
    let attr = fs.getattr(nid).expect("it is there");
    let file = fs.borrow(nid, OpenFlags::empty(), None).expect("it is there");
    let mut bytes = vec![0xEE; attr.size as usize + 1];
    let len = fs.read(&file, 0, &mut bytes).expect("it is read");
    assert_eq!(len as u64, attr.size);
    bytes.truncate(len);
    (bytes, attr.mtime, attr.ctime)
}

/// Random changes of some files by several servers in a row, each of which is killed: what a program has seen is there.
#[test]
fn what_no_record_holds_outlives_any_number_of_servers() {
    use rand::{Rng, SeedableRng};
    for seed in 0..40 {
        let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
        let kind = KINDS[seed as usize % 2];
        let sim = media(kind, 8192);
        let mut memory = Takeover::create(256).expect("memory");
        let mut model: Vec<(Nid, Vec<u8>, i64, i64)> = Vec::new();
        for server in 0..6 {
            let serving = begin_with(kind, &sim, Some(&memory));
            let fs = serving.fs();
            for (nid, bytes, mtime, ctime) in &model {
                let (found, found_mtime, found_ctime) = seen(fs, *nid);
                assert_eq!(found.len(), bytes.len(), "seed {seed}, server {server}, nid {nid}");
                assert!(found == *bytes, "seed {seed}, server {server}, nid {nid}: the content differs");
                assert_eq!(
                    (found_mtime, found_ctime),
                    (*mtime, *ctime),
                    "seed {seed}, server {server}, nid {nid}"
                );
            }
            if server == 0 {
                for n in 0..4 {
                    let made = file(fs, &root(), ROOT_NID, &format!("f{n}"));
                    model.push((made.nid, Vec::new(), 0, 0));
                }
            }
            for _ in 0..rng.random_range(0..30) {
                let (nid, bytes, ..) = &mut model[rng.random_range(0..4)];
                let handle = fs.open(&root(), *nid, OpenFlags::READ_WRITE).expect("it is there");
                match rng.random_range(0..15) {
                    0 => {
                        let size = SetAttr { size: Some(0), ..SetAttr::default() };
                        fs.setattr(&root(), *nid, Some(&handle), &size).expect("open for writing");
                        bytes.clear();
                    }
                    1 | 2 => {
                        let len = rng.random_range(0..60_000);
                        let size = SetAttr { size: Some(len), ..SetAttr::default() };
                        fs.setattr(&root(), *nid, Some(&handle), &size).expect("open for writing");
                        bytes.resize(len as usize, 0);
                    }
                    3 => fs.fsync(&handle, rng.random_bool(0.5)).expect("memory"),
                    4 => fs.syncfs().expect("memory"),
                    5 => {
                        let (at, len) = (rng.random_range(0..50_000usize), rng.random_range(1..20_000usize));
                        fs.fallocate(&root(), &handle, FallocateMode::PunchHole, at as u64, len as u64)
                            .expect("it can be");
                        let end = (at + len).min(bytes.len());
                        if at < end {
                            bytes[at..end].fill(0);
                        }
                    }
                    kind => {
                        // Many of them small, and behind one another, so that a page is written, synced, and written again.
                        let at = match rng.random_bool(0.5) {
                            true => bytes.len(),
                            false => rng.random_range(0..50_000usize),
                        };
                        let new =
                            vec![rng.random(); if rng.random() { 300 } else { rng.random_range(1..9000) }];
                        // Direct ones go home at once, over what a sync has left in the journal.
                        let flags = if kind > 11 { WriteFlags::DIRECT } else { WriteFlags::empty() };
                        fs.write(&root(), &handle, at as u64, &new, flags).expect("room");
                        bytes.resize(bytes.len().max(at + new.len()), 0);
                        bytes[at..at + new.len()].copy_from_slice(&new);
                    }
                }
                fs.release(handle, None);
            }
            for (nid, _, mtime, ctime) in &mut model {
                let attr = fs.getattr(*nid).expect("it is there");
                (*mtime, *ctime) = (attr.mtime, attr.ctime);
            }
            forget(serving);
            // At times the next one dies before it serves.
            for _ in 0..=usize::from(rng.random_bool(0.3)) {
                let next = killed(&memory);
                if rng.random_bool(0.3) {
                    forget(begin_with(kind, &sim, Some(&next)));
                    memory = killed(&next);
                } else {
                    memory = next;
                }
            }
        }
        let last = begin_with(kind, &sim, Some(&memory));
        for (nid, bytes, ..) in &model {
            assert!(seen(last.fs(), *nid).0 == *bytes, "seed {seed}");
        }
        last.end();
        assert_eq!(killed(&memory).inodes().left(), [], "seed {seed}");
        let after = begin_with(kind, &sim, None);
        for (nid, bytes, ..) in &model {
            assert!(seen(after.fs(), *nid).0 == *bytes, "seed {seed}: after the unmount");
        }
    }
}
