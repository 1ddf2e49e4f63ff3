//! Which requests fail, with what, and for how long.

use narufs_engine::device::Cause;
use narufs_engine::sim::{Failure, Fault, SimMedia};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the two headers of a ring in the image lie: behind the superblocks.
const HEADERS: std::ops::Range<u64> = 2..4;

/// What a request that fails is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// File data on its way home for an fsync, a sync, a direct write.
    WriteBack,
    /// The same, or its spilling, because its frames are needed.
    Eviction,
    /// A commit, absorbed data with it.
    Journal,
    /// The header that moves the ring's head.
    Head,
    /// Images of metadata on their way to the double-write area.
    DoubleWrite,
    /// Metadata on its way home.
    Checkpoint,
    /// A flush, whatever for.
    Flush,
    /// File data that is read, asked for or ahead.
    Read,
    /// Metadata that is read.
    ReadMetadata,
    /// Any write.
    AnyWrite,
    /// Anything at all.
    Any,
}

impl Place {
    /// Every one.
    pub const ALL: [Place; 11] = [
        Place::WriteBack,
        Place::Eviction,
        Place::Journal,
        Place::Head,
        Place::DoubleWrite,
        Place::Checkpoint,
        Place::Flush,
        Place::Read,
        Place::ReadMetadata,
        Place::AnyWrite,
        Place::Any,
    ];

    fn is_of(self, fault: Fault) -> bool {
        match (self, fault) {
            (Place::Any, _) | (Place::AnyWrite, Fault::Write { .. }) => true,
            (Place::Flush, fault) => matches!(fault, Fault::Flush { .. }),
            (Place::Read, Fault::Read { cause, .. }) => matches!(cause, Cause::ReadMiss | Cause::ReadAhead),
            (Place::ReadMetadata, Fault::Read { cause, .. }) => cause == Cause::Metadata,
            (Place::WriteBack, Fault::Write { cause, .. }) => cause == Cause::DataWriteBack,
            (Place::Eviction, Fault::Write { cause, .. }) => cause == Cause::Eviction,
            (Place::Journal, Fault::Write { cause, block, .. }) => {
                cause == Cause::Journal && !HEADERS.contains(&block)
            }
            (Place::Head, Fault::Write { cause, block, .. }) => {
                cause == Cause::Journal && HEADERS.contains(&block)
            }
            (Place::DoubleWrite, Fault::Write { cause, .. }) => cause == Cause::DoubleWrite,
            (Place::Checkpoint, Fault::Write { cause, .. }) => cause == Cause::Checkpoint,
            _ => false,
        }
    }
}

/// How long it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasts {
    /// One request.
    Once,
    /// So many requests: more than are tried again.
    Some(u64),
    /// Until it is mended, or for good.
    Long,
}

impl Lasts {
    /// Each kind.
    pub const ALL: [Lasts; 3] = [Lasts::Once, Lasts::Some(7), Lasts::Long];

    fn requests(self) -> u64 {
        match self {
            Lasts::Once => 1,
            Lasts::Some(count) => count,
            Lasts::Long => u64::MAX,
        }
    }
}

/// What becomes of a request that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Nothing of it is done.
    Nothing,
    /// A first part of it is, or all of it.
    Part,
}

impl Extent {
    /// Blocks of the request that are done; another number for each of several.
    fn done(self, fault: Fault, nth: u64) -> u64 {
        match (self, fault) {
            (Extent::Part, Fault::Read { count, .. } | Fault::Write { count, .. }) => 1 + nth % count.max(1),
            _ => 0,
        }
    }
}

/// A fault.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub place: Place,
    pub errno: i32,
    pub lasts: Lasts,
    pub extent: Extent,
    /// Requests at the place that go well before.
    pub spared: u64,
}

/// A fault at work.
pub struct Armed {
    plan: Plan,
    met: Arc<AtomicU64>,
    flushes: Arc<AtomicU64>,
}

impl Armed {
    /// Makes what follows fail as planned.
    pub fn arm(sim: &SimMedia, plan: Plan) -> Armed {
        let armed = Armed { plan, met: Arc::default(), flushes: Arc::default() };
        armed.resume(sim);
        armed
    }

    /// Lets everything go well for the time being.
    pub fn pause(sim: &SimMedia) {
        sim.set_fault(None);
    }

    /// Goes on where it was.
    pub fn resume(&self, sim: &SimMedia) {
        let (plan, met, flushes) = (self.plan, Arc::clone(&self.met), Arc::clone(&self.flushes));
        let until = plan.spared.saturating_add(plan.lasts.requests());
        sim.set_failure(Some(Box::new(move |fault| {
            if !plan.place.is_of(fault) {
                return None;
            }
            // Relaxed: a count, by whoever has the media's lock.
            let nth = met.fetch_add(1, Ordering::Relaxed);
            let fails = (plan.spared..until).contains(&nth);
            flushes.fetch_add(u64::from(fails && matches!(fault, Fault::Flush { .. })), Ordering::Relaxed);
            fails.then(|| Failure { errno: plan.errno, done: plan.extent.done(fault, nth) })
        })));
    }

    /// Whether a flush has failed: then the device takes none that would have to cover what that was to cover.
    pub fn failed_a_flush(&self) -> bool {
        // Relaxed: as above.
        self.flushes.load(Ordering::Relaxed) > 0
    }

    /// How many requests it might have met.
    pub fn met(&self) -> u64 {
        // Relaxed: as above.
        self.met.load(Ordering::Relaxed)
    }

    /// How many requests have failed.
    pub fn failed(&self) -> u64 {
        // Relaxed: as above.
        self.met.load(Ordering::Relaxed).saturating_sub(self.plan.spared).min(self.plan.lasts.requests())
    }
}
