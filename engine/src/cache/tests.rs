//! Frames that are found, evicted, removed and reused at once hold what their slot says: with many threads,
//! and under shuttle's schedules (`shuttle_frames_hold_what_their_slots_say`).
//!
//! Broken by hand: without the second look at the slot after the pin, `many_threads_find_evict_and_remove` sees
//! another page's bytes. A frame that is given back before its slot is 0 is too short a window for it.

use super::{FramePool, FrameState, PageIndex, Use};
use crate::sync::{Arc, thread};

/// More pages than frames, so that finding one evicts another.
const PAGES: u64 = 7;

struct Cache {
    index: PageIndex,
    pool: FramePool,
}

fn cache() -> Arc<Cache> {
    Arc::new(Cache { index: PageIndex::default(), pool: FramePool::new(4).expect("four frames") })
}

/// Finds or brings pages, and now and then throws one away.
fn work(cache: &Cache, me: u64, rounds: u64) {
    for round in 0..rounds {
        let page = (me * 3 + round * 5 + round / 3) % PAGES;
        let slot = cache.index.slot(page, &cache.pool);
        if (round + me) % 4 == 3 {
            cache.pool.remove(slot);
            continue;
        }
        let found = cache.pool.find(slot, Use::Yes).or_else(|| {
            let mut fresh = cache.pool.take()?;
            fresh.bytes().fill(page as u8 + 1);
            fresh.publish(slot, FrameState::MAPPED, 0..0).ok()
        });
        if let Some(found) = found {
            let mut bytes = [0; 16];
            found.read(4096 - 16, &mut bytes);
            assert_eq!(bytes, [page as u8 + 1; 16], "another page's bytes");
        }
    }
}

fn run(threads: u64, rounds: u64) {
    let cache = cache();
    let threads: Vec<_> = (0..threads)
        .map(|me| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || work(&cache, me, rounds))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no foreign bytes"));
    for page in 0..PAGES {
        cache.pool.remove(cache.index.slot(page, &cache.pool));
    }
    let stats = cache.pool.stats();
    assert_eq!((stats.free, stats.dirty), (stats.frames, 0), "a frame is lost");
}

#[cfg(not(any(loom, shuttle)))]
mod real {
    use super::*;

    #[test]
    fn many_threads_find_evict_and_remove() {
        run(6, 20_000);
    }

    #[test]
    fn dirty_pages_are_not_evicted_and_their_bytes_are_known() {
        let cache = cache();
        for page in 0..4 {
            let mut fresh = cache.pool.take().expect("four frames");
            fresh.bytes().fill(9);
            let found =
                fresh.publish(cache.index.slot(page, &cache.pool), FrameState::DIRTY, 5..10).expect("empty");
            let mut latched = found.latch();
            latched.write(20, &[1; 10]);
            assert!(!found.mark_dirty(&latched, 20..30), "it was dirty");
            assert_eq!(latched.dirty_bytes(), 5..30);
        }
        assert!(cache.pool.take().is_none());
        let found = cache.pool.find(cache.index.slot(2, &cache.pool), Use::Yes).expect("it stays");
        let latched = found.latch();
        found.start_write_back(&latched);
        drop(latched);
        assert!(cache.pool.take().is_none(), "a write is in flight");
        found.end_write_back();
        assert!(cache.pool.take().is_none(), "it is pinned");
        drop(found);
        assert!(cache.pool.take().is_some());
        assert!(cache.pool.find(cache.index.slot(2, &cache.pool), Use::Yes).is_none());
        for page in 0..4 {
            cache.pool.remove(cache.index.slot(page, &cache.pool));
        }
        assert_eq!(cache.pool.dirty(), 0);
    }
}

#[cfg(shuttle)]
#[test]
fn shuttle_frames_hold_what_their_slots_say() {
    shuttle::check_random(|| run(3, 5), 1000);
}
