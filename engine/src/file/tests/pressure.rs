//! Tiny rings, few frames, full images: nobody waits for ever, and what was accepted is kept.

use super::mounted::{Image, Live, PAGE, content, cut, put};
use crate::format::ROOT_NID;
use crate::vfs::{Context, FallocateMode, FileHandle, OpenFlags, RenameFlags, Vfs};
use crate::{Error, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// One random operation on a file of at most 12 pages.
fn operate(fs: &Vfs, file: &FileHandle, rng: &mut StdRng) {
    let at = rng.random_range(0..12) * PAGE;
    let len = rng.random_range(1..2 * PAGE);
    let done = match rng.random_range(0..10) {
        0..4 => put(fs, file, at, &vec![rng.random_range(1..=255); len]),
        4 => put(fs, file, at + 100, &[7; 50]),
        5 => cut(fs, file, 0),
        6 => cut(fs, file, at + 9),
        7 => fs.fallocate(&Context::root(), file, FallocateMode::PunchHole, at as u64, len as u64),
        _ => fs.fsync(file, false),
    };
    assert!(matches!(done, Ok(()) | Err(Error::Errno(libc::ENOSPC))), "{done:?}");
}

/// Threads that write, sync and cut files of their own, on a ring of two hundred slots: whoever waits for credits,
/// frames or space must hold nothing that the checkpoint needs.
#[test]
fn a_tiny_ring_and_few_frames_stop_nobody() {
    const THREADS: u64 = 4;
    const OPS: usize = 150;
    let image = Image::new(512, 208);
    let live = image.mount();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let live = &live;
            scope.spawn(move || {
                let file = live.open(&format!("{thread}"));
                let mut rng = StdRng::seed_from_u64(thread);
                for _ in 0..OPS {
                    operate(live.fs(), &file, &mut rng);
                }
                live.fs().release(file, None);
            });
        }
    });
    live.unmount();
    image.assert_whole("");
}

/// The same on three files that all threads share, with moves of extents, and names that come and go and replace
/// these files.
#[test]
fn threads_that_meet_in_every_file_stop_nobody_on_a_tiny_ring() {
    const THREADS: u64 = 6;
    const OPS: usize = 120;
    let image = Image::new(512, 208);
    let live = image.mount();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let live = &live;
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(thread);
                for _ in 0..OPS {
                    meet(live, &mut rng).unwrap_or_else(|e| match e {
                        Error::Errno(libc::ENOSPC | libc::ENOENT | libc::EINVAL | libc::ESTALE) => {}
                        e => panic!("{e}"),
                    });
                }
            });
        }
    });
    live.unmount();
    image.assert_whole("");
}

/// What takes blocks for a file, or gives them back, meets truncations to nothing that are not recorded yet.
#[test]
fn blocks_are_set_aside_while_others_empty_the_file() {
    let image = Image::new(512, 208);
    let live = image.mount();
    let page = PAGE as u64;
    let modes = [
        FallocateMode::Allocate { keep_size: true },
        FallocateMode::ZeroRange { keep_size: true },
        FallocateMode::PunchHole,
    ];
    let on_the_file = |run: &dyn Fn(&FileHandle, usize) -> Result<()>| {
        let file = live.open("f");
        for n in 0..400 {
            run(&file, n).expect("there is room, and the tree is whole");
        }
        live.fs().release(file, None);
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                on_the_file(&|file, n| {
                    put(live.fs(), file, 0, &vec![n as u8; 6 * PAGE])?;
                    live.fs().fsync(file, false)?;
                    cut(live.fs(), file, 0)
                });
            });
            scope.spawn(|| {
                on_the_file(&|file, n| {
                    live.fs().fallocate(&Context::root(), file, modes[n % modes.len()], page, 4 * page)
                });
            });
        }
    });
    live.unmount();
    image.assert_whole("");
}

fn meet(live: &Live, rng: &mut StdRng) -> Result<()> {
    let (root, fs) = (Context::root(), live.fs());
    let mut name = || [b'a' + rng.random_range(0..3)];
    let (name, other) = (name(), name());
    match rng.random_range(0..10) {
        0 => return fs.unlink(&root, ROOT_NID, &name),
        1 => return fs.rename(&root, ROOT_NID, &name, ROOT_NID, &other, RenameFlags::empty()),
        _ => {}
    }
    let (entry, file, _) = fs.create(&root, ROOT_NID, &name, 0o644, OpenFlags::READ_WRITE)?;
    fs.forget(entry.nid, 1);
    let (page, len) = (PAGE as u64, rng.random_range(1..4) * PAGE as u64);
    let done = match rng.random_range(0..8) {
        0 => fs.fallocate(&root, &file, FallocateMode::Collapse, page, len),
        1 => fs.fallocate(&root, &file, FallocateMode::Insert, page, len),
        2 => fs.fallocate(&root, &file, FallocateMode::Allocate { keep_size: true }, 0, 4 * len),
        _ => {
            operate(fs, &file, rng);
            Ok(())
        }
    };
    fs.release(file, None);
    done
}

