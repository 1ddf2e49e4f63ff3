//! Cases that can be solved by hand.

use super::*;
use crate::model::script::spun;

fn setup(threads: Vec<Script>) -> Setup {
    Setup {
        machine: Machine::of_one_socket(0.0),
        counted: threads.len(),
        threads,
        lines: 1,
        locks: vec![Waiting::Spin],
        channels: 1,
        batches: 1,
        operations: 200_000,
        seed: 1,
    }
}

fn rate(setup: Setup) -> f64 {
    run(setup).expect("a right script").rate / 1e9
}

fn near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.02, "{found} instead of {expected}");
}

#[test]
fn what_is_serial_limits_what_is_not() {
    for threads in [1, 2, 5, 11, 40] {
        let script: Script = [Step::Work(900.0)].into_iter().chain(spun(0, 100.0)).collect();
        let most = (threads as f64 / 1000.0).min(1.0 / 100.0);
        near(rate(setup(vec![script; threads])), most);
    }
}

#[test]
fn a_queue_of_few_customers_is_as_mean_value_analysis_says() {
    let (think, service) = (400.0, 100.0);
    let script =
        vec![Step::Varied(think), Step::Lock(0, Access::Write), Step::Varied(service), Step::Unlock(0)];
    let (mut waiting, mut expected) = (0.0, 0.0);
    for customers in 1..=12 {
        let stay = service * (1.0 + waiting);
        expected = f64::from(customers) / (think + stay);
        waiting = expected * stay;
        near(rate(setup(vec![script.clone(); customers as usize])), expected);
    }
    assert!(expected < 1.0 / service);
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let held = |access| vec![Step::Lock(0, access), Step::Work(100.0), Step::Unlock(0)];
    near(rate(setup(vec![held(Access::Read); 7])), 7.0 / 100.0);
    near(rate(setup(vec![held(Access::Write); 7])), 1.0 / 100.0);
}

#[test]
fn a_line_moves_from_core_to_core_and_is_free_at_home() {
    let script = vec![Step::Work(10.0), Step::Line(Pick::the(0))];
    let on =
        |threads| Setup { machine: Machine::of_one_socket(50.0), ..setup(vec![script.clone(); threads]) };
    near(rate(on(1)), 1.0 / 10.0);
    near(rate(on(9)), 1.0 / 50.0);
    let spread = vec![Step::Work(10.0), Step::Line(Pick { first: 0, of: 1000 })];
    let spread = Setup { lines: 1000, machine: Machine::of_one_socket(50.0), ..setup(vec![spread; 9]) };
    assert!(rate(spread) > 6.0 / 50.0);
}

#[test]
fn who_sleeps_has_to_be_woken() {
    let script: Script = spun(0, 100.0).to_vec();
    let asleep =
        |threads| Setup { locks: vec![Waiting::Sleep(900.0)], ..setup(vec![script.clone(); threads]) };
    near(rate(asleep(1)), 1.0 / 100.0);
    near(rate(asleep(4)), 1.0 / 1000.0);
}

#[test]
fn a_device_serves_as_many_as_it_has_channels() {
    for (threads, at_once) in [(1, 1.0), (3, 3.0), (8, 4.0)] {
        let asked = vec![Step::Request(80.0)];
        near(rate(Setup { channels: 4, ..setup(vec![asked; threads]) }), at_once / 80.0);
    }
}

#[test]
fn a_batch_serves_all_who_wait_at_once() {
    let served = vec![Step::Await(0)];
    let server = vec![Step::Gather(0), Step::Work(100.0), Step::WorkForEach(10.0), Step::Release(0)];
    for customers in [1, 6] {
        let mut threads = vec![served.clone(); customers];
        threads.push(server.clone());
        let found = run(Setup { counted: customers, ..setup(threads) }).expect("a right script");
        near(found.rate / 1e9, customers as f64 / (100.0 + 10.0 * customers as f64));
        near(found.latency[1], 100.0 + 10.0 * customers as f64);
    }
}

#[test]
fn a_wrong_script_is_told() {
    assert_eq!(run(setup(vec![vec![Step::Lock(7, Access::Read)]])), None);
    assert_eq!(run(setup(vec![vec![Step::Gather(0)]])), None, "nobody ever comes");
    assert_eq!(run(setup(vec![Vec::new()])), None);
}
