//! Running and committing transactions, as jbd2 has them: what operations do. What the one thread does that commits is in
//! [`super::committer`].
//!
//! # Protocol
//! 1. *Credits.* Before its locks an operation is promised room for all the blocks that it may change, in the running
//!    transaction, which has a quarter of the ring at the most, and in the ring. Where the transaction is full it has it
//!    committed and waits; where the ring is full it waits for a checkpoint, and so does everybody else.
//! 2. *Handle.* To log, it joins the running transaction under the state lock, unless that is locked up: then it waits
//!    until the next runs. It files each block that it changes in the transaction, under the lock of the block's head,
//!    and under the list lock if the block was not in it; then it changes the pages, and leaves.
//! 3. *Lock-up.* The committing thread locks the transaction up, waits until every handle has left, and lets the next run
//!    from the position on where this one will end. From here on nobody but that thread has the transaction.
//! 4. *Commit.* It copies the blocks, or what was frozen of them, to the ring, has file data flushed that was written
//!    before a handle mapped it (jbd2's `data=ordered`: once for all of the transaction), then writes the commit block.
//! 5. *Fsync.* It asks for the commit of the transaction that holds everything below its position, and sleeps until that
//!    is done. One that comes while the transaction commits already waits for that commit alone.
//! 6. *Head.* A checkpoint lets it pass whole transactions.
//!
//! # Positions
//! The first handle of a transaction has its first position, all others have none of their own: they begin and end
//! behind it, still within the transaction, which takes two slots at the least. So positions name places of the ring, as
//! the checkpoint, the quarantine of freed blocks and recovery want them.
//!
//! # Where jbd2 does less, or more
//! As it has become since Linux 4.1: the state lock is taken shared by handles and their number is an atomic; a block
//! that is in the transaction already costs no list lock. To the baseline's advantage: a handle is open while it logs,
//! and not from before the operation's locks and reads on, so a lock-up takes no longer than that; what the committing
//! thread has copied can be changed at once, where jbd2 waits for buffers that are on their way to the device; waiters
//! spin a little before they sleep; a checkpoint is asked for from a quarter of the ring on, for the kernel's flushers,
//! which write metadata home before the ring is full. Left out: the pause in which a commit waits for company (`h_sync`), which fsync of
//! ext4 does not ask for; asynchronous and fast commits, which are not its default; revoked blocks are kept out by the
//! engine's own record of them.

use std::collections::VecDeque;
use std::time::Instant;

use super::buffers::Table;
use super::committer;
use super::shared::{Running, Shared};
use super::touched::MountRecord;
use crate::device::BlockDevice;
use crate::format::{MAX_POSITION, Position, SLOT_PAYLOAD};
use crate::journal::header::HeaderWriter;
use crate::journal::ring::{BLOCK_SLOTS, Geometry};
use crate::journal::stream::Stream;
use crate::journal::{CreditClass, JournalStats, Look, Media, Options};
use crate::pmem::DurabilityLevel;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded, Counter, LaneCounter, Mutex, OnceLock, RwLock, WaitQueue, thread};
use crate::unwinding::Unwinding;
use crate::{Error, Result};

/// Least slots of a ring.
const LEAST_SLOTS: u64 = 2048;
/// A journal of transactions.
pub struct Transactions {
    pub(super) shared: Arc<Shared>,
    committer: Option<thread::JoinHandle<()>>,
}

/// A promise of room in a transaction. What is not used goes back on drop.
pub struct Promised<'j> {
    shared: &'j Shared,
    slots: u64,
}

/// An open handle.
pub(super) struct Handle<'j> {
    pub shared: &'j Shared,
    pub transaction: u64,
    pub first: Position,
    pub end: Position,
    pub unwinding: Unwinding,
}