/// Random writes to several files until the image is full, among the remains of others, so that free blocks lie
/// far apart: what was accepted has its blocks, and those of the extent trees too.
#[test]
fn what_a_full_image_has_accepted_can_be_synced() {
    for (slots, seed) in [208, 4096].into_iter().flat_map(|slots| (0..4).map(move |seed| (slots, seed))) {
        let image = Image::new(1500, slots);
        let live = image.mount();
        let mut rng = StdRng::seed_from_u64(seed);
        scatter(&live, &mut rng);
        let files: Vec<FileHandle> = (0..3).map(|n| live.open(&format!("{n}"))).collect();
        let mut models = vec![Vec::new(); files.len()];
        loop {
            let which = rng.random_range(0..files.len());
            // Few pages side by side: many extents.
            let at = rng.random_range(0..2000) * PAGE + rng.random_range(0..100);
            let bytes = vec![rng.random_range(1..=255); rng.random_range(1..2 * PAGE)];
            match live.fs().write(&Context::root(), &files[which], at as u64, &bytes, Default::default()) {
                Ok(len) => {
                    let model: &mut Vec<u8> = &mut models[which];
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&bytes[..len]);
                }
                Err(Error::Errno(libc::ENOSPC)) => break,
                Err(e) => panic!("{slots} slots, seed {seed}: {e}"),
            }
            if rng.random_bool(0.02) {
                live.fs().fsync(&files[which], false).expect("it was accepted");
            }
        }
        for (file, model) in files.iter().zip(&models) {
            live.fs().fsync(file, false).unwrap_or_else(|e| panic!("{slots} slots, seed {seed}: {e}"));
            assert!(content(live.fs(), file) == *model, "{slots} slots, seed {seed}");
        }
        drop((files, live));
        let live = image.mount();
        for (n, model) in models.iter().enumerate() {
            let file = live.open(&format!("{n}"));
            assert!(content(live.fs(), &file) == *model, "{slots} slots, seed {seed}: after a kill");
            live.fs().release(file, None);
        }
        live.unmount();
        image.assert_whole(&format!("{slots} slots, seed {seed}: "));
    }
}

/// Leaves files of one block in the way of everything that comes later.
fn scatter(live: &Live, rng: &mut StdRng) {
    for n in 0..400 {
        let file = live.open(&format!("scattered-{n}"));
        put(live.fs(), &file, 0, &[1; PAGE]).expect("room");
        live.fs().fsync(&file, false).expect("memory does not fail");
        live.fs().release(file, None);
    }
    for n in 0..400 {
        if rng.random_bool(0.5) {
            live.fs().unlink(&Context::root(), ROOT_NID, format!("scattered-{n}").as_bytes()).expect("there");
        }
    }
}

/// More extents than one record of a tiny ring can free: the file is emptied in a record of its own, and neither then
/// nor after the new content does anybody see a mixture.
#[test]
fn a_file_of_too_many_extents_is_emptied_before_it_is_rewritten() {
    const EXTENTS: usize = 300;
    for rewrites in [false, true] {
        let image = Image::new(2048, 208);
        let live = image.mount();
        let file = live.open("f");
        for page in 0..EXTENTS {
            put(live.fs(), &file, 2 * page * PAGE, &[1; PAGE]).expect("room");
        }
        live.fs().fsync(&file, false).expect("memory does not fail");
        let before = live.free();
        cut(live.fs(), &file, 0).expect("always");
        // The background may hold some back for a record that it has begun and will not need.
        let all_free = (0..100_000).any(|_| {
            std::thread::yield_now();
            live.free() >= before + EXTENTS as u64
        });
        assert!(all_free, "its blocks are free at once");
        if rewrites {
            put(live.fs(), &file, 0, &[2; 3 * PAGE]).expect("room");
        }
        live.fs().release(file, None);
        drop(live);

        let live = image.mount();
        let file = live.open("f");
        let seen = content(live.fs(), &file);
        assert!(seen.is_empty() || rewrites && seen == [2; 3 * PAGE], "{} bytes", seen.len());
        live.fs().release(file, None);
        live.unmount();
        image.assert_whole("");
    }
}
