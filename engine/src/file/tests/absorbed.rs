//! What an fsync has promised outlives the head's way past its record, and does not depend on who writes it.

use super::image::{Fsync as _, MetaImage, content, path};
use crate::file::sync::data_journal::Absorb;
use crate::file::write::Outcome;
use crate::file::write::edits::Content;
use crate::file::write::reservation::FrameReservation;
use crate::file::{At, DataPath, ErrorMark, Fit, SyncKind};
use crate::sync::{Arc, thread};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// A file of a page of ones that is image, and that the journal knows nothing more of.
fn settled() -> (Arc<MetaImage>, Arc<DataPath>, Arc<crate::inode::InodeObj>) {
    let image = MetaImage::new(100, true);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Append, &[1; 4096]).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    image.checkpoint();
    (image, path, file)
}

fn after_a_crash(image: &Arc<MetaImage>) -> Vec<u8> {
    image.crash(&mut StdRng::seed_from_u64(1));
    content(&path(image, 16), &image.open(1))
}

#[test]
fn a_page_absorbed_twice_goes_home_before_its_first_record_is_passed() {
    let (image, path, file) = settled();
    let mark = ErrorMark::of(Some(file.data()));
    path.write(&file, At::Offset(0), &[2; 100]).expect("room");
    path.fsync(&file, SyncKind::All, &mark).expect("absorbed");
    let again = (path.clone(), file.clone());
    image.checkpoint_before(move || {
        let (path, file) = again;
        path.write(&file, At::Offset(200), &[3; 100]).expect("room");
        path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("absorbed");
    });
    let seen = after_a_crash(&image);
    assert_eq!((seen[0], seen[99], seen[100], seen[200]), (2, 2, 1, 3));
}

#[test]
fn a_checkpoint_that_meets_an_absorption_waits_for_it() {
    let (image, path, file) = settled();
    path.write(&file, At::Offset(0), &[2; 100]).expect("room");
    let round = Arc::new(crate::sync::Mutex::new(None));
    let begin = {
        let (image, round) = (image.clone(), round.clone());
        move || {
            let began = thread::spawn(move || image.checkpoint());
            // Enough for a round that does not wait. One that waits is none the worse for it.
            for _ in 0..10_000 {
                if began.is_finished() {
                    break;
                }
                thread::yield_now();
            }
            *round.lock() = Some(began);
        }
    };
    *image.meta().hooks.when_absorbed.lock() = Some(Box::new(begin));
    path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("absorbed");
    let round = round.lock().take().expect("the data record was logged");
    round.join().expect("the round ends");
    assert_eq!(after_a_crash(&image)[..100], [2; 100]);
}

#[test]
fn the_first_fsync_flushes_what_was_written_before_the_file_came_into_memory() {
    let (image, path, file) = settled();
    drop((path, file));
    let (path, file) = (super::image::path_without_absorption(&image, 16), image.open(1));
    path.write(&file, At::Offset(0), &[2; 4096]).expect("room");
    path.write_direct(&file, At::Offset(0), &[2; 4096], Fit::Part).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    path.write_direct(&file, At::Offset(0), &[3; 4096], Fit::Part).expect("room");
    drop(file);
    let file = image.open(1);
    path.fsync(&file, SyncKind::Data, &ErrorMark::of(Some(file.data()))).expect("no faults");
    assert_eq!(after_a_crash(&image), [3; 4096]);
}

#[test]
fn a_file_that_is_only_made_longer_keeps_its_size_through_a_rename() {
    let (image, path, file) = settled();
    path.truncate(&file, 1 << 20).expect("room");
    path.settle_for_rename(&file).expect("no faults");
    image.commit();
    assert_eq!(after_a_crash(&image).len(), 1 << 20);
}

