//! Ids and slots over an image in memory.

mod count;
#[cfg(feature = "baselines")]
mod listed;

use std::collections::{HashMap, HashSet};

use super::*;
use crate::alloc::BITS_DELTA_BYTES;
use crate::alloc::testing::{bits_set, end_quarantine, image_with};
use crate::format::{INODE_SIZE, SLOT_PAYLOAD};
use crate::lane;
use crate::store::{DELTA_HEADER_SIZE, StoreOptions};

/// Bytes that [`Nat::allocate`] adds to a record at most, without the inode itself: the entry, and a new NAT
/// block, its pointer and a new node block.
const ALLOCATE_BYTES: usize =
    (DELTA_HEADER_SIZE + 16) + (DELTA_HEADER_SIZE + 8) + 2 * (DELTA_HEADER_SIZE + 16 + BITS_DELTA_BYTES);
/// Bytes that [`Nat::free`] adds to a record at most: the entry, the slot, and the node block.
const FREE_BYTES: usize =
    (DELTA_HEADER_SIZE + 16) + (DELTA_HEADER_SIZE + 256) + DELTA_HEADER_SIZE + BITS_DELTA_BYTES;

struct Fixture {
    store: Arc<Store>,
    alloc: Alloc,
    nat: Nat,
}

fn fixture(blocks: u64) -> Fixture {
    fixture_with(blocks, &StoreOptions::default())
}

/// One for each way in which ids are found that this build has.
fn fixtures(blocks: u64) -> Vec<Fixture> {
    #[cfg(not(feature = "baselines"))]
    let all = [StoreOptions::default()];
    #[cfg(feature = "baselines")]
    let all = ["ours", "ids-global", "ids-scan"].map(listed::options);
    all.iter().map(|options| fixture_with(blocks, options)).collect()
}

fn fixture_with(blocks: u64, options: &StoreOptions) -> Fixture {
    let store = Arc::new(image_with(blocks, options));
    let alloc = Alloc::load(&store).expect("a fresh image");
    let nat = Nat::load(&store, &alloc, &mut OnDamage::Fail).expect("a fresh image");
    Fixture { store, alloc, nat }
}

impl Fixture {
    fn create(&self) -> Result<NewInode> {
        let mut h = self.store.begin(10)?;
        let new = self.nat.allocate(&mut h)?;
        let slot = usize::from(new.slot) * INODE_SIZE;
        assert!(h.view(&new.node, slot..slot + INODE_SIZE).iter().all(|byte| *byte == 0));
        assert!(h.slots_needed() as usize <= ALLOCATE_BYTES.div_ceil(SLOT_PAYLOAD));
        *h.edit_as(&new.node, slot + 8) = U64::new(new.nid);
        h.commit()?;
        Ok(new)
    }

    fn delete(&self, inode: &NewInode) -> Result<Position> {
        let mut h = self.store.begin(10)?;
        self.nat.free(&mut h, inode.nid, &inode.node, inode.slot)?;
        assert!(h.slots_needed() as usize <= FREE_BYTES.div_ceil(SLOT_PAYLOAD));
        h.commit()
    }

    fn remount(&self) -> Nat {
        Nat::load(&self.store, &self.alloc, &mut OnDamage::Fail).expect("the same image")
    }
}

#[test]
fn an_id_leads_to_its_slot_until_it_is_freed_and_its_generation_grows() {
    let f = fixture(1000);
    lane::pin(Some(0));
    let first = f.create().expect("room");
    let entry = f.nat.lookup(first.nid).expect("a good table").expect("in use");
    assert_eq!((entry.block(), entry.slot()), (first.node.block(), first.slot));
    assert_eq!((first.nid, entry.generation.get(), first.generation), (1, 1, 1));
    for nid in [0, 2, 254, 1 << 40, u64::MAX] {
        assert_eq!(f.nat.lookup(nid), Ok(None));
    }
    let end = f.delete(&first).expect("in use");
    assert_eq!(f.nat.lookup(first.nid), Ok(None));
    assert!(f.delete(&first).is_err());
    f.nat.durable(end - 1);
    assert_eq!(f.create().expect("room").nid, 2);
    f.nat.durable(end);
    let again = f.create().expect("room");
    assert_eq!((again.nid, again.generation), (first.nid, 2));
    lane::pin(None);
}