impl Transactions {
    /// Begins an empty journal, see [`crate::journal::Journal::start`].
    pub fn start(
        as_units: bool,
        media: Media,
        options: Options,
        data: Arc<dyn BlockDevice>,
    ) -> Result<Transactions> {
        let (slots, start) = (options.slots, options.start);
        let (front, stream) = match media {
            Media::Mapped(front) => (front, None),
            Media::Ssd { staging, device, start: block } => {
                (staging, Some(Stream::new(device, block, start)))
            }
        };
        let is_possible = slots >= LEAST_SLOTS && slots.is_multiple_of(BLOCK_SLOTS);
        if !is_possible || start % BLOCK_SLOTS != 0 || start > MAX_POSITION {
            return Err(Error::Refused(format!(
                "a ring of {slots} slots is too small for a journal of transactions: make the image with \
                 {LEAST_SLOTS} slots (512 KiB) or more"
            )));
        }
        let header = HeaderWriter::begin(front.as_ref(), stream.as_ref(), &options)?;
        let Options { image_uuid, epoch, need_checkpoint, .. } = options;
        // A commit block is a block of its own, but where the medium takes less.
        let pad = if as_units && stream.is_none() { 1 } else { BLOCK_SLOTS };
        let shared = Arc::new(Shared {
            as_units,
            epoch,
            ring: Geometry::new(slots, &image_uuid, epoch, pad),
            front,
            stream,
            data,
            depends: AtomicU64::new(0),
            state: RwLock::new(Running { number: 1, start, locked: false }),
            updates: CachePadded::default(),
            handles: CachePadded::default(),
            bytes: AtomicU64::new(0),
            charged: AtomicU64::new(0),
            outstanding: CachePadded::default(),
            list: CachePadded::new(Mutex::new(Vec::new())),
            logical: Mutex::new(Vec::new()),
            table: Table::new(),
            tail: AtomicU64::new(start),
            committed: AtomicU64::new(start),
            head: AtomicU64::new(start),
            requested: AtomicU64::new(0),
            ends: Mutex::new(VecDeque::new()),
            header: Mutex::new(header),
            started: WaitQueue::new(),
            left: WaitQueue::new(),
            commits: WaitQueue::new(),
            room: WaitQueue::new(),
            wanted: WaitQueue::new(),
            over: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            why: OnceLock::new(),
            need_checkpoint,
            records: LaneCounter::default(),
            commits_made: Counter::new(),
            coalesced: Counter::new(),
            wait_ns: Counter::new(),
            lock_ns: Counter::new(),
        });
        let worker = Arc::clone(&shared);
        let committer = thread::Builder::new()
            .name("narufs-commit".into())
            .spawn(move || committer::run(&worker))
            .map_err(|e| Error::Device {
                context: "start the thread that commits",
                errno: e.raw_os_error().unwrap_or(libc::EAGAIN),
            })?;
        Ok(Transactions { shared, committer: Some(committer) })
    }

    pub(super) fn max_record_slots(&self) -> u32 {
        self.shared.max_record() as u32
    }

    pub(super) fn slots(&self) -> u64 {
        self.shared.ring.slots
    }

    pub(super) fn epoch(&self) -> u64 {
        self.shared.epoch
    }

    pub(super) fn tail(&self) -> Position {
        self.shared.tail()
    }

    pub(super) fn head(&self) -> Position {
        self.shared.head()
    }

    pub(super) fn committed(&self, _: DurabilityLevel) -> Position {
        self.shared.durable()
    }

    pub(super) fn fail(&self, why: String) {
        self.shared.fail(why);
    }

    pub(super) fn stop(&self, why: String) -> bool {
        self.shared.stop(why)
    }

    pub(super) fn failed(&self) -> Option<String> {
        self.shared.check().err().map(|_| self.shared.why.get().cloned().unwrap_or_default())
    }

    pub(super) fn has_room(&self, max_slots: u32, class: CreditClass) -> bool {
        let state = self.shared.state();
        let total = self.shared.outstanding.load(Ordering::Relaxed) + self.shared.need(max_slots);
        self.shared.fits(&state, total, class)
    }

