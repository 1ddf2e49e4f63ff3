use super::super::Takeover;
use super::super::testing::killed;
use super::*;
use std::sync::Arc;

/// What was left of a request, which is answered.
fn left(memory: &Arc<Takeover>, unique: u64) -> Option<Left> {
    Requests::resume(memory, unique).map(|(left, _)| left)
}

#[test]
fn what_a_thread_does_is_noted_for_its_request_alone() {
    let memory = Takeover::create(1).expect("memory");
    let first = Requests::take(&memory, 10, 1, 5).expect("a free slot");
    let second = Requests::take(&memory, 12, 2, 6).expect("a free slot");
    second.add_attempts(1);
    {
        let _entered = first.enter();
        reserved(1, 7);
        decides(99);
        reserved(3, 8);
        reserved(3, 9);
    }
    decides(1);
    reserved(3, 10);
    {
        let _entered = second.enter();
        wrote(4096);
    }
    let third = Requests::take(&memory, 14, 2, 6).expect("a free slot");
    assert_eq!(killed(&memory).life().left, LeftCounts { taken: 1, decided: 1, done: 1 });
    drop(third);
    let next = killed(&memory);
    next.requests().judge(|epoch, position| Ok((epoch, position) == (3, 8))).expect("judged");
    let mut all = next.requests().all_left();
    all.sort_by_key(|one| one.unique);
    let one = |unique, opcode, nodeid, nid, written, attempts| Left {
        unique,
        opcode,
        nodeid,
        done: true,
        nid,
        written,
        attempts,
        server: 0,
    };
    assert_eq!(all, [one(10, 1, 5, 99, 0, 1), one(12, 2, 6, 0, 4096, 2)]);
    assert_eq!(left(&next, 10 | RESENT).map(|left| left.unique), Some(10));
    assert_eq!(left(&next, 10), None);
    next.requests().forget_left();
    assert_eq!(killed(&next).requests().all_left(), []);
}

#[test]
fn a_record_that_is_not_whole_was_not_done_and_what_was_judged_stays_so() {
    let memory = Takeover::create(1).expect("memory");
    let taken = Requests::take(&memory, 4, 9, 1).expect("a free slot");
    {
        let _entered = taken.enter();
        decides(0);
        reserved(1, 100);
    }
    let next = killed(&memory);
    next.requests().judge(|_, _| Ok(false)).expect("judged");
    assert_eq!(next.requests().all_left().iter().map(|left| left.done).collect::<Vec<_>>(), [false]);
    let third = killed(&next);
    third.requests().judge(|_, _| Ok(true)).expect("nothing is left to judge");
    assert!(left(&third, 4).is_some_and(|left| !left.done && left.attempts == 1));
    drop(taken);
}

#[test]
fn what_is_resumed_is_left_again_by_the_next_kill() {
    let memory = Takeover::create(1).expect("memory");
    let [done, begun] = [4, 6].map(|unique| Requests::take(&memory, unique, 9, 1).expect("a free slot"));
    {
        let _entered = done.enter();
        wrote(10);
    }
    let next = killed(&memory);
    next.requests().judge(|_, _| Ok(false)).expect("judged");
    let resume = |unique| Requests::resume(&next, unique | RESENT).expect("it was left");
    let [(done_left, _done), (begun_left, resumed)] = [4, 6].map(resume);
    assert!(Requests::resume(&next, 4).is_none());
    assert_eq!((done_left.done, begun_left.done), (true, false));
    resumed.add_attempts(3);
    let third = killed(&next);
    third.requests().judge(|_, _| Ok(false)).expect("judged");
    let mut left = third.requests().all_left();
    left.sort_by_key(|one| one.unique);
    let told = |one: &Left| (one.done, one.written, one.attempts);
    assert_eq!(left.iter().map(told).collect::<Vec<_>>(), [(true, 10, 2), (false, 0, 5)]);
    drop(begun);
}

#[test]
fn answered_requests_leave_nothing() {
    let memory = Takeover::create(1).expect("memory");
    for unique in 1..100_000 {
        drop(Requests::take(&memory, unique * 2, 1, 1).expect("a free slot"));
    }
    assert_eq!(killed(&memory).requests().all_left(), []);
}
