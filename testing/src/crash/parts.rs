//! Crashes of a checkpoint round that several threads write home, each through its own part of the double-write area.
//!
//! Everything is synced before the round begins, so after each crash all of it must be there: what is asked is whether
//! every home write that a crash tore can be mended, while several batches are under way. A hook of the simulated
//! media has the threads meet: none goes on from its first write to the area before all have issued theirs. From then
//! on each lets others go first, now and then.

use super::Tally;
use crate::lab::{Lab, Live, Ring};
use narufs_engine::format::ROOT_NID;
use narufs_engine::sim::{Crash, Event, SimMedia};
use narufs_engine::vfs::{Context, OpenFlags, XattrMode};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

/// Files, each with a block of attributes.
const FILES: usize = 24;
/// Only so that a thread that the system could not start does not hang the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A round by several threads, and how closely its crashes are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Writers {
    /// The journal.
    pub ring: Ring,
    /// Threads that write home.
    pub threads: usize,
    /// Blocks of each one's part.
    pub part: u64,
    /// States of each crash point.
    pub states: usize,
}

impl Writers {
    /// Runs a round and crashes it at each of its writes.
    ///
    /// # Errors
    /// What was found after a crash, or what failed before.
    pub fn run(&self, seed: u64, tally: &mut Tally) -> Result<(), String> {
        let lab = Lab {
            double_write: self.part * self.threads as u64,
            dirty: 1000,
            writers: self.threads,
            ..Lab::tiny(self.ring)
        };
        let sim = lab.format();
        let live = lab.mount(&sim).map_err(told)?;
        // Homes that hold something: a torn one is a mixture.
        fill(&live, 1)?;
        live.checkpoint().map_err(told)?;
        fill(&live, 2)?;
        let began = sim.events();
        let meeting = Arc::new(Meeting::new(live.double_write(), self.threads, seed));
        let hook = Arc::clone(&meeting);
        sim.set_hook(Some(Arc::new(move |_, event| hook.see(event))));
        let done = live.checkpoint();
        sim.set_hook(None);
        done.map_err(told)?;
        let (events, met) = (sim.events(), meeting.inside.lock().expect("no panic").met.len());
        if met != self.threads {
            return Err(format!("{met} of {} threads wrote home", self.threads));
        }
        drop(live);
        tally.sequences += 1;
        let mut points = sim.crash_points();
        points.skip_to(began);
        for point in points.take(events - began) {
            tally.points += 1;
            for state in point.sample(Crash::PowerLoss, seed, self.states) {
                tally.states += 1;
                whole(&lab, &state.restart()).map_err(|e| format!("{self:?}, {state}, seed {seed}: {e}"))?;
            }
        }
        Ok(())
    }
}

/// Where the threads wait for one another.
struct Meeting {
    area: Range<u64>,
    threads: usize,
    inside: Mutex<Met>,
    all: Condvar,
    random: AtomicU64,
}

#[derive(Default)]
struct Met {
    met: HashSet<ThreadId>,
    given_up: bool,
}

impl Meeting {
    fn new(area: Range<u64>, threads: usize, seed: u64) -> Meeting {
        let random = AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Meeting { area, threads, inside: Mutex::default(), all: Condvar::new(), random }
    }

    fn see(&self, event: &Event) {
        let (Event::WriteIssued { .. } | Event::WriteEnded { .. }) = event else { return };
        if let Event::WriteIssued { block, .. } = event
            && self.area.contains(block)
        {
            self.meet();
        }
        // Relaxed: numbers at random.
        let next =
            |n: u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        let random = self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        for _ in 0..(random >> 33) % 8 {
            std::thread::yield_now();
        }
    }

    fn meet(&self) {
        let mut inside = self.inside.lock().expect("no panic");
        if !inside.met.insert(std::thread::current().id()) {
            return;
        }
        self.all.notify_all();
        let is_short = |inside: &mut Met| inside.met.len() < self.threads && !inside.given_up;
        let (mut inside, waited) = self.all.wait_timeout_while(inside, PATIENCE, is_short).expect("no panic");
        inside.given_up |= waited.timed_out();
    }
}

fn told(e: narufs_engine::Error) -> String {
    e.to_string()
}

fn name(n: usize) -> Vec<u8> {
    format!("file-{n}").into_bytes()
}

fn attribute(n: usize, fill: u8) -> Vec<u8> {
    vec![fill.wrapping_mul(31).wrapping_add(n as u8); 900]
}

/// Gives each file an attribute that takes a block, and has all of it durable.
fn fill(live: &Live, fill: u8) -> Result<(), String> {
    let (fs, root) = (live.fs(), Context::root());
    for n in 0..FILES {
        let nid = match fs.lookup(&root, ROOT_NID, &name(n)) {
            Ok(found) => found.nid,
            Err(_) => {
                let made = fs.create(&root, ROOT_NID, &name(n), 0o644, OpenFlags::READ_WRITE);
                made.map_err(told)?.0.nid
            }
        };
        fs.setxattr(&root, nid, b"user.c", &attribute(n, fill), XattrMode::Any).map_err(told)?;
    }
    fs.syncfs().map_err(told)
}

/// An error unless everything is there after a crash.
fn whole(lab: &Lab, sim: &SimMedia) -> Result<(), String> {
    let live = lab.mount(sim).map_err(told)?;
    live.sound().map_err(told)?;
    let (fs, root) = (live.fs(), Context::root());
    for n in 0..FILES {
        let found = fs.lookup(&root, ROOT_NID, &name(n)).map_err(|e| format!("file {n}: {e}"))?;
        let value = fs.getxattr(&root, found.nid, b"user.c").map_err(|e| format!("file {n}: {e}"))?;
        if value != attribute(n, 2) {
            return Err(format!("file {n} has an attribute that was never synced with the others"));
        }
    }
    live.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
    lab.check(sim)
}