#[test]
fn a_fresh_file_system_has_its_root_and_room_for_more() {
    let device = Arc::new(crate::device::MemoryDevice::new(4096));
    let options = crate::mkfs::FormatOptions { sparse: true, ..Default::default() };
    let superblock = crate::mkfs::format(&*device, &options).expect("16 MiB are enough");
    let log = crate::store::Log::default();
    let store = Arc::new(Store::new(device, superblock, log, &crate::store::StoreOptions::default()));
    let alloc = Alloc::load(&store).expect("a fresh image");
    let nat = Nat::load(&store, &alloc, &mut OnDamage::Fail).expect("a fresh image");
    assert!(
        crate::orphan::Orphans::load(&store, &alloc)
            .expect("a fresh image")
            .entries()
            .expect("none")
            .is_empty()
    );
    assert!(nat.lookup(crate::format::ROOT_NID).expect("a good table").is_some());
    let unused = alloc.unused();
    let f = Fixture { store, alloc, nat };
    let inode = f.create().expect("room");
    assert_eq!(inode.nid, crate::format::ROOT_NID + 1, "the NAT block of the root is drawn from");
    f.delete(&inode).expect("in use");
    end_quarantine(&f.alloc);
    assert_eq!(f.alloc.unused(), unused);
}

#[test]
fn an_aborted_create_leaves_no_trace() {
    for f in fixtures(1000) {
        lane::pin(Some(0));
        for _ in 0..2 {
            let unused = f.alloc.unused();
            for _ in 0..20 {
                let mut h = f.store.begin(10).expect("writable");
                f.nat.allocate(&mut h).expect("room");
                drop(h);
            }
            assert_eq!(f.alloc.unused(), unused);
            f.create().expect("room");
        }
        lane::pin(None);
    }
}

/// A creation that has picked a slot beside the last inode, and is given up or not while that inode is freed:
/// the block goes with any thread that is the last.
#[test]
fn a_block_with_a_creation_under_way_goes_with_its_last_inode() {
    let both = fixtures(1000).into_iter().chain(fixtures(1000));
    for (n, f) in both.enumerate() {
        let gives_up = n % 2 == 0;
        lane::pin(Some(0));
        let first = f.create().expect("room");
        let with_one = bits_set(&f.store);
        let mut h = f.store.begin(10).expect("writable");
        let second = f.nat.allocate(&mut h).expect("room");
        assert_eq!(second.node.block(), first.node.block());
        *h.edit_as(&second.node, usize::from(second.slot) * INODE_SIZE + 8) = U64::new(second.nid);
        std::thread::scope(|scope| {
            let freed = scope.spawn(|| f.delete(&first).expect("in use"));
            if gives_up {
                drop(h);
            } else {
                h.commit().expect("no journal to fail");
            }
            freed.join().expect("no panic");
        });
        if !gives_up {
            assert_eq!(bits_set(&f.store), with_one, "the block of the new inode stays");
            f.delete(&second).expect("in use");
        }
        assert_eq!(bits_set(&f.store), with_one - 1, "the node block is freed, the NAT block stays");
        lane::pin(None);
    }
}

#[test]
fn a_mount_goes_on_where_the_last_one_ended() {
    let f = fixture(2000);
    lane::pin(Some(0));
    let inodes: Vec<_> = (0..600).map(|_| f.create().expect("room")).collect();
    for inode in &inodes[100..200] {
        f.delete(inode).expect("in use");
    }
    f.nat.durable(u64::MAX - 1);
    f.nat.save_hints().expect("a good table");
    let used = bits_set(&f.store);
    let nat = f.remount();
    let known: HashSet<Nid> = inodes.iter().map(|inode| inode.nid).collect();
    for _ in 0..100 {
        let mut h = f.store.begin(10).expect("writable");
        let new = nat.allocate(&mut h).expect("room");
        assert!(known.contains(&new.nid), "free ids of known blocks come first");
        assert_eq!(new.generation, 2);
        h.commit().expect("no journal to fail");
    }
    assert_eq!(bits_set(&f.store), used + 100u64.div_ceil(16));
    for inode in &inodes[..100] {
        assert!(nat.lookup(inode.nid).expect("a good table").is_some());
    }
    lane::pin(None);
}

