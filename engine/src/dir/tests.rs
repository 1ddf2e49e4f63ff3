//! A directory against a map, and readdir while it changes.

use super::grow::splits_at_once;
use super::*;
use crate::device::MemoryDevice;
use crate::format::Superblock;
use crate::inode::fresh_image;
use crate::store::{Log, StoreOptions};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use zerocopy::FromZeros;

/// Blocks one after the other, mapped in memory.
pub(super) struct Blocks {
    next: AtomicU64,
    map: Mutex<HashMap<u32, u64>>,
    most: u64,
}

impl DirBlocks for Blocks {
    fn block_of(&self, _: Option<&Handle>, _: &Inode, bucket: u32) -> Result<u64> {
        Ok(self.map.lock()[&bucket])
    }
    fn add_bucket(&self, h: &mut Handle, image: &mut Inode, bucket: u32) -> Result<u64> {
        let block = self.add_overflow(h, image, 0)?;
        self.map.lock().insert(bucket, block);
        Ok(block)
    }
    fn add_overflow(&self, _: &mut Handle, image: &mut Inode, _: u64) -> Result<u64> {
        let block = self.next.fetch_add(1, Ordering::Relaxed);
        if block > self.most {
            return Err(Error::Errno(libc::ENOSPC));
        }
        image.blocks += 1;
        Ok(block)
    }
    fn drop_buckets(&self, _: &mut Handle, image: &mut Inode, first: u32) -> Result<()> {
        let mut map = self.map.lock();
        let before = map.len();
        map.retain(|bucket, _| *bucket < first);
        assert!(before - map.len() <= GROUP as usize);
        image.blocks -= (before - map.len()) as u64;
        Ok(())
    }
    fn free_overflow(&self, _: &mut Handle, image: &mut Inode, _: u64) -> Result<()> {
        image.blocks -= 1;
        Ok(())
    }
}

pub(super) struct Fixture {
    pub(super) store: Store,
    blocks: Blocks,
    hash: NameHash,
    pub(super) image: Inode,
}

impl Fixture {
    pub(super) fn new() -> Fixture {
        const BLOCKS: u64 = 20_000;
        let mut superblock = Superblock::new_zeroed();
        superblock.blocks.set(BLOCKS);
        Fixture {
            store: Store::new(
                Arc::new(MemoryDevice::new(BLOCKS)),
                superblock,
                Log::default(),
                &StoreOptions::default(),
            ),
            blocks: Blocks { next: AtomicU64::new(10), map: Mutex::default(), most: BLOCKS - 1 },
            hash: NameHash::new(&[7; 16]),
            image: fresh_image(5, 2, libc::S_IFDIR | 0o755, 0, 0, 0),
        }
    }

