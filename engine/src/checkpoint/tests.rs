//! What several threads bring home, and what becomes of it when the device fails.

#[cfg(feature = "baselines")]
mod baselines;

use super::*;
use crate::Error;
use crate::device::{BlockDevice, Cause, IoBuf, MemoryDevice, Request};
use crate::format::{BLOCK_HEADER_SIZE, BlockKind};
use crate::mkfs::{FormatOptions, format_cramped};
use crate::recovery::Area;
use crate::sim::{Fault, SimMedia};
use crate::store::{Log, PageRef, StoreOptions, WriteHome, verify};
use crate::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const BLOCKS: u64 = 4096;
const ROUND: RoundId = RoundId { epoch: 1, number: 1 };

/// What writes home a store without a journal, over a fresh file system.
fn rounds(device: Arc<dyn BlockDevice>, area: u64, write_home: WriteHome) -> Checkpointer {
    rounds_with(device, area, StoreOptions { write_home, ..StoreOptions::default() })
}

fn rounds_with(device: Arc<dyn BlockDevice>, area: u64, store: StoreOptions) -> Checkpointer {
    let options = FormatOptions {
        journal_slots: Some(64),
        double_write_blocks: Some(area),
        sparse: true,
        ..FormatOptions::default()
    };
    let sb = format_cramped(device.as_ref(), &options).expect("large enough");
    Checkpointer::new(Arc::new(Store::new(device, sb, Log::default(), &store)))
}

/// So many dirty pages, `apart` blocks from one to the next.
fn dirtied(store: &Store, count: u64, apart: u64) -> Vec<PageRef> {
    let page = |n: u64| {
        let mut handle = store.begin(4).expect("no journal, no limit");
        let page = handle.init(1000 + n * apart, BlockKind::Xattr, n + 1, 1).expect("within the image");
        handle.edit(&page, BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8).copy_from_slice(&n.to_le_bytes());
        handle.commit().expect("no journal that could fail");
        page
    };
    (0..count).map(page).collect()
}

fn assert_home(store: &Store, pages: &[PageRef]) {
    for page in pages {
        let read = Request::read(page.block(), IoBuf::zeroed(BLOCK_SIZE), Cause::Metadata);
        let home = store.device().run(vec![read]).expect("no fault").remove(0);
        verify(store.seed(), page.block(), page.kind(), &home).expect("a whole image");
        let bytes = BLOCK_HEADER_SIZE..;
        assert_eq!(home[bytes.clone()], page.read(|page| page[bytes].to_vec()));
        assert!(!page.is_dirty());
    }
    assert_eq!((store.dirty.unwritten(), store.dirty.drain().len()), (0, 0));
}

#[test]
fn everything_goes_home_by_any_number_of_threads_through_an_area_of_any_size() {
    for threads in [1, 2, 3, 8] {
        for area in [2, 5, 17, 300] {
            for apart in [1, 2] {
                let write_home = WriteHome { threads: Some(threads), ..WriteHome::default() };
                let rounds = rounds(Arc::new(MemoryDevice::new(BLOCKS)), area, write_home);
                let pages = dirtied(&rounds.store, 500, apart);
                rounds.write_all(ROUND).expect("memory");
                assert_home(&rounds.store, &pages);
                let stats = rounds.stats();
                for phase in [Phase::Copy, Phase::WriteHome] {
                    assert_eq!(stats.phases[phase as usize].bytes, 500 * BLOCK_SIZE as u64);
                }
                let least = stats.phases[Phase::WriteHome as usize].bytes + stats.batches * BLOCK_SIZE as u64;
                assert!(stats.phases[Phase::DoubleWrite as usize].bytes >= least);
            }
        }
    }
}

