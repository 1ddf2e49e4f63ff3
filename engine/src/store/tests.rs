use super::*;
use crate::device::MemoryDevice;
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, NatEntry, ROOT_NID, nat_place};
use crate::mkfs::{FormatOptions, format_cramped};
use crate::superblock::group_start;

/// A store over a fresh file system in memory, without a journal.
fn store(blocks: u64, budget: usize) -> Store {
    let device = Arc::new(MemoryDevice::new(blocks));
    let options =
        FormatOptions { journal_slots: Some(64), double_write_blocks: Some(3), ..FormatOptions::default() };
    let sb = format_cramped(device.as_ref(), &options).expect("large enough");
    Store::new(device, sb, Log::default(), &StoreOptions { budget, ..StoreOptions::default() })
}

#[test]
fn an_edit_is_seen_by_its_handle_alone_until_the_commit() {
    let store = store(64, 1 << 20);
    let nat = store.get(group_start(store.superblock(), 0) + 2, BlockKind::Nat).expect("made by mkfs");
    let (_, at) = nat_place(ROOT_NID);
    let before: NatEntry = nat.read_as(at);
    let mut h = store.begin(4).expect("no journal, no limit");
    h.edit_as::<NatEntry>(&nat, at).generation.set(9);
    assert_eq!(h.view_as::<NatEntry>(&nat, at).generation.get(), 9);
    assert_eq!(nat.read_as::<NatEntry>(at), before);
    assert_eq!(h.slots_needed(), 1);
    h.commit().expect("no journal that could fail");
    assert_eq!(nat.read_as::<NatEntry>(at).generation.get(), 9);
    assert!(nat.is_dirty());
    assert_eq!(store.pages().1, 1);
}

#[test]
fn a_dropped_handle_has_done_nothing_but_run_its_abort() {
    let store = store(64, 1 << 20);
    let bitmap = store.get(group_start(store.superblock(), 0), BlockKind::Bitmap).expect("made by mkfs");
    let (aborted, committed) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let mut h = store.begin(4).expect("no limit");
    h.set_bits(&bitmap, 9, 3);
    h.on_abort(|| aborted.set(aborted.get() + 1));
    h.on_commit(|_| committed.set(committed.get() + 1));
    drop(h);
    assert_eq!((aborted.get(), committed.get()), (1, 0));
    assert!(!bitmap.is_dirty());
    let mut h = store.begin(4).expect("no limit");
    h.set_bits(&bitmap, 9, 3);
    h.on_abort(|| aborted.set(aborted.get() + 1));
    h.on_commit(|_| committed.set(committed.get() + 1));
    h.commit().expect("no journal");
    assert_eq!((aborted.get(), committed.get()), (1, 1));
    assert_eq!(bitmap.read(|b| b[BLOCK_HEADER_SIZE + 1]), 0b1110);
}

#[test]
fn overlapping_edits_are_one_copy() {
    let store = store(64, 1 << 20);
    let nat = store.get(group_start(store.superblock(), 0) + 2, BlockKind::Nat).expect("made by mkfs");
    let mut h = store.begin(4).expect("no limit");
    h.edit(&nat, 264..280).fill(1);
    h.edit(&nat, 328..344).fill(2);
    let whole = h.edit(&nat, 272..336);
    assert_eq!((whole[0], whole[8], whole[56]), (1, 0, 2));
    whole[8] = 7;
    assert_eq!(h.view(&nat, 256..272), [[0; 8], [1; 8]].concat());
    h.commit().expect("no journal");
    let bytes = nat.read(|b| b[256..352].to_vec());
    assert_eq!((bytes[0], bytes[8], bytes[24], bytes[72], bytes[87], bytes[88]), (0, 1, 7, 2, 2, 0));
}

#[test]
fn a_fresh_page_is_found_after_the_commit_and_a_forgotten_one_is_not_dirty() {
    let store = store(64, 1 << 20);
    let mut h = store.begin(4).expect("no limit");
    let page = h.init(40, BlockKind::Bucket, 5, 6).expect("inside the image");
    assert!(h.init(64, BlockKind::Bucket, 5, 6).is_err());
    h.edit(&page, 32..48).fill(3);
    assert!(store.get(40, BlockKind::Bucket).is_err());
    h.commit().expect("no journal");
    let found = store.get(40, BlockKind::Bucket).expect("committed");
    assert_eq!((found.header().owner.get(), found.header().generation.get()), (5, 6));
    assert_eq!(found.read(|b| b[32..48].to_vec()), [3; 16]);
    assert!(store.get(40, BlockKind::Node).is_err());
    let mut h = store.begin(4).expect("no limit");
    h.edit(&found, 32..48).fill(4);
    h.forget(&found);
    h.commit().expect("no journal");
    assert_eq!(store.pages().1, 0);
    assert!(found.is_forgotten());
}

#[test]
fn a_later_record_s_times_stay_whatever_the_order() {
    let store = store(64, 1 << 20);
    let node = store.get(group_start(store.superblock(), 0) + 1, BlockKind::Node).expect("made by mkfs");
    let mut body = node.latch();
    body.write_if_newer(48, &[2; 8], 20);
    body.write_if_newer(48, &[1; 8], 10);
    body.write_if_newer(56, &[1; 8], 10);
    assert_eq!((body.bytes[48], body.bytes[56], body.position), (2, 1, 20));
}

#[test]
fn pages_are_read_once_and_clean_ones_evicted() {
    let store = store(40_000, 64 * crate::device::BLOCK_SIZE);
    let start = store.superblock().groups_start.get();
    let durability = [(start, BlockKind::Bitmap), (start + 1, BlockKind::Node), (start + 2, BlockKind::Nat)];
    let pages = store.get_many(&durability).expect("made by mkfs");
    let again = store.get_many(&durability).expect("in memory");
    assert!(pages.iter().zip(&again).all(|(a, b)| Arc::ptr_eq(a, b)));
    let reads = |store: &Store| store.device().counters().iter().map(|c| c.reads).sum::<u64>();
    let before = reads(&store);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| store.get(store.superblock().orphan_root.get(), BlockKind::OrphanRoot).map(drop));
        }
    });
    assert_eq!(reads(&store), before + 1);
    drop((pages, again));
    for block in 5000..7000 {
        let mut h = store.begin(4).expect("no limit");
        h.init(block, BlockKind::Bucket, 1, 1).expect("inside");
        h.commit().expect("no journal");
    }
    assert!(store.pages().0 >= 2000, "dirty pages are not evicted");
    for page in store.dirty.drain() {
        assert!(store.dirty.claim(&page));
        store.dirty.note(&page, page.finish(false));
    }
    for block in 5000..9000 {
        let _ = store.get(block, BlockKind::Bucket);
    }
    for index in 0..store.superblock().nat_index_blocks.get() {
        store
            .get(store.superblock().nat_index_start.get() + index, BlockKind::NatIndex)
            .expect("made by mkfs");
    }
    assert!(store.pages().0 < 2000, "{} pages", store.pages().0);
}