    pub(super) fn credits(&self, max_slots: u32, class: CreditClass) -> Result<Promised<'_>> {
        let shared = &*self.shared;
        shared.check()?;
        self.check_size(max_slots)?;
        let need = shared.need(max_slots);
        if !shared.promise(need, class) {
            let since = Instant::now();
            shared.room.wait_until(|| {
                let done = shared.is_failed() || shared.promise(need, class);
                if !done {
                    shared.make_room(need, class);
                }
                done
            });
            shared.wait_ns.add(since.elapsed().as_nanos() as u64);
            shared.check()?;
        }
        Ok(Promised { shared, slots: need })
    }

    pub(super) fn credits_now(&self, max_slots: u32, look: Look) -> Result<Option<Promised<'_>>> {
        let shared = &*self.shared;
        shared.check()?;
        let need = shared.need(max_slots);
        if self.check_size(max_slots).is_err()
            || look == Look::Ample && !self.has_room(max_slots.saturating_mul(4), CreditClass::Ordinary)
            || !shared.promise(need, CreditClass::Ordinary)
        {
            shared.settle_full();
            return Ok(None);
        }
        Ok(Some(Promised { shared, slots: need }))
    }

    fn check_size(&self, max_slots: u32) -> Result<()> {
        let most = self.max_record_slots();
        if max_slots <= most {
            return Ok(());
        }
        let why = format!("a record of {max_slots} slots is more than a transaction allows ({most})");
        Err(Error::Refused(why))
    }

    pub(super) fn log(
        &self,
        mut credits: Promised<'_>,
        record: MountRecord<'_>,
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        let shared = &*self.shared;
        let (blocks, logical) = (record.blocks(), record.logical());
        let handle = shared.join()?;
        let (mut bytes, mut slots) = (logical.bytes.len(), logical.bytes.len().div_ceil(SLOT_PAYLOAD));
        for touch in &blocks {
            let (head, added) = shared.table.add(handle.transaction, touch, shared.as_units);
            bytes += added.bytes;
            slots += added.bytes.div_ceil(SLOT_PAYLOAD);
            if added.is_new {
                shared.list().push(head);
            }
        }
        let mut spared = 0;
        for block in &logical.forgotten {
            spared += shared.table.forget(handle.transaction, *block, shared.as_units);
        }
        if !logical.bytes.is_empty() {
            shared.logical.lock().extend_from_slice(&logical.bytes);
        }
        // Relaxed: the committing thread reads them once all handles have left, which orders it.
        shared.bytes.fetch_add((bytes as u64).wrapping_sub(spared as u64), Ordering::Relaxed);
        shared.charged.fetch_add(slots as u64, Ordering::Relaxed);
        credits.charge(slots as u64);
        apply(handle.first, handle.end);
        shared.records.add(1);
        Ok(handle.end)
    }

    /// The transaction that runs, or the next, counts only with so many of the device's completed writes flushed.
    pub(super) fn depend(&self, writes: u64) {
        // Relaxed: whoever calls it joins a transaction after it, whose state lock orders it before the commit.
        self.shared.depends.fetch_max(writes, Ordering::Relaxed);
    }

    pub(super) fn commit_upto(&self, upto: Position) -> Result<()> {
        let shared = &*self.shared;
        shared.check()?;
        let upto = upto.min(shared.tail());
        if shared.durable() < upto {
            let since = Instant::now();
            // One that is below the running transaction is in the committing one, which nobody need ask for.
            let running = Some(shared.state()).filter(|state| upto > state.start).map(|s| s.number);
            match running {
                Some(number) if shared.request(number) => {}
                _ => shared.coalesced.add(1),
            }
            shared.commits.wait_until(|| shared.durable() >= upto || shared.is_failed());
            shared.wait_ns.add(since.elapsed().as_nanos() as u64);
            if shared.durable() < upto {
                return shared.check();
            }
            return Ok(());
        }
        shared.coalesced.add(1);
        Ok(())
    }

    pub(super) fn commit_beyond(&self, from: Position) -> Position {
        let durable = self.shared.durable();
        let ends = self.shared.ends.lock();
        ends.iter().find(|end| (from + 1..=durable).contains(end)).copied().unwrap_or(durable)
    }

    pub(super) fn advance_head(&self, to: Position, round: u64) -> Result<()> {
        let shared = &*self.shared;
        shared.check()?;
        let mut header = shared.header.lock();
        let old = shared.head();
        if to < old || to > shared.durable() {
            return Err(Error::Refused(format!("the head cannot move from {old} to {to}: not committed")));
        }
        header.advance(to, round);
        if let Err(e) = header.write(shared.front.as_ref(), shared.stream.as_ref()) {
            shared.fail(format!("the journal's header could not be written: {e}"));
            return Err(e);
        }
        shared.ends.lock().retain(|end| *end > to);
        // Release: what has read the slots below is done, for who finds them free.
        shared.head.store(to, Ordering::Release);
        shared.room.wake_all();
        Ok(())
    }

    pub(super) fn stats(&self) -> JournalStats {
        let shared = &*self.shared;
        let (write_backs, fences) = shared.front.counts();
        let (tail, durable) = (shared.tail(), shared.durable());
        JournalStats {
            ring_slots: shared.ring.slots,
            tail,
            head: shared.head(),
            committed_process: durable,
            committed_power: durable,
            laps: tail / shared.ring.slots,
            records: shared.records.get(),
            commits: shared.commits_made.get(),
            coalesced: shared.coalesced.get(),
            bytes_streamed: shared.stream.as_ref().map_or(0, |stream| stream.bytes.get()),
            wait_ns: shared.wait_ns.get(),
            lock_ns: shared.lock_ns.get(),
            write_backs,
            fences,
            ..JournalStats::default()
        }
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        // Relaxed: the queue orders it.
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.wanted.wake_all();
        if let Some(committer) = self.committer.take() {
            // A panic in it was reported where it happened.
            let _ = committer.join();
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.unwinding.has_begun() {
            self.shared.fail(format!("the operation at {} broke off", self.first));
        }
        // Release: pairs with the Acquire of the committing thread: it sees all that the handle has done.
        if self.shared.updates.fetch_sub(1, Ordering::Release) == 1 {
            self.shared.left.wake_all();
        }
    }
}

impl Promised<'_> {
    /// So many slots are the transaction's now.
    fn charge(&mut self, slots: u64) {
        // Relaxed: as in `promise`.
        self.shared.outstanding.fetch_add(slots, Ordering::Relaxed);
    }
}

impl Drop for Promised<'_> {
    fn drop(&mut self) {
        self.shared.outstanding.fetch_sub(self.slots, Ordering::Relaxed);
        self.shared.room.wake_all();
    }
}
