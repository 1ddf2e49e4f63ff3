//! A page that is dirty when a file is mapped, and recorded and gone before anybody looks for it.

use super::image::{MetaImage, content, path};
use crate::file::writeback::Order;
use crate::file::{At, DataPath, SeekTo};
use crate::inode::InodeObj;
use crate::sync::{Arc, Mutex, thread};

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

/// Single blocks: as many as the first leaf is full with, and some more.
const SCATTERED: u64 = 260;

fn byte_of(page: u64) -> u8 {
    (page % 251) as u8 + 1
}

/// A file whose every second page has a block, and one more that is dirty, whose block has the first leaf split.
fn about_to_split() -> (Arc<MetaImage>, Arc<DataPath>, Arc<InodeObj>) {
    let image = MetaImage::new(800, false);
    let path = path(&image, 16);
    let file = image.open(1);
    for page in (0..SCATTERED).map(|n| n * 2) {
        path.write(&file, At::Offset(page * 4096), &[byte_of(page); 4096]).expect("room");
    }
    path.sync_all(|| Ok(())).expect("no faults");
    path.write(&file, At::Offset(101 * 4096), &[7; 4096]).expect("room");
    (image, path, file)
}

/// Has another thread write that page home once somebody has the root of the extents, and gives it the time.
fn split_when_the_root_is_read(
    image: &MetaImage,
    path: &Arc<DataPath>,
    file: &Arc<InodeObj>,
) -> Arc<Mutex<Option<thread::JoinHandle<()>>>> {
    let begun = Arc::new(Mutex::new(None));
    let (path, file, by) = (Arc::clone(path), Arc::clone(file), Arc::clone(&begun));
    let split = move || {
        let write = move || path.write_back.write_pages(&file, 101..102, Order::HOME).expect("no faults");
        let writer = thread::spawn(write);
        // Enough for one that nobody holds up. One that waits is none the worse for it.
        for _ in 0..10_000 {
            if writer.is_finished() {
                break;
            }
            thread::yield_now();
        }
        *by.lock() = Some(writer);
    };
    *image.meta().hooks.when_root_is_read.lock() = Some(Box::new(split));
    begun
}

fn ended(begun: &Mutex<Option<thread::JoinHandle<()>>>) {
    begun.lock().take().expect("the root was read").join().expect("it writes");
}

#[test]
fn a_page_whose_leaf_is_split_while_it_is_looked_for_is_found() {
    let (image, path, file) = about_to_split();
    let begun = split_when_the_root_is_read(&image, &path, &file);
    let mut bytes = [0; 4096];
    assert_eq!(path.read(&file, 400 * 4096, &mut bytes), Ok(4096));
    ended(&begun);
    assert_eq!(bytes, [byte_of(400); 4096]);
}

#[test]
fn a_part_of_a_page_that_is_written_while_its_leaf_is_split_leaves_the_rest() {
    let (image, path, file) = about_to_split();
    let begun = split_when_the_root_is_read(&image, &path, &file);
    path.write(&file, At::Offset(400 * 4096 + 50), &[9; 10]).expect("room");
    ended(&begun);
    path.sync_all(|| Ok(())).expect("no faults");
    let now = content(&path, &file);
    let page = &now[400 * 4096..][..4096];
    assert_eq!((page[49], page[50], page[59], page[60]), (byte_of(400), 9, 9, byte_of(400)));
    assert_eq!(image.reserved(), 0);
}
