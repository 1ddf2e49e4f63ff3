//! Batches, and what is told later, as a program uses them.

use narufs::{Batch, Commit, Dir, File, FormatOptions, Fs, MountOptions, OpenOptions, ScratchOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::ThreadId;

fn image() -> (tempfile::TempDir, Fs) {
    let place = tempfile::tempdir().expect("room");
    let image = place.path().join("image");
    Fs::format(&image, &FormatOptions::new().size(64 << 20)).expect("room");
    let fs = Fs::open(&image, &MountOptions::new()).expect("just made");
    (place, fs)
}

#[test]
fn a_batch_is_there_at_its_commit() {
    let (place, fs) = image();
    let files: Vec<File> = ["/a", "/b"].iter().map(|path| fs.create(path).expect("room")).collect();
    for commit in [Commit::Ordered, Commit::Durable, Commit::Power] {
        let mut batch = fs.batch();
        for (n, file) in files.iter().enumerate() {
            batch.write_all_at(file, &[n as u8 + 1; 5000], 100).expect("room");
        }
        assert_eq!(batch.pages(), 4);
        batch.commit(commit).expect("room");
    }
    fs.batch().commit(Commit::Durable).expect("nothing to do");
    drop(files);
    fs.close().expect("nothing is open");
    let fs = Fs::open(place.path().join("image"), &MountOptions::new()).expect("clean");
    assert_eq!(fs.read("/b").expect("there")[100..], [2; 5000]);
    fs.close().expect("nothing is open");
}

#[test]
fn a_batch_is_of_one_file_system_and_of_files_to_write() {
    let (_place, fs) = image();
    let other = Fs::scratch(&ScratchOptions::new(64 << 20)).expect("memory");
    let (here, there) = (fs.create("/f").expect("room"), other.create("/f").expect("room"));
    let errno = |batch: &mut Batch, file: &File| batch.write_all_at(file, b"x", 0).map_err(|e| e.errno());
    let mut batch = fs.batch();
    assert_eq!(errno(&mut batch, &there), Err(libc::EXDEV));
    let reading = Dir::open(&fs, "/f").expect("there");
    assert_eq!(errno(&mut batch, &reading), Err(libc::EBADF));
    let mut append = OpenOptions::new();
    append.append(true);
    let appending = fs.open_with("/f", &append).expect("there");
    assert_eq!(errno(&mut batch, &appending), Err(libc::EINVAL));
    assert_eq!(errno(&mut batch, &here), Ok(()));
    drop(batch);
    assert_eq!(fs.read("/f").expect("there"), b"");
    let mut batch = other.batch();
    batch.write_all_at(&there, b"in memory", 3).expect("memory");
    batch.commit(Commit::Power).expect("memory");
    assert_eq!(other.read("/f").expect("there"), b"\0\0\0in memory");
}

/// A thousand wait to be told, on no thread of theirs, and on none of those who commit beside them: each of these has
/// others to answer, and one may be the file system's own, which who is told may let go.
#[test]
fn what_is_told_later_is_told_by_one_thread() {
    const COUNT: usize = 1000;
    let (_place, fs) = image();
    let files: Vec<File> = (0..4).map(|n| fs.create(format!("/{n}")).expect("room")).collect();
    let (tell, told) = mpsc::channel::<(usize, ThreadId, Result<(), i32>)>();
    let ends = Arc::new(AtomicBool::new(false));
    let others = [0, 1].map(|n| {
        let (file, ends) = (fs.create(format!("/beside{n}")).expect("room"), Arc::clone(&ends));
        std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                file.write_all_at(b"beside", 0).expect("room");
                file.sync_all().expect("room");
            }
        })
    });
    for n in 0..COUNT {
        let file = &files[n % files.len()];
        let tell = tell.clone();
        let done = move |outcome: narufs::Result<()>| {
            let outcome = outcome.map_err(|e| e.errno());
            tell.send((n, std::thread::current().id(), outcome)).expect("somebody listens");
        };
        match n % 3 {
            0 => {
                let mut batch = fs.batch();
                batch.write_all_at(file, &(n as u64).to_le_bytes(), 8 * n as u64).expect("room");
                batch.write_all_at(&files[0], b"both", 100_000).expect("room");
                batch.commit_then(Commit::Durable, done);
            }
            1 => {
                file.write_all_at(&(n as u64).to_le_bytes(), 8 * n as u64).expect("room");
                file.sync_data_then(done);
            }
            _ => file.sync_all_then(done),
        }
    }
    drop(tell);
    let mut all: Vec<_> = told.iter().collect();
    ends.store(true, Ordering::SeqCst);
    others.into_iter().for_each(|other| other.join().expect("no panic"));
    assert!(all.iter().all(|(_, _, outcome)| outcome.is_ok()));
    let mut threads: Vec<_> = all.iter().map(|(_, thread, _)| format!("{thread:?}")).collect();
    threads.sort();
    threads.dedup();
    assert_eq!(threads.len(), 1, "{threads:?}");
    all.sort_by_key(|(n, ..)| *n);
    assert!(all.iter().map(|(n, ..)| *n).eq(0..COUNT));
    drop(files);
    fs.close().expect("nothing is open");
}

