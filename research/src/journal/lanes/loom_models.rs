//! Models of lanes and those who commit: every order of their steps, and every value that a load may see.
//!
//! Rules that `loom_broken_orders_are_noticed` names are broken in each run of it; what only a crash shows is in
//! `tests`. Two were broken by hand, and `loom_what_is_committed_is_recovered` failed: the Release of the word's store
//! in a seal, and the Acquire of its load in a visit, each made Relaxed.

use super::planted::{Bug, Planted};
use super::*;
use narufs_engine::pmem::HeapMemory;
use narufs_engine::sync::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SHAPE: Shape = Shape { lanes: 2, slots: 4, epoch: 1 };

/// Two writers; in the first model of one object, in the second of one each. Then, and meanwhile, a commit.
/// Clocks stand still, at times that differ.
fn model(shared: bool, bug: Option<Bug>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let memory = Arc::new(HeapMemory::new(SHAPE.bytes()));
        let clock = Clock::Scripted(Box::new(|who| [1, 5, 3][who]));
        let lanes = Lanes::start_with(memory.clone(), SHAPE, clock, Planted(bug)).expect("it fits");
        let lanes = Arc::new((lanes, [0, 1].map(|_| Mutex::new((LastStamp::default(), 0_u8)))));
        let workers = [0, 1].map(|number| {
            let (lanes, memory) = (lanes.clone(), memory.clone());
            thread::spawn(move || {
                let object = if shared { 0 } else { number };
                let mut held = lanes.1[object].lock();
                let (last, version) = &mut *held;
                *version += 1;
                let (version, lane) = (*version, lanes.0.claim(number).expect("nobody has it"));
                let reserved = lane.reserve(&mut [last], 1).ok().expect("room");
                let (_, stamp) = reserved.persist(&[object as u8, version]).seal();
                drop(held);
                // An fsync here would return at once.
                if lanes.0.committed() >= stamp {
                    holds(&memory, Some((object as u8, version)));
                }
            })
        });
        lanes.0.commit_upto(lanes.0.tail().max(1)).expect("nobody fails");
        holds(&memory, None);
        workers.into_iter().for_each(|worker| worker.join().expect("a model's threads do not panic"));
        lanes.0.commit_upto(lanes.0.tail()).expect("nobody fails");
        let found = recover(&*memory, &SHAPE).expect("nothing is missing");
        assert_eq!(found.records.len(), 2);
        holds(&memory, None);
    });
}

/// What a crash would leave now has each object's versions from the first on, `this` one among them.
fn holds(memory: &HeapMemory, this: Option<(u8, u8)>) {
    let mut versions = [0_u8; 2];
    for record in recover(memory, &SHAPE).expect("nothing is missing").records {
        let [object, version] = record.payload[..] else { panic!("a strange record") };
        versions[usize::from(object)] += 1;
        assert_eq!(versions[usize::from(object)], version, "of object {object}");
    }
    if let Some((object, version)) = this {
        assert!(versions[usize::from(object)] >= version, "a committed record is lost");
    }
}

#[test]
fn loom_what_is_committed_is_recovered() {
    model(true, None);
    model(false, None);
}

#[test]
fn loom_broken_orders_are_noticed() {
    for bug in [
        Bug::EndBeforeWord,
        Bug::WordBeforeEnd,
        Bug::RaisedBlindly,
        Bug::NotRaised,
        Bug::BusyPassed,
        Bug::NeverBusy,
        Bug::StampIgnoresObjects,
    ] {
        let noticed = |shared| catch_unwind(AssertUnwindSafe(|| model(shared, Some(bug)))).is_err();
        assert!(noticed(true) || noticed(false), "{bug:?}");
    }
}
