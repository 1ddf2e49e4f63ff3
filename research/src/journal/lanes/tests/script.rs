//! Writers and a committer that take their steps in an order that is chosen, with a look at every crash on the way.

use super::super::commit::Commit;
use super::super::planted::{Bug, Planted};
use super::super::recovery::recover_planted;
use super::super::*;
use super::medium::Lines;
use narufs_engine::pmem::HeapMemory;
use rand::{Rng, SeedableRng};

/// The first and the last write; a commit takes two lines with an end of theirs in each, and can be torn.
const LANES: u16 = 5;
const LAST: usize = LANES as usize - 1;

/// What the committer does.
#[derive(Debug, Clone, Copy)]
pub enum Do {
    /// An fsync of all that has returned.
    CommitTail,
    /// An fsync of the last operation alone.
    CommitLast,
    /// All that is committed is home.
    MoveHeads,
}

/// Who does what.
pub struct Script {
    /// The objects that each writer changes, one after the other.
    pub writers: [Vec<usize>; 2],
    pub commits: Vec<Do>,
    pub slots: u64,
}

/// Where a writer is.
enum At<'l> {
    Rest(Lane<'l>),
    Taken(Reserved<'l>),
    Down(Persisted<'l>),
    Moving,
}

/// A record: the version of its object that it makes.
#[derive(Debug, Clone, Copy)]
struct Made {
    stamp: Stamp,
    object: u8,
    version: u8,
    sealed: bool,
}

struct World<'l> {
    script: &'l Script,
    lines: &'l Lines,
    lanes: &'l Lanes,
    writers: [At<'l>; 2],
    /// Operations that each writer has begun, commits that were.
    begun: [usize; 3],
    commit: Option<Commit<'l>>,
    objects: [(LastStamp, u8, bool); 2],
    made: Vec<Made>,
}

impl<'l> World<'l> {
    /// One step of a writer or, as the third, of the committer. Says whether something came of it.
    fn step(&mut self, who: usize) -> bool {
        self.lines.act_as(who);
        let Some(at) = self.writers.get_mut(who) else { return self.step_of_committer() };
        let (mut done, now) = (self.begun[who], std::mem::replace(at, At::Moving));
        let next = match now {
            At::Rest(lane) => match self.script.writers[who].get(done) {
                Some(&object) if !self.objects[object].2 => {
                    match lane.reserve(&mut [&mut self.objects[object].0], 1) {
                        Ok(reserved) => {
                            let (_, version, locked) = &mut self.objects[object];
                            (*version, *locked, done) = (*version + 1, true, done + 1);
                            let (stamp, version) = (reserved.stamp(), *version);
                            self.made.push(Made { stamp, object: object as u8, version, sealed: false });
                            At::Taken(reserved)
                        }
                        Err((lane, _)) => At::Rest(lane),
                    }
                }
                _ => At::Rest(lane),
            },
            At::Taken(reserved) => {
                let object = self.script.writers[who][done - 1] as u8;
                let version = self.objects[usize::from(object)].1;
                At::Down(reserved.persist(&[object, version]))
            }
            At::Down(persisted) => {
                let object = self.script.writers[who][done - 1];
                let (lane, stamp) = persisted.seal();
                let mine = |made: &&mut Made| made.stamp == stamp && usize::from(made.object) == object;
                self.made.iter_mut().find(mine).expect("it was reserved").sealed = true;
                self.objects[object].2 = false;
                self.writers[who] = At::Rest(lane);
                return true;
            }
            At::Moving => unreachable!("a step leaves a state"),
        };
        let moved = done != self.begun[who] || matches!(next, At::Down(_));
        (self.begun[who], self.writers[who]) = (done, next);
        moved
    }

    fn step_of_committer(&mut self) -> bool {
        let Some(what) = self.script.commits.get(self.begun[2]) else { return false };
        if let Some(commit) = &mut self.commit {
            if commit.visited() == 0 {
                return commit.visit();
            }
            while commit.visited() < LAST {
                assert!(commit.visit(), "nobody writes there");
            }
            if commit.visited() == LAST {
                return commit.visit();
            }
            self.commit.take().expect("just seen").finish();
        } else {
            let last = self.made.iter().rfind(|made| made.sealed).map_or(0, |made| made.stamp);
            match what {
                Do::MoveHeads => self.lanes.advance_heads().expect("the ring is whole"),
                Do::CommitTail => self.commit = self.lanes.begin_commit(self.lanes.tail()),
                Do::CommitLast => self.commit = self.lanes.begin_commit(last),
            }
            if self.commit.is_some() {
                return true;
            }
        }
        self.begun[2] += 1;
        true
    }

    /// What is wrong with a crash that leaves these bytes, when everything up to `committed` was answered for.
    fn crash(&self, bytes: &[u8], shape: &Shape, committed: Stamp, planted: Planted) -> Result<(), String> {
        let memory = HeapMemory::new(bytes.len());
        memory.write(0, bytes);
        let found = recover_planted(&memory, shape, planted).map_err(|e| e.to_string())?;
        let mut versions = [0_u8; 2];
        // What is home, each object's newest.
        for made in self.made.iter().filter(|made| made.stamp <= found.home) {
            let version = &mut versions[usize::from(made.object)];
            *version = made.version.max(*version);
        }
        for record in found.records {
            let [object, version] = record.payload[..] else { return Err("a strange record".into()) };
            let before = versions.get_mut(usize::from(object)).ok_or("a strange object")?;
            if version != *before + 1 {
                return Err(format!("version {version} of {object} follows {before}"));
            }
            *before = version;
        }
        match self.made.iter().find(|made| {
            made.sealed && made.stamp <= committed && made.version > versions[usize::from(made.object)]
        }) {
            Some(lost) => Err(format!("{lost:?} is lost, though {committed} was committed")),
            None => Ok(()),
        }
    }
}

/// Plays an order; `choose` gets the number of steps so far. Crashes are looked at from step `from` on. Gives back
/// whether the last step came to something, and how many crashes there were.
fn play(
    script: &Script,
    bug: Option<Bug>,
    skew: [Stamp; 3],
    from: usize,
    mut choose: impl FnMut(usize) -> Option<usize>,
) -> Result<(bool, usize), String> {
    let shape = Shape { lanes: LANES, slots: script.slots, epoch: 3 };
    let (lines, time) = (Arc::new(Lines::new(shape.bytes())), AtomicU64::new(0));
    let clock = Clock::Scripted(Box::new(move |who| {
        time.fetch_add(1, Ordering::Relaxed) + skew[who.saturating_sub(LAST - 1)]
    }));
    let planted = Planted(bug);
    let memory: Arc<dyn PersistentMemory> = lines.clone();
    let lanes = Lanes::start_with(memory, shape, clock, planted).expect("it fits");
    let lane = |n| At::Rest(lanes.claim(n).expect("nobody has it"));
    let mut world = World {
        script,
        lines: &lines,
        lanes: &lanes,
        writers: [lane(0), lane(LAST)],
        begun: [0; 3],
        commit: None,
        objects: Default::default(),
        made: Vec::new(),
    };
    let (mut moved, mut steps, mut crashes) = (true, 0, 0);
    while let Some(who) = choose(steps) {
        let looks = steps >= from;
        let before = lanes.committed();
        lines.record(looks);
        moved = world.step(who);
        steps += 1;
        if !looks || !moved {
            continue;
        }
        let states = lines.crashes();
        crashes += states.len();
        for bytes in states {
            world.crash(&bytes, &shape, before, planted)?;
        }
        for bytes in lines.crashes() {
            world.crash(&bytes, &shape, lanes.committed(), planted)?;
        }
    }
    Ok((moved, crashes))
}

/// Every order of the steps; how many crashes were looked at.
pub fn every_order(script: &Script, bug: Option<Bug>, skew: [Stamp; 3]) -> Result<usize, String> {
    let (mut left, mut crashes) = (vec![vec![]], 0);
    while let Some(order) = left.pop() {
        let (moved, seen) =
            play(script, bug, skew, order.len().saturating_sub(1), |step| order.get(step).copied())?;
        crashes += seen;
        if moved {
            left.extend((0..3).map(|who| [&order[..], &[who]].concat()));
        }
    }
    Ok(crashes)
}

/// So many random orders, always the same.
pub fn random_orders(
    script: &Script,
    bug: Option<Bug>,
    skew: [Stamp; 3],
    count: u64,
) -> Result<usize, String> {
    let mut crashes = 0;
    for seed in 0..count {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        crashes += play(script, bug, skew, 0, |step| (step < 90).then(|| random.random_range(0..3_usize)))?.1;
    }
    Ok(crashes)
}
