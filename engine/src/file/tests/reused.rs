//! A file that is gone, and another that has its number by then: what is late for the one does not touch the other.

use super::image::{Fsync as _, MetaImage, content, path};
use crate::file::{At, DataPath, ErrorMark, SyncKind};
use crate::inode::InodeObj;
use crate::sync::Arc;
use rand::SeedableRng;
use rand::rngs::StdRng;

type Path = Arc<DataPath>;

/// The object of a file that was absorbed and is gone, and one that has its number and was absorbed since.
fn one_after_the_other() -> (Arc<MetaImage>, Path, Arc<InodeObj>, Arc<InodeObj>) {
    let image = MetaImage::new(200, true);
    let path = path(&image, 16);
    let fill = |file: &Arc<InodeObj>, byte| {
        path.write(file, At::Offset(0), &[byte; 4096]).expect("room");
        path.fsync(file, SyncKind::All, &ErrorMark::of(Some(file.data()))).expect("absorbed");
    };
    let gone = image.open(1);
    fill(&gone, 1);
    path.discard(&gone);
    let there = image.open(1);
    fill(&there, 2);
    (image, path, gone, there)
}

/// A round of checkpoints has the list of files from before, and looks at each of them again.
#[test]
fn a_round_that_looks_at_a_file_that_is_gone_forgets_no_other() {
    let (image, path, gone, there) = one_after_the_other();
    path.journal.still_logged(&gone, image.tail());
    goes_home_before_its_record_is_passed(&image, path, there);
}

/// A removal commits before it lets go of what the file held.
#[test]
fn a_removal_that_lets_go_late_forgets_no_other() {
    let (image, path, gone, there) = one_after_the_other();
    path.discard_quiet(&gone);
    goes_home_before_its_record_is_passed(&image, path, there);
}

fn goes_home_before_its_record_is_passed(image: &Arc<MetaImage>, path: Path, there: Arc<InodeObj>) {
    image.checkpoint();
    image.checkpoint_again();
    drop((path, there));
    image.crash(&mut StdRng::seed_from_u64(1));
    assert_eq!(content(&self::path(image, 16), &image.open(1)), [2; 4096]);
}

#[test]
fn a_truncation_that_waits_outlasts_the_end_of_who_had_its_number() {
    let (_image, path, gone, there) = one_after_the_other();
    path.truncate(&there, 0).expect("always");
    let waits = |path: &Path| path.write_back.pending().files().iter().any(|file| Arc::ptr_eq(file, &there));
    let blocks = path.write_back.pending().blocks();
    assert!(waits(&path) && blocks > 0);
    path.discard_quiet(&gone);
    assert!(waits(&path));
    // Both wait, one after the other: the blocks are those of the one that is there.
    path.write_back.pending().add(&gone, 70);
    path.write_back.pending().add(&there, blocks);
    assert_eq!(path.write_back.pending().blocks(), blocks);
    path.discard(&there);
    assert_eq!((path.write_back.pending().any(), path.write_back.pending().blocks()), (false, 0));
}