    pub(super) fn dir(&self) -> Dir<'_, Blocks> {
        Dir { store: &self.store, blocks: &self.blocks, hash: &self.hash, nid: 5, generation: 2 }
    }

    pub(super) fn insert(&mut self, name: &[u8], nid: Nid, split: bool) {
        loop {
            let mut h = self.store.begin(ENTRY_SLOTS).expect("writable");
            if self.dir().insert(&mut h, &self.image, name, nid, FileType::Regular).expect("sound")
                == Insertion::Done
            {
                assert!(h.slots_needed() <= ENTRY_SLOTS, "{} slots", h.slots_needed());
                h.commit().expect("commits");
                return;
            }
            drop(h);
            assert!(self.grow(name, if split { MAX_CHAIN as u32 } else { 0 }));
        }
    }

    /// Gives a name room with a record of its own; whether there was none.
    pub(super) fn grow(&mut self, name: &[u8], longest: u32) -> bool {
        let victim = self.dir().next_to_split(&self.image);
        let chain = victim.map_or(0, |b| self.dir().chain(None, &self.image, b).expect("sound").len() as u32);
        let usual = USUAL_CHAINS.max(2 * splits_at_once(self.image.buckets.get()));
        let blocks = if chain <= longest { chain.max(usual).min(longest) } else { 0 };
        let slots = if blocks > 0 { split_slots(blocks) } else { OVERFLOW_SLOTS };
        let mut h = self.store.begin(slots).expect("writable");
        let mut image = self.image;
        let most = Splits { count: MAX_CHAIN as u32, blocks, longest: MAX_CHAIN as u32 };
        let grown = self.dir().grow(&mut h, &mut image, name, most).expect("grows");
        assert!(h.slots_needed() <= slots, "{} slots of {slots}", h.slots_needed());
        h.commit().expect("commits");
        self.image = image;
        grown
    }

    pub(super) fn chains(&self) -> Vec<usize> {
        let length = |bucket| self.dir().chain(None, &self.image, bucket).expect("sound").len();
        (0..self.image.buckets.get()).map(length).collect()
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Nid> {
        let mut h = self.store.begin(ENTRY_SLOTS).expect("writable");
        let found = self.dir().locate(Some(&h), &self.image, name).expect("sound")?;
        let left = self.dir().take(&mut h, &found).expect("sound");
        h.commit().expect("commits");
        let buckets = self.image.buckets.get();
        let _ = (0..left.groups(buckets)).take_while(|_| self.shrink()).count();
        Some(found.hit().nid)
    }

    /// Joins buckets with a record of its own; whether there was something to join.
    fn shrink(&mut self) -> bool {
        let guess = self.dir().is_sparse(&self.image);
        let mut h = self.store.begin(SHRINK_SLOTS).expect("writable");
        let mut image = self.image;
        let joined = self.dir().shrink(&mut h, &mut image).expect("sound");
        assert_eq!(joined, guess, "nobody has come between");
        assert!(h.slots_needed() <= SHRINK_SLOTS, "{} slots", h.slots_needed());
        h.commit().expect("commits");
        self.image = image;
        joined
    }

    /// The names in the order of reading.
    pub(super) fn in_order(&self) -> Vec<Vec<u8>> {
        let (mut names, mut cookie) = (Vec::new(), Some(0));
        while let Some(from) = cookie {
            let page = self.dir().read(&self.image, from).expect("sound");
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            cookie = page.next;
        }
        names
    }

    /// Number of buckets, size and blocks agree with what there is.
    pub(super) fn verify(&self) {
        let chains = self.chains();
        assert_eq!(self.blocks.map.lock().len(), chains.len());
        assert_eq!(self.image.size.get(), chains.len() as u64 * crate::device::BLOCK_SIZE as u64);
        assert_eq!(self.image.blocks.get(), chains.iter().sum::<usize>() as u64);
    }

    pub(super) fn all(&self) -> BTreeMap<Vec<u8>, Nid> {
        let mut all = BTreeMap::new();
        let mut cookie = 0;
        loop {
            let page = self.dir().read(&self.image, cookie).expect("sound");
            assert!(page.entries.is_sorted_by_key(|e| e.cookie));
            for e in page.entries {
                assert!(all.insert(e.name, e.nid).is_none());
            }
            match page.next {
                Some(next) => {
                    assert!(next > cookie);
                    cookie = next;
                }
                None => return all,
            }
        }
    }
}

