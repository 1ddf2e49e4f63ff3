//! What was accepted goes home: on an image that has got full meanwhile, and in files that need blocks for their extents.

use super::crash::{Simulated, begin, idle, media};
use super::*;
use crate::format::{EXTENT_ROOT_ENTRIES, JournalKind};
use crate::fsck;
use crate::sim::{Crash, SimMedia};

const FLAGS: OpenFlags = OpenFlags::READ_WRITE;
const MODE: FallocateMode = FallocateMode::Allocate { keep_size: false };

/// An image on whose free blocks something is left of a file that is gone.
fn used(kind: JournalKind) -> SimMedia {
    let sim = media(kind, 2048);
    let run = begin(kind, &sim);
    let old = run.fs().create(&root(), ROOT_NID, b"old", 0o644, FLAGS).expect("made").1;
    let free = run.fs().statfs().expect("counted").blocks_available;
    for page in 0..free - free / 16 {
        run.fs().write(&root(), &old, page * 4096, &[0xee; 4096], WriteFlags::empty()).expect("room");
    }
    run.fs().fsync(&old, false).expect("memory");
    run.fs().release(old, None);
    run.fs().unlink(&root(), ROOT_NID, b"old").expect("there");
    run.end();
    sim
}

fn made(fs: &Vfs, name: &str) -> FileHandle {
    fs.create(&root(), ROOT_NID, name.as_bytes(), 0o644, FLAGS).expect("room").1
}

/// So many files, which are given so many pages beforehand, in so many parts that others' lie between; with their names.
fn given(
    fs: &Vfs,
    count: usize,
    mode: FallocateMode,
    pages: u64,
    parts: u64,
) -> (Vec<String>, Vec<FileHandle>) {
    let names: Vec<_> = (0..count).map(|n| format!("{n}")).collect();
    let files: Vec<_> = names.iter().map(|name| made(fs, name)).collect();
    for part in 0..parts {
        for file in &files {
            fs.fallocate(&root(), file, mode, part * pages * 4096, pages * 4096).expect("room");
        }
    }
    (names, files)
}

fn write(fs: &Vfs, file: &FileHandle, page: u64) {
    let written = fs.write(&root(), file, page * 4096, &[page as u8; 4096], WriteFlags::empty());
    assert_eq!(written.expect("it has its blocks"), 4096);
}

fn sync(fs: &Vfs, files: &[FileHandle]) {
    files.iter().for_each(|file| fs.fsync(file, false).expect("what was accepted is kept"));
}

/// Takes all that is there.
fn fill(fs: &Vfs) -> FileHandle {
    let rest = made(fs, "rest");
    let mut at = 0;
    for len in [1 << 20, 64 << 10, 4096] {
        while fs.fallocate(&root(), &rest, MODE, at, len).is_ok() {
            at += len;
        }
    }
    rest
}

/// The next mount finds these pages of each file, and zeros between them.
fn are_there(run: Simulated, kind: JournalKind, sim: &SimMedia, names: &[String], holds: impl Fn(u64) -> u8) {
    run.end();
    let report = fsck::check(&idle(kind, sim), &fsck::Options::default());
    assert!(report.expect("memory").issues.is_empty());
    let run = begin(kind, sim);
    for name in names {
        let nid = run.fs().lookup(&root(), ROOT_NID, name.as_bytes()).expect("there").nid;
        let bytes = super::crash::content(run.fs(), nid);
        for (page, bytes) in bytes.chunks(4096).enumerate() {
            let expected = holds(page as u64);
            assert!(bytes.iter().all(|byte| *byte == expected), "{name}, page {page}: {}", bytes[0]);
        }
    }
    run.end();
}

/// Blocks that a file was given beforehand can be written, also where its extents then need a block that nobody has.
#[test]
fn what_was_allocated_beforehand_can_be_written_on_a_full_image() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        for synced in [true, false] {
            let sim = used(kind);
            let run = begin(kind, &sim);
            let fs = run.fs();
            let (names, files) = given(fs, 100, MODE, 9, 1);
            let rest = fill(fs);
            for page in [1, 3, 5, 7] {
                for file in &files {
                    write(fs, file, page);
                    if synced {
                        sync(fs, std::slice::from_ref(file));
                    }
                }
            }
            sync(fs, &files);
            files.into_iter().chain([rest]).for_each(|file| fs.release(file, None));
            are_there(run, kind, &sim, &names, |page| if page % 2 == 1 { page as u8 } else { 0 });
        }
    }
}

/// The same where what is dirty lies side by side in runs that do not.
#[test]
fn pages_side_by_side_in_two_runs_are_written_on_a_full_image() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = used(kind);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let (names, files) = given(fs, 60, MODE, 9, 2);
        let rest = fill(fs);
        let writes = |page: u64| page % 2 == 1 || page == 8 || page == 10;
        for page in (0..18).filter(|page| writes(*page)) {
            files.iter().for_each(|file| write(fs, file, page));
        }
        sync(fs, &files);
        files.into_iter().chain([rest]).for_each(|file| fs.release(file, None));
        are_there(run, kind, &sim, &names, |page| if writes(page) { page as u8 } else { 0 });
    }
}