#[test]
fn neighbours_share_a_request_up_to_the_limit() {
    for (apart, neighbours, requests) in [(1, 64, 2), (1, 10, 11), (1, 1, 100), (2, 64, 100)] {
        let write_home = WriteHome { threads: Some(1), neighbours };
        let rounds = rounds(Arc::new(MemoryDevice::new(BLOCKS)), 300, write_home);
        let pages = dirtied(&rounds.store, 100, apart);
        rounds.write_all(ROUND).expect("memory");
        assert_home(&rounds.store, &pages);
        // 63 images of the first segment, and 37 of the second.
        assert_eq!(rounds.stats().home_requests, requests);
    }
}

/// Fails the writes of this cause, those of which `fails` says so.
fn faults(sim: &SimMedia, of: Cause, fails: impl Fn(usize, u64) -> bool + Send + 'static) {
    let seen = AtomicUsize::new(0);
    sim.set_fault(Some(Box::new(move |fault| match fault {
        // Relaxed: a number.
        Fault::Write { block, cause, .. } if cause == of => {
            fails(seen.fetch_add(1, Ordering::Relaxed), block).then_some(libc::EIO)
        }
        _ => None,
    })));
}

#[test]
fn what_fails_now_and_then_is_tried_again() {
    for cause in [Cause::DoubleWrite, Cause::Checkpoint] {
        let sim = SimMedia::new(BLOCKS, &[]);
        let rounds = rounds(sim.device(), 34, WriteHome { threads: Some(2), neighbours: 1 });
        let pages = dirtied(&rounds.store, 100, 2);
        // At the most one of the tries of any request.
        faults(&sim, cause, |nth, _| nth == 1);
        rounds.write_all(ROUND).expect("it is tried again");
        assert_home(&rounds.store, &pages);
        assert_eq!(sim.overlapping_writes(), 0);
    }
}

#[test]
fn what_fails_for_good_is_told_and_leaves_dirty_what_is_not_home() {
    for (cause, threads) in [(Cause::DoubleWrite, 1), (Cause::Checkpoint, 1), (Cause::Checkpoint, 4)] {
        let sim = SimMedia::new(BLOCKS, &[]);
        let rounds = rounds(sim.device(), 34, WriteHome { threads: Some(threads), neighbours: 1 });
        let pages = dirtied(&rounds.store, 300, 2);
        let bad = pages[150].block();
        let area = rounds.store.superblock().dw_start.get();
        faults(&sim, cause, move |_, block| block == if cause == Cause::DoubleWrite { area } else { bad });
        let failed = rounds.write_all(ROUND);
        assert!(matches!(failed, Err(Error::Device { errno: libc::EIO, .. })), "{failed:?}");
        let dirty = pages.iter().filter(|page| page.is_dirty()).count();
        assert!(dirty > 0 && pages[150].is_dirty());
        assert_eq!((rounds.store.dirty.count(), rounds.store.dirty.unwritten()), (dirty, dirty));
        sim.set_fault(None);
        rounds.write_all(ROUND).expect("the device has healed");
        assert_home(&rounds.store, &pages);
    }
}

/// What several threads have under way is restored, wherever their parts begin.
#[test]
fn the_images_of_every_part_are_found() {
    for threads in [1, 2, 3, 8] {
        let rounds = rounds(Arc::new(MemoryDevice::new(BLOCKS)), 600, WriteHome::default());
        let pages = dirtied(&rounds.store, 512, 1);
        let store = &*rounds.store;
        assert!(pages.iter().all(|page| store.holds_metadata(page.block()) && store.dirty.claim(page)));
        let mut parts = area::parts(store, &rounds.stats, ROUND, threads);
        for (part, pages) in parts.iter_mut().zip(pages.chunks(512_usize.div_ceil(threads))) {
            let images = images::Images::copy(store, &pages.iter().collect::<Vec<_>>());
            assert!(pages.len() <= part.capacity());
            drop(part.double(0, images).expect("memory"));
        }
        assert_eq!(Area::read(store).and_then(|area| area.restore_last(store, None)).expect("memory"), 512);
        store.dirty.drain();
        pages.iter().for_each(|page| store.dirty.note(page, page.finish(false)));
        assert_home(&rounds.store, &pages);
    }
}
