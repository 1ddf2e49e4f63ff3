//! What happens to one crash state: recovery, the oracle, the check, the second mount, the second crash.

use super::bench::Promised;
use super::known::Known;
use super::{Bench, Effort, Tally, operations};
use crate::lab::Live;
use crate::lib_target::LibTarget;
use crate::model::{Model, Tree};
use crate::op::{Durable, Op};
use crate::oracle::Oracle;
use crate::target::{Target, compare};
use narufs_engine::sim::{Crash, CrashState, SimMedia};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Crash points of one recovery, and states of each.
const NESTED_POINTS: usize = 6;
const NESTED_STATES: usize = 4;
/// Operations that follow a recovery, crash points of them, and states of each.
const ONWARD_OPS: usize = 2;
const ONWARD_POINTS: usize = 6;
const ONWARD_STATES: usize = 4;

impl Bench {
    pub(super) fn judge(
        &self,
        known: &mut Known,
        state: &CrashState,
        promised: &Promised<'_>,
        effort: &Effort,
        rng: &mut StdRng,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let (left, oracles) = (state.left(), promised.oracles(&[self.crash]));
        let content = left.content();
        tally.states += 1;
        if !known.is_new(content, promised.under) {
            return Ok(());
        }
        if let Some(shown) = known.shown(self.lab.ring, content) {
            return if known.is_new_sight(&shown, promised.under) {
                agree(&oracles, &shown, tally)
            } else {
                Ok(())
            };
        }
        tally.contents += 1;
        let sim = left.restart();
        let before = sim.events();
        let (live, shown) = self.recover(&sim)?;
        let shown = known.note(self.lab.ring, content, shown);
        if known.is_new_sight(&shown, promised.under) {
            agree(&oracles, &shown, tally)?;
        }
        let recovered = sim.events();
        if rng.random_ratio(1, effort.onward) {
            return self.go_on(live, &sim, &shown, rng, tally);
        }
        if rng.random_ratio(1, effort.again) {
            live.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
            self.lab.check(&sim)?;
            let live = self.lab.mount(&sim).map_err(|e| format!("second mount: {e}"))?;
            let again = tree(&live)?;
            compare(&shown, &again).map_err(|e| format!("the second mount shows something else: {e}"))?;
            if rng.random_ratio(1, effort.filled.div_ceil(effort.again)) {
                tally.filled += 1;
                self.fill_and_empty(live, &sim)?;
            }
        } else {
            drop(live);
        }
        if rng.random_ratio(1, effort.nested) {
            self.crash_recovery(&sim, before..recovered, promised, rng, tally)?;
        }
        Ok(())
    }

    /// Mounts what a crash left; what that shows.
    fn recover(&self, sim: &SimMedia) -> Result<(Live, Tree), String> {
        let live = self.lab.mount(sim).map_err(|e| format!("recovery: {e}"))?;
        live.sound().map_err(|e| format!("recovery: {e}"))?;
        let shown = tree(&live)?;
        Ok((live, shown))
    }

    /// Crashes a recovery, by either kind of crash, and recovers from that.
    fn crash_recovery(
        &self,
        sim: &SimMedia,
        events: std::ops::Range<usize>,
        promised: &Promised<'_>,
        rng: &mut StdRng,
        tally: &mut Tally,
    ) -> Result<(), String> {
        for crash in [self.crash, Crash::PowerLoss, Crash::ProcessKill] {
            for _ in 0..NESTED_POINTS / 3 {
                let point = sim.crash_point(rng.random_range(events.start..=events.end));
                for state in point.sample(crash, rng.random(), NESTED_STATES) {
                    (tally.states, tally.nested) = (tally.states + 1, tally.nested + 1);
                    let again = state.restart();
                    let told = |e| format!("crashed again, {state}: {e}");
                    let shown = self.recover(&again).map_err(told)?.1;
                    agree(&promised.oracles(&[self.crash, crash]), &shown, tally).map_err(told)?;
                }
            }
        }
        Ok(())
    }

