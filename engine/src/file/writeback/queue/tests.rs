//! The list of files to write: who has a turn, who is old, who leaves.

use crate::file::data_path::DataPath;
use crate::file::tests::image::{Fsync as _, MetaImage, content, path};
use crate::file::write::At;
use crate::file::{ErrorMark, Fit, SyncKind};
use std::time::Duration;

fn listed(image: &MetaImage, path: &DataPath) -> Vec<u64> {
    path.write_back.queue().files().iter().map(|inode| image.number(inode)).collect()
}

fn expired(image: &MetaImage, path: &DataPath, most: usize) -> Vec<u64> {
    let expired = path.write_back.queue().take_expired(Duration::ZERO, most);
    expired.iter().map(|(inode, _)| image.number(inode)).collect()
}

#[test]
fn files_have_their_turns_in_order_and_leave_when_they_are_written() {
    let image = MetaImage::with_files(4000, true, 200);
    let path = path(&image, 2048);
    let files: Vec<_> = (1..=200).map(|nid| image.open(nid)).collect();
    for file in &files {
        path.write(file, At::Offset(0), &[image.number(file) as u8; 100]).expect("room");
    }
    // One is large, and not written by one turn.
    path.write(&files[99], At::Offset(0), &vec![100; 1500 << 12]).expect("room");
    assert_eq!(listed(&image, &path), (1..=200).collect::<Vec<_>>());
    let mut left = Vec::new();
    for _ in 0..4 {
        assert_eq!(path.flusher.write_some(), Ok(true));
        left.push(listed(&image, &path));
    }
    let rest = |from: u64| (from..=200).collect::<Vec<_>>();
    assert_eq!(left[..2], [rest(65), rest(100)]);
    // A turn of its own; what it has not written waits until all others have had theirs.
    assert_eq!(left[2], rest(100));
    assert_eq!(left[3], [vec![100], rest(165)].concat());
    while path.flusher.write_some().expect("no faults") {}
    assert_eq!((listed(&image, &path), image.reserved()), (vec![], 0));
    assert!(content(&path, &files[99]).iter().all(|byte| *byte == 100));
}

#[test]
fn idle_files_have_no_turns_of_their_own() {
    let image = MetaImage::with_files(1000, true, 100);
    let path = path(&image, 512);
    for nid in 1..=100 {
        let file = image.open(nid);
        path.write(&file, At::Offset(0), &[1; 4096]).expect("room");
        if nid <= 60 {
            path.write_direct(&file, At::Offset(0), &[2; 4096], Fit::Part).expect("room");
        }
    }
    assert_eq!(listed(&image, &path).len(), 100);
    assert_eq!(path.flusher.write_some(), Ok(true));
    assert_eq!(listed(&image, &path), (65..=100).collect::<Vec<_>>());
}

#[test]
fn files_become_old_in_order_and_an_emptied_one_is_new() {
    let image = MetaImage::with_files(1000, true, 100);
    let path = path(&image, 64);
    let files: Vec<_> = (1..=5).map(|nid| image.open(nid)).collect();
    for file in &files {
        path.write(file, At::Offset(0), &[1; 100]).expect("room");
    }
    path.fsync(&files[1], SyncKind::All, &ErrorMark::of(Some(files[1].data()))).expect("no faults");
    path.truncate(&files[1], 0).expect("no faults");
    path.write(&files[1], At::Offset(0), &[2; 100]).expect("room");
    assert_eq!(expired(&image, &path, 2), [1, 3]);
    assert_eq!(expired(&image, &path, 9), [4, 5, 2, 1, 3]);
    assert!(path.write_back.queue().take_expired(Duration::from_secs(3600), 9).is_empty());
    path.write_back.queue().remove_idle(&files);
    assert_eq!(listed(&image, &path).len(), 5, "none is idle");
    path.sync_all(|| Ok(())).expect("no faults");
    assert!(listed(&image, &path).is_empty());
}

/// Neither the old content nor all of the new would be what a crash leaves.
#[test]
fn a_file_that_is_being_rewritten_is_left_alone() {
    let image = MetaImage::with_files(1000, true, 100);
    let path = path(&image, 64);
    let files: Vec<_> = (1..=3).map(|nid| image.open(nid)).collect();
    let write = |n: usize| path.write(&files[n], At::Offset(0), &[7; 4096]).expect("room");
    for n in 0..3 {
        write(n);
    }
    path.sync_all(|| Ok(())).expect("no faults");
    write(0);
    let due = path.write_back.queue().take_expired(Duration::ZERO, 9);
    path.truncate(&files[0], 0).expect("no faults");
    path.write(&files[0], At::Offset(0), &[8; 100]).expect("room");
    path.flusher.write_due(due);
    assert_eq!(listed(&image, &path), [1], "it was emptied after it was old");
    write(1);
    assert_eq!(path.flusher.write_some(), Ok(true));
    assert_eq!(listed(&image, &path), [1], "another has frames to give");
    assert_eq!(files[0].data().logged_size(), 4096);
    assert_eq!(path.flusher.write_some(), Ok(true));
    assert_eq!((listed(&image, &path), files[0].data().logged_size()), (vec![], 100));
}

#[test]
fn what_an_fsync_has_written_home_leaves_the_list() {
    let image = MetaImage::new(1000, false);
    let path = path(&image, 64);
    let file = image.open(1);
    path.write(&file, At::Offset(0), &[1; 100]).expect("room");
    assert_eq!(listed(&image, &path), [1]);
    path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("no faults");
    assert!(listed(&image, &path).is_empty());
}

/// Nobody closes the file: time alone ends the rewriting, and brings it home later.
#[test]
fn a_rewriting_that_nobody_ends_is_recorded_when_it_is_old_and_goes_home_when_that_is() {
    let image = MetaImage::new(100, true);
    let path = path(&image, 64);
    let file = image.open(1);
    path.write(&file, At::Append, &[1; 5000]).expect("room");
    path.fsync(&file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("absorbed");
    path.opened(&file);
    path.truncate(&file, 0).expect("always");
    path.write(&file, At::Append, &[2; 300]).expect("room");
    let write_expired = || {
        let due = path.write_back.queue().take_expired(Duration::ZERO, 10);
        path.flusher.write_due(due);
    };
    write_expired();
    assert_eq!((file.data().logged_size(), path.stats().replaced_absorbed), (300, 1));
    assert_eq!((path.stats().written, listed(&image, &path)), (0, vec![1]));
    write_expired();
    assert_eq!((path.stats().written, listed(&image, &path)), (1, vec![]));
    assert!(content(&path, &file) == [2; 300]);
}
