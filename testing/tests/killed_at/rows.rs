//! Many deaths in a row, and when a request is refused.

use crate::{Trial, expected};
use narufs_engine::planted::kill::{Death, How, Step};
use narufs_fuse::supervision::MOST_ATTEMPTS;
use narufs_testing::mortal::{Case, Ran, Way};

fn call(name: &str) -> &'static (Case, Ran) {
    expected(Way::Usual).iter().find(|(case, _)| case.name == name).expect("there is such a case")
}

fn times(death: Death, count: usize) -> Vec<Death> {
    vec![death; count]
}

/// Nine servers in a row die on their way to serve, as many as a supervisor bears.
const ON_THE_WAY: [Step; 9] = [
    Step::Adopted,
    Step::Judging,
    Step::Judged,
    Step::Inheriting,
    Step::Inherited,
    Step::Resending,
    Step::Resending,
    Step::Judged,
    Step::Resending,
];

#[test]
#[ignore = "needs root and /dev/fuse"]
fn the_tenth_death_in_a_row_changes_nothing_for_a_request_that_nobody_has_taken_up() {
    let mut trial = Trial::new(Way::Usual);
    for first in [Step::Noted, Step::Decided, Step::Sealed] {
        let one = call("mkdir");
        let opcode = one.0.opcode as u32;
        let mut deaths = vec![Death::at(opcode, first)];
        deaths.extend(ON_THE_WAY.map(|step| Death::at(0, step)));
        trial.run(one, &deaths);
        // The kernel has given it out once more each time, and nobody has looked at it.
        deaths.truncate(1);
        deaths.extend(times(Death::at(opcode, Step::Redelivered), 9));
        trial.run(one, &deaths);
    }
    println!("{} deaths", trial.end());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_request_that_was_done_is_answered_however_many_servers_die_of_it() {
    let mut trial = Trial::new(Way::Usual);
    for (name, step) in [("mkdir", Step::Persisted), ("append", Step::Wrote)] {
        let one = call(name);
        let opcode = one.0.opcode as u32;
        let mut deaths = vec![Death::at(opcode, step)];
        deaths.extend(times(Death::at(opcode, Step::Answering), 9));
        trial.run(one, &deaths);
    }
    println!("{} deaths", trial.end());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_request_that_servers_die_of_is_refused_and_leaves_nothing() {
    let mut trial = Trial::new(Way::Usual);
    let one = call("mkdir");
    let opcode = one.0.opcode as u32;
    let most = MOST_ATTEMPTS as usize;
    trial.run(one, &times(Death::at(opcode, Step::Noted), most - 1));
    let of_itself = Death { how: How::OfItself, ..Death::at(opcode, Step::Noted) };
    trial.run(one, &[of_itself]);
    for deaths in [times(Death::at(opcode, Step::Noted), most), times(of_itself, 2)] {
        if let Some(ran) = trial.run_to(&one.0, &deaths) {
            assert!(ran.outcome.contains(&libc::EIO.to_string()), "{}", ran.outcome);
            assert_eq!(ran.tree.len(), 1, "nothing was made: {:?}", ran.tree);
        }
    }
    println!("{} deaths", trial.end());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn servers_that_die_on_their_way_have_not_died_of_what_they_would_have_served() {
    let mut trial = Trial::new(Way::Usual);
    let one = call("mkdir");
    let killed = Death::at(one.0.opcode as u32, Step::Noted);
    let on_the_way = Death { how: How::OfItself, ..Death::at(0, Step::Judging) };
    // Twice it was in service at a kill.
    trial.run(one, &[killed, on_the_way, killed, on_the_way]);
    println!("{} deaths", trial.end());
}
