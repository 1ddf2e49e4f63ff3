//! Models of a page's states and of what is counted and listed of them.
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

use super::dirty::DirtyPages;
use super::page::{Page, PageRef};
use crate::format::BlockKind;
use crate::sync::{Arc, thread};

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
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
