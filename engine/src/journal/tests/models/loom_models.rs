//! Every interleaving of few threads.

use super::*;

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

#[test]
fn loom_mapped_commits() {
    check(2, || commits_cover_what_is_sealed(mapped_model()));
}

#[test]
fn loom_ssd_commits() {
    check(2, || commits_cover_what_is_sealed(ssd_model()));
}

#[test]
fn loom_settled() {
    check(2, || what_is_settled_is_there(mapped_model(), Durability::Power));
    check(2, || what_is_settled_is_there(ssd_model(), Durability::Process));
}

#[test]
fn loom_calls() {
    check(2, || calls_are_made(ssd_model()));
}

#[test]
fn loom_mapped_reuse() {
    check(2, || slots_are_reused_in_order(mapped_model()));
}

#[test]
fn loom_ssd_reuse() {
    check(2, || slots_are_reused_in_order(ssd_model()));
}

#[test]
fn loom_shared_walk() {
    check(2, || walks_are_shared(ssd_model()));
}

#[test]
fn loom_old_credits() {
    check(2, || old_credits_find_free_slots(mapped_model()));
    check(2, || old_credits_find_free_slots(ssd_model()));
}

#[test]
fn loom_credits() {
    check(3, credits_come_back);
}

#[test]
fn loom_starving() {
    check(1, a_starving_taker_gets_room_from_a_checkpoint);
}

#[test]
fn loom_failure() {
    check(2, a_failure_ends_every_wait);
}
