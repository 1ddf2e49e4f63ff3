//! Turns by hand: which thread leads, which waiters a commit gathers, what is published.

use super::*;

fn call(turns: &mut Turns, upto: Position) -> bool {
    let leads = turns.take_lead(upto, Lead::Freely);
    turns.wait(upto, Who::Call(Box::new(|_| ())));
    leads
}

#[test]
fn two_callers_have_a_commit_each() {
    let mut turns = Turns::new(0);
    assert!(call(&mut turns, 1));
    assert!(!call(&mut turns, 2), "the commit that is about to begin covers it");
    assert_eq!(turns.begin(16, 0, None), 0);
    assert_eq!((turns.served, turns.ungathered), (2, 0));
    assert!(!turns.take_lead(2, Lead::Freely), "it is under way");
    assert_eq!(turns.down(16).map(|one| one.end), Some(16));
    assert_eq!(turns.covered(16).len(), 2);
    assert!(turns.leave(None, Lead::Freely).is_some());
    assert!(call(&mut turns, 17));
    turns.begin(32, 0, None);
    assert!(call(&mut turns, 33), "as many as the other commit serves");
    turns.begin(48, 0, None);
    assert!(!call(&mut turns, 49), "no more than two");
    assert_eq!(turns.leaders, 2);
}

#[test]
fn many_callers_fall_into_two_groups() {
    let mut turns = Turns::new(0);
    assert!(call(&mut turns, 1));
    for upto in 2..=8 {
        assert!(!call(&mut turns, upto));
    }
    turns.begin(16, 0, None);
    let due: Vec<bool> = (17..=21).map(|upto| call(&mut turns, upto)).collect();
    assert_eq!(due, [false, false, false, true, false], "half of eight, and then it is about to begin");
    turns.begin(32, 0, None);
    assert_eq!(turns.served, 5);
    assert!(!call(&mut turns, 33));
    turns.down(16);
    assert_eq!(turns.covered(16).len(), 8);
    assert!(turns.leave(None, Lead::Freely).is_some(), "one who waits can wait for the other");
    turns.down(32);
    assert!(turns.leave(None, Lead::Freely).is_none(), "nobody else would serve the one who waits");
}

#[test]
fn a_commit_is_published_with_all_before_it() {
    let mut turns = Turns::new(0);
    for end in [16, 32, 48] {
        turns.begin(end, 0, None);
    }
    assert_eq!(turns.down(32).map(|one| one.end), None);
    assert_eq!(turns.down(16).map(|one| one.end), Some(32));
    assert_eq!(turns.down(48).map(|one| one.end), Some(48));
}

#[test]
fn a_thread_that_has_its_commit_leaves_when_another_can_go_on() {
    let mut turns = Turns::new(0);
    assert!(turns.take_lead(1, Lead::Freely));
    turns.begin(16, 0, Some(1));
    assert_eq!(turns.served, 1);
    turns.wait(17, Who::Call(Box::new(|_| ())));
    turns.down(16);
    assert!(turns.leave(Some(1), Lead::Freely).is_none(), "only it can serve the call");
    let seat = Arc::new(Seat::new());
    turns.wait(18, Who::Thread(seat));
    let successor = turns.leave(Some(1), Lead::Freely).flatten().expect("a thread to go on");
    assert_eq!((successor.upto, turns.leaders, turns.ungathered), (18, 0, 1));
}

/// Its locks are waited for: it makes its own commit and no other, however many keep coming.
#[test]
fn a_leader_in_haste_leaves_the_next_commit_to_others() {
    let mut turns = Turns::new(0);
    assert!(turns.take_lead(1, Lead::Briefly));
    for upto in 2..=8 {
        assert!(!call(&mut turns, upto));
    }
    turns.begin(16, 0, Some(1));
    assert_eq!(turns.served, 8);
    assert!(call(&mut turns, 17), "one of eight would else not be enough for a second commit");
    assert!(!call(&mut turns, 18), "that one will cover it");
    turns.down(16);
    assert_eq!(turns.covered(16).len(), 7);
    assert!(turns.leave(Some(1), Lead::Briefly).is_some(), "another leads");
    assert_eq!((turns.leaders, turns.hasty, turns.ungathered), (1, 0, 2));
    turns.begin(32, 0, None);
    assert!(turns.leave(None, Lead::Freely).is_some());
    assert!(turns.take_lead(33, Lead::Briefly));
    turns.begin(48, 0, Some(33));
    assert!(turns.leave(Some(33), Lead::Briefly).is_some(), "nobody came");
}

/// The panic of one who is told is nobody else's: those behind it are told, and the leader goes on.
#[test]
fn who_panics_when_told_keeps_nobody_from_being_told() {
    let (_memory, journal) = crate::journal::tests::mapped(64);
    let (seat, told) = (Arc::new(Seat::new()), Arc::new(AtomicBool::new(false)));
    let note = Arc::clone(&told);
    let calls: [Who; 3] = [
        Who::Call(Box::new(|_| std::panic::resume_unwind(Box::new(())))),
        Who::Thread(Arc::clone(&seat)),
        Who::Call(Box::new(move |outcome| note.store(outcome.is_ok(), Ordering::SeqCst))),
    ];
    journal.answer(calls.into_iter().map(|who| Waiter { upto: 0, who }).collect());
    assert!(seat.is_called() && told.load(Ordering::SeqCst));
    assert!(journal.failed().is_none());
}
