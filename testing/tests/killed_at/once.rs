//! One death.

use crate::{TAKING_OVER, Trial, expected};
use narufs_engine::planted::kill::{Death, Step};
use narufs_fuse::wire::Opcode;
use narufs_testing::mortal::{LOOKS, Way, cases};
use std::collections::BTreeSet;

/// Requests of one call that are told apart.
const MOST_REQUESTS: u32 = 3;

/// What no call reaches, and why no server can die of it at a step.
const UNREACHED: [(Opcode, &str); 16] = [
    (Opcode::Forget, "it has no reply: what was read and lost is asked about later"),
    (Opcode::BatchForget, "as Forget"),
    (Opcode::Interrupt, "it has no reply, and its request is sent again uninterrupted"),
    (Opcode::NotifyReply, "it has no reply, and nothing asks for it"),
    (Opcode::Init, "before it is answered there is no mount"),
    (Opcode::Destroy, "the mount is gone"),
    (Opcode::Flush, "the server wants none"),
    (Opcode::Readdir, "the kernel is told to ask for attributes each time"),
    (Opcode::Getlk, "locks are the kernel's own"),
    (Opcode::Setlk, "locks are the kernel's own"),
    (Opcode::Setlkw, "locks are the kernel's own"),
    (Opcode::Poll, "it is refused, and changes nothing"),
    (Opcode::Bmap, "it is refused, and changes nothing"),
    (Opcode::Setupmapping, "virtio has it alone"),
    (Opcode::Removemapping, "virtio has it alone"),
    (Opcode::Syncfs, "virtio has it alone"),
];

#[test]
fn every_kind_of_request_has_a_case_or_a_reason_to_have_none() {
    let mut missing: BTreeSet<u32> = Opcode::ALL.iter().map(|opcode| *opcode as u32).collect();
    for case in cases() {
        missing.remove(&(case.opcode as u32));
    }
    // By the kernel's version one of the two.
    missing.remove(&(Opcode::CopyFileRange as u32));
    missing.remove(&(Opcode::CopyFileRange64 as u32));
    let unreached: BTreeSet<u32> = UNREACHED.iter().map(|(opcode, _)| *opcode as u32).collect();
    assert_eq!(missing, unreached);
}

#[test]
fn each_step_of_a_request_or_of_taking_over_is_one_at_which_servers_die() {
    let mut steps: BTreeSet<Step> = cases().iter().flat_map(|case| case.passes).copied().collect();
    steps.extend(TAKING_OVER);
    // Of requests that are sent again: `again`.
    steps.extend([Step::Redelivered, Step::Redone]);
    assert_eq!(steps, Step::ALL.iter().copied().collect());
}

fn passes_are_as_they_should_be(way: Way) {
    let mut complaints = Vec::new();
    for (case, ran) in expected(way) {
        let passed = Step::ALL.iter().copied().filter(|step| ran.passed(*step) > 0 && case.is_sure(*step));
        let passed: Vec<Step> = passed.collect();
        if passed != case.passes {
            complaints.push(format!("{}: {passed:?}, not {:?}", case.name, case.passes));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// A server dies at each step that each call passes.
fn servers_die_at_each_step(way: Way) {
    passes_are_as_they_should_be(way);
    let (mut trial, mut points) = (Trial::new(way), 0);
    'all: for one in expected(way) {
        let (case, ran) = one;
        for step in case.passes {
            // Of the records of one request the first will do: how many it takes is not always the same.
            let most = if LOOKS.contains(step) { MOST_REQUESTS } else { 1 };
            for passes in 0..ran.passed(*step).min(most) {
                let death = Death { passes, ..Death::at(case.opcode as u32, *step) };
                points += 1;
                if trial.run(one, &[death]).is_none() {
                    break 'all;
                }
            }
        }
    }
    let calls = expected(way).len();
    println!("{way:?}: {} deaths at {points} points of {calls} calls", trial.end());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_call_happens_once_whatever_its_server_dies_at() {
    servers_die_at_each_step(Way::Usual);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_call_happens_once_whatever_its_server_dies_at_where_it_is_asked_each_time() {
    servers_die_at_each_step(Way::Asked);
}