/// The panic of one who is told is nobody else's.
#[test]
fn who_panics_when_told_stops_nobody() {
    let (_place, fs) = image();
    let file = fs.create("/f").expect("room");
    let (tell, told) = mpsc::channel();
    for n in 0..4 {
        let tell = tell.clone();
        file.write_all_at(b"told", 0).expect("room");
        file.sync_all_then(move |outcome| {
            if n % 2 == 0 {
                std::panic::resume_unwind(Box::new(()));
            }
            tell.send(outcome.map_err(|e| e.errno())).expect("somebody listens");
        });
        file.write_all_at(b"synced", 0).expect("room");
        file.sync_all().expect("nothing has failed");
    }
    drop(tell);
    assert_eq!(told.iter().collect::<Vec<_>>(), [Ok(()), Ok(())]);
    drop(file);
    fs.close().expect("nothing is open");
}

/// Who is told may let the last handle go: the file system is closed there, and those behind it are told too.
#[test]
fn a_file_system_whose_last_handle_goes_when_a_sync_is_told_is_closed() {
    let (place, fs) = image();
    let files = ["/a", "/b"].map(|path| std::sync::Arc::new(fs.create(path).expect("room")));
    files[0].write_all_at(b"told", 0).expect("room");
    let (let_go, goes) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let (kept, tell_first) = (std::sync::Arc::clone(&files[0]), tell.clone());
    files[0].sync_all_then(move |outcome| {
        goes.recv().expect("it is the last by then");
        drop(kept);
        tell_first.send(outcome.map_err(|e| e.errno())).expect("somebody listens");
    });
    files[1].sync_all_then(move |outcome| {
        tell.send(outcome.map_err(|e| e.errno())).expect("somebody listens");
    });
    drop((files, fs));
    let_go.send(()).expect("it waits");
    assert_eq!(told.iter().collect::<Vec<_>>(), [Ok(()), Ok(())]);
    let fs = Fs::open(place.path().join("image"), &MountOptions::new()).expect("it was closed");
    assert_eq!(fs.read("/a").expect("there"), b"told");
    fs.close().expect("nothing is open");
}

/// Writes of every other page of two files, of so many pages in all; some of them in part.
fn large(fs: &Fs, pages: u64) {
    let mut both = OpenOptions::new();
    both.read(true).write(true).create(true);
    let files = ["/a", "/b"].map(|path| fs.open_with(path, &both).expect("room"));
    files[0].write_all_at(&vec![1; 300 * 4096], 0).expect("room");
    files[0].sync_all().expect("room");
    let mut batch = fs.batch();
    for n in 0..pages / 2 {
        for file in &files {
            let (byte, part) = (n as u8 | 2, if n % 100 == 7 { 100 } else { 4096 });
            batch.write_all_at(file, &vec![byte; part], 2 * n * 4096).expect("room");
        }
    }
    assert_eq!(batch.pages() as u64, pages);
    assert_eq!(files[1].metadata().expect("memory").len(), 0);
    batch.commit(Commit::Durable).expect("room");
    let mut page = [0; 4096];
    for n in 0..pages / 2 {
        for (which, file) in files.iter().enumerate() {
            let read = file.read_at(&mut page, 2 * n * 4096).expect("memory");
            let part = if n % 100 == 7 { 100 } else { 4096 };
            assert!(page[..part].iter().all(|byte| *byte == n as u8 | 2), "page {n}");
            let rest = if which == 0 && 2 * n < 300 { 1 } else { 0 };
            assert!(page[part..read].iter().all(|byte| *byte == rest), "page {n}");
        }
    }
}

#[test]
fn a_batch_may_be_larger_than_a_record_and_than_memory() {
    let place = tempfile::tempdir().expect("room");
    let image = place.path().join("image");
    Fs::format(&image, &FormatOptions::new().size(256 << 20)).expect("room");
    let fs = Fs::open(&image, &MountOptions::new().memory(8 << 20)).expect("just made");
    large(&fs, 6000);
    fs.close().expect("nothing is open");
    let fs = Fs::open(&image, &MountOptions::new()).expect("clean");
    assert_eq!(fs.read("/b").expect("there")[2 * 4096], 3);
    fs.close().expect("nothing is open");
}

#[test]
#[ignore = "writes a gigabyte"]
fn a_batch_of_a_hundred_thousand_pages() {
    let place = tempfile::tempdir().expect("room");
    let image = place.path().join("image");
    Fs::format(&image, &FormatOptions::new().size(2 << 30)).expect("room");
    let fs = Fs::open(&image, &MountOptions::new().memory(64 << 20)).expect("just made");
    large(&fs, 100_000);
    fs.close().expect("nothing is open");
}
