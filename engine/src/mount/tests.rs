//! Mounting, unmounting, and crashes of raw store operations on simulated media, in tiny geometry.
//!
//! The workload writes one counter into two or three pages an operation, so that atomicity and order show in
//! the bytes; the oracle knows the pages after each operation. What is recovered must be the state after some
//! prefix that contains every operation promised by then.

use super::*;
use crate::device::{BLOCK_SIZE, Cause, IoBuf, Request};
use crate::format::{BLOCK_HEADER_SIZE, BlockKind, JournalKind};
use crate::journal::{Wanted, ring_bytes};
use crate::mkfs::{FormatOptions, format};
use crate::pmem::Horizon;
use crate::sim::{Crash, PmemSpec, SimMedia};
use crate::store::PageRef;

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
        let horizon = if self == Kind::Mapped { Horizon::Power } else { Horizon::Process };
        PmemSpec { len, horizon }
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
        Media { device: sim.device(), ring, staging_file: None }
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
        format(sim.device().as_ref(), &options).expect("large enough");
        sim
    }
}

fn options() -> MountOptions {
    MountOptions { background: false, lanes: 1, ..MountOptions::default() }
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

/// What was promised by some event.
#[derive(Debug, Clone, Copy)]
struct Note {
    events: usize,
    /// Operations that had begun, returned, were committed at the power horizon.
    begun: u64,
    returned: u64,
    committed: u64,
}

/// Runs operation `n` inside a checkpoint round.
struct Inside {
    store: Arc<Store>,
    n: u64,
}

impl crate::store::Observer for Inside {
    fn pre_checkpoint(&self, _upto: Position) -> Result<()> {
        operate(&self.store, self.n)
    }
}

/// Runs operations `from..to` with a commit after every third and a checkpoint after every fifth.
fn work(sim: &SimMedia, store: &Arc<Store>, from: u64, to: u64) -> Result<Vec<Note>> {
    let mut notes = vec![Note { events: sim.events(), begun: from, returned: from, committed: from }];
    let mut now = notes[0];
    for n in from..to {
        now.begun = n + 1;
        notes.push(Note { events: sim.events(), ..now });
        // Every fifth but the first was done inside the round before.
        if n % 5 != 0 || n == from {
            operate(store, n)?;
        }
        now.returned = n + 1;
        notes.push(Note { events: sim.events(), ..now });
        if n % 3 == 2 {
            store.commit_upto(store.tail(), Wanted::Power)?;
            now.committed = n + 1;
        }
        if n % 5 == 4 {
            // An operation in the midst of the round: its page's image is ahead of the round's commit.
            let inside = Arc::new(Inside { store: Arc::clone(store), n: n + 1 });
            if n + 1 < to {
                now.begun = n + 2;
                notes.push(Note { events: sim.events(), ..now });
                store.observe(&inside);
            }
            store.checkpoint()?;
            store.release_observers();
            now.committed = n + 1;
        }
        notes.push(Note { events: sim.events(), ..now });
    }
    Ok(notes)
}

/// The least number of operations that must be there after a crash, and the most that can.
fn bounds(notes: &[Note], events: usize, kind: Kind, crash: Crash) -> (u64, u64) {
    let promised = |note: &Note| match (kind, crash) {
        (Kind::Ssd, Crash::PowerLoss) => note.committed,
        _ => note.returned,
    };
    let least = notes.iter().filter(|note| note.events <= events).map(promised).max().unwrap_or(0);
    let most = notes.iter().filter(|note| note.events <= events).map(|note| note.begun).max().unwrap_or(0);
    (least, most)
}

/// Recovers and compares with the oracle; the number of operations that are there.
fn recovered(kind: Kind, sim: &SimMedia, bounds: (u64, u64)) -> Result<(Mounted, u64), String> {
    let mounted = mount(kind.media(sim), &options()).map_err(|e| format!("refused: {e}"))?;
    if let Some(why) = mounted.store().failed() {
        return Err(format!("read-only: {why}"));
    }
    let state = read(mounted.store()).map_err(|e| format!("damaged: {e}"))?;
    let states = oracle(bounds.1);
    let found = (bounds.0..=bounds.1).rev().find(|n| states[*n as usize] == state);
    match found {
        Some(n) => Ok((mounted, n)),
        None => Err(format!("not a state after {bounds:?} operations: {state:?}")),
    }
}

/// Crashes a workload at every `step`th event, in a sample of states; the first that recovers wrongly.
fn crash_everywhere(kind: Kind, step: usize, take: usize, nested: bool) -> Result<u64, String> {
    let ops = 17;
    let sim = kind.make();
    let mounted = mount(kind.media(&sim), &options()).map_err(|e| e.to_string())?;
    let start = sim.events();
    let notes = work(&sim, mounted.store(), 0, ops).map_err(|e| e.to_string())?;
    let end = sim.events();
    let mut states = 0;
    let mut points = sim.crash_points();
    for events in (start..=end).step_by(step) {
        points.skip_to(events);
        let point = points.next().expect("the log has that many events");
        for crash in [Crash::PowerLoss, Crash::ProcessKill] {
            let bounds = bounds(&notes, events, kind, crash);
            for state in point.states(crash, events as u64).take(take) {
                let again = state.restart();
                let before = again.events();
                let told = |e: String| format!("{kind:?}: {state}: {e}");
                let (mounted, n) = recovered(kind, &again, bounds).map_err(told)?;
                states += 1;
                if nested {
                    // What only the staging holds may be lost with power until recovery has carried it over.
                    let least = self::bounds(&notes, events, kind, Crash::PowerLoss).0;
                    let bounds = (least, bounds.0, bounds.1);
                    states += crash_again(kind, &again, before, mounted, n, bounds).map_err(told)?;
                }
            }
        }
    }
    Ok(states)
}

/// Crashes recovery, then a few operations after it.
fn crash_again(
    kind: Kind,
    sim: &SimMedia,
    before: usize,
    mounted: Mounted,
    n: u64,
    (least_of_power, least, most): (u64, u64, u64),
) -> Result<u64, String> {
    let recovered_at = sim.events();
    let notes = work(sim, mounted.store(), n, n + 6).map_err(|e| e.to_string())?;
    let mut states = 0;
    let mut points = sim.crash_points();
    for events in (before..=sim.events()).step_by(29) {
        points.skip_to(events);
        let point = points.next().expect("the log has that many events");
        for crash in [Crash::PowerLoss, Crash::ProcessKill] {
            let bounds = if events < recovered_at {
                (if crash == Crash::PowerLoss { least_of_power } else { least }, most)
            } else {
                let now = bounds(&notes, events, kind, crash);
                (now.0.max(n), now.1.max(n))
            };
            for state in point.states(crash, events as u64).take(2) {
                let again = state.restart();
                recovered(kind, &again, bounds).map_err(|e| format!("again, {state}: {e}"))?;
                states += 1;
            }
        }
    }
    Ok(states)
}

#[test]
fn a_clean_unmount_leaves_an_empty_journal_and_a_clean_image() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        let sim = kind.make();
        for round in 0..3 {
            let mounted = mount(kind.media(&sim), &options()).expect("made by mkfs, or clean");
            assert_eq!(mounted.recovery(), &Outcome::default());
            assert_eq!(read(mounted.store()).expect("whole"), oracle(round * 7)[round as usize * 7]);
            work(&sim, mounted.store(), round * 7, round * 7 + 7).expect("writable");
            mounted.unmount().expect("works");
            let sb = superblock::read(sim.device().as_ref()).expect("valid");
            assert_eq!((sb.state.get(), sb.epoch.get()), (STATE_CLEAN, round + 1));
        }
        assert_eq!(sim.overlapping_writes(), 0);
    }
}

