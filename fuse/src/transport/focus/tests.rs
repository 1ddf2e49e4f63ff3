//! Which lanes read, for clients that ask as the tests want.

use super::*;
use zerocopy::IntoBytes;

/// Threads below 100 run on the core of their number's last digit.
fn by_number(thread: u32) -> Option<usize> {
    (thread < 100).then_some(thread as usize % 10)
}

fn header(pid: u32) -> InHeader {
    let mut header = InHeader::read_from_bytes(&[0; size_of::<InHeader>()]).expect("its size");
    (header.pid, header.opcode, header.len) = (pid, Opcode::Lookup as u32, 42);
    header
}

fn ask(focus: &Focus, seen: &mut Seen, pid: u32, times: u32) {
    let header = header(pid);
    for _ in 0..times {
        let request = RequestParts { header: header.as_bytes(), first: None, body: b"a\0" };
        focus.note(seen, &header, &request, 0);
    }
}

fn may_read(focus: &Focus, lane: usize) -> bool {
    focus.turn(lane).is_some()
}

#[test]
fn a_lone_client_gets_the_lane_of_its_core_and_a_second_one_ends_that() {
    let focus = Focus::with(&[0, 1, 2], false, by_number);
    let mut seen = [Seen::default(), Seen::default(), Seen::default()];
    ask(&focus, &mut seen[0], 12, ROW);
    assert!((0..3).all(|lane| may_read(&focus, lane)), "not yet a row");
    ask(&focus, &mut seen[0], 12, 1);
    assert!(may_read(&focus, 2) && !may_read(&focus, 0) && !may_read(&focus, 1));
    ask(&focus, &mut seen[2], 12, 3 * ROW);
    assert!(!may_read(&focus, 0));
    ask(&focus, &mut seen[2], 0, 1);
    assert!(!may_read(&focus, 0), "the kernel's own requests are nobody's");
    ask(&focus, &mut seen[2], 22, 1);
    assert!((0..3).all(|lane| may_read(&focus, lane)));
    ask(&focus, &mut seen[2], 22, ROW + 1);
    assert!(may_read(&focus, 0), "after a second client the row is longer");
    ask(&focus, &mut seen[2], 22, ROW);
    assert!(!may_read(&focus, 0));
}

#[test]
fn a_client_that_moves_is_followed_and_one_that_cannot_be_found_is_not() {
    let focus = Focus::with(&[4, 5], false, |thread| Some(if thread == 7 { 5 } else { 9 }));
    let mut seen = Seen::default();
    ask(&focus, &mut seen, 7, ROW + 1);
    assert!(may_read(&focus, 1) && !may_read(&focus, 0));
    let mut other = Seen::default();
    ask(&focus, &mut other, 8, 4 * ROW);
    assert!(may_read(&focus, 0) && may_read(&focus, 1), "its core has no lane");
}

#[test]
fn the_core_of_a_client_that_stays_is_looked_at_more_and_more_seldom() {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    let focus = Focus::with(&[0, 1], true, |_| {
        LOOKS.fetch_add(1, Ordering::Relaxed);
        Some(1)
    });
    ask(&focus, &mut Seen::default(), 7, 1 + ROW * (1 + 1 + 2 + 4 + 8 + 3 * 16));
    assert_eq!(LOOKS.load(Ordering::Relaxed), 1 + 4 + 3);
}

#[test]
fn requests_with_much_data_are_served_by_all() {
    let focus = Focus::with(&[0, 1], false, by_number);
    let mut seen = Seen::default();
    ask(&focus, &mut seen, 10, ROW + 1);
    assert!(!may_read(&focus, 1));
    let mut header = header(10);
    (header.opcode, header.len) = (Opcode::Write as u32, MUCH + 1);
    let request = RequestParts { header: &[], first: None, body: &[] };
    focus.note(&mut seen, &header, &request, 0);
    assert!(may_read(&focus, 1));
}

/// Has a client ask at times of its own until it is served elsewhere.
fn until_it_moves(focus: &Focus, pid: u32, every: Duration) -> u32 {
    let before = focus.alone.load(Ordering::Relaxed);
    let mut now = focus.began.elapsed();
    (1..)
        .find(|_| {
            now += every;
            focus.note_alone(pid, false, now, 0);
            focus.alone.load(Ordering::Relaxed) != before
        })
        .expect("it does")
}

#[test]
fn a_client_is_served_from_beside_where_that_is_faster() {
    let focus = Focus::with(&[0, 1, 2], true, by_number);
    ask(&focus, &mut Seen::default(), 12, ROW + 1);
    assert_eq!((0..3).map(|lane| focus.turn(lane)).collect::<Vec<_>>(), [None, None, Some(Turn::Sleep)]);
    until_it_moves(&focus, 12, Duration::from_micros(20));
    assert_eq!((0..3).map(|lane| focus.turn(lane)).collect::<Vec<_>>(), [Some(Turn::Watch), None, None]);
    assert!(until_it_moves(&focus, 12, Duration::from_micros(10)) > 10 * ROW, "it stays there for long");
    assert_eq!(focus.turn(2), Some(Turn::Sleep), "home is tried again");
    focus.note_alone(13, false, Duration::ZERO, 0);
    assert!((0..3).all(|lane| focus.turn(lane) == Some(Turn::Sleep)), "a second client");
}

#[test]
fn a_client_stays_at_home_on_one_core_or_where_watching_is_not_wanted() {
    for (cores, may_watch) in [(&[0][..], true), (&[0, 1], false)] {
        let focus = Focus::with(cores, may_watch, by_number);
        let mut seen = Seen::default();
        ask(&focus, &mut seen, 10, 100 * ROW);
        assert_eq!(focus.alone.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn who_rests_is_woken_by_a_release_and_by_the_end() {
    for end in [false, true] {
        let focus = Focus::with(&[0, 1], false, by_number);
        focus.set(&focus.lone.lock(), 1);
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| focus.rest(0));
            if end {
                focus.end()
            } else {
                focus.release()
            }
            resting.join().expect("it returns");
        });
        assert_eq!(focus.rest(1), Turn::Sleep);
    }
}

#[test]
fn our_own_core_is_found() {
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    assert!(core_of(tid).is_some());
    assert_eq!(core_of(u32::MAX), None);
    let mut stat = String::from("7 (a) b) S");
    (4..=38).for_each(|n| stat += &format!(" {n}"));
    assert_eq!(parse(&(stat + " 3 0")), Some(3));
}
