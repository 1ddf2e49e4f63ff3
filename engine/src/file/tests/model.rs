//! The model: metadata as maps in memory, and every record kept with the state it leads to.

mod home;

use super::lossy::LossyDevice;
use crate::Result;
use crate::device::BlockDevice;
use crate::file::{Change, DataInode, DataOptions, DataPath, FileData, Home, Mapping};
use crate::format::{DataKey, Nid, Position};
use crate::recovery::absorbed::{DataRedo, Resolve};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, Mutex};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// What records say of a file.
#[derive(Debug, Clone, Default)]
pub struct Meta {
    pub map: BTreeMap<u64, (u64, bool)>,
    pub size: u64,
}

struct Record {
    end: Position,
    nid: Nid,
    after: Meta,
    data: Vec<(DataKey, Vec<u8>)>,
    supersede: Vec<DataKey>,
}

#[derive(Default)]
struct Space {
    free: BTreeSet<u64>,
    /// Freed by records that are not yet committed.
    quarantine: Vec<(Position, u64)>,
    reserved: u64,
    volatile: BTreeSet<u64>,
}

/// Metadata of files, and the journal.
pub struct ModelHome {
    pub device: LossyDevice,
    pub absorbs: AtomicBool,
    metas: Mutex<BTreeMap<Nid, Meta>>,
    base: Mutex<BTreeMap<Nid, Meta>>,
    records: Mutex<Vec<Record>>,
    space: Mutex<Space>,
    tail: AtomicU64,
    committed: AtomicU64,
    head: AtomicU64,
    /// Run once, when a data record is logged, before its writer hears of it.
    pub when_absorbed: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Run once, when a write-back that has picked its pages asks for blocks.
    pub when_allocated: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether the ring has room for what may as well go home.
    pub ample: AtomicBool,
    /// Credits without waiting are at an end at every so many-th file; 0: never.
    pub scarce: AtomicU64,
    asked: AtomicU64,
    /// So many records are to find that their room has changed.
    pub rooms_changed: AtomicU64,
}

/// A file of the model.
pub struct ModelInode {
    nid: Nid,
    data: FileData,
    writers: AtomicU32,
    dirty_times: AtomicBool,
}

impl DataInode for ModelInode {
    fn nid(&self) -> Nid {
        self.nid
    }
    fn generation(&self) -> u32 {
        1
    }
    fn data(&self) -> &FileData {
        &self.data
    }
    fn made_data(&self) -> Option<&FileData> {
        Some(&self.data)
    }
    fn writers(&self) -> &AtomicU32 {
        &self.writers
    }
    fn touch(&self) {
        self.dirty_times.store(true, SeqCst);
    }
    fn attributes_dirty(&self) -> bool {
        self.dirty_times.load(SeqCst)
    }
}

impl ModelHome {
    pub fn new(blocks: u64, absorbs: bool) -> Arc<ModelHome> {
        Arc::new(ModelHome {
            device: LossyDevice::default(),
            absorbs: AtomicBool::new(absorbs),
            metas: Mutex::default(),
            base: Mutex::default(),
            records: Mutex::default(),
            space: Mutex::new(Space { free: (1..=blocks).collect(), ..Space::default() }),
            tail: AtomicU64::new(1),
            committed: AtomicU64::new(1),
            head: AtomicU64::new(1),
            when_absorbed: Mutex::default(),
            when_allocated: Mutex::default(),
            ample: AtomicBool::new(true),
            scarce: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            rooms_changed: AtomicU64::new(0),
        })
    }

    /// A file as the newest record describes it.
    pub fn open(&self, nid: Nid) -> Arc<ModelInode> {
        let size = self.metas.lock().entry(nid).or_default().size;
        Arc::new(ModelInode {
            nid,
            data: FileData::new(nid, size),
            writers: AtomicU32::new(0),
            dirty_times: AtomicBool::new(false),
        })
    }

    /// Blocks neither free, nor in quarantine, nor mapped: leaked.
    pub fn leaked(&self, total: u64) -> u64 {
        let space = self.space.lock();
        let mapped: usize = self.metas.lock().values().map(|meta| meta.map.len()).sum();
        total - (space.free.len() + space.quarantine.len() + mapped) as u64
    }

    pub fn reserved(&self) -> u64 {
        self.space.lock().reserved
    }

    /// A checkpoint round.
    pub fn checkpoint(&self, path: &DataPath<ModelHome>) {
        self.checkpoint_upto(path, self.tail.load(SeqCst));
    }

    /// A round that began when the tail was at `upto`.
    pub fn checkpoint_upto(&self, path: &DataPath<ModelHome>, upto: Position) {
        self.commit_upto(upto).expect("the model's journal does not fail");
        path.pre_checkpoint(upto).expect("no faults now");
        self.device.flush().expect("no faults now");
        let mut base = self.base.lock();
        let mut records = self.records.lock();
        for record in records.iter().filter(|record| record.end <= upto) {
            base.insert(record.nid, record.after.clone());
        }
        records.retain(|record| record.end > upto);
        self.head.store(upto, SeqCst);
    }

