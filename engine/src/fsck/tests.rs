//! Fresh images, and images with planted damage.

use super::*;
use crate::device::MemoryDevice;
use crate::mkfs::{FormatOptions, format};

fn fresh(blocks: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(blocks));
    let options =
        FormatOptions { journal_slots: Some(64), double_write_blocks: Some(4), ..FormatOptions::default() };
    format(&*device, &options).expect("enough blocks");
    device
}

#[test]
fn a_fresh_image_is_clean() {
    let report = check(fresh(200), &Options::default()).expect("an image");
    assert_eq!(report.issues, []);
    assert_eq!((report.counts.inodes, report.counts.directories, report.counts.used), (1, 1, 3));
    assert_eq!(report.status(), 0);
}
