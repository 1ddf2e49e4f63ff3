//! Every block device passes the conformance suite; what is particular to each.

use super::*;
use crate::conformance::device::{
    check, discarded_blocks_can_be_written_again, filled, many_threads_work_side_by_side_from, read_one,
};
use std::os::unix::fs::MetadataExt;

#[test]
fn memory_conforms() {
    check(|| Arc::new(MemoryDevice::new(64)));
}

#[test]
fn simulated_conforms() {
    check(|| crate::sim::SimMedia::new(64, &[]).device());
}

/// Devices over fresh files in a directory that goes away with the returned guard.
fn files<D: BlockDevice + 'static>(
    make: impl Fn(ImageFile) -> D,
) -> (tempfile::TempDir, impl Fn() -> Arc<dyn BlockDevice>) {
    let dir = tempfile::tempdir().expect("tempdir");
    let (root, next) = (dir.path().to_owned(), std::cell::Cell::new(0));
    let fresh = move || -> Arc<dyn BlockDevice> {
        next.set(next.get() + 1);
        Arc::new(make(ImageFile::create(&root.join(next.get().to_string()), 512).expect("create")))
    };
    (dir, fresh)
}

#[test]
fn plain_conforms() {
    let (_dir, make) = files(PlainDevice::new);
    check(make);
}

#[test]
fn uring_conforms() {
    let (_dir, make) = files(|image| UringDevice::new(image).expect("the kernel offers io_uring"));
    check(make);
}

#[test]
fn uring_takes_more_than_its_depth_and_unwaited_batches() {
    let (_dir, make) = files(|image| UringDevice::new(image).expect("the kernel offers io_uring"));
    let device = make();
    let writes = (0..512).map(|n| Request::write(n, filled(n as u8, 1), Cause::Checkpoint)).collect();
    device.run(writes).expect("write");
    let reads = (0..512).map(|n| Request::read(n, IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata)).collect();
    for (n, buf) in device.run(reads).expect("read").iter().enumerate() {
        assert!(buf.iter().all(|b| *b == n as u8));
    }
    let _abandoned =
        device.submit((0..300).map(|n| Request::write(n, filled(9, 1), Cause::Checkpoint)).collect());
    drop(device);
}

#[test]
fn uring_completes_what_a_thread_submitted_that_has_ended() {
    let (_dir, make) = files(|image| UringDevice::new(image).expect("the kernel offers io_uring"));
    let device = make();
    for round in 0..16u8 {
        let batch = (0..64).map(|n| Request::write(n, filled(round, 1), Cause::Checkpoint)).collect();
        let ticket = std::thread::scope(|scope| {
            scope.spawn(|| device.submit(batch)).join().expect("the thread does not panic")
        });
        assert!(device.wait(ticket).iter().all(|done| done.result.is_ok()));
        assert_eq!(read_one(&*device, 63)[0], round);
    }
}

/// A loop device over a file, detached with the guard.
struct LoopDevice(std::path::PathBuf);

