//! Models of the roles that meet at the pages of a file.

use super::{Below, Delayed, PageStates, Selection, Take};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, thread};

#[derive(Default)]
struct File {
    pages: PageStates,
    write_back: Mutex<()>,
    /// Page 1 is on the device.
    // Relaxed: what orders it is modelled.
    is_down: AtomicBool,
    queue: Mutex<bool>,
}

impl File {
    fn dirty() -> Arc<File> {
        let file = File::default();
        file.pages.dirtied(vec![1]);
        Arc::new(file)
    }

    /// Writes all dirty pages in place.
    fn write(&self, take: Take, succeeds: bool) {
        let _guard = self.write_back.lock();
        let selection = Selection { pages: 0..9, take, most: 9, tail: None };
        let (taken, _) = self.pages.begin_write_back(selection);
        if !succeeds {
            return drop(taken);
        }
        let pages = taken.to_vec();
        if pages.contains(&1) {
            self.is_down.store(true, Ordering::Relaxed);
        }
        let _ = taken.finish(0, |end| {
            for page in &pages {
                end.written(*page, false, None);
            }
        });
    }

    fn enqueue(&self) {
        if self.pages.queued().is_none() {
            let mut queue = self.queue.lock();
            if self.pages.queued().is_none() {
                self.pages.enqueued(1);
                *queue = true;
            }
        }
    }

    fn dequeue(&self) {
        let mut queue = self.queue.lock();
        if self.pages.queued().is_some()
            && self.write_back.try_lock().is_some()
            && self.pages.dequeue_if_clean(|| true)
        {
            *queue = false;
        }
    }
}

#[test]
fn an_fsync_that_finds_nothing_finds_it_in_place() {
    for succeeds in [true, false] {
        loom::model(move || {
            let file = File::dirty();
            let flusher = thread::spawn({
                let file = Arc::clone(&file);
                move || file.write(Take::All, succeeds)
            });
            let is_down = || file.is_down.load(Ordering::Relaxed);
            // Again once another's write-back that it has seen is over.
            for _ in 0..2 {
                if file.pages.is_synced(&(0..9)) {
                    assert!(is_down(), "nothing to write, and nothing is down");
                }
                drop(file.write_back.lock());
            }
            flusher.join().expect("no panic");
            assert_eq!((is_down(), file.pages.has_dirty(0..9)), (succeeds, !succeeds));
            assert_eq!(file.pages.failures(), u64::from(!succeeds));
        });
    }
}

#[test]
fn a_writer_beside_a_write_back_leaves_its_page_dirty() {
    loom::model(|| {
        let file = File::dirty();
        let flusher = thread::spawn({
            let file = Arc::clone(&file);
            move || file.write(Take::All, true)
        });
        let _ = file.pages.delayed(vec![2], &Delayed::new(2..3, 1, 0, true));
        file.pages.dirtied(vec![1]);
        flusher.join().expect("no panic");
        // The write-back takes all or nothing that is dirty at one moment.
        let [first, second] = [1..2, 2..3].map(|page| file.pages.has_dirty(page));
        assert!(first || !second, "the later one of two is written, and the earlier one is dirty");
        assert_eq!(file.pages.reserved(), 1);
        file.write(Take::All, true);
        assert!(file.pages.is_written());
    });
}

#[test]
fn a_checkpoint_passes_no_record_whose_page_is_not_in_place() {
    loom::model(|| {
        let file = File::dirty();
        let tail = Arc::new(AtomicU64::new(0));
        let fsync = thread::spawn({
            let (file, tail) = (Arc::clone(&file), Arc::clone(&tail));
            move || {
                let _guard = file.write_back.lock();
                let mut logging = file.pages.begin_logging(9);
                let pages = logging.to_vec();
                // Acquire and Release, as the journal's tail: a checkpoint that sees the position sees what was before.
                let end = tail.fetch_add(1, Ordering::AcqRel) + 1;
                logging.record_logged(end);
                let _ =
                    logging.finish(end, false, |end| pages.iter().for_each(|page| end.logged(*page, true)));
            }
        });
        let upto = tail.load(Ordering::Acquire);
        loop {
            match file.pages.look_below(0, upto).0 {
                Below::Nothing => break,
                Below::Cached => file.write(Take::Recorded, true),
                Below::Old => unreachable!("nothing was truncated"),
                Below::Underway => drop(file.write_back.lock()),
            }
        }
        assert!(upto == 0 || file.is_down.load(Ordering::Relaxed), "the head passes what is not in place");
        fsync.join().expect("no panic");
    });
}

#[test]
fn a_file_with_dirty_pages_is_on_the_queue() {
    loom::model(|| {
        let file = File::dirty();
        file.enqueue();
        let flusher = thread::spawn({
            let file = Arc::clone(&file);
            move || {
                file.write(Take::All, true);
                file.dequeue();
            }
        });
        file.pages.dirtied(vec![2]);
        file.enqueue();
        flusher.join().expect("no panic");
        let is_queued = file.pages.queued().is_some();
        assert_eq!(is_queued, *file.queue.lock());
        assert!(is_queued || !file.pages.has_dirty(0..9), "nobody would write it");
    });
}
