//! Directories that are being freed, and a crash in the midst of it.

use super::crash::{Simulated, after, begin, begin_in_steps, fill, idle, media};
use super::*;
use crate::extent::{self, Root};
use crate::format::JournalKind;
use crate::fsck;
use crate::sim::SimMedia;

fn name(n: usize) -> Vec<u8> {
    format!("{n:0>200}").into_bytes()
}

/// Fills an empty directory with names and takes them out one by one: it has many buckets and no names then, as one that a
/// crash has met between its last removal and the joining of its buckets. It is asked whether so many names are enough.
fn hollow(fs: &Vfs, d: Nid, are_enough: impl Fn(usize) -> bool) {
    let linked = file(fs, &root(), ROOT_NID, "linked").nid;
    let mut names = 0;
    while !are_enough(names) {
        fs.link(&root(), linked, d, &name(names)).expect("room");
        names += 1;
    }
    let meta = fs.meta();
    let object = meta.named(d).expect("there");
    let entries = meta.dir(&object);
    for n in 0..names {
        let mut h = meta.begin(64).expect("room");
        let image = object.lock.read();
        let found = entries.locate(Some(&h), &image, &name(n)).expect("sound").expect("there");
        entries.take(&mut h, &found).expect("sound");
        h.commit().expect("memory");
    }
    let linked = meta.named(linked).expect("there");
    let mut h = meta.begin(16).expect("room");
    let mut image = linked.lock.write();
    let mut draft = linked.draft(&image);
    draft.image.nlink.set(1);
    meta.stage(&mut h, &linked, &draft.image).expect("room");
    let _installing = meta.commit(h).expect("memory");
    linked.install(&mut image, &draft);
}

/// Removes it, and checks what crashes may leave while it is freed.
fn sound_while_freed(kind: JournalKind, sim: &SimMedia, run: &Simulated, d: Nid) {
    let checked = |sim: &SimMedia| {
        let report = fsck::check(&idle(kind, sim), &fsck::Options::default()).expect("an image");
        assert_eq!(report.issues, [], "{kind:?}");
    };
    let fs = run.fs();
    fs.checkpointer().checkpoint().expect("memory");
    let from = sim.events();
    fs.rmdir(&root(), ROOT_NID, b"d").expect("empty");
    fs.forget(d, 1);
    run.store().commit_upto(run.store().tail(), Durability::Power).expect("memory");
    let mut states = 0;
    after(sim, from, 3, 1, |state, _| {
        checked(&state.restart());
        states += 1;
    });
    assert!(states > 10, "{states} states of a removal in several records");
}

#[test]
fn a_directory_that_is_being_freed_is_no_damage() {
    for kind in [JournalKind::Pmem, JournalKind::Ssd] {
        let sim = media(kind, 1024);
        let run = begin(kind, &sim);
        let d = dir(run.fs(), &root(), ROOT_NID, "d").nid;
        hollow(run.fs(), d, |names| names == 60);
        assert!(run.fs().getattr(d).expect("there").size >= 4 * 4096);
        sound_while_freed(kind, &sim, &run, d);
    }
}

/// What is freed with one record ends with a leaf of the directory's tree.
#[test]
fn a_directory_of_many_extents_that_is_being_freed_is_no_damage() {
    const STEP: u32 = 32;
    let kind = JournalKind::Pmem;
    let sim = media(kind, 2048);
    let run = begin_in_steps(kind, &sim, STEP);
    let fs = run.fs();
    let d = dir(fs, &root(), ROOT_NID, "d").nid;
    let filler = fs.create(&root(), ROOT_NID, b"filler", 0o644, OpenFlags::READ_WRITE).expect("room").1;
    // No two blocks that are free lie beside each other.
    for at in (0..fill(fs, &filler, 1) as u64).step_by(2 * 4096) {
        fs.fallocate(&root(), &filler, FallocateMode::PunchHole, at, 4096).expect("open for writing");
    }
    fs.release(filler, None);
    fs.checkpointer().checkpoint().expect("memory");
    // A record that frees a whole step of buckets would end within a leaf.
    hollow(fs, d, |names| {
        let image = *fs.meta().named(d).expect("there").lock.read();
        let tree = Root::load(&image).expect("sound");
        names >= 3600 && {
            let leaf = extent::last_leaf(&**run.store(), &tree).expect("sound");
            leaf > 0 && !(image.buckets.get() - leaf).is_multiple_of(STEP / 4)
        }
    });
    sound_while_freed(kind, &sim, &run, d);
}
