//! What spills and what does not, by the counters of the device: T7's three kinds of needless I/O, and the ends of
//! memory and space.

#[cfg(feature = "baselines")]
mod baselines;

use super::{ScratchOptions, SpillOptions, make_on};
use crate::device::{
    BLOCK_SIZE, BlockDevice, Cause, Completion, MemoryDevice, Op, Request, Ticket, forwarded,
};
use crate::error::Error;
use crate::path::{File, Files, Fs};
use crate::sync::Arc;
use crate::volume::Mounted;
use crate::volume::Running;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};

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
        Scratch::with(memory, device, |_| {})
    }

    fn with(
        memory: u64,
        device: Option<Arc<dyn BlockDevice>>,
        choose: impl FnOnce(&mut ScratchOptions),
    ) -> Scratch {
        let mut options = ScratchOptions::with_memory(memory);
        options.files.background = false;
        choose(&mut options);
        let (mounted, files) = make_on(&options, device.clone()).expect("enough of both");
        let running = Running::start(mounted.checkpointer(), &files).expect("made");
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
    let pages = MEMORY * 7 / 10 / PAGE;
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

#[test]
fn small_files_spill_side_by_side_in_large_requests() {
    let scratch = Scratch::new(MEMORY, Some(32 << 20));
    let files = 2 * MEMORY / PAGE;
    for number in 0..files {
        let file = scratch.files.create(format!("/{number}")).expect("room");
        file.write_at(&fill(number, 1), 0).expect("room");
    }
    let device = scratch.device.as_ref().expect("there is spill space");
    let evicted = || {
        let counts = device.counters();
        counts.into_iter().find(|count| count.cause == Cause::Eviction).expect("each cause is counted")
    };
    let count = evicted();
    assert!(count.write_bytes >= MEMORY / 2, "{} bytes spilled", count.write_bytes);
    let mean = count.write_bytes / PAGE / count.writes;
    assert!(mean >= 16, "{mean} pages a request, of files of one page");
    // What has a copy is not written again to make room for what is read.
    for _ in 0..2 {
        for number in 0..files {
            let file = scratch.files.open(format!("/{number}"), Default::default()).expect("it is there");
            let mut bytes = vec![0; BLOCK_SIZE];
            assert_eq!(file.read_at(&mut bytes, 0).expect("it works"), BLOCK_SIZE);
            assert!(bytes == fill(number, 1), "file {number}");
        }
    }
    let last = evicted().write_bytes;
    assert!(last <= files * PAGE, "{last} bytes were written of {}", files * PAGE);
}

/// Writes pages of fresh files until there is no space; how many, and that it was ENOSPC.
fn fill_up(files: &Files, pages_of_file: u64) -> Vec<u64> {
    let mut written = Vec::new();
    loop {
        let name = format!("/{}", written.len());
        let file = match files.create(&name) {
            Ok(file) => file,
            Err(e) => {
                assert_eq!(e, Error::Errno(libc::ENOSPC));
                return written;
            }
        };
        for page in 0..pages_of_file {
            match file.write_at(&fill(page, written.len() as u64), page * PAGE) {
                Ok(done) => assert_eq!(done, BLOCK_SIZE),
                Err(e) => {
                    assert_eq!(e, Error::Errno(libc::ENOSPC));
                    written.push(page);
                    return written;
                }
            }
        }
        written.push(pages_of_file);
    }
}

fn check_all(files: &Files, written: &[u64]) {
    for (name, pages) in written.iter().enumerate() {
        let file = files.open(format!("/{name}"), Default::default()).expect("it is there");
        (0..*pages).for_each(|page| check_page(&file, page, name as u64));
    }
}

/// Filled to the last page, it loses nothing, overwrites, removes, and takes as much again.
fn full_and_again(scratch: &Scratch, pages_of_file: u64, least: u64) {
    let mut first = 0;
    for round in 0..4 {
        let written = fill_up(&scratch.files, pages_of_file);
        let pages = written.iter().sum::<u64>();
        check_all(&scratch.files, &written);
        // What is there can be overwritten, and read back.
        let options = crate::path::OpenOptions { write: true, ..Default::default() };
        for (name, pages) in written.iter().enumerate() {
            let file = scratch.files.open(format!("/{name}"), options).expect("it is there");
            for page in (0..*pages).rev().step_by(3) {
                file.write_at(&fill(page, name as u64), page * PAGE).expect("it has its room");
            }
        }
        check_all(&scratch.files, &written);
        for name in 0..written.len() {
            scratch.files.remove_file(format!("/{name}")).expect("it makes room");
        }
        assert!(pages >= least, "round {round}: {pages} pages, {least} expected");
        first = if round == 0 { pages } else { first };
        assert!(pages + pages / 10 >= first, "round {round}: {pages} pages, {first} at first");
    }
}

#[test]
fn a_full_memory_loses_nothing_and_gives_its_room_back() {
    for pages_of_file in [1, 7, 5000] {
        let scratch = Scratch::new(MEMORY, None);
        // In so little memory a twentieth is for idle inodes, and a tenth for metadata that there is always.
        let least = if pages_of_file == 1 { MEMORY / PAGE / 2 } else { MEMORY / PAGE * 3 / 4 };
        full_and_again(&scratch, pages_of_file, least);
    }
}

#[test]
fn full_spill_space_loses_nothing_and_gives_its_room_back() {
    for pages_of_file in [1, 7, 5000] {
        let scratch = Scratch::new(MEMORY, Some(4 << 20));
        full_and_again(&scratch, pages_of_file, ((4 << 20) + MEMORY / 2) / PAGE * 8 / 10);
    }
}

#[test]
fn what_is_freed_can_be_used_at_once() {
    let scratch = Scratch::new(MEMORY, Some(4 << 20));
    for version in 0..40 {
        let file = scratch.files.create("/a").expect("made");
        write_all(&file, 5 << 8, version);
        (0..5 << 8).for_each(|page| check_page(&file, page, version));
        drop(file);
        if version % 2 == 0 {
            scratch.files.remove_file("/a").expect("it is there");
        }
    }
}

/// When memory holds what has no room in the spill space, a long write over what has its room finds few frames at once.
#[test]
fn full_scratch_space_takes_a_long_write_over_what_it_holds() {
    let scratch = Scratch::new(4 << 20, Some(8 << 20));
    let run = scratch.files.create("/r").expect("made");
    write_all(&run, 256, 1);
    let single = scratch.files.create("/s").expect("made");
    let mut written = 0;
    let full = loop {
        match single.write_at(&fill(written, 2), written * 64 * PAGE) {
            Ok(_) => written += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(full, Error::Errno(libc::ENOSPC));
    let read = |page: u64| {
        let mut bytes = vec![0; BLOCK_SIZE];
        single.read_at(&mut bytes, page * 64 * PAGE).expect("it works");
        assert!(bytes == fill(page, 2), "page {page}");
    };
    (0..written).step_by(3).for_each(read);
    let bytes: Vec<u8> = (0..256).flat_map(|page| fill(page, 3)).collect();
    assert_eq!(run.write_at(&bytes, 0), Ok(bytes.len()));
    (0..256).for_each(|page| check_page(&run, page, 3));
    (0..written).for_each(read);
}

/// A device that fails when told to.
struct Faulty {
    below: MemoryDevice,
    reads: AtomicBool,
    writes: AtomicBool,
}

impl BlockDevice for Faulty {
    forwarded!(below);
    fn submit(&self, mut batch: Vec<Request>) -> Ticket {
        for request in &mut batch {
            let fails = match request.op {
                Op::Read => self.reads.load(Ordering::Relaxed) && request.cause != Cause::Metadata,
                _ => self.writes.load(Ordering::Relaxed) && request.cause != Cause::Checkpoint,
            };
            if fails {
                request.block = u64::MAX;
            }
        }
        self.below.submit(batch)
    }
    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.below.wait(ticket)
    }
}

#[test]
fn a_failing_device_is_an_error_and_no_loss() {
    let (reads, writes) = (AtomicBool::new(false), AtomicBool::new(false));
    let device = Arc::new(Faulty { below: MemoryDevice::new(4096), reads, writes });
    let scratch = Scratch::on(MEMORY, Some(Arc::clone(&device) as Arc<dyn BlockDevice>));
    let file = scratch.files.create("/a").expect("made");
    device.writes.store(true, Ordering::Relaxed);
    let mut written = 0;
    let failed = loop {
        match file.write_at(&fill(written, 1), written * PAGE) {
            Ok(_) => written += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(failed, Error::Device { .. }), "{failed}");
    assert!(written >= MEMORY / PAGE / 2);
    assert!(file.sync_all().is_err(), "fsync tells what has failed");
    (0..written).for_each(|page| check_page(&file, page, 1));
    device.writes.store(false, Ordering::Relaxed);
    let pages = MEMORY / PAGE * 2;
    for page in written..pages {
        file.write_at(&fill(page, 1), page * PAGE).expect("it works again");
    }
    file.sync_all().expect("told once");
    device.reads.store(true, Ordering::Relaxed);
    let mut bytes = vec![0; BLOCK_SIZE];
    let failures = (0..pages).filter(|page| file.read_at(&mut bytes, page * PAGE).is_err()).count();
    assert!(failures > 0, "nothing was read");
    device.reads.store(false, Ordering::Relaxed);
    (0..pages).for_each(|page| check_page(&file, page, 1));
}

/// Options for a file system that spills to a path.
fn spilling_to(path: &std::path::Path, size: Option<u64>, force: bool) -> ScratchOptions {
    let spill = Some(SpillOptions { path: path.to_owned(), size, force });
    ScratchOptions { spill, ..ScratchOptions::with_memory(MEMORY) }
}

fn use_it(fs: &Fs) {
    let file = fs.create("/a").expect("made");
    write_all(&file, 2 * MEMORY / PAGE, 1);
    (0..2 * MEMORY / PAGE).for_each(|page| check_page(&file, page, 1));
}

#[test]
fn nothing_is_left_after_the_unmount() {
    let dir = tempfile::tempdir().expect("tempdir");
    let entries = || std::fs::read_dir(dir.path()).expect("it is there").count();
    // Without a name of its own, in a directory or where the name was to be.
    for path in [dir.path().to_owned(), dir.path().join("spill")] {
        let fs = Fs::scratch(&spilling_to(&path, Some(16 << 20), false)).expect("room");
        use_it(&fs);
        assert_eq!(entries(), 0);
        fs.unmount().expect("nothing to do");
    }
    let path = dir.path().join("there");
    let there = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("made");
    there.set_len(16 << 20).expect("room");
    for _ in 0..2 {
        let fs = Fs::scratch(&spilling_to(&path, None, false)).expect("it holds zeros");
        use_it(&fs);
        let again = Fs::scratch(&spilling_to(&path, None, true));
        assert!(matches!(again, Err(Error::InUse(_))), "{again:?}");
        fs.unmount().expect("it is emptied");
        let mut bytes = vec![1; 16 << 20];
        there.read_exact_at(&mut bytes, 0).expect("as long as before");
        assert!(bytes.iter().all(|b| *b == 0), "something is left");
    }
    assert!(there.metadata().expect("it is open").blocks() * 512 <= 1 << 20, "its space is not given back");
}

#[test]
fn what_holds_data_is_not_used_unasked_but_what_a_killed_server_left_is() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("spill");
    std::fs::write(&path, vec![7; 8 << 20]).expect("room");
    let refused = Fs::scratch(&spilling_to(&path, None, false));
    assert!(matches!(&refused, Err(Error::Refused(why)) if why.contains("--force")), "{refused:?}");
    assert!(std::fs::read(&path).expect("it is there").iter().all(|b| *b == 7));
    let left = {
        let fs = Fs::scratch(&spilling_to(&path, None, true)).expect("asked for");
        use_it(&fs);
        std::fs::read(&path).expect("it is there")
    };
    std::fs::write(&path, &left).expect("room");
    let image = Fs::mount(&path, &crate::volume::VolumeOptions::default());
    assert!(matches!(image, Err(Error::Refused(_))), "{image:?}");
    use_it(&Fs::scratch(&spilling_to(&path, None, false)).expect("nothing of use"));
    let small = Fs::scratch(&spilling_to(&path, Some(64 << 10), false));
    assert!(matches!(&small, Err(Error::Refused(why)) if why.contains("too small")), "{small:?}");
    let little = Fs::scratch(&ScratchOptions::with_memory(4096));
    assert!(matches!(&little, Err(Error::Refused(why)) if why.contains("too small")), "{little:?}");
}

#[test]
fn a_directory_holds_many_files_and_metadata_spills() {
    for spill in [Some(32 << 20), None] {
        let memory = if spill.is_some() { MEMORY } else { 32 << 20 };
        let scratch = Scratch::new(memory, spill);
        for number in 0..12_000 {
            scratch.files.create(format!("/{number}")).expect("room");
        }
        assert_eq!(scratch.files.read_dir("/").expect("it is there").len(), 12_000);
        for number in (0..12_000).rev() {
            scratch.files.remove_file(format!("/{number}")).expect("it is there");
        }
        if let Some(device) = &scratch.device {
            let counts = device.counters();
            let of = |cause| counts.iter().find(|count| count.cause == cause).map(|count| count.write_bytes);
            assert!(of(Cause::Checkpoint) > Some(0), "all metadata fits memory");
            assert_eq!(of(Cause::DoubleWrite), Some(0));
        }
    }
}