/// A truncation leaves old bytes at home behind the recorded end: what grows over them must bring its zeros along.
#[test]
fn a_gap_within_the_last_page_is_zero_after_a_crash() {
    for crashes_between in [false, true] {
        let (image, path, file) = settled();
        path.truncate(&file, 100).expect("room");
        let (path, file) = if crashes_between {
            drop((path, file));
            image.crash(&mut StdRng::seed_from_u64(1));
            let path = super::image::path(&image, 16);
            let file = image.open(1);
            path.truncate(&file, 100).expect("room");
            (path, file)
        } else {
            (path, file)
        };
        let mark = ErrorMark::of(Some(file.data()));
        path.fsync(&file, SyncKind::All, &mark).expect("absorbed");
        path.write(&file, At::Offset(3000), &[2; 100]).expect("room");
        path.fsync(&file, SyncKind::All, &mark).expect("absorbed");
        let seen = after_a_crash(&image);
        assert_eq!(seen.len(), 3100);
        assert_eq!((&seen[..100], &seen[3000..]), (&[1; 100][..], &[2; 100][..]));
        assert!(seen[100..3000].iter().all(|byte| *byte == 0), "what was cut off is back");
    }
}

/// Its writer has made the page dirty and not yet set the size when another's fsync takes the page.
#[test]
fn an_append_that_another_fsync_meets_is_not_taken_for_absorbed() {
    let image = MetaImage::new(100, true);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Append, &[1; 100]).expect("room");
    path.sync_all(|| Ok(())).expect("no faults");
    image.checkpoint();
    let mark = ErrorMark::of(Some(file.data()));
    let done = path.edit(&file, 100, Content::Bytes(&[2; 100]), 100, &mut FrameReservation::default());
    assert!(matches!(done, Ok(Outcome::Done)));
    path.fsync(&file, SyncKind::All, &mark).expect("another's");
    file.data().set_size(200);
    path.write_back.queue().add(&file);
    path.fsync(&file, SyncKind::All, &mark).expect("the writer's");
    let seen = after_a_crash(&image);
    assert_eq!((&seen[..100], &seen[100..]), (&[1; 100][..], &[2; 100][..]));
}

/// Written home without a flush, a page is no ground for a size beyond it.
#[test]
fn a_file_that_grows_over_a_page_on_its_way_home_shows_nothing_of_its_place() {
    for seed in 0..20 {
        let image = MetaImage::new(1000, true);
        let path = path(&image, 16);
        let file = image.open(1);
        let mark = ErrorMark::of(Some(file.data()));
        path.write(&file, At::Append, &[1; 4096]).expect("room");
        path.fsync(&file, SyncKind::All, &mark).expect("absorbed");
        path.truncate(&file, 100).expect("room");
        path.write(&file, At::Offset(4096), &[7; 4096]).expect("room");
        path.pre_checkpoint(image.tail()).expect("no faults");
        // The first half of an fsync: the second flushes.
        path.journal.absorb(&file, Absorb::Synced, None).expect("no faults");
        drop((path, file));
        image.crash(&mut StdRng::seed_from_u64(seed));
        let seen = content(&super::image::path(&image, 16), &image.open(1));
        assert!(seen[..100].iter().all(|byte| *byte == 1));
        let gap = &seen[100..seen.len().min(4096)];
        assert!(gap.iter().all(|byte| [0, 1].contains(byte)), "seed {seed}: {gap:?}");
        assert!(seen.len() != 8192 || gap.iter().all(|byte| *byte == 0), "seed {seed}: {gap:?}");
    }
}

/// A page is in place and not flushed, with an append that came between its choice for a write home and its copy.
#[test]
fn an_append_that_a_write_home_has_taken_along_is_no_ground_for_a_size_beyond() {
    for seed in 0..20 {
        let image = MetaImage::new(1000, true);
        let path = path(&image, 16);
        let file = image.open(1);
        path.write(&file, At::Append, &[1; 300]).expect("room");
        path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("absorbed");
        let writer = (path.clone(), file.clone());
        let append = move || writer.0.write(&writer.1, At::Append, &[2; 300]).map(drop).expect("room");
        *image.meta().hooks.when_mapped.lock() = Some(Box::new(append));
        path.pre_checkpoint(image.tail()).expect("no faults");
        assert_eq!(file.data().size(), 600, "it was mapped");
        // The first half of an fsync: the second flushes.
        path.journal.absorb(&file, Absorb::Synced, None).expect("no faults");
        drop((path, file));
        image.crash(&mut StdRng::seed_from_u64(seed));
        let seen = content(&super::image::path(&image, 16), &image.open(1));
        assert!(seen[..300] == [1; 300] && (seen.len() == 300 || seen[300..] == [2; 300]), "{seen:?}");
    }
}