#[test]
fn an_unclean_image_without_its_journal_is_refused_until_it_is_given_up() {
    let sim = Kind::Mapped.make();
    let mounted = mount(Kind::Mapped.media(&sim), &options()).expect("clean");
    work(&sim, mounted.store(), 0, 7).expect("writable");
    drop(mounted);
    let number = sim.add_pmem(Kind::Mapped.spec());
    let other = || {
        let ring = RingMedia::Mapped(sim.pmem(number).expect("just added"));
        Media { device: sim.device(), ring, staging_file: None }
    };
    let Err(Error::Refused(why)) = mount(other(), &options()).map(drop) else { panic!("not refused") };
    assert!(why.contains("--discard-journal"), "{why}");
    let given_up = MountOptions { discard_journal: true, ..options() };
    let mounted = mount(other(), &given_up).expect("what is lost is given up");
    assert_eq!(read(mounted.store()).expect("whole"), oracle(6)[6], "the images of the last round");
    mounted.unmount().expect("works");
    mount(other(), &options()).expect("clean, and its own ring").unmount().expect("works");
    // The old ring is foreign now; the image is clean, so that is no loss.
    let ring = RingMedia::Mapped(sim.pmem(0).expect("there from the start"));
    let media = Media { device: sim.device(), ring, staging_file: None };
    mount(media, &options()).expect("made anew");
}

#[test]
fn an_older_journal_is_refused() {
    let sim = Kind::Mapped.make();
    let mounted = mount(Kind::Mapped.media(&sim), &options()).expect("clean");
    work(&sim, mounted.store(), 0, 2).expect("writable");
    let old = sim.pmem(0).expect("there");
    let mut bytes = vec![0; Kind::Mapped.spec().len];
    crate::pmem::PersistentMemory::read(old.as_ref(), 0, &mut bytes);
    work(&sim, mounted.store(), 2, 12).expect("writable");
    drop(mounted);
    crate::pmem::PersistentMemory::write(old.as_ref(), 0, &bytes);
    let Err(Error::Refused(why)) = mount(Kind::Mapped.media(&sim), &options()).map(drop) else {
        panic!("not refused")
    };
    assert!(why.contains("older than the image"), "{why}");
}

