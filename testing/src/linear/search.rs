//! The search for an order: depth first over which calls come next, with the states remembered that led nowhere
//! (Wing and Gong 1993, Lowe 2017).

use super::Event;
use super::state::{Names, State};
use std::collections::HashSet;

/// Calls of a history at the most: the bits of a set of them.
pub const MOST_CALLS: usize = 128;

/// What the search has found.
#[derive(Debug)]
pub enum Verdict {
    /// There is an order; the state that it ends in.
    Linear(State),
    /// There is none; the longest beginning of one that was found, as indices.
    Broken(Vec<usize>),
    /// The search was given up.
    Undecided,
}

/// Looks for an order of the calls that leads from a state to one with these names. Looks at `most` states.
pub fn search(from: &State, history: &[Event], names: &Names, most: usize) -> Verdict {
    assert!(history.len() <= MOST_CALLS, "a set of calls has {MOST_CALLS} bits");
    let mut search =
        Search { history, names, most, seen: HashSet::new(), order: Vec::new(), longest: Vec::new() };
    match search.onward(from, 0) {
        Some(state) => Verdict::Linear(state),
        None if search.seen.len() >= most => Verdict::Undecided,
        None => Verdict::Broken(search.longest),
    }
}

struct Search<'h> {
    history: &'h [Event],
    names: &'h Names,
    most: usize,
    /// What was looked at: the calls that had come, and the state after them.
    seen: HashSet<(u128, Names)>,
    order: Vec<usize>,
    longest: Vec<usize>,
}