    /// Does a few more operations after a recovery, and crashes those.
    fn go_on(
        &self,
        live: Live,
        sim: &SimMedia,
        shown: &Tree,
        rng: &mut StdRng,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let ops: Vec<Op> = operations(1).choose_multiple(rng, ONWARD_OPS).cloned().collect();
        let told = |e: String| format!("then {ops:?}: {e}");
        let start = self.promise(Model::of(shown));
        let ran = self.perform_all(&live, sim, &ops, start, None, rng).map_err(told)?;
        drop(live);
        let effort = Effort { points: ONWARD_POINTS, last: false, ..Effort::SAMPLE };
        let mut points = sim.crash_points();
        for events in self.points(sim, &ran, &effort, rng) {
            points.skip_to(events);
            let Some(point) = points.next() else { break };
            for state in point.sample(self.crash, rng.random(), ONWARD_STATES) {
                (tally.states, tally.onward) = (tally.states + 1, tally.onward + 1);
                let told = |e| told(format!("{state}: {e}"));
                let shown = self.recover(&state.restart()).map_err(told)?.1;
                agree(&ran.at(events).oracles(&[self.crash]), &shown, tally).map_err(told)?;
            }
        }
        Ok(())
    }

    /// Fills the image and empties it, twice: the second time must leave as much room as the first.
    fn fill_and_empty(&self, mut live: Live, sim: &SimMedia) -> Result<(), String> {
        let mut left = Vec::new();
        for _ in 0..2 {
            fill(&live)?;
            LibTarget::new(live.fs()).remove_all().map_err(|e| format!("a full image: removing: {e}"))?;
            LibTarget::new(live.fs())
                .apply(&Op::SyncAll)
                .map_err(|e| format!("sync of an empty image: {e}"))?;
            let free = live.free()?;
            live.unmount().map_err(|e| format!("unmount of an empty image: {e}"))?;
            self.lab.check(sim)?;
            live = self.lab.mount(sim).map_err(|e| format!("mount of an empty image: {e}"))?;
            if live.free()? != free {
                return Err(format!("{free} blocks were free before the unmount, {} after it", live.free()?));
            }
            left.push(free);
        }
        if left[0] != left[1] {
            return Err(format!("{} blocks were free when it was empty, later {}", left[0], left[1]));
        }
        Ok(())
    }
}

/// Whether one of the oracles agrees with what is shown.
fn agree(oracles: &[&Oracle], shown: &Tree, tally: &mut Tally) -> Result<(), String> {
    let mut errors = Vec::new();
    let agrees = |(earlier, oracle): (usize, &&Oracle)| match oracle.check(shown) {
        Ok(back) => Some(earlier + back),
        Err(e) => {
            errors.push(if earlier == 0 { e } else { format!("or {earlier} operations earlier: {e}") });
            None
        }
    };
    let back = oracles.iter().enumerate().find_map(agrees).ok_or_else(|| errors.join("; "))?;
    tally.shorter += u64::from(back > 0);
    Ok(())
}

fn tree(live: &Live) -> Result<Tree, String> {
    LibTarget::new(live.fs()).tree()
}

/// Writes until there is no room.
fn fill(live: &Live) -> Result<(), String> {
    let mut target = LibTarget::new(live.fs());
    for number in 0.. {
        let path = format!("/fill{number}");
        let make = Op::Create { path: path.clone(), exclusive: true };
        let write = Op::Write { path, offset: 0, len: 200_000, fill: 9, durable: Durable::No };
        for op in [make, write] {
            match target.apply(&op) {
                Ok(_) => {}
                Err(libc::ENOSPC) => return Ok(()),
                Err(e) => return Err(format!("{op:?} on an image nearly full: errno {e}")),
            }
        }
    }
    Ok(())
}