impl LoopDevice {
    fn over(file: &std::path::Path) -> Self {
        let made = std::process::Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let made = made.expect("missing: losetup");
        assert!(made.status.success(), "missing: root and loop devices: {made:?}");
        Self(String::from_utf8(made.stdout).expect("plain letters").trim().into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = std::process::Command::new("losetup").arg("--detach").arg(&self.0).status();
        assert!(detached.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_raw_device_is_claimed_and_serves() {
    let dir = tempfile::tempdir().expect("tempdir");
    let backing = dir.path().join("backing");
    std::fs::write(&backing, vec![0; 64 * BLOCK_SIZE]).expect("write");
    let raw = LoopDevice::over(&backing);
    assert!(matches!(ImageFile::create(&raw.0, 65), Err(Error::Refused(_))));
    let image = ImageFile::open(&raw.0).expect("open");
    assert!(image.is_block_device() && image.blocks() == 64);
    assert!(matches!(ImageFile::open(&raw.0), Err(Error::InUse(_))));
    let device = open_device(image);
    discarded_blocks_can_be_written_again(&*device);
    many_threads_work_side_by_side_from(&*device, device.writes_completed());
}

/// The end of the file may lie between blocks, or in one, which direct I/O comes to in part.
fn reports_an_image_that_was_cut_off<D: BlockDevice>(make: impl Fn(ImageFile) -> D) {
    for end in [8 * BLOCK_SIZE, 8 * BLOCK_SIZE + 100, 10 * BLOCK_SIZE, 10 * BLOCK_SIZE + 512] {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("image");
        let device = make(ImageFile::create(&path, 16).expect("create"));
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
        file.set_len(end as u64).expect("truncate");
        let request = Request::read(8, IoBuf::zeroed(4 * BLOCK_SIZE), Cause::Metadata);
        let read = device.run(vec![request]);
        assert!(matches!(read, Err(Error::Device { errno: libc::EIO, .. })), "{end}: {read:?}");
        let read = device.read_into(8, &mut IoBuf::zeroed(4 * BLOCK_SIZE), Cause::Metadata);
        assert!(matches!(read, Err(Error::Device { errno: libc::EIO, .. })), "{end}: {read:?}");
    }
}

#[test]
fn a_file_that_was_made_longer_by_others_is_measured_anew() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("image");
    let device = PlainDevice::new(ImageFile::create(&path, 16).expect("create"));
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
    file.set_len(24 * BLOCK_SIZE as u64).expect("longer");
    assert_eq!((device.blocks(), device.measure()), (16, Ok(24)));
}

#[test]
fn a_file_that_is_long_enough_already_has_its_space_reserved() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("image");
    drop(ImageFile::create_sparse(&path, 16).expect("create"));
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
    file.set_len(1000 * BLOCK_SIZE as u64).expect("longer");
    let taken = || file.metadata().expect("it is there").blocks() * 512 / BLOCK_SIZE as u64;
    let device = PlainDevice::new(ImageFile::open(&path).expect("open"));
    device.grow(300, true).expect("long enough");
    assert_eq!(taken(), 0);
    device.grow(300, false).expect("room");
    assert!((300..1000).contains(&taken()), "{}", taken());
    let len = file.metadata().expect("it is there").len() / BLOCK_SIZE as u64;
    assert_eq!((device.blocks(), len), (1000, 1000));
}

#[test]
fn plain_reports_an_image_that_was_cut_off() {
    reports_an_image_that_was_cut_off(PlainDevice::new);
}

#[test]
fn uring_reports_an_image_that_was_cut_off() {
    reports_an_image_that_was_cut_off(|image| UringDevice::new(image).expect("the kernel offers io_uring"));
}

#[test]
fn a_new_image_gets_its_name_at_the_end_and_takes_no_other_s() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("image");
    let made = || ImageFile::create_unnamed(&path, 16, false).expect("room").expect("the file system can");
    let ((image, unnamed), (_, second)) = (made(), made());
    assert_eq!((image.blocks(), path.exists()), (16, false));
    unnamed.name(&path).expect("nobody has it");
    assert!(matches!(ImageFile::open(&path), Err(Error::InUse(_))), "it is the one that is open");
    assert!(matches!(second.name(&path), Err(Error::Refused(_))));
    drop((image, unnamed));
    assert_eq!(ImageFile::open(&path).expect("nobody has it open").blocks(), 16);
}

#[test]
fn what_is_written_to_a_device_is_noted_whichever_way_it_goes() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut images = ["plain", "uring"].map(|name| {
        let mut image = ImageFile::create(&dir.path().join(name), 2048).expect("room");
        image.note_writes();
        (image.written.clone().expect("it is noted"), Some(image))
    });
    let mut taken = images.iter_mut().filter_map(|(_, image)| image.take());
    let (plain, uring) = (taken.next().expect("the first"), taken.next().expect("the second"));
    let plain: Arc<dyn BlockDevice> = Arc::new(PlainDevice::new(plain));
    let uring: Arc<dyn BlockDevice> = Arc::new(UringDevice::new(uring).expect("the kernel offers io_uring"));
    for (device, (written, _)) in [plain, uring].iter().zip(&images) {
        let two = || IoBuf::zeroed(2 * BLOCK_SIZE);
        assert_eq!(written.chunks().count(), 0);
        device.run(vec![Request::write(255, two(), Cause::Superblock)]).expect("room");
        device.run(vec![Request::read(800, two(), Cause::Superblock)]).expect("it is there");
        device.write_durably(1024, two(), Cause::Superblock).expect("room");
        assert_eq!(written.chunks().collect::<Vec<_>>(), [0, 1, 4]);
    }
}

/// Runs in a thread of its own, where nothing but the modes of files that it makes keeps others from them.
#[allow(deprecated, reason = "what it warns of is not met: no descriptor and no name space is parted")]
fn without_umask(run: impl FnOnce() + Send) {
    let thread = || {
        rustix::thread::unshare(rustix::thread::UnshareFlags::FS).expect("everybody may");
        rustix::process::umask(rustix::fs::Mode::empty());
        run();
    };
    std::thread::scope(|s| s.spawn(thread).join()).expect("it has not failed");
}

/// Who may look into the directory of temporary files, or into shared memory, reads there nothing of ours.
#[test]
fn nobody_else_may_open_what_is_made_whatever_the_umask() {
    let (dir, shared) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir_in("/dev/shm"));
    let (at, shared) = (|name: &str| dir.path().join(name), shared.expect("shared memory"));
    without_umask(|| {
        let named = spill::unlinked_in(dir.path()).expect("room");
        let nameless = spill::nameless_in(dir.path()).expect("room");
        for file in [&named, &nameless] {
            let made = file.metadata().expect("it is open");
            assert_eq!((made.mode() & 0o7777, made.nlink()), (0o600, 0));
        }
        assert!(
            matches!(spill::nameless_in(&at("none")), Err(e) if e.kind() == std::io::ErrorKind::NotFound)
        );
        let unnamed = ImageFile::create_unnamed(&at("unnamed"), 8, false).expect("room");
        let images = [
            ImageFile::create(&at("reserved"), 8).expect("room"),
            ImageFile::create_sparse(&at("sparse"), 8).expect("room"),
            ImageFile::unnamed(dir.path(), 8).expect("room"),
        ];
        for image in images.iter().chain(unnamed.iter().map(|(image, _)| image)) {
            assert_eq!(image.file.metadata().expect("it is open").mode() & 0o7777, 0o600);
        }
        let ring = shared.path().join("ring");
        let medium = crate::pmem::Medium::Staging;
        let _memory = crate::pmem::MappedMemory::create(&ring, BLOCK_SIZE, medium).expect("room");
        assert_eq!(std::fs::metadata(&ring).expect("it is there").mode() & 0o7777, 0o600);
    });
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 2, "the images that have names");
}