impl Search<'_> {
    /// Orders what has not come yet.
    fn onward(&mut self, state: &State, come: u128) -> Option<State> {
        let left = |index: &usize| come >> index & 1 == 0;
        // Whatever began after another had returned comes after it.
        let Some(first_return) = (0..self.history.len()).filter(left).map(|i| self.history[i].returned).min()
        else {
            return (state.names() == *self.names).then(|| state.clone());
        };
        let mut next: Vec<usize> =
            (0..self.history.len()).filter(left).filter(|i| self.history[*i].begun < first_return).collect();
        // What returned first is likely to have come first.
        next.sort_by_key(|index| self.history[*index].returned);
        for index in next {
            let Some(after) = state.after(&self.history[index]) else { continue };
            let come = come | 1 << index;
            if self.seen.len() >= self.most || !self.seen.insert((come, after.names())) {
                continue;
            }
            self.order.push(index);
            if self.order.len() > self.longest.len() {
                self.longest.clone_from(&self.order);
            }
            if let Some(end) = self.onward(&after, come) {
                return Some(end);
            }
            self.order.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{Answer, At, Call, Exclusive};

    const A: At = At { dir: 0, name: "a" };
    const B: At = At { dir: 0, name: "b" };
    const FILE: Result<Answer, i32> = Ok(Answer::Is(7, libc::S_IFREG));
    const DIR: Result<Answer, i32> = Ok(Answer::Is(8, libc::S_IFDIR));
    const DONE: Result<Answer, i32> = Ok(Answer::Done);
    const NONE: Result<Answer, i32> = Err(libc::ENOENT);

    /// What was called, answered, and when.
    type Told = (Call, Result<Answer, i32>, (u64, u64));

    fn verdict(told: &[Told], names: &[(usize, &str, usize)]) -> Verdict {
        let event = |(thread, (call, answer, (begun, returned))): (usize, &Told)| Event {
            thread,
            call: *call,
            answer: *answer,
            begun: *begun,
            returned: *returned,
        };
        let history: Vec<Event> = told.iter().enumerate().map(event).collect();
        let names = names.iter().map(|(dir, name, to)| (*dir, name.to_string(), *to)).collect();
        search(&State::default(), &history, &names, 10_000)
    }

    fn is_linear(told: &[Told], names: &[(usize, &str, usize)]) -> bool {
        match verdict(told, names) {
            Verdict::Linear(_) => true,
            Verdict::Broken(_) => false,
            Verdict::Undecided => panic!("so few calls"),
        }
    }

    fn create(answer: Result<Answer, i32>, when: (u64, u64)) -> Told {
        (Call::Create(A, Exclusive::Yes), answer, when)
    }

    #[test]
    fn calls_at_the_same_time_may_have_come_in_either_order() {
        let named = [(0, "a", 7)];
        for lookup in [FILE, NONE] {
            assert!(is_linear(&[create(FILE, (0, 3)), (Call::Lookup(A), lookup, (1, 2))], &named));
        }
    }

    #[test]
    fn what_had_returned_is_seen() {
        let named = [(0, "a", 7)];
        assert!(is_linear(&[create(FILE, (0, 1)), (Call::Lookup(A), FILE, (2, 3))], &named));
        assert!(!is_linear(&[create(FILE, (0, 1)), (Call::Lookup(A), NONE, (2, 3))], &named));
        // Seen by one, it is there for the next.
        let twice = [create(FILE, (0, 9)), (Call::Lookup(A), FILE, (1, 2)), (Call::Lookup(A), NONE, (3, 4))];
        assert!(!is_linear(&twice, &named));
    }

    #[test]
    fn one_name_is_made_and_removed_once() {
        let other = Ok(Answer::Is(9, libc::S_IFREG));
        let both = [create(FILE, (0, 3)), create(other, (1, 2))];
        assert!(!is_linear(&both, &[(0, "a", 7)]) && !is_linear(&both, &[(0, "a", 9)]));
        let gone = [create(FILE, (0, 1)), (Call::Unlink(A), DONE, (2, 5)), (Call::Unlink(A), DONE, (3, 4))];
        assert!(!is_linear(&gone, &[]));
    }

    #[test]
    fn a_rename_is_one_step() {
        let looks = |first: (At, Result<Answer, i32>), second: (At, Result<Answer, i32>)| {
            let told = [
                create(FILE, (0, 1)),
                (Call::Rename(A, B, 0), DONE, (2, 9)),
                (Call::Lookup(first.0), first.1, (3, 4)),
                (Call::Lookup(second.0), second.1, (5, 6)),
            ];
            is_linear(&told, &[(0, "b", 7)])
        };
        assert!(looks((A, FILE), (B, FILE)) && looks((A, NONE), (B, FILE)) && looks((B, NONE), (A, NONE)));
        assert!(!looks((A, NONE), (B, NONE)), "it was nowhere");
        assert!(!looks((B, FILE), (A, FILE)), "it was in both places");
    }

    #[test]
    fn the_end_counts() {
        assert!(!is_linear(&[create(FILE, (0, 1))], &[]));
        assert!(!is_linear(&[create(FILE, (0, 1))], &[(0, "b", 7)]));
    }

    #[test]
    fn directories_never_lie_in_one_another() {
        let (inner, other) = (At { dir: 8, name: "a" }, At { dir: 9, name: "a" });
        let begin =
            [(Call::Mkdir(A), DIR, (0, 1)), (Call::Mkdir(B), Ok(Answer::Is(9, libc::S_IFDIR)), (2, 3))];
        let both = [(Call::Rename(A, other, 0), DONE, (4, 7)), (Call::Rename(B, inner, 0), DONE, (5, 6))];
        assert!(!is_linear(&[&begin[..], &both[..]].concat(), &[(8, "a", 9), (9, "a", 8)]));
        let one = [
            (Call::Rename(A, other, 0), DONE, (4, 7)),
            (Call::Rename(B, inner, 0), Err(libc::EINVAL), (5, 6)),
        ];
        assert!(is_linear(&[&begin[..], &one[..]].concat(), &[(0, "b", 9), (9, "a", 8)]));
    }

    #[test]
    fn a_search_that_is_too_long_is_given_up() {
        let told: Vec<Told> = (0..12).map(|i| (Call::Lookup(A), NONE, (i, 100 + i))).collect();
        let history: Vec<Event> = told
            .iter()
            .map(|(call, answer, (begun, returned))| Event {
                thread: 0,
                call: *call,
                answer: *answer,
                begun: *begun,
                returned: *returned,
            })
            .collect();
        let never = vec![(0, "a".to_string(), 1)];
        assert!(matches!(search(&State::default(), &history, &never, 100), Verdict::Undecided));
        assert!(matches!(search(&State::default(), &history, &never, 10_000), Verdict::Broken(_)));
    }
}
