//! Mounting, unmounting, and crashes of raw store operations on simulated media, in tiny geometry.
//!
//! The workload writes one counter into two or three pages an operation, so that atomicity and order show in
//! the bytes; the oracle knows the pages after each operation. What is recovered must be the state after some
//! prefix that contains every operation promised by then.

mod area;
mod crash;
mod damage;
mod features;
mod files;
mod lost;
mod newer;
mod refused;
mod told;

use super::*;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, JournalKind};
use crate::journal::{Durability, Position, ring_bytes};
use crate::mkfs::{FormatOptions, format_cramped};
use crate::pmem::DurabilityLevel;
use crate::sim::{Crash, PmemSpec, SimMedia};
use crate::store::PageRef;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crash::{recovered, work};

const BLOCKS: u64 = 64;
const PAGES: u64 = 6;
const FIRST: u64 = 40;
/// A block that is now a page, now file data.
const SHARED: u64 = 50;

/// A ring to test with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mapped,
    Ssd,
}

impl Kind {
    /// Few enough for laps within a workload; commits of an SSD ring are padded to 16.
    fn slots(self) -> u64 {
        if self == Kind::Mapped { 64 } else { 192 }
    }

    fn spec(self) -> PmemSpec {
        let len = ring_bytes(self.slots()).expect("small");
        let durability = if self == Kind::Mapped { DurabilityLevel::Power } else { DurabilityLevel::Process };
        PmemSpec { len, durability }
    }

    fn journal(self) -> JournalKind {
        if self == Kind::Mapped { JournalKind::Pmem } else { JournalKind::Ssd }
    }

    /// The media as a new process finds them.
    fn media(self, sim: &SimMedia) -> Media {
        let memory = sim.pmem(sim.pmems() - 1).unwrap_or_else(|| {
            let number = sim.add_pmem(self.spec());
            sim.pmem(number).expect("just added")
        });
        let ring = match self {
            Kind::Mapped => RingMedia::Mapped(memory),
            Kind::Ssd => RingMedia::Ssd(memory),
        };
        Media { device: sim.device(), ring, staging_file: None, owner: None }
    }

    fn make(self) -> SimMedia {
        let sim = SimMedia::new(BLOCKS, &[self.spec()]);
        let options = FormatOptions {
            journal_slots: Some(self.slots()),
            double_write_blocks: Some(3),
            journal: self.journal(),
            uuid: Some([7; 16]),
            ring_uuid: Some([8; 16]),
            ..FormatOptions::default()
        };
        format_cramped(sim.device().as_ref(), &options).expect("large enough");
        sim
    }
}

fn options() -> ImageOptions {
    ImageOptions { background: false, lanes: 1, ..ImageOptions::default() }
}

/// The counters of the pages, and the number in the shared block's page while there is one.
type State = Vec<[u64; 4]>;

fn bucket(store: &Store, n: u64) -> Result<PageRef> {
    store.get(FIRST + n, BlockKind::Bucket)
}

/// Operation `n`: makes the pages, or writes `n` into two or three of them.
fn operate(store: &Store, n: u64) -> Result<()> {
    let mut h = store.begin(if n == 0 { 8 } else { 2 })?;
    if n == 0 {
        for page in 0..PAGES {
            h.init(FIRST + page, BlockKind::Bucket, 1, 1)?;
        }
    }
    for (page, place) in writes(n) {
        let page = h.get(FIRST + page, BlockKind::Bucket)?;
        let at = BLOCK_HEADER_SIZE + place * 1000;
        h.edit(&page, at..at + 8).copy_from_slice(&n.to_le_bytes());
    }
    h.commit().map(drop)
}

fn writes(n: u64) -> Vec<(u64, usize)> {
    let mut places = vec![(n % PAGES, (n % 4) as usize), ((n * 5 + 1) % PAGES, (n / 2 % 4) as usize)];
    if n.is_multiple_of(3) {
        places.push(((n + 2) % PAGES, 3));
    }
    places
}

/// The states after 0, 1, .. `ops` operations; before the first there are no pages.
fn oracle(ops: u64) -> Vec<Option<State>> {
    let mut states = vec![None];
    let mut now = vec![[0; 4]; PAGES as usize];
    for n in 0..ops {
        for (page, place) in writes(n) {
            now[page as usize][place] = n;
        }
        states.push(Some(now.clone()));
    }
    states
}

fn read(store: &Store) -> Result<Option<State>> {
    let mut state = Vec::new();
    for n in 0..PAGES {
        let page = match bucket(store, n) {
            Ok(page) => page,
            Err(Error::Corrupt { detail, .. }) if n == 0 && detail.contains("no magic") => return Ok(None),
            Err(e) => return Err(e),
        };
        state.push(std::array::from_fn(|place| {
            let bytes: crate::format::U64 = page.read_as(BLOCK_HEADER_SIZE + place * 1000);
            bytes.get()
        }));
    }
    Ok(Some(state))
}