pub(super) fn name(n: u32, len: usize) -> Vec<u8> {
    format!("{n}-").into_bytes().into_iter().chain(std::iter::repeat(b'x')).take(len.max(6)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_directory_is_a_map(
        ops in proptest::collection::vec((0u8..4, 0u32..700), 1..1500),
        split in any::<bool>(),
        len in prop_oneof![Just(6usize), Just(40), Just(255)],
    ) {
        let mut fixture = Fixture::new();
        let mut model = BTreeMap::new();
        for (i, (op, n)) in ops.into_iter().enumerate() {
            let (name, nid) = (name(n, len), i as u64 + 1);
            let hit = fixture.dir().lookup(None, &fixture.image, &name).unwrap();
            prop_assert_eq!(hit.map(|hit| hit.nid), model.get(&name).copied());
            match (op, hit) {
                (0..=1, None) => {
                    fixture.insert(&name, nid, split);
                    model.insert(name, nid);
                }
                (2, _) => {
                    prop_assert_eq!(fixture.remove(&name), model.remove(&name));
                }
                (_, Some(old)) => {
                    let mut h = fixture.store.begin(ENTRY_SLOTS).unwrap();
                    let was = fixture.dir().replace(&mut h, &fixture.image, &name, nid, FileType::Fifo).unwrap();
                    h.commit().unwrap();
                    prop_assert_eq!(was, Some(old));
                    let now = fixture.dir().lookup(None, &fixture.image, &name).unwrap().unwrap();
                    prop_assert_eq!((now.nid, now.cookie), (nid, old.cookie));
                    model.insert(name, nid);
                }
                _ => {}
            }
        }
        fixture.verify();
        prop_assert_eq!(fixture.all(), model.clone());
        prop_assert_eq!(fixture.dir().is_empty(None, &fixture.image).unwrap(), model.is_empty());
    }

    #[test]
    fn reading_meets_each_entry_that_stays_once(
        stay in proptest::collection::btree_set(0u32..600, 0..200),
        churn in proptest::collection::vec((any::<bool>(), 600u32..2000), 0..1500),
    ) {
        let mut fixture = Fixture::new();
        for n in &stay {
            fixture.insert(&name(*n, 60), u64::from(*n) + 1, true);
        }
        let mut there = BTreeSet::new();
        let mut seen = BTreeMap::new();
        let mut churn = churn.into_iter();
        let mut cookie = 0;
        loop {
            let page = fixture.dir().read(&fixture.image, cookie).unwrap();
            for e in page.entries {
                prop_assert!(e.cookie > cookie);
                *seen.entry(e.name).or_insert(0) += 1;
            }
            for (add, n) in churn.by_ref().take(40) {
                if add && there.insert(n) {
                    fixture.insert(&name(n, 60), 9, true);
                } else if !add && there.remove(&n) {
                    prop_assert!(fixture.remove(&name(n, 60)).is_some());
                }
            }
            match page.next {
                Some(next) => cookie = next,
                None => break,
            }
        }
        for n in stay {
            prop_assert_eq!(seen.get(&name(n, 60)), Some(&1));
        }
    }
}

/// Blocks that a look-up reads on average, and how full they are, for each thousand names that are made.
#[test]
fn splits_keep_chains_short() {
    const NAMES: u32 = 200_000;
    let mut fixture = Fixture::new();
    let (mut most, mut sum, mut rounds) = (0.0f64, 0.0, 0.0);
    for n in 0..NAMES {
        fixture.insert(&name(n, 20), 1, true);
        if n % 1000 != 0 || n < 10_000 {
            continue;
        }
        let chains = fixture.chains();
        assert!(chains.iter().all(|len| *len <= 3), "longest chain {:?}", chains.iter().max());
        let blocks: usize = chains.iter().sum();
        assert_eq!(blocks as u64, fixture.image.blocks.get());
        assert!(blocks * 45 < n as usize / 84 * 100 + 100, "{blocks} blocks for {n} names");
        let buckets = fixture.image.buckets.get();
        let width = |bucket| {
            let hashes = hash::hashes_of(bucket, buckets);
            (hashes.end() - hashes.start() + 1) as f64 / (1u64 << hash::HASH_BITS) as f64
        };
        let read: f64 = chains.iter().zip(0..).map(|(len, bucket)| *len as f64 * width(bucket)).sum();
        most = most.max(read);
        (sum, rounds) = (sum + read, rounds + 1.0);
    }
    println!("{most:.2} blocks a look-up at the most, {:.3} on average", sum / rounds);
    assert!(most < 1.4 && sum / rounds < 1.12, "{most} blocks at the most, {} on average", sum / rounds);
}

#[test]
fn blocks_of_others_are_refused() {
    let mut fixture = Fixture::new();
    fixture.insert(b"a", 1, true);
    let foreign = Dir { generation: 3, ..fixture.dir() };
    assert!(matches!(foreign.lookup(None, &fixture.image, b"a"), Err(Error::Corrupt { .. })));
}

#[test]
fn an_endless_chain_is_damage() {
    let mut fixture = Fixture::new();
    fixture.insert(b"a", 1, true);
    let page = fixture.dir().chain(None, &fixture.image, 0).expect("sound").remove(0);
    let mut h = fixture.store.begin(4).expect("writable");
    h.edit(&page, BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 8).copy_from_slice(&page.block().to_le_bytes());
    h.commit().expect("commits");
    assert!(matches!(fixture.dir().lookup(None, &fixture.image, b"b"), Err(Error::Corrupt { .. })));
}

#[test]
fn impossible_names_are_refused() {
    for (name, errno) in
        [(&b""[..], libc::EINVAL), (b"a/b", libc::EINVAL), (&[b'x'; 256], libc::ENAMETOOLONG)]
    {
        assert_eq!(check_name(name).map_err(|e| e.errno()), Err(errno));
    }
    assert!(check_name(&[0xff; 255]).is_ok());
}
