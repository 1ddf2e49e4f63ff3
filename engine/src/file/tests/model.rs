//! The model: metadata as maps in memory, every record kept with the state it leads to, and a device whose
//! unflushed writes a crash applies in part.

use crate::device::{BLOCK_SIZE, BlockDevice, CauseCount, Completion, IoBuf, Op, Request, Ticket};
use crate::file::{
    Blocks, Change, DataInode, DataOptions, DataPath, DataRedo, FileData, Home, Logged, Mapping, Need,
    ROOM_CHANGED, Resolve,
};
use crate::format::{DataKey, Nid, Position};
use crate::store::Profile;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, Mutex};
use crate::{Error, Result};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

type Image = BTreeMap<u64, Vec<u8>>;

/// A device that remembers what a flush has covered.
#[derive(Default)]
pub struct LossyDevice {
    now: Mutex<Image>,
    durable: Mutex<Image>,
    pending: Mutex<Vec<(u64, Vec<u8>)>>,
    done: Mutex<BTreeMap<u64, Vec<Completion>>>,
    tickets: AtomicU64,
    completed: AtomicU64,
    flushed: AtomicU64,
    pub fail_reads: AtomicBool,
    pub fail_writes: AtomicU64,
    pub fail_flushes: AtomicBool,
    pub reads: AtomicU64,
    /// Most requests that were submitted and not yet waited for.
    pub most_in_flight: AtomicU64,
    /// Run once, in the midst of a read.
    pub when_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

fn eio() -> Error {
    Error::Device { context: "test", errno: libc::EIO }
}

impl LossyDevice {
    fn run_one(&self, request: &mut Request) -> Result<()> {
        let blocks = request.block..;
        match request.op {
            Op::Read => {
                self.reads.fetch_add(1, SeqCst);
                let hook = self.when_read.lock().take();
                if let Some(hook) = hook {
                    hook();
                }
                if self.fail_reads.load(SeqCst) {
                    return Err(eio());
                }
                let now = self.now.lock();
                for (block, into) in blocks.zip(request.buf.chunks_exact_mut(BLOCK_SIZE)) {
                    // Blocks that nobody wrote hold what must never be seen.
                    match now.get(&block) {
                        Some(bytes) => into.copy_from_slice(bytes),
                        None => into.fill(0xEE),
                    }
                }
            }
            Op::Write => {
                let failing = self.fail_writes.load(SeqCst);
                if failing > 0 {
                    self.fail_writes.store(failing - 1, SeqCst);
                    return Err(eio());
                }
                for (block, from) in blocks.zip(request.buf.chunks_exact(BLOCK_SIZE)) {
                    self.now.lock().insert(block, from.to_vec());
                    self.pending.lock().push((block, from.to_vec()));
                }
                self.completed.fetch_add(1, SeqCst);
            }
            Op::Discard { .. } => {}
        }
        Ok(())
    }

    /// Whether a flush has covered each write of these blocks; others may be written meanwhile.
    fn all_down(&self, blocks: &BTreeSet<u64>) -> bool {
        self.pending.lock().iter().all(|(block, _)| !blocks.contains(block))
    }

    /// Pages of memory that batches hold which were not waited for.
    pub fn held(&self) -> usize {
        let all = self.done.lock();
        all.values().flatten().map(|done| IoBuf::held(done.buf.len()).div_ceil(BLOCK_SIZE)).sum()
    }