/// What was given beforehand beyond the end of a file stays unwritten, so that a file that gets longer has zeros there,
/// whatever a crash has left.
#[test]
fn beyond_the_end_of_a_file_a_full_image_leaves_zeros() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = used(kind);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let (names, files) = given(fs, 80, FallocateMode::Allocate { keep_size: true }, 16, 1);
        let _rest = fill(fs);
        for page in [1, 3, 5, 7, 9, 11] {
            files.iter().for_each(|file| write(fs, file, page));
            sync(fs, &files);
        }
        let from = sim.events();
        files.iter().for_each(|file| write(fs, file, 13));
        sync(fs, &files[68..]);
        super::crash::after(&sim, from, 7, 3, |state, _: Crash| {
            let again = state.restart();
            let run = begin(kind, &again);
            for name in &names[66..] {
                let nid = run.fs().lookup(&root(), ROOT_NID, name.as_bytes()).expect("there").nid;
                let has = run.fs().getattr(nid).expect("there").size / 4096;
                let longer = SetAttr { size: Some(16 * 4096), ..SetAttr::default() };
                run.fs().setattr(&root(), nid, None, &longer).expect("no room is needed");
                let bytes = super::crash::content(run.fs(), nid);
                for (page, bytes) in bytes.chunks(4096).enumerate() {
                    let page = page as u64;
                    let is_written = page % 2 == 1 && page < has;
                    let expected = if is_written { page as u8 } else { 0 };
                    assert!(
                        bytes.iter().all(|byte| *byte == expected),
                        "{kind:?}: {state}: {name}, page {page}"
                    );
                }
            }
            run.end();
        });
    }
}

/// A crash while a run becomes written as a whole shows what was synced, and zeros, and nothing of what its blocks had held.
#[test]
fn a_run_that_becomes_written_as_a_whole_shows_nothing_old_after_a_crash() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = used(kind);
        let run = begin(kind, &sim);
        let fs = run.fs();
        let (names, files) = given(fs, 100, MODE, 9, 1);
        let _rest = fill(fs);
        for file in &files {
            [1, 3, 5].into_iter().for_each(|page| write(fs, file, page));
            sync(fs, std::slice::from_ref(file));
        }
        for file in &files[..90] {
            write(fs, file, 7);
            sync(fs, std::slice::from_ref(file));
        }
        let from = sim.events();
        files[90..].iter().for_each(|file| write(fs, file, 7));
        sync(fs, &files[90..]);
        super::crash::after(&sim, from, 11, 3, |state, _: Crash| {
            let again = state.restart();
            let run = begin(kind, &again);
            for (n, name) in names.iter().enumerate() {
                let nid = run.fs().lookup(&root(), ROOT_NID, name.as_bytes()).expect("there").nid;
                let bytes = super::crash::content(run.fs(), nid);
                for (page, bytes) in bytes.chunks(4096).enumerate() {
                    let may_be = |byte: u8| match page {
                        7 if n >= 90 => byte == 7 || byte == 0,
                        1 | 3 | 5 | 7 => byte == page as u8,
                        _ => byte == 0,
                    };
                    assert!(bytes.iter().all(|byte| may_be(*byte)), "{kind:?}: {state}: {name}, page {page}");
                }
            }
            run.end();
        });
    }
}

/// Pages in holes far apart need blocks for extents, in each of many files: who is told that there is room for them has it.
#[test]
fn what_was_written_into_holes_of_many_files_goes_home() {
    let fs = super::space::of_blocks(4096);
    let files: Vec<_> = (0..200).map(|n| made(&fs, &format!("{n}"))).collect();
    let pages = EXTENT_ROOT_ENTRIES as u64 + 1;
    let each = || (0..pages).flat_map(|page| files.iter().map(move |file| (page, file)));
    for (page, file) in each() {
        fs.write(&root(), file, page * 8192, &[page as u8 + 1; 4096], WriteFlags::empty()).expect("room");
    }
    let rest = fill(&fs);
    sync(&fs, &files);
    for (page, file) in each() {
        let mut bytes = [0; 4096];
        assert_eq!(fs.read(file, page * 8192, &mut bytes), Ok(4096));
        assert_eq!(bytes, [page as u8 + 1; 4096]);
    }
    files.into_iter().chain([rest]).for_each(|file| fs.release(file, None));
}

/// Of what statfs shows, nearly all can be written in single pages far apart, however many of them are not home yet.
#[test]
fn single_pages_fill_the_image() {
    let fs = super::space::of_blocks(4096);
    let file = made(&fs, "file");
    let room = fs.statfs().expect("counted").blocks_available;
    let mut pages = 0;
    while fs.write(&root(), &file, pages * 8192, &[1; 4096], WriteFlags::empty()).is_ok() {
        pages += 1;
    }
    assert!(pages >= room - room / 32, "{pages} of {room} blocks");
    fs.fsync(&file, false).expect("what was accepted is kept");
    fs.release(file, None);
}
