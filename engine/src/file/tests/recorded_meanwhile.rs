//! A page that is dirty when a file is mapped, and recorded and gone before anybody looks for it.

use super::image::{MetaImage, content, path};
use crate::file::writeback::Order;
use crate::file::{At, DataPath, SeekTo};
use crate::inode::InodeObj;
use crate::sync::Arc;

/// Has the file's second page written home, and thrown out of the cache unless somebody has pinned it, at once when a page
/// has been mapped next.
fn leave_when_mapped(image: &Arc<MetaImage>, path: &Arc<DataPath>, file: &Arc<InodeObj>) {
    let (path, file) = (Arc::clone(path), Arc::clone(file));
    let leave = move || {
        path.write_back.write_pages(&file, 1..2, Order::HOME).expect("no faults");
        let mut taken = Vec::new();
        while let Some(frame) = path.pool.take() {
            taken.push(frame);
        }
    };
    *image.meta().hooks.when_mapped.lock() = Some(Box::new(leave));
}

#[test]
fn a_write_over_a_hole_and_a_page_that_goes_home_keeps_the_page() {
    let image = MetaImage::new(100, false);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Offset(4096), &[7; 4096]).expect("room");
    leave_when_mapped(&image, &path, &file);
    path.write(&file, At::Offset(0), &[8; 4196]).expect("room");
    let now = content(&path, &file);
    assert_eq!((now.len(), now[0], now[4195], now[4196], now[8191]), (8192, 8, 8, 7, 7));
    path.sync_all(|| Ok(())).expect("no faults");
    assert_eq!((image.reserved(), image.leaked()), (0, 0));
}

#[test]
fn zeros_over_a_hole_and_a_page_that_goes_home_reach_the_page() {
    let image = MetaImage::new(100, false);
    let path = path(&image, 16);
    let file = image.open(1);
    path.write(&file, At::Offset(4096), &[7; 4096]).expect("room");
    leave_when_mapped(&image, &path, &file);
    let mode = crate::vfs::FallocateMode::PunchHole;
    path.fallocate(&file, mode, 100, 4096 + 100).expect("no faults");
    let now = content(&path, &file);
    assert_eq!((now[4096], now[4295], now[4296]), (0, 0, 7));
}

#[test]
fn data_that_goes_home_while_it_is_looked_for_is_found() {
    for (to, offset, found) in [
        (SeekTo::Data, 0, 4096),
        (SeekTo::Data, 4096, 4096),
        (SeekTo::Hole, 0, 0),
        (SeekTo::Hole, 4096, 8192),
    ] {
        let image = MetaImage::new(100, false);
        let path = path(&image, 16);
        let file = image.open(1);
        path.write(&file, At::Offset(4096), &[7; 4096]).expect("room");
        leave_when_mapped(&image, &path, &file);
        assert_eq!(path.seek(&file, to, offset), Ok(found), "{to:?} from {offset}");
    }
}