#[test]
fn a_clean_unmount_leaves_an_empty_journal_and_a_clean_image() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        let sim = kind.make();
        for round in 0..3 {
            let mounted = mount(kind.media(&sim), &options()).expect("made by mkfs, or clean");
            assert_eq!(mounted.recovery(), &Outcome::default());
            assert_eq!(read(mounted.store()).expect("whole"), oracle(round * 7)[round as usize * 7]);
            work(&sim, &mounted, round * 7, round * 7 + 7).expect("writable");
            mounted.unmount().expect("works");
            let sb = superblock::read(sim.device().as_ref()).expect("valid");
            assert_eq!((sb.state.get(), sb.epoch.get()), (STATE_CLEAN, round + 1));
        }
        assert_eq!(sim.overlapping_writes(), 0);
    }
}

#[test]
fn a_read_only_mount_shows_the_recovered_state_and_writes_nothing() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        let sim = kind.make();
        let mounted = mount(kind.media(&sim), &options()).expect("clean");
        work(&sim, &mounted, 0, 9).expect("writable");
        drop(mounted);
        let before = sim.events();
        let mounted =
            mount(kind.media(&sim), &ImageOptions { read_only: true, ..options() }).expect("readable");
        assert_eq!(read(mounted.store()).expect("whole"), oracle(9)[9]);
        assert!(matches!(operate(mounted.store(), 9), Err(Error::ReadOnly(_))));
        mounted.unmount().expect("nothing to do");
        assert_eq!(sim.events(), before);
    }
}

#[test]
fn a_device_that_fails_writes_makes_the_file_system_read_only() {
    let sim = Kind::Mapped.make();
    let mounted = mount(Kind::Mapped.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 0, 4).expect("writable");
    sim.set_fault(Some(Box::new(|fault| match fault {
        crate::sim::Fault::Write { block, .. } if block >= FIRST => Some(libc::EIO),
        _ => None,
    })));
    assert!(mounted.checkpointer().checkpoint().is_err());
    assert!(matches!(operate(mounted.store(), 4), Err(Error::ReadOnly(_))));
    assert!(mounted.store().failed().is_some_and(|why| why.contains("checkpoint")));
    sim.set_fault(None);
    drop(mounted);
    let (_, n) = recovered(Kind::Mapped, &sim, (4, 4)).expect("the journal has it all");
    assert_eq!(n, 4);
}

#[test]
fn a_failure_that_passes_is_tried_again() {
    let sim = Kind::Mapped.make();
    let mounted = mount(Kind::Mapped.media(&sim), &options()).expect("clean");
    work(&sim, &mounted, 0, 4).expect("writable");
    sim.set_fault(Some(Box::new(|fault| match fault {
        crate::sim::Fault::Write { nth, .. } if nth.is_multiple_of(2) => Some(libc::EIO),
        _ => None,
    })));
    mounted.checkpointer().checkpoint().expect("the second try works");
    sim.set_fault(None);
    mounted.unmount().expect("works");
}

/// Notes how far it was asked to bring things home, and whether the head went further; fails beyond a position.
struct Brings {
    upto: AtomicU64,
    passed: AtomicU64,
    fails_beyond: Position,
}

impl crate::store::Observer for Brings {
    fn pre_checkpoint(&self, upto: Position) -> Result<()> {
        if upto > self.fails_beyond {
            return Err(Error::Device { context: "bring home", errno: libc::EIO });
        }
        self.upto.fetch_max(upto, SeqCst);
        Ok(())
    }
    fn head_passed(&self, head: Position) {
        if head > self.upto.load(SeqCst) {
            self.passed.fetch_max(head, SeqCst);
        }
    }
}

#[test]
fn the_head_waits_in_the_background_for_what_observers_bring_home() {
    for (kind, fails) in [Kind::Mapped, Kind::Ssd].into_iter().flat_map(|kind| [(kind, false), (kind, true)])
    {
        let sim = kind.make();
        let mounted =
            mount(kind.media(&sim), &ImageOptions { background: true, ..options() }).expect("clean");
        let start = mounted.store().tail();
        let fails_beyond = if fails { start + kind.slots() } else { Position::MAX };
        let brings = Arc::new(Brings { upto: start.into(), passed: 0.into(), fails_beyond });
        mounted.store().observe(&brings);
        let done = (0..8 * kind.slots()).try_for_each(|n| operate(mounted.store(), n));
        assert_eq!(brings.passed.load(SeqCst), 0, "{kind:?}: the head was ahead of what was home");
        if fails {
            assert!(matches!(done, Err(Error::ReadOnly(_))), "{kind:?}: {done:?}");
            continue;
        }
        done.expect("the ring is emptied");
        assert!(brings.upto.load(SeqCst) > start + 4 * kind.slots(), "{kind:?}");
        mounted.unmount().expect("works");
    }
}