#[test]
fn a_read_only_mount_shows_the_recovered_state_and_writes_nothing() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        let sim = kind.make();
        let mounted = mount(kind.media(&sim), &options()).expect("clean");
        work(&sim, mounted.store(), 0, 9).expect("writable");
        drop(mounted);
        let before = sim.events();
        let mounted =
            mount(kind.media(&sim), &MountOptions { read_only: true, ..options() }).expect("readable");
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
    work(&sim, mounted.store(), 0, 4).expect("writable");
    sim.set_fault(Some(Box::new(|fault| match fault {
        crate::sim::Fault::Write { block, .. } if block >= FIRST => Some(libc::EIO),
        _ => None,
    })));
    assert!(mounted.store().checkpoint().is_err());
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
    work(&sim, mounted.store(), 0, 4).expect("writable");
    sim.set_fault(Some(Box::new(|fault| match fault {
        crate::sim::Fault::Write { nth, .. } if nth.is_multiple_of(2) => Some(libc::EIO),
        _ => None,
    })));
    mounted.store().checkpoint().expect("the second try works");
    sim.set_fault(None);
    mounted.unmount().expect("works");
}

#[test]
fn a_freed_block_is_reused_for_data_without_harm() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        let sim = kind.make();
        let mounted = mount(kind.media(&sim), &options()).expect("clean");
        let store = mounted.store();
        let mut h = store.begin(2).expect("writable");
        let page = h.init(SHARED, BlockKind::Bucket, 1, 1).expect("inside");
        h.edit(&page, 64..72).fill(1);
        h.commit().expect("writable");
        let mut h = store.begin(2).expect("writable");
        h.edit(&page, 64..72).fill(2);
        h.forget(&page);
        h.commit().expect("writable");
        store.checkpoint().expect("the head passes the freeing record");
        let data = IoBuf::from_slice(&[0xdd; BLOCK_SIZE]);
        store.device().run(vec![Request::write(SHARED, data, Cause::DataWriteBack)]).expect("memory");
        store.device().flush().expect("memory");
        let written = sim.events();
        work(&sim, store, 0, 6).expect("writable");
        drop(mounted);
        let mut points = sim.crash_points();
        for events in (written..=sim.events()).step_by(7) {
            points.skip_to(events);
            let point = points.next().expect("in the log");
            for crash in [Crash::PowerLoss, Crash::ProcessKill] {
                for state in point.states(crash, 3).take(3) {
                    let again = state.restart();
                    let _mounted = mount(kind.media(&again), &options()).expect("recovers");
                    let read = Request::read(SHARED, IoBuf::zeroed(BLOCK_SIZE), Cause::Fsck);
                    let bytes = again.device().run(vec![read]).expect("memory");
                    assert!(bytes[0].iter().all(|b| *b == 0xdd), "{kind:?}: {state}");
                }
            }
        }
    }
}

#[test]
fn every_crash_recovers_to_a_state_that_contains_what_was_promised() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        let states = crash_everywhere(kind, 3, 6, false).unwrap_or_else(|e| panic!("{e}"));
        assert!(states > 500, "{states} states");
    }
}

#[test]
fn crashes_of_recovery_and_after_it_recover_too() {
    for kind in [Kind::Mapped, Kind::Ssd] {
        crash_everywhere(kind, 67, 2, true).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[cfg(feature = "planted-bugs")]
mod planted_bugs {
    use super::*;
    use crate::planted::{Bug, plant};

    /// Takes a rule away and expects the crash test to notice.
    fn noticed(kind: Kind, bug: Bug) {
        plant(Some(bug));
        let outcome = crash_everywhere(kind, 1, 250, false);
        plant(None);
        let found = outcome.expect_err("a broken rule must be noticed");
        println!("{bug:?}: {found}");
    }

    #[test]
    fn a_head_that_moves_before_the_flush_is_noticed() {
        noticed(Kind::Mapped, Bug::HeadMovedBeforeFlush);
        noticed(Kind::Ssd, Bug::HeadMovedBeforeFlush);
    }

    #[test]
    fn a_double_write_area_that_is_not_flushed_is_noticed() {
        noticed(Kind::Mapped, Bug::NoDoubleWriteFlush);
        noticed(Kind::Ssd, Bug::NoDoubleWriteFlush);
    }

    #[test]
    fn images_that_outrun_their_records_are_noticed() {
        noticed(Kind::Ssd, Bug::HomeBeforeLog);
    }

    #[test]
    fn a_round_that_is_not_restored_is_noticed() {
        noticed(Kind::Mapped, Bug::NoRestore);
        noticed(Kind::Ssd, Bug::NoRestore);
    }
}