#[test]
fn lanes_share_neither_ids_nor_blocks_and_nothing_is_left_behind() {
    let f = fixture(20_000);
    let mut expected = None;
    for _ in 0..3 {
        let created: Vec<Vec<NewInode>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|lane| {
                    let f = &f;
                    scope.spawn(move || {
                        lane::pin(Some(lane));
                        (0..1500).map(|_| f.create().expect("room")).collect()
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
        });
        let mut owner_of_nat: HashMap<u64, usize> = HashMap::new();
        let mut owner_of_node: HashMap<u64, usize> = HashMap::new();
        let mut places = HashSet::new();
        for (lane, inodes) in created.iter().enumerate() {
            for inode in inodes {
                assert!(places.insert((inode.node.block(), inode.slot)) && places.insert((inode.nid, 99)));
                assert_eq!(*owner_of_nat.entry(inode.nid / NAT_PER_BLOCK).or_insert(lane), lane);
                assert_eq!(*owner_of_node.entry(inode.node.block()).or_insert(lane), lane);
            }
        }
        // Each thread frees every other inode, whichever lane made it: neighbours go at the same time.
        let all: Vec<NewInode> = created.into_iter().flatten().collect();
        std::thread::scope(|scope| {
            for lane in 0..2 {
                let (f, all) = (&f, &all);
                scope.spawn(move || {
                    lane::pin(Some(lane));
                    for inode in all.iter().skip(lane).step_by(2) {
                        let end = f.delete(inode).expect("in use");
                        f.nat.durable(end);
                    }
                });
            }
        });
        end_quarantine(&f.alloc);
        f.nat.durable(u64::MAX - 1);
        // What stays are the NAT blocks; they serve the next round.
        let nat_blocks = owner_of_nat.len() as u64;
        let left = bits_set(&f.store);
        assert!(left >= nat_blocks);
        assert_eq!(*expected.get_or_insert(left), left);
        assert_eq!(left, nat_blocks, "node blocks were left behind");
    }
}

#[test]
fn a_full_image_can_delete_everything() {
    for f in fixtures(120) {
        lane::pin(Some(0));
        let mut inodes = Vec::new();
        let refusal = loop {
            match f.create() {
                Ok(inode) => inodes.push(inode),
                Err(e) => break e,
            }
        };
        assert_eq!(refusal, Error::Errno(libc::ENOSPC));
        assert!(inodes.len() > 1000);
        for inode in &inodes {
            f.delete(inode).expect("in use");
        }
        end_quarantine(&f.alloc);
        assert_eq!(bits_set(&f.store), inodes.len() as u64 / NAT_PER_BLOCK + 1);
        lane::pin(None);
    }
}

#[test]
fn hints_of_a_whole_index_block_are_saved() {
    let f = fixture(10_000);
    lane::pin(Some(0));
    let blocks = NAT_INDEX_PER_BLOCK / 2 + 20;
    for _ in 0..blocks * NAT_PER_BLOCK {
        f.create().expect("room");
    }
    f.nat.save_hints().expect("no record is too large");
    for index in 0..blocks {
        let pointer = f.nat.shared.pointer(index).expect("memory").2;
        assert_eq!(u64::from(pointer.used_hint()), NAT_PER_BLOCK, "block {index}");
    }
    lane::pin(None);
}

/// NAT blocks that the index has pointers to.
fn nat_blocks(nat: &Nat) -> u64 {
    (0..nat.shared.capacity())
        .take_while(|index| nat.shared.pointer(*index).expect("memory").2.block() != 0)
        .count() as u64
}

#[test]
fn every_id_in_use_is_among_the_possible_ones() {
    let f = fixture(4000);
    let made: HashSet<Nid> = (0..3 * NAT_PER_BLOCK).map(|_| f.create().expect("room").nid).collect();
    let parts: Vec<_> = (0..).map_while(|index| f.nat.possible(index)).collect();
    assert_eq!(parts.len() as u64, f.nat.shared.capacity());
    let possible: HashSet<Nid> = parts.into_iter().flatten().collect();
    assert!(made.is_subset(&possible));
    assert_eq!(possible.len() as u64, nat_blocks(&f.nat) * NAT_PER_BLOCK);
}

#[test]
fn a_table_made_with_many_lanes_serves_few_and_does_not_grow() {
    for (made, used) in [(8, 2), (2, 8), (8, 8)] {
        // The store is the same for both, as an image is.
        lane::pretend(Some(8));
        let f = fixture(4000);
        lane::pretend(Some(made));
        let f = Fixture { nat: f.remount(), ..f };
        let mut inodes = Vec::new();
        for lane in 0..made {
            lane::pin(Some(lane));
            let share = 16 * NAT_PER_BLOCK / made as u64;
            inodes.extend((0..share).map(|_| f.create().expect("room")));
        }
        let blocks = nat_blocks(&f.nat);
        lane::pretend(Some(used));
        let again = Fixture { nat: f.remount(), store: Arc::clone(&f.store), alloc: f.alloc.clone() };
        let mut end = 0;
        for (n, inode) in inodes.iter().enumerate() {
            lane::pin(Some(n % used));
            end = again.delete(inode).expect("in use");
        }
        again.nat.durable(end);
        end_quarantine(&again.alloc);
        // One lane takes what all of them have freed, but for the block that each of the others draws from.
        lane::pin(Some(1));
        let nids: HashSet<Nid> = (0..inodes.len() as u64 - (used as u64 - 1) * NAT_PER_BLOCK)
            .map(|_| again.create().expect("room").nid)
            .collect();
        assert_eq!(nids.len() as u64, inodes.len() as u64 - (used as u64 - 1) * NAT_PER_BLOCK);
        assert_eq!(nat_blocks(&again.nat), blocks, "{made} lanes, then {used}");
    }
    lane::pin(None);
    lane::pretend(None);
}

/// One lane makes what another frees: each block is the other's from its first free slot to its last inode.
#[test]
fn a_lane_that_only_frees_keeps_no_list_of_what_it_has_emptied() {
    let f = fixture(4000);
    let mut queue = std::collections::VecDeque::new();
    for _ in 0..2000 {
        lane::pin(Some(0));
        queue.extend((0..16).map(|_| f.create().expect("room")));
        lane::pin(Some(1));
        let mut end = 0;
        while queue.len() > 48 {
            end = f.delete(&queue.pop_front().expect("it is long")).expect("in use");
        }
        f.nat.durable(end);
        end_quarantine(&f.alloc);
    }
    assert!(f.nat.shared.nodes.listed(1) < 64, "{} entries", f.nat.shared.nodes.listed(1));
    lane::pin(None);
}

#[test]
fn slots_that_another_lane_has_freed_are_used_before_there_are_new_blocks() {
    for lanes in [2, 8] {
        lane::pretend(Some(8));
        let f = fixture(4000);
        lane::pin(Some(0));
        let inodes: Vec<_> = (0..1600).map(|_| f.create().expect("room")).collect();
        let mut end = 0;
        for (n, inode) in inodes.iter().enumerate().filter(|(n, _)| n % 16 != 0) {
            lane::pin(Some(1 + n / 16 % (lanes - 1)));
            end = f.delete(inode).expect("in use");
        }
        f.nat.durable(end);
        end_quarantine(&f.alloc);
        let used = bits_set(&f.store);
        lane::pin(Some(0));
        // Each of the others keeps the block that it fills.
        (0..1500 - 15 * (lanes - 1)).for_each(|_| drop(f.create().expect("room")));
        assert_eq!(bits_set(&f.store), used, "{lanes} lanes");
        (0..16).for_each(|_| drop(f.create().expect("room")));
        assert_eq!(bits_set(&f.store), used + 1, "{lanes} lanes");
    }
    lane::pin(None);
    lane::pretend(None);
}

/// Threads make and free in all lanes at once, so that blocks change hands all the time: no slot is given out twice, and
/// none is forgotten.
#[test]
fn blocks_change_hands_among_threads_and_each_slot_is_had_once() {
    let f = fixture(20_000);
    let shared = crate::sync::Mutex::new(Vec::<NewInode>::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (f, shared) = (&f, &shared);
            scope.spawn(move || {
                lane::pin(Some(thread));
                for round in 0..300 {
                    let made: Vec<_> = (0..20).map(|_| f.create().expect("room")).collect();
                    shared.lock().extend(made);
                    for n in 0..if round < 50 { 5 } else { 20 } {
                        let mut all = shared.lock();
                        let at = (n * 7919 + round * 31 + thread * 1013) % all.len().max(1);
                        let inode = all.swap_remove(at);
                        drop(all);
                        let end = f.delete(&inode).expect("in use, and nobody else's");
                        f.nat.durable(end);
                    }
                }
            });
        }
    });
    lane::pin(Some(0));
    let left = shared.into_inner();
    let mut places = HashSet::new();
    assert!(left.iter().all(|inode| places.insert((inode.node.block(), inode.slot))));
    for inode in &left {
        f.delete(inode).expect("in use");
    }
    f.nat.durable(u64::MAX - 1);
    end_quarantine(&f.alloc);
    assert_eq!(bits_set(&f.store), nat_blocks(&f.nat), "node blocks were left behind");
    assert_eq!(f.nat.shared.nodes.free(), 0);
    lane::pin(None);
}
