//! The states against a model that knows of each page by itself.

use super::{
    Below, Delayed, Logging, OldContent, OldContentBudget, OldPage, PageStates, Selection, Take,
    UnderWriteBack,
};
use crate::format::Position;
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::Range;

const PAGES: u64 = 12;

#[derive(Debug, Clone)]
enum Step {
    Dirty(u64),
    BeginWriteBack {
        take: Take,
        pages: Range<u64>,
        most: usize,
        tail: Option<u64>,
    },
    BeginLogging {
        end: u64,
    },
    /// Ends the token: of each of its pages, whether it succeeds.
    End(Vec<bool>),
    DropToken,
    Remove(Range<u64>),
    Forget(Range<u64>),
    Checkpoint {
        head: Position,
        upto: Position,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..PAGES, 0..PAGES).prop_map(|(a, b)| a.min(b)..a.max(b) + 1);
    let take = prop_oneof![Just(Take::Dirty), Just(Take::All), Just(Take::Recorded)];
    prop_oneof![
        6 => (0..PAGES).prop_map(Step::Dirty),
        3 => (take, range(), 1..6usize, prop::option::of(0..PAGES))
            .prop_map(|(take, pages, most, tail)| Step::BeginWriteBack { take, pages, most, tail }),
        3 => (0..PAGES + 1).prop_map(|end| Step::BeginLogging { end }),
        5 => vec(any::<bool>(), PAGES as usize + 1).prop_map(Step::End),
        1 => Just(Step::DropToken),
        1 => range().prop_map(Step::Remove),
        1 => range().prop_map(Step::Forget),
        2 => (0..8u64, 0..8u64).prop_map(|(head, more)| Step::Checkpoint { head, upto: head + more }),
    ]
}

#[derive(Debug, Clone, Copy, Default)]
struct Page {
    dirty: bool,
    logged: bool,
    record: Option<(Position, Position)>,
    stale: bool,
    /// Its newest content is in place.
    is_down: bool,
}