    /// Loses power: of what was not flushed, any sectors may have arrived.
    pub fn crash(&self, rng: &mut impl Rng) {
        let mut durable = self.durable.lock();
        for (block, bytes) in self.pending.lock().drain(..) {
            let home = durable.entry(block).or_insert_with(|| vec![0xEE; BLOCK_SIZE]);
            for (into, from) in home.chunks_exact_mut(512).zip(bytes.chunks_exact(512)) {
                if rng.random_bool(0.5) {
                    into.copy_from_slice(from);
                }
            }
        }
        *self.now.lock() = durable.clone();
        self.flushed.store(self.completed.load(SeqCst), SeqCst);
    }
}

impl BlockDevice for LossyDevice {
    fn blocks(&self) -> u64 {
        1 << 20
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let ticket = self.tickets.fetch_add(1, SeqCst);
        let done = batch
            .into_iter()
            .map(|mut request| {
                let result = self.run_one(&mut request);
                Completion { buf: request.buf, result }
            })
            .collect();
        let mut all = self.done.lock();
        all.insert(ticket, done);
        self.most_in_flight.fetch_max(all.values().map(|done| done.len() as u64).sum(), SeqCst);
        Ticket(ticket)
    }
    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        self.done.lock().remove(&ticket.0).expect("waited for once")
    }
    fn writes_completed(&self) -> u64 {
        self.completed.load(SeqCst)
    }
    fn flush_upto(&self, upto: u64) -> Result<()> {
        if self.flushed.load(SeqCst) >= upto {
            return Ok(());
        }
        if self.fail_flushes.load(SeqCst) {
            return Err(eio());
        }
        let completed = self.completed.load(SeqCst);
        let mut durable = self.durable.lock();
        for (block, bytes) in self.pending.lock().drain(..) {
            durable.insert(block, bytes);
        }
        self.flushed.fetch_max(completed, SeqCst);
        Ok(())
    }
    fn writes_flushed(&self) -> u64 {
        self.flushed.load(SeqCst)
    }
    fn flushes(&self) -> u64 {
        0
    }
    fn counters(&self) -> Vec<CauseCount> {
        Vec::new()
    }
}

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
    fn map(&self, nid: Nid, page: u64) -> Result<Mapping> {
        Ok(lookup(&self.0[&nid], page))
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

impl Home for ModelHome {
    fn profile(&self) -> Profile {
        Profile::Durable
    }

    type Inode = ModelInode;
    type Credits<'a> = bool;

    fn device(&self) -> &dyn BlockDevice {
        &self.device
    }
    fn map(&self, inode: &ModelInode, page: u64) -> Result<Mapping> {
        Ok(lookup(&self.metas.lock()[&inode.nid], page))
    }
    fn reserve(&self, blocks: u64) -> Result<()> {
        let mut space = self.space.lock();
        if space.reserved + blocks > space.free.len() as u64 {
            return Err(Error::Errno(libc::ENOSPC));
        }
        space.reserved += blocks;
        Ok(())
    }
    fn unreserve(&self, blocks: u64) {
        let mut space = self.space.lock();
        space.reserved = space.reserved.checked_sub(blocks).expect("no more than was set aside");
    }
    fn allocate(&self, want: u32, _ahead: u32, goal: Option<u64>) -> Result<Blocks> {
        let hook = self.when_allocated.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        let mut space = self.space.lock();
        let start = goal
            .filter(|goal| space.free.contains(goal))
            .or_else(|| space.free.first().copied())
            .ok_or(Error::Errno(libc::ENOSPC))?;
        let mut len = 0;
        while len < want && space.free.remove(&(start + u64::from(len))) {
            space.volatile.insert(start + u64::from(len));
            len += 1;
        }
        space.reserved = space.reserved.saturating_sub(u64::from(len));
        Ok(Blocks { start, len })
    }
    fn release(&self, blocks: Blocks) {
        let mut space = self.space.lock();
        for block in blocks.start..blocks.start + u64::from(blocks.len) {
            assert!(space.volatile.remove(&block), "released what was not allocated");
            space.free.insert(block);
            space.reserved += 1;
        }
    }
    fn allocate_spare(&self, want: u32) -> Result<Blocks> {
        let mut space = self.space.lock();
        if space.free.len() as u64 <= space.reserved {
            return Err(Error::Errno(libc::ENOSPC));
        }
        let reserved = std::mem::take(&mut space.reserved);
        drop(space);
        let blocks = self.allocate(want, 0, None);
        self.space.lock().reserved += reserved;
        blocks
    }
    fn release_spare(&self, blocks: Blocks) {
        self.release(blocks);
        self.unreserve(u64::from(blocks.len));
    }
    fn fitting(&self, _: &ModelInode, need: Need) -> usize {
        need.runs
    }
    fn credits(&self, _: &ModelInode, need: Need) -> Result<bool> {
        Ok(need.again)
    }
    fn try_credits(&self, _: &ModelInode, need: Need) -> Result<Option<bool>> {
        let (scarce, asked) = (self.scarce.load(SeqCst), self.asked.fetch_add(1, SeqCst));
        let there_are = scarce == 0 || asked % scarce != scarce - 1;
        Ok(there_are.then_some(need.again))
    }
    fn finish_removal(&self, _: &ModelInode, _: Range<u64>) -> Result<()> {
        unreachable!("a record of the model leaves nothing")
    }
    fn log(&self, again: bool, inode: &ModelInode, change: Change) -> Result<Logged> {
        let takes_one = |left: u64| left.checked_sub(1);
        if again && self.rooms_changed.fetch_update(SeqCst, SeqCst, takes_one).is_ok() {
            return Err(ROOM_CHANGED);
        }
        if change.data.is_empty() {
            let down = self.device.all_down(&self.reachable_by(inode.nid, &change));
            assert!(down, "reachable before it is down");
        }
        let after = self.change(inode.nid, |meta| {
            let mut freed = Vec::new();
            if let Some(range) = &change.remove {
                let pages: Vec<u64> = meta.map.range(range.clone()).map(|(page, _)| *page).collect();
                freed.extend(pages.iter().filter_map(|page| meta.map.remove(page)).map(|(b, _)| b));
            }
            let mut space = self.space.lock();
            for insert in &change.insert {
                for i in 0..u64::from(insert.blocks.len) {
                    assert!(space.volatile.remove(&(insert.blocks.start + i)), "mapped without a block");
                    let old = meta.map.insert(insert.page + i, (insert.blocks.start + i, insert.unwritten));
                    assert!(old.is_none(), "mapped twice");
                }
            }
            for page in change.mark_written.iter().flat_map(Range::clone) {
                let entry = meta.map.get_mut(&page).expect("an unwritten page");
                assert!(std::mem::replace(&mut entry.1, false), "written already");
            }
            meta.size = change.size.unwrap_or(meta.size);
            freed
        });
        inode.dirty_times.store(false, SeqCst);
        let end = self.tail.load(SeqCst);
        let (nid, data, supersede) = (inode.nid, change.data, change.supersede);
        let absorbed = !data.is_empty();
        self.records.lock().push(Record { end, nid, after, data, supersede });
        let hook = self.when_absorbed.lock().take().filter(|_| absorbed);
        if let Some(hook) = hook {
            hook();
        }
        Ok(Logged { end, left: None })
    }
    fn collapse(&self, inode: &ModelInode, range: Range<u64>, size: u64) -> Result<()> {
        let by = range.end - range.start;
        let after = self.change(inode.nid, |meta| {
            let old = std::mem::take(&mut meta.map);
            let mut freed = Vec::new();
            for (page, place) in old {
                if range.contains(&page) {
                    freed.push(place.0);
                } else {
                    meta.map.insert(if page < range.start { page } else { page - by }, place);
                }
            }
            meta.size = size;
            freed
        });
        let end = self.tail.load(SeqCst);
        let (data, supersede) = (Vec::new(), Vec::new());
        self.records.lock().push(Record { end, nid: inode.nid, after, data, supersede });
        Ok(())
    }
    fn insert_hole(&self, inode: &ModelInode, at: u64, by: u64, size: u64) -> Result<()> {
        let after = self.change(inode.nid, |meta| {
            let old = std::mem::take(&mut meta.map);
            meta.map = old.into_iter().map(|(p, b)| (if p < at { p } else { p + by }, b)).collect();
            meta.size = size;
            Vec::new()
        });
        let end = self.tail.load(SeqCst);
        let (data, supersede) = (Vec::new(), Vec::new());
        self.records.lock().push(Record { end, nid: inode.nid, after, data, supersede });
        Ok(())
    }
    fn tail(&self) -> Position {
        self.tail.load(SeqCst)
    }
    fn settle_upto(&self, upto: Position) -> Result<()> {
        self.commit_upto(upto)
    }
    fn commit_upto(&self, upto: Position) -> Result<()> {
        self.committed.fetch_max(upto, SeqCst);
        let committed = self.committed.load(SeqCst);
        let mut space = self.space.lock();
        let (free, kept) = space.quarantine.drain(..).partition::<Vec<_>, _>(|(end, _)| *end <= committed);
        space.quarantine = kept;
        space.free.extend(free.into_iter().map(|(_, block)| block));
        Ok(())
    }
    fn commit_power(&self, upto: Position) -> Result<()> {
        self.commit_upto(upto)
    }
    fn may_lag(&self) -> bool {
        false
    }
    fn order_after(&self, writes: u64) -> Result<()> {
        self.device.flush_upto(writes)
    }
    fn keep_promises(&self) -> Result<()> {
        Ok(())
    }
    fn head(&self) -> Position {
        self.head.load(SeqCst)
    }
    fn absorbs(&self) -> bool {
        self.absorbs.load(SeqCst)
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
