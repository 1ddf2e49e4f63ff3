//! Every crash of every order of steps of a small script, of random orders of a larger one, and damage.

mod medium;
mod script;

use super::planted::{Bug, Planted};
use super::recovery::recover_planted;
use super::*;
use narufs_engine::pmem::HeapMemory;
use script::{Do, Script};

/// What every order is tried with: two writers of one object, a commit.
fn small() -> Script {
    Script { writers: [vec![0, 0], vec![0]], commits: vec![Do::CommitTail], slots: 4 }
}

/// Two objects, small rings that go round, heads that move.
fn large() -> Script {
    use Do::{CommitLast, CommitTail, MoveHeads};
    Script {
        writers: [vec![0, 0, 0, 1], vec![1, 0, 1, 0]],
        commits: vec![CommitLast, MoveHeads, CommitTail, MoveHeads, CommitTail],
        slots: 2,
    }
}

/// What goes wrong with a rule broken, the first thing that is found.
fn search(bug: Option<Bug>) -> Result<usize, String> {
    let mut tried = 0;
    // Who is ahead: the clocks of cores do not agree.
    for skew in [[0, 0, 0], [1000, 0, 500], [0, 1000, 500], [500, 0, 1000]] {
        tried += script::every_order(&small(), bug, skew)?;
        tried += script::random_orders(&large(), bug, skew, 120)?;
    }
    Ok(tried)
}

#[test]
fn every_crash_leaves_a_prefix_with_all_that_is_committed() {
    let tried = search(None).expect("the protocol holds");
    assert!(tried > 10_000, "only {tried} crashes");
}

#[test]
fn broken_rules_are_noticed() {
    let bugs = [
        Bug::NoWriteBack,
        Bug::NoFence,
        Bug::NeverBusy,
        Bug::StampIgnoresObjects,
        Bug::NotRaised,
        Bug::BusyPassed,
        Bug::CommitNotFenced,
        Bug::OnePlace,
        Bug::HeadNotFenced,
        Bug::HeadPassesCommit,
        Bug::MergedByLane,
        Bug::LateTaken,
    ];
    let unnoticed: Vec<Bug> = bugs.into_iter().filter(|bug| search(Some(*bug)).is_ok()).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}

const SHAPE: Shape = Shape { lanes: 3, slots: 8, epoch: 7 };

fn memory() -> Arc<HeapMemory> {
    Arc::new(HeapMemory::new(SHAPE.bytes()))
}

/// Three lanes in turn write records of one, two and three slots; all is committed.
fn written(memory: Arc<HeapMemory>) -> Vec<Vec<u8>> {
    let lanes = Lanes::start(memory, SHAPE, Clock::best()).expect("it fits");
    let mut object = LastStamp::default();
    let mut payloads = Vec::new();
    for n in 0..6_u8 {
        let payload = vec![n; usize::from(n % 3) * slot::PAYLOAD + 10];
        let lane = lanes.claim((n % 3).into()).expect("nobody has it");
        let reserved = lane.reserve(&mut [&mut object], Shape::slots_for(payload.len()));
        reserved.ok().expect("room").persist(&payload).seal();
        payloads.push(payload);
    }
    lanes.commit_upto(object.stamp()).expect("committed");
    assert!(lanes.committed() >= object.stamp() && lanes.tail() >= object.stamp());
    payloads
}

#[test]
fn records_come_back_in_order() {
    let memory = memory();
    let payloads = written(memory.clone());
    let found = recover(&*memory, &SHAPE).expect("nothing is missing");
    assert_eq!(found.records.into_iter().map(|record| record.payload).collect::<Vec<_>>(), payloads);
    let later = Shape { epoch: 8, ..SHAPE };
    assert!(matches!(recover(&*memory, &later), Err(Error::Damaged(_))), "another epoch is no commit");
}

/// Whether damage to any byte of a committed record is refused.
fn damage_is_refused(bug: Option<Bug>) -> bool {
    (0..usize::from(SHAPE.lanes)).all(|lane| {
        // Lanes have 2, 4 and 6 slots in use.
        (0..2 * (lane + 1) * slot::SLOT).step_by(37).all(|at| {
            let memory = memory();
            written(memory.clone());
            let at = SHAPE.offset(lane, 0) + at;
            let mut byte = [0];
            memory.read(at, &mut byte);
            memory.write(at, &[byte[0] ^ 4]);
            matches!(recover_planted(&*memory, &SHAPE, Planted(bug)), Err(Error::Damaged(_)))
        })
    })
}

#[test]
fn what_is_damaged_is_not_left_out() {
    assert!(damage_is_refused(None));
    assert!(!damage_is_refused(Some(Bug::GapIgnored)));
    assert!(!damage_is_refused(Some(Bug::TornAccepted)));
}

#[test]
fn arbitrary_tables_and_slots_do_no_harm() {
    use rand::{RngCore, SeedableRng};
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(5);
    for round in 0..500 {
        let memory = memory();
        written(memory.clone());
        let mut bytes = [0; 40];
        random.fill_bytes(&mut bytes);
        let at = random.next_u64() as usize % (SHAPE.bytes() - bytes.len());
        memory.write(at, &bytes[..1 + round % 40]);
        // Either is fine: no panic.
        let _ = recover(&*memory, &SHAPE);
    }
}

#[test]
fn a_lane_has_one_owner_and_a_ring_an_end() {
    let lanes = Lanes::start(memory(), SHAPE, Clock::best()).expect("it fits");
    let mut lane = lanes.claim(0).expect("nobody has it");
    assert!(lanes.claim(0).is_none() && lanes.claim(3).is_none());
    for _ in 0..SHAPE.slots {
        lane = lane.reserve(&mut [], 1).ok().expect("room").persist(b"x").seal().0;
    }
    let (lane, full) = lane.reserve(&mut [], 1).err().expect("no room");
    assert_eq!(full, Error::Full);
    lanes.advance_heads().expect("nothing is committed");
    let (lane, full) = lane.reserve(&mut [], 1).err().expect("nothing is committed");
    assert_eq!(full, Error::Full);
    lanes.commit_upto(lanes.tail()).expect("committed");
    lanes.advance_heads().expect("all is home");
    let lane = lane.reserve(&mut [], 8).ok().expect("all of it").give_back();
    drop(lane.reserve(&mut [], 8).ok().expect("given back"));
    lanes.commit_upto(lanes.tail() + 1).expect("nobody holds it up");
    assert!(lanes.claim(0).is_some());
    let small = Arc::new(HeapMemory::new(64));
    assert!(matches!(Lanes::start(small, SHAPE, Clock::best()), Err(Error::Refused(_))));
}

#[test]
fn who_gives_up_a_persisted_record_fails_all() {
    let lanes = Lanes::start(memory(), SHAPE, Clock::word()).expect("it fits");
    let lane = lanes.claim(1).expect("nobody has it");
    drop(lane.reserve(&mut [], 1).ok().expect("room").persist(b"x"));
    assert_eq!(lanes.commit_upto(100), Err(Error::Failed));
    assert!(lanes.claim(1).is_none() && lanes.claim(0).is_none());
}
