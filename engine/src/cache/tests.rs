//! Frames that are found, evicted, removed and reused at once hold what their slot says: with many threads,
//! and under shuttle's schedules (`shuttle_frames_hold_what_their_slots_say`).
//!
//! Broken by hand: without the second look at the slot after the pin, `many_threads_find_evict_and_remove` sees
//! another page's bytes. A frame that is given back before its slot is 0 is too short a window for it.

use super::{FramePool, FrameState, PageIndex, Use};
use crate::cache::PageId;
use crate::device::BLOCK_SIZE;
use crate::sync::{Arc, thread};

/// A page of no file in particular.
const PAGE: PageId = PageId { nid: 1, generation: 1, page: 0 };

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
            fresh.publish(slot, PAGE, FrameState::MAPPED, 0..0).ok()
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
            let found = fresh
                .publish(cache.index.slot(page, &cache.pool), PAGE, FrameState::DIRTY, 5..10)
                .expect("empty");
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

/// In memory that a killed process has left: what is dirty, or on its way, is found, and nothing else is in use.
#[cfg(not(shuttle))]
#[test]
fn what_is_dirty_is_taken_over_and_the_rest_is_free() {
    use crate::takeover::Takeover;
    const FRAMES: usize = 300;
    let memory = Takeover::create(FRAMES).expect("memory");
    let (pool, inherited) = FramePool::shared(&memory.frame_region());
    assert_eq!((pool.len(), inherited.len(), pool.stats().free), (FRAMES, 0, FRAMES as u64));
    let index = PageIndex::default();
    let put = |page: u64, flags: FrameState| {
        let mut fresh = pool.take().expect("a free frame");
        fresh.bytes().fill(page as u8);
        let id = PageId { nid: 5, generation: 2, page };
        fresh.publish(index.slot(page, &pool), id, flags, 10..20).expect("empty")
    };
    drop(put(1, FrameState::MAPPED));
    drop(put(2, FrameState::DIRTY));
    drop(put(3, FrameState::DIRTY | FrameState::SYNCED));
    let under_way = put(4, FrameState::DIRTY | FrameState::RESERVED);
    under_way.start_write_back(&under_way.latch());
    let done = put(5, FrameState::DIRTY);
    done.start_write_back(&done.latch());
    done.end_write_back();
    let again = put(6, FrameState::DIRTY | FrameState::SYNCED);
    again.mark_dirty(&again.latch(), 0..7);
    drop(put(7, FrameState::DIRTY));
    pool.remove(index.slot(7, &pool)).expect("it is there");
    // Killed: nothing of this process counts any more.
    let next = Takeover::adopt(memory.descriptor().try_clone_to_owned().expect("fd")).expect("it is there");
    let (taken, inherited) = FramePool::shared(&next.frame_region());
    let found: Vec<_> = inherited.iter().map(|one| one.page.page).collect();
    assert_eq!(found, [2, 3, 4, 6]);
    assert_eq!(taken.stats().free, FRAMES as u64 - 4);
    let other = PageIndex::default();
    let two = taken.take_over(&inherited[0], other.slot(2, &taken), FrameState::MAPPED, 100).expect("empty");
    let mut bytes = [9; BLOCK_SIZE];
    two.read(0, &mut bytes);
    assert!(bytes[..100].iter().all(|byte| *byte == 2) && bytes[100..].iter().all(|byte| *byte == 0));
    assert!(two.flags().contains(FrameState::DIRTY | FrameState::MAPPED));
    assert_eq!(taken.stats().dirty, 1);
    assert!(taken.take_over(&inherited[1], other.slot(2, &taken), FrameState::MAPPED, 1).is_none());
    taken.give_up(&inherited[1]);
    taken.give_up(&inherited[2]);
    assert_eq!(taken.stats().free, FRAMES as u64 - 2);
    // The next one finds what was taken over, and what was not come to yet.
    let last = Takeover::adopt(next.descriptor().try_clone_to_owned().expect("fd")).expect("it is there");
    let (_, inherited) = FramePool::shared(&last.frame_region());
    assert_eq!(inherited.iter().map(|one| one.page.page).collect::<Vec<_>>(), [2, 6]);
    drop((two, under_way, done, again));
}
