//! What can wait until a thread has given all the answers that it has to give.
//!
//! A thread that commits answers everybody that the commit covers, one after the other. What each answer would have
//! done besides, and one of them could do for all, is put off: a server's reader is woken once, and finds all the
//! replies.
//!
//! Invariants: what is put off belongs to its thread. It is done when the thread leaves its outermost [`replies`],
//! after a panic too, or before it sleeps ([`crate::blocking`]); outside of one, at once. So nobody waits for it that
//! would not wait for the answers themselves.

use std::cell::RefCell;

type Call = Box<dyn FnOnce()>;

thread_local! {
    /// Within [`replies`]: what is put off.
    static PUT_OFF: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// Gives replies answers: what they put off is done behind the last.
pub fn replies<R>(answers: impl FnOnce() -> R) -> R {
    let is_outermost = PUT_OFF.with_borrow_mut(|put_off| {
        let is_outermost = put_off.is_none();
        put_off.get_or_insert_default();
        is_outermost
    });
    // Made where it is wanted alone: its end is the end of all.
    let _end = is_outermost.then(|| End);
    answers()
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        PUT_OFF.take().into_iter().flatten().for_each(|call| call());
    }
}

/// Calls this behind the last answer that the thread is giving.
pub fn after_replies(call: impl FnOnce() + 'static) {
    let is_within = PUT_OFF.with_borrow(|put_off| put_off.is_some());
    if !is_within {
        return call();
    }
    PUT_OFF.with_borrow_mut(|put_off| put_off.get_or_insert_default().push(Box::new(call)));
}

/// Does what is put off: the thread is about to sleep.
pub(crate) fn run_now() {
    let calls = PUT_OFF.with_borrow_mut(|put_off| put_off.as_mut().map(std::mem::take));
    calls.into_iter().flatten().for_each(|call| call());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    fn counted() -> (Rc<Cell<u32>>, impl Fn()) {
        let count = Rc::new(Cell::new(0));
        let more = Rc::clone(&count);
        let note = move || {
            let more = Rc::clone(&more);
            after_replies(move || more.set(more.get() + 1));
        };
        (count, note)
    }

    #[test]
    fn what_is_put_off_is_done_behind_the_last_answer_of_all() {
        let (count, note) = counted();
        note();
        assert_eq!(count.get(), 1, "nothing is being answered");
        replies(|| {
            replies(&note);
            note();
            assert_eq!(count.get(), 1);
        });
        assert_eq!(count.get(), 3);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            replies(|| {
                note();
                panic!("an answer that fails");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(count.get(), 4);
    }
}
