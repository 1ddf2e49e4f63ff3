//! Crashes at every event of a workload, and crashes of the recovery that follows.

use super::*;

/// What was promised by some event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    events: usize,
    /// Operations that had begun, returned, were committed against a loss of power.
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
pub(super) fn work(sim: &SimMedia, mounted: &Mounted, from: u64, to: u64) -> Result<Vec<Note>> {
    let (checkpointer, store) = (mounted.checkpointer(), mounted.store());
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
            store.commit_upto(store.tail(), Durability::Power)?;
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
            checkpointer.checkpoint()?;
            store.release_observers();
            now.committed = n + 1;
        }
        notes.push(Note { events: sim.events(), ..now });
    }
    Ok(notes)
}

/// The least number of operations that must be there after a crash, and the most that can.
pub(super) fn bounds(notes: &[Note], events: usize, kind: Kind, crash: Crash) -> (u64, u64) {
    let promised = |note: &Note| match (kind, crash) {
        (Kind::Ssd, Crash::PowerLoss) => note.committed,
        _ => note.returned,
    };
    let least = notes.iter().filter(|note| note.events <= events).map(promised).max().unwrap_or(0);
    let most = notes.iter().filter(|note| note.events <= events).map(|note| note.begun).max().unwrap_or(0);
    (least, most)
}

/// Recovers and compares with the oracle; the number of operations that are there.
pub(super) fn recovered(kind: Kind, sim: &SimMedia, bounds: (u64, u64)) -> Result<(Mounted, u64), String> {
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
    let notes = work(&sim, &mounted, 0, ops).map_err(|e| e.to_string())?;
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
    let notes = work(sim, &mounted, n, n + 6).map_err(|e| e.to_string())?;
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
        mounted.checkpointer().checkpoint().expect("the head passes the freeing record");
        let data = IoBuf::from_slice(&[0xdd; BLOCK_SIZE]);
        store.device().run(vec![Request::write(SHARED, data, Cause::DataWriteBack)]).expect("memory");
        store.device().flush().expect("memory");
        let written = sim.events();
        work(&sim, &mounted, 0, 6).expect("writable");
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
