//! Two deaths: the second is the next server's, on its way to serve or with the same request.

use crate::{TAKING_OVER, Trial, expected};
use narufs_engine::planted::kill::{Death, Step};
use narufs_testing::mortal::{Case, Ran, Way};
use narufs_testing::settings;

/// What the next server does with a request that is sent again: nothing was done; it was done, and is answered; it has no
/// record.
const CALLS: [&str; 8] = [
    "mkdir",
    "create",
    "unlink an open file",
    "rename over a file",
    "append",
    "truncate to less",
    "punch a hole",
    "set an attribute that must be new",
];

/// Where the first dies: nothing was done; a record has decided it, or bytes are there; it is answered.
const FIRST: [Step; 6] =
    [Step::Noted, Step::BesidePersisted, Step::Decided, Step::Persisted, Step::Wrote, Step::Answering];

/// Deaths of the second server that can come behind a death at `first`.
fn seconds(one: &(Case, Ran), first: Step, trial: &mut Trial) -> Option<Vec<Death>> {
    let opcode = one.0.opcode as u32;
    let ran = trial.run(one, &[Death::at(opcode, first)])?;
    let passed = |step: &Step| ran.passed(*step) > 0 && one.0.is_sure(*step);
    let of_request = Step::ALL.iter().copied().filter(passed).map(|step| Death::at(opcode, step));
    let taking_over = TAKING_OVER.into_iter().filter(|step| {
        *step != Step::InheritedFile || trial.mortal.plan().passes(0, *step).is_ok_and(|passes| passes > 0)
    });
    Some(taking_over.map(|step| Death::at(0, step)).chain(of_request).collect())
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_call_happens_once_though_the_next_server_dies_too() {
    let (mut trial, mut points) = (Trial::new(Way::Usual), 0);
    let calls = expected(Way::Usual).iter().filter(|(case, _)| CALLS.contains(&case.name));
    let firsts = calls.flat_map(|one| FIRST.map(|first| (one, first)));
    let mut firsts = firsts.filter(|((case, _), first)| case.passes.contains(first));
    let scale = settings::scale();
    let whole = firsts.try_for_each(|(one, first)| {
        let opcode = one.0.opcode as u32;
        // What is of no request is the same for all: of each call it takes one in turn.
        let seconds = seconds(one, first, &mut trial)?;
        for (number, second) in seconds.into_iter().enumerate() {
            if second.opcode != 0 || scale > 1 || number % 3 == points % 3 {
                points += 1;
                trial.run(one, &[Death::at(opcode, first), second])?;
            }
        }
        Some(())
    });
    println!("{points} pairs of points, {} deaths", trial.end());
    assert!(whole.is_some());
}
