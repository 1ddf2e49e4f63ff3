//! Orphan tables over an image in memory.

use super::*;
use crate::alloc::BITS_DELTA_BYTES;
use crate::alloc::testing::{bits_set, image};
use crate::format::ORPHAN_ENTRY_SIZE;
use crate::format::{Intent, U32};
use crate::store::DELTA_HEADER_SIZE;

/// Bytes that [`Orphans::add`] adds to a record at most: the entry, and a new table with its pointer.
const ADD_BYTES: usize = UPDATE_BYTES + (DELTA_HEADER_SIZE + 8) + (DELTA_HEADER_SIZE + 16) + BITS_DELTA_BYTES;
/// Bytes that [`Orphans::update`] or [`Orphans::remove`] adds to a record at most.
const UPDATE_BYTES: usize = DELTA_HEADER_SIZE + ORPHAN_ENTRY_SIZE;

fn entry(nid: u64) -> OrphanEntry {
    OrphanEntry {
        nid: U64::new(nid),
        generation: U32::new(1),
        intent: U32::new(Intent::Orphan as u32),
        arg0: U64::ZERO,
        arg1: U64::ZERO,
        progress: U64::new(nid * 3),
    }
}

fn nids(orphans: &Orphans) -> Vec<u64> {
    let entries = orphans.entries().expect("good tables");
    let mut nids: Vec<u64> = entries.iter().map(|(_, entry)| entry.nid.get()).collect();
    nids.sort_unstable();
    nids
}

#[test]
fn entries_come_and_go_with_their_operations() {
    let store = Arc::new(image(1000));
    let alloc = Alloc::load(&store).expect("a fresh image");
    let orphans = Orphans::load(&store, &alloc).expect("a fresh image");
    let mut ids = Vec::new();
    for nid in 1..=250 {
        lane::pin(Some(nid as usize));
        let mut aborted = store.begin(10).expect("writable");
        orphans.add(&mut aborted, entry(9999)).expect("room");
        drop(aborted);
        let mut h = store.begin(10).expect("writable");
        let id = orphans.add(&mut h, entry(nid)).expect("room");
        assert!(h.slots_needed() <= (ADD_BYTES as u32).div_ceil(crate::format::SLOT_PAYLOAD as u32));
        h.commit().expect("no journal to fail");
        ids.push(id);
    }
    assert_eq!(nids(&orphans), (1..=250).collect::<Vec<_>>());
    let tables = bits_set(&store);
    assert!(tables <= 250u64.div_ceil(ORPHANS_PER_BLOCK as u64) + lane::count() as u64);
    let again = Orphans::load(&store, &alloc).expect("the same image");
    assert_eq!(nids(&again), (1..=250).collect::<Vec<_>>());
    for id in ids.drain(100..) {
        let mut h = store.begin(10).expect("writable");
        orphans.remove(&mut h, id).expect("it is there");
        h.commit().expect("no journal to fail");
    }
    assert_eq!(nids(&orphans), (1..=100).collect::<Vec<_>>());
    let mut h = store.begin(10).expect("writable");
    orphans.update(&mut h, &ids[0], entry(5000)).expect("it is there");
    orphans.add(&mut h, entry(5001)).expect("room");
    h.commit().expect("no journal to fail");
    assert_eq!(nids(&orphans)[99..], [5000, 5001]);
    assert_eq!(bits_set(&store), tables, "free entries are used before a new table is made");
    lane::pin(None);
}

/// A lane without a table of its own uses another's where there is no room for one: what makes room goes on.
#[test]
fn where_a_table_has_no_room_another_lane_s_is_used() {
    let store = Arc::new(image(200));
    let alloc = Alloc::load(&store).expect("a fresh image");
    let orphans = Orphans::load(&store, &alloc).expect("a fresh image");
    let add = |lane: usize, nid| {
        lane::pin(Some(lane));
        let mut h = store.begin(10).expect("writable");
        let added = orphans.add(&mut h, entry(nid));
        h.commit().expect("no journal to fail");
        added
    };
    add(0, 1).expect("room for a table");
    loop {
        let mut h = store.begin(10).expect("writable");
        if alloc.allocate(&mut h, 1, None, Class::MakingRoom, None).is_err() {
            break;
        }
        h.commit().expect("no journal to fail");
    }
    let free_places = || orphans.shared.free_places.lock().len();
    let places = free_places();
    let others = ORPHANS_PER_BLOCK as u64 - 1;
    (0..others).for_each(|nid| drop(add(1, 2 + nid).expect("the other lane's table has room")));
    assert_eq!(add(1, 1000).map(drop), Err(Error::Errno(libc::ENOSPC)));
    assert_eq!((nids(&orphans).len(), free_places()), (ORPHANS_PER_BLOCK, places));
    lane::pin(None);
}