    /// Loses power; some prefix of the records beyond the last commit survives. Recovers.
    pub fn crash(&self, rng: &mut impl Rng) {
        self.device.crash(rng);
        let mut records = self.records.lock();
        let committed = self.committed.load(SeqCst);
        let sure = records.iter().filter(|record| record.end <= committed).count();
        let keep = rng.random_range(sure..=records.len());
        records.truncate(keep);
        let mut metas = self.base.lock().clone();
        let mut redo = DataRedo::new();
        for record in records.iter() {
            metas.insert(record.nid, record.after.clone());
            record.supersede.iter().for_each(|key| redo.supersede(key));
            for (key, bytes) in &record.data {
                redo.data(key, bytes).expect("a well-formed record");
            }
        }
        redo.finish(&self.device, &Recovered(&metas)).expect("no faults now");
        records.clear();
        *self.base.lock() = metas.clone();
        self.head.store(self.tail.load(SeqCst), SeqCst);
        self.committed.store(self.tail.load(SeqCst), SeqCst);
        let mut space = self.space.lock();
        let all: BTreeSet<u64> = space
            .free
            .iter()
            .copied()
            .chain(space.volatile.iter().copied())
            .chain(space.quarantine.iter().map(|(_, block)| *block))
            .chain(self.metas.lock().values().flat_map(|m| m.map.values().map(|(b, _)| *b)))
            .collect();
        let used: BTreeSet<u64> =
            metas.values().flat_map(|meta| meta.map.values().map(|(block, _)| *block)).collect();
        *space = Space { free: all.difference(&used).copied().collect(), ..Space::default() };
        *self.metas.lock() = metas;
    }

    /// The blocks that the change lets readers see.
    fn reachable_by(&self, nid: Nid, change: &Change) -> BTreeSet<u64> {
        let inserted = change.insert.iter().filter(|insert| !insert.unwritten);
        let inserted = inserted
            .flat_map(|insert| insert.blocks.start..insert.blocks.start + u64::from(insert.blocks.len));
        let metas = self.metas.lock();
        let map = metas.get(&nid).map(|meta| &meta.map);
        let marked = change.mark_written.iter().flat_map(Range::clone);
        let marked = marked.filter_map(|page| map?.get(&page).map(|(block, _)| *block));
        inserted.chain(marked).collect()
    }

    fn change(&self, nid: Nid, f: impl FnOnce(&mut Meta) -> Vec<u64>) -> Meta {
        let mut metas = self.metas.lock();
        let meta = metas.entry(nid).or_default();
        let freed = f(meta);
        let end = self.tail.fetch_add(1, SeqCst) + 1;
        self.space.lock().quarantine.extend(freed.into_iter().map(|block| (end, block)));
        meta.clone()
    }
}

struct Recovered<'a>(&'a BTreeMap<Nid, Meta>);

impl Resolve for Recovered<'_> {
    fn size(&self, nid: Nid, generation: u32) -> Result<Option<u64>> {
        assert_eq!(generation, 1);
        Ok(self.0.get(&nid).map(|meta| meta.size))
    }
    fn block(&self, nid: Nid, page: u64) -> Result<Option<u64>> {
        Ok(match lookup(&self.0[&nid], page) {
            Mapping::Mapped { block, unwritten: false, .. } => Some(block),
            Mapping::Mapped { .. } | Mapping::Hole { .. } => None,
        })
    }
}

fn lookup(meta: &Meta, page: u64) -> Mapping {
    match meta.map.get(&page) {
        Some((block, unwritten)) => {
            let len = (0..)
                .take_while(|i| meta.map.get(&(page + i)) == Some(&(block + i, *unwritten)))
                .count() as u64;
            Mapping::Mapped { block: *block, len, unwritten: *unwritten }
        }
        None => {
            let next = meta.map.range(page..).next().map_or(1 << 32, |(next, _)| *next);
            Mapping::Hole { len: next - page }
        }
    }
}

/// A data path of `frames` frames over `home`.
pub fn path(home: &Arc<ModelHome>, frames: usize) -> Arc<DataPath<ModelHome>> {
    let options = DataOptions {
        frames,
        staging: frames / 8,
        ahead: frames / 8,
        expire: Duration::from_secs(30),
        ..DataOptions::with_memory(0)
    };
    Arc::new(DataPath::new(Arc::clone(home), options).expect("a few frames"))
}

/// The whole content.
pub fn content(path: &DataPath<ModelHome>, inode: &Arc<ModelInode>) -> Vec<u8> {
    let mut bytes = vec![0xAA; inode.data().size() as usize + 10];
    let len = path.read(inode, 0, &mut bytes).expect("no faults now");
    bytes.truncate(len);
    bytes
}
