//! What spills and what does not, by the counters of the device: T7's three kinds of needless I/O, and the ends of
//! memory and space.

use super::{ScratchOptions, make_on};
use crate::device::{BLOCK_SIZE, BlockDevice, Cause, MemoryDevice};
use crate::mount::Mounted;
use crate::path::{File, Files};
use crate::sync::Arc;
use crate::vfs::Running;

const MEMORY: u64 = 2 << 20;
const PAGE: u64 = BLOCK_SIZE as u64;

/// A scratch file system on a device in memory, without threads of its own.
struct Scratch {
    files: Files,
    device: Option<Arc<dyn BlockDevice>>,
    _running: Running,
    _mounted: Mounted,
}

impl Scratch {
    fn new(memory: u64, spill: Option<u64>) -> Scratch {
        let device = spill.map(|bytes| Arc::new(MemoryDevice::new(bytes / PAGE)) as Arc<dyn BlockDevice>);
        Scratch::on(memory, device)
    }

    fn on(memory: u64, device: Option<Arc<dyn BlockDevice>>) -> Scratch {
        let mut options = ScratchOptions::with_memory(memory);
        options.files.background = false;
        let (mounted, files) = make_on(&options, device.clone()).expect("enough of both");
        let running = Running::start(mounted.store(), &files).expect("made");
        Scratch { files: Files::new(Arc::clone(running.fs())), device, _running: running, _mounted: mounted }
    }

    /// Bytes read and written so far for file data.
    fn moved(&self) -> (u64, u64) {
        let device = self.device.as_ref().expect("there is spill space");
        let data = [Cause::ReadMiss, Cause::ReadAhead, Cause::Eviction, Cause::DataWriteBack];
        let counts = device.counters();
        let counts = counts.iter().filter(|count| data.contains(&count.cause));
        counts.fold((0, 0), |(read, written), c| (read + c.read_bytes, written + c.write_bytes))
    }
}

fn fill(page: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![version as u8; BLOCK_SIZE];
    bytes[..8].copy_from_slice(&(page * 1000 + version).to_le_bytes());
    bytes
}

fn write_all(file: &File, pages: u64, version: u64) {
    for page in 0..pages {
        file.write_at(&fill(page, version), page * PAGE).expect("room");
    }
}

fn check_page(file: &File, page: u64, version: u64) {
    let mut bytes = vec![0; BLOCK_SIZE];
    assert_eq!(file.read_at(&mut bytes, page * PAGE).expect("it works"), BLOCK_SIZE);
    assert!(bytes == fill(page, version), "page {page} is not of version {version}");
}

#[test]
fn what_fits_memory_never_meets_the_device() {
    let scratch = Scratch::new(MEMORY, Some(16 << 20));
    let file = scratch.files.create("/a").expect("made");
    let pages = MEMORY * 3 / 4 / PAGE;
    for version in 0..3 {
        write_all(&file, pages, version);
        file.sync_all().expect("nothing to do");
        (0..pages).for_each(|page| check_page(&file, page, version));
    }
    assert_eq!(scratch.moved(), (0, 0));
}

#[test]
fn reads_write_nothing_and_full_overwrites_read_nothing() {
    let scratch = Scratch::new(MEMORY, Some(16 << 20));
    let file = scratch.files.create("/a").expect("made");
    let pages = MEMORY / PAGE * 5 / 2;
    write_all(&file, pages, 1);
    let (read, written) = scratch.moved();
    assert_eq!(read, 0);
    assert!(written >= (pages * PAGE - MEMORY), "{written} bytes spilled");
    for _ in 0..2 {
        (0..pages).for_each(|page| check_page(&file, page, 1));
    }
    assert_eq!(scratch.moved().1, written, "reading has written");
    let read = scratch.moved().0;
    write_all(&file, pages, 2);
    assert_eq!(scratch.moved().0, read, "overwriting has read");
    (0..pages).for_each(|page| check_page(&file, page, 2));
}

#[test]
fn random_reads_fetch_what_was_asked_for() {
    let scratch = Scratch::new(MEMORY, Some(32 << 20));
    let file = scratch.files.create("/a").expect("made");
    let pages = MEMORY / PAGE * 5 / 2;
    write_all(&file, pages, 1);
    let before = scratch.moved().0;
    let mut at = 7;
    let reads = 4 * pages;
    for _ in 0..reads {
        at = (at * 5 + 3271) % pages;
        check_page(&file, at, 1);
    }
    let fetched = scratch.moved().0 - before;
    assert!(fetched > 0 && fetched <= reads * PAGE * 103 / 100, "{fetched} bytes for {}", reads * PAGE);
}
