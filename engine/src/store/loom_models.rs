//! Models of a page's states, of what is counted and listed of them, and of those who wait for less to be dirty.
//!
//! Each rule was broken by hand in turn; what then failed:
//!
//! | broken | fails |
//! | --- | --- |
//! | `Moved::adds`: what is being written is not counted | `what_no_write_has_brought_home_is_counted_all_the_time` |
//! | `Moved::lists`: not after a write of a page that has changed | `a_change_beside_a_round_is_in_the_next` |
//! | `finish`: a page whose block was freed is dirty after a failure | `a_page_that_is_freed_beside_its_write_is_gone` |
//! | `note`: a page is listed though its block was freed | the same |
//! | `forget`: a page stays on its list | the same |
//! | `Throttle::wait`: looks at the numbers, and notes no round | `loom_who_waits_for_less_to_be_dirty_is_not_forgotten` |
//! | `RunningRound`: dropped after those who wait are woken | the same |

use super::dirty::DirtyPages;
use super::page::{Page, PageRef};
use super::signal::{RunningRound, Signal, Woken};
use super::throttle::Throttle;
use crate::format::BlockKind;
use crate::sync::{Arc, thread};
use std::time::Duration;

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    bounded_by(3, model);
}

fn bounded_by(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn change(pages: &DirtyPages, page: &PageRef) {
    let _latched = page.latch();
    pages.note(page, page.mark_dirty());
}

/// Writes what is dirty; whether it arrives is the caller's.
fn round(pages: &DirtyPages, fails: bool) {
    for page in pages.drain() {
        if pages.claim(&page) {
            pages.note(&page, page.finish(fails));
        }
    }
}

fn changed() -> (Arc<DirtyPages>, PageRef) {
    let (pages, page) = (Arc::new(DirtyPages::new(1)), Page::fresh(40, BlockKind::Bucket, 1, 1));
    change(&pages, &page);
    (pages, page)
}

fn assert_none(pages: &DirtyPages, page: &Page) {
    assert!(!page.is_dirty());
    assert_eq!((pages.count(), pages.unwritten(), pages.drain().len()), (0, 0, 0));
}

#[test]
fn a_change_beside_a_round_is_in_the_next() {
    for fails in [false, true] {
        bounded(move || {
            let (pages, page) = changed();
            let changer = thread::spawn({
                let (pages, page) = (Arc::clone(&pages), Arc::clone(&page));
                move || change(&pages, &page)
            });
            round(&pages, fails);
            changer.join().expect("no panic");
            round(&pages, false);
            assert_none(&pages, &page);
        });
    }
}

#[test]
fn what_no_write_has_brought_home_is_counted_all_the_time() {
    bounded(|| {
        let (pages, page) = changed();
        let writer = thread::spawn({
            let pages = Arc::clone(&pages);
            move || round(&pages, true)
        });
        assert_eq!(pages.unwritten(), 1);
        writer.join().expect("no panic");
        assert_eq!((pages.count(), pages.unwritten()), (1, 1));
        round(&pages, false);
        assert_none(&pages, &page);
    });
}

#[test]
fn a_page_that_is_freed_beside_its_write_is_gone() {
    for fails in [false, true] {
        bounded(move || {
            let (pages, page) = changed();
            let writer = thread::spawn({
                let pages = Arc::clone(&pages);
                move || round(&pages, fails)
            });
            pages.forget(&page);
            writer.join().expect("no panic");
            assert_eq!(pages.listed(), 0, "no round need come");
            assert_none(&pages, &page);
        });
    }
}

/// What a mount has of all this; at one dirty page a round is due, at two unwritten ones operations wait.
struct Mount {
    pages: DirtyPages,
    signal: Signal,
}

impl Mount {
    fn throttle(&self) -> Throttle<'_> {
        Throttle { dirty: &self.pages, limit: 1, signal: &self.signal }
    }

    /// The end of a round, as `Checkpointer::checkpoint` has it.
    fn end_round(&self, running: RunningRound<'_>) {
        drop(running);
        if self.pages.count() >= 1 {
            self.signal.need_round();
        }
        self.signal.wake_throttled();
    }

    /// What the background thread does.
    fn run_rounds(&self) {
        while self.signal.wait(Duration::MAX) == Woken::Round {
            let running = self.signal.round_begins();
            round(&self.pages, false);
            self.end_round(running);
            // A page that is counted and not listed yet has the next round due at once.
            thread::yield_now();
        }
    }
}

/// One waits while the last page of a round comes home and a commit that has not looked makes far too much dirty: the
/// model ends, whichever comes first.
#[test]
fn loom_who_waits_for_less_to_be_dirty_is_not_forgotten() {
    bounded_by(2, || {
        // Nobody looks at what is shown: it is not kept.
        let mount = Arc::new(Mount { pages: DirtyPages::new(usize::MAX), signal: Signal::default() });
        let page = |block| Page::fresh(block, BlockKind::Bucket, 1, 1);
        change(&mount.pages, &page(40));
        let rounds = thread::spawn({
            let mount = Arc::clone(&mount);
            move || {
                let running = mount.signal.round_begins();
                round(&mount.pages, false);
                mount.end_round(running);
                mount.run_rounds();
            }
        });
        let commit = thread::spawn({
            let (mount, made) = (Arc::clone(&mount), [page(41), page(42)]);
            move || made.iter().for_each(|page| change(&mount.pages, page))
        });
        if mount.throttle().look() {
            mount.throttle().wait(|| false);
        }
        commit.join().expect("no panic");
        mount.signal.stop();
        rounds.join().expect("no panic");
    });
}