enum Token<'s> {
    None,
    WriteBack(UnderWriteBack<'s>),
    Logging(Logging<'s>),
}

struct Model {
    pages: Vec<Page>,
    failures: u64,
    tail: Position,
}

impl Model {
    fn new() -> Model {
        Model { pages: vec![Page { is_down: true, ..Page::default() }; PAGES as usize], failures: 0, tail: 0 }
    }

    fn at(&mut self, page: u64) -> &mut Page {
        &mut self.pages[page as usize]
    }

    fn in_range(&mut self, pages: &Range<u64>) -> &mut [Page] {
        &mut self.pages[pages.start as usize..pages.end as usize]
    }

    fn select(&self, take: Take, pages: Range<u64>, most: usize, tail: Option<u64>) -> Vec<u64> {
        let is_meant = |page: &u64| {
            let page = self.pages[*page as usize];
            match take {
                Take::Dirty => page.dirty,
                Take::All => page.dirty || page.logged,
                Take::Recorded => (page.dirty || page.logged) && page.record.is_some(),
            }
        };
        let selected: Vec<_> = pages.filter(is_meant).take(most).collect();
        let first = tail.filter(|tail| {
            selected.first().is_some_and(|first| first > tail) && self.pages[*tail as usize].dirty
        });
        first.into_iter().chain(selected).collect()
    }

    fn look_below(&mut self, head: Position, upto: Position, is_logging: bool) -> Below {
        for page in &mut self.pages {
            if page.record.is_some_and(|(_, last)| last <= head) {
                (page.record, page.stale) = (None, false);
            }
        }
        let below = |page: &&Page| page.record.is_some_and(|(first, _)| first <= upto);
        let mut below = self.pages.iter().filter(below).peekable();
        let has_some = below.peek().is_some();
        match below.any(|page| page.dirty || page.logged) {
            true => Below::Cached,
            false if has_some || is_logging => Below::Underway,
            false => Below::Nothing,
        }
    }

    fn check(&self, states: &PageStates, held: &[u64]) {
        let summary = states.summary();
        let count = |is: fn(&Page) -> bool| self.pages.iter().filter(|page| is(page)).count();
        assert_eq!(summary.dirty, count(|page| page.dirty));
        assert_eq!(summary.logged, count(|page| page.logged));
        assert_eq!(summary.stale, count(|page| page.stale));
        assert_eq!(states.failures(), self.failures);
        for (number, page) in (0..).zip(&self.pages) {
            assert_eq!(states.has_dirty(number..number + 1), page.dirty, "page {number}");
            assert_eq!(states.is_stale(number), page.stale, "page {number}");
            assert_eq!(states.has_records(number..number + 1), page.record.is_some(), "page {number}");
            let is_somewhere = page.dirty || page.logged || held.contains(&number);
            assert!(page.is_down || is_somewhere, "the content of page {number} is lost: {page:?}");
            assert!(!page.stale || page.record.is_some(), "page {number}");
        }
        let nothing_dirty = count(|page| page.dirty) == 0;
        assert_eq!(states.is_synced(&(0..PAGES)), nothing_dirty && held.is_empty());
    }
}

fn run(steps: Vec<Step>) {
    let states = PageStates::default();
    let mut model = Model::new();
    let mut token = Token::None;
    let mut held: Vec<u64> = Vec::new();
    for step in steps {
        let is_free = matches!(token, Token::None);
        match step {
            Step::Dirty(page) => {
                states.dirtied(vec![page]);
                let page = model.at(page);
                (page.dirty, page.is_down) = (true, false);
            }
            Step::BeginWriteBack { take, pages, most, tail } if is_free => {
                held = model.select(take, pages.clone(), most, tail);
                let (begun, tail_waits) = states.begin_write_back(Selection { pages, take, most, tail });
                assert_eq!(*begun, held);
                for page in &held {
                    let page = model.at(*page);
                    (page.dirty, page.logged) = (false, false);
                }
                assert_eq!(tail_waits, tail.is_some_and(|tail| model.at(tail).dirty));
                token = Token::WriteBack(begun);
            }
            Step::BeginLogging { end } if is_free => {
                held = (0..end.min(PAGES)).filter(|page| model.pages[*page as usize].dirty).collect();
                let begun = states.begin_logging(end);
                assert_eq!(*begun, held);
                held.iter().for_each(|page| model.at(*page).dirty = false);
                token = Token::Logging(begun);
            }
            Step::End(outcomes) => match std::mem::replace(&mut token, Token::None) {
                Token::None => {}
                Token::WriteBack(begun) => drop(begun.finish(0, |end| {
                    for (page, succeeds) in held.drain(..).zip(outcomes) {
                        let known = model.at(page);
                        if succeeds {
                            let stale_upto = end.written(page, known.stale || known.record.is_some(), None);
                            let newly = known.record.filter(|_| !known.stale);
                            assert_eq!(stale_upto, newly.map(|(_, last)| last));
                            known.is_down = !known.dirty;
                            if let Some((first, _)) = &mut known.record {
                                *first = Position::MAX;
                                known.stale = true;
                            }
                        } else {
                            end.failed(page);
                            known.dirty = true;
                        }
                    }
                })),
                Token::Logging(mut begun) if outcomes[0] => {
                    model.tail += 1;
                    let at = model.tail;
                    begun.record_logged(at);
                    let _ = begun.finish(at, false, |end| {
                        for page in held.drain(..) {
                            let known = model.at(page);
                            end.logged(page, !known.dirty);
                            known.logged |= !known.dirty;
                            known.record = Some((known.record.map_or(at, |(first, _)| first.min(at)), at));
                            known.stale = false;
                        }
                    });
                }
                Token::Logging(mut begun) => {
                    begun.abort();
                    held.drain(..).for_each(|page| model.at(page).dirty = true);
                }
            },
            Step::DropToken if !is_free => {
                token = Token::None;
                model.failures += 1;
                held.drain(..).for_each(|page| model.at(page).dirty = true);
            }
            Step::Remove(pages) if is_free => {
                states.remove(&pages, 0);
                for page in model.in_range(&pages) {
                    (page.dirty, page.logged, page.is_down) = (false, false, true);
                }
            }
            Step::Forget(pages) if is_free => {
                states.forget_records(&pages);
                for page in model.in_range(&pages) {
                    (page.record, page.stale) = (None, false);
                }
            }
            Step::Checkpoint { head, upto } => {
                let is_logging = matches!(token, Token::Logging(_));
                assert_eq!(states.look_below(head, upto).0, model.look_below(head, upto, is_logging));
            }
            _ => {}
        }
        let begun_empty = held.is_empty() && matches!(token, Token::Logging(_));
        if !begun_empty {
            model.check(&states, &held);
        }
    }
    drop(token);
}

proptest! {
    #[test]
    fn the_states_are_those_of_the_model(steps in vec(step(), 0..80)) {
        run(steps);
    }
}

#[test]
fn a_pending_truncation_holds_up_what_follows_until_its_record_is_logged() {
    let states = PageStates::default();
    let _ = states.delayed(vec![1], &Delayed::new(1..2, 1, 0, true));
    states.remove(&(0..9), 1);
    states.begin_truncate(3);
    assert_eq!((states.summary().truncate_pending, states.summary().generation), (Some(3), 1));
    assert!(!states.is_synced(&(0..9)) && !states.dequeue_if_clean(|| true) && states.holds_up_size(None));
    states.truncate_recorded();
    assert!(states.is_synced(&(0..9)) && states.is_idle() && states.reserved() == 0);
}

#[test]
fn copies_of_old_content_keep_the_head_from_their_records() {
    let (states, budget) = (PageStates::default(), OldContentBudget::beside(0));
    let page = |block, first| OldPage { block, first, bytes: Box::new([]) };
    let share = budget.share(2).expect("room");
    states.keep_old(OldContent::new(vec![page(9, 4), page(8, 2)], share));
    assert_eq!(
        [1, 2, 4].map(|upto| states.old_below(upto, |page| page.block)),
        [vec![], vec![8], vec![8, 9]]
    );
    assert_eq!(states.look_below(0, 3), (Below::Old, false));
    states.old_in_place(3);
    assert_eq!(states.look_below(0, 3), (Below::Nothing, false));
    assert!(budget.share(31).is_none());
    states.old_in_place(4);
    assert_eq!(states.look_below(0, 9), (Below::Nothing, true));
    assert!(budget.share(32).is_some() && budget.share(33).is_none());
}

#[test]
fn a_flush_that_failed_makes_what_it_was_to_cover_dirty_or_lost() {
    let states = PageStates::default();
    states.dirtied(vec![1, 2, 3]);
    let all = || Selection { pages: 0..9, take: Take::All, most: 9, tail: None };
    let written = |page, at| {
        move |end: &mut super::WriteBackEnd<'_>| assert!(end.written(page, true, Some(at)).is_none())
    };
    let _ = states.begin_write_back(all()).0.finish(0, |end| (1..=3).for_each(|page| written(page, 7)(end)));
    let pending = states.unflushed();
    states.dirtied(vec![3]);
    let _ = states.begin_write_back(all()).0.finish(0, written(3, 8));
    assert!(states.flush_ended(pending, false, |page| (page == 1).then_some(true)));
    assert!(states.has_dirty(1..2) && !states.has_dirty(2..9));
    assert_eq!(states.unflushed(), [(2, 7), (3, 8)]);
    states.flushed(8);
    assert!(states.unflushed().is_empty() && states.is_lost());
}

/// Extent blocks that leaves of 126 extents, all of them full, need for these writes by themselves.
fn needed(writes: &[(u64, u64)]) -> u64 {
    writes.iter().map(|(_, len)| 1 + (len - 1) / 63).sum()
}

proptest! {
    /// Of what was promised for writes into holes as much stays as they need, whatever goes on where another ended; and
    /// all is given back when the last of them has its blocks.
    #[test]
    fn what_pages_in_holes_need_for_their_extents_stays_promised(
        lens in vec((any::<bool>(), 1..400u64), 1..40),
        recorded in vec(0..1000u64, 0..20),
    ) {
        let (states, mut at, mut promised) = (PageStates::default(), 0, 0);
        let mut writes: Vec<(u64, u64)> = Vec::new();
        for (goes_on, len) in lens {
            at += if goes_on { 0 } else { 1000 };
            match writes.last_mut() {
                Some((_, last)) if goes_on => *last += len,
                _ => writes.push((at, len)),
            }
            let delayed = Delayed::new(at..at + len, len, 2, true);
            promised += delayed.nodes() - states.delayed(Vec::new(), &delayed);
            at += len;
            prop_assert!(promised >= needed(&writes) + 2);
            prop_assert!(promised <= super::delayed::nodes(2 * writes.len() as u64, states.reserved(), 2));
        }
        for count in recorded.into_iter().chain([u64::MAX]) {
            promised -= states.unreserve(count.min(states.reserved()));
            prop_assert!(promised >= states.reserved().min(1));
        }
        prop_assert_eq!((promised, states.reserved()), (0, 0));
    }
}

/// A hole that is gone on from a few pages far apart, each in a leaf of its own: it may end in one more.
#[test]
fn what_goes_on_from_pages_far_apart_may_meet_one_more_leaf() {
    let states = PageStates::default();
    let apart = Delayed::new(0..128, 2, 1, true);
    let promised = apart.nodes() - states.delayed(Vec::new(), &apart);
    let whole = Delayed::new(128..130, 2, 1, true);
    let promised = promised + whole.nodes() - states.delayed(Vec::new(), &whole);
    assert!(promised >= 4, "three leaves, and the root: {promised}");
}
