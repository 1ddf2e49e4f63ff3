//! What the indexes of files' pages take, however many files are written and read.

use super::*;

const FRAMES: usize = 1024;
/// Pages of a file, so far apart that each takes a leaf of its own.
const PAGES: u64 = 40;
const APART: u64 = 64 * 4096;

/// A file system of that many frames that may keep as many inodes as it likes.
fn of_frames() -> Arc<Vfs> {
    let device = Arc::new(MemoryDevice::new(20_000));
    let format_options = FormatOptions { sparse: true, ..FormatOptions::default() };
    let superblock = format(&*device, &format_options).expect("large enough");
    let store = Arc::new(Store::new(device, superblock, Log::default(), &StoreOptions::default()));
    let options = AssembleOptions {
        data: DataOptions { frames: FRAMES, ..DataOptions::with_memory(8 << 20) },
        inodes: 1 << 20,
        background: false,
        ..AssembleOptions::default()
    };
    let checkpointer = Arc::new(Checkpointer::new(store));
    Arc::clone(Running::start(&checkpointer, &options).expect("a good image").fs())
}

#[test]
fn indexes_of_files_that_nobody_uses_leave_however_many_inodes_may_stay() {
    let fs = of_frames();
    let index = || fs.data().stats().cache.index_bytes;
    let most = (FRAMES / 8 * 4096) as u64;
    let empty: Vec<_> = (0..100).map(|n| file(&fs, &root(), ROOT_NID, &format!("e{n}")).nid).collect();
    let (mut nids, mut of_file) = (Vec::new(), 0);
    for n in 0..200_u64 {
        let name = format!("{n}");
        let (entry, handle, _) =
            fs.create(&root(), ROOT_NID, name.as_bytes(), 0o644, OpenFlags::READ_WRITE).expect("room");
        for page in 0..PAGES {
            let bytes = [(n + page) as u8; 4096];
            fs.write(&root(), &handle, page * APART, &bytes, WriteFlags::empty()).expect("room");
        }
        of_file = of_file.max(handle.inode.data().index.bytes() as u64);
        fs.fsync(&handle, false).expect("memory");
        fs.release(handle, None);
        assert!(index() <= most + 2 * of_file, "{} bytes after {n} files were written", index());
        nids.push(entry.nid);
    }
    assert!(of_file * 200 > 4 * most);
    for round in 0..2 {
        for (n, nid) in (0..).zip(&nids) {
            let handle = fs.open(&root(), *nid, OpenFlags::empty()).expect("there");
            for page in 0..PAGES {
                let mut bytes = [0; 4096];
                fs.read(&handle, page * APART, &mut bytes).expect("there");
                assert!(bytes == [(n + page) as u8; 4096], "page {page} of file {n}");
            }
            fs.release(handle, None);
            assert!(index() <= most + 2 * of_file, "{} bytes after {n} files, round {round}", index());
        }
    }
    assert!(empty.iter().all(|nid| fs.meta().table.get(*nid).is_some()), "what has no index may stay");
}

/// A file that is open keeps its index, whatever that takes; once it is closed it makes room for others.
#[test]
fn the_index_of_an_open_file_stays_and_goes_after_the_close() {
    let fs = of_frames();
    let index = || fs.data().stats().cache.index_bytes;
    let most = (FRAMES / 8 * 4096) as u64;
    let made = |name: &[u8]| {
        let (_, handle, _) = fs.create(&root(), ROOT_NID, name, 0o644, OpenFlags::READ_WRITE).expect("room");
        handle
    };
    let write = |handle: &FileHandle, page: u64| {
        fs.write(&root(), handle, page * APART, &[1; 4096], WriteFlags::empty()).expect("room");
    };
    let large = made(b"large");
    (0..4000).for_each(|page| write(&large, page));
    fs.fsync(&large, false).expect("memory");
    assert!(index() > 2 * most);
    fs.release(large, None);
    let small = made(b"small");
    (0..400).for_each(|page| write(&small, page));
    assert!(index() < most, "{} bytes", index());
    fs.release(small, None);
}
