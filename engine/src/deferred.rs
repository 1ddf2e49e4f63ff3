//! What can wait until a thread has given all the answers that it has to give.
//!
//! A thread that commits answers everybody that the commit covers, one after the other. What each answer would have
//! done besides, and one of them could do for all, is put off: a server's reader is woken once, and finds all the
//! replies.
//!
//! Invariants: what is put off belongs to its thread. It is done when the thread leaves its outermost [`replies`],
//! after a panic too, or before it sleeps ([`crate::blocking`]); outside of one, at once. So nobody waits for it that
//! would not wait for the answers themselves. A thread that is ending, whose variables are gone, puts nothing off.

use std::cell::RefCell;

type Call = Box<dyn FnOnce()>;

thread_local! {
    /// Within [`replies`]: what is put off.
    static PUT_OFF: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

/// Gives replies answers: what they put off is done behind the last.
pub fn replies<R>(answers: impl FnOnce() -> R) -> R {
    let is_outermost = PUT_OFF.try_with(|put_off| {
        let mut put_off = put_off.borrow_mut();
        let is_outermost = put_off.is_none();
        put_off.get_or_insert_default();
        is_outermost
    });
    // Made where it is wanted alone: its end is the end of all.
    let _end = is_outermost.unwrap_or(false).then(|| End);
    answers()
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        let calls = PUT_OFF.try_with(RefCell::take).unwrap_or_default();
        calls.into_iter().flatten().for_each(|call| call());
    }
}

/// Calls this behind the last answer that the thread is giving.
pub fn after_replies(call: impl FnOnce() + 'static) {
    let is_within = PUT_OFF.try_with(|put_off| put_off.borrow().is_some());
    if !is_within.unwrap_or(false) {
        return call();
    }
    PUT_OFF.with_borrow_mut(|put_off| put_off.get_or_insert_default().push(Box::new(call)));
}

/// Does what is put off: the thread is about to sleep.
pub(crate) fn run_now() {
    let calls = PUT_OFF.try_with(|put_off| put_off.borrow_mut().as_mut().map(std::mem::take));
    calls.ok().flatten().into_iter().flatten().for_each(|call| call());
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

    /// Dropped when the thread's variables are: after those that were first used later.
    struct Ending;

    impl Drop for Ending {
        fn drop(&mut self) {
            assert!(PUT_OFF.try_with(|_| ()).is_err(), "it is gone by now");
            let (count, note) = counted();
            replies(&note);
            crate::blocking::about_to_block();
            assert_eq!(count.get(), 1, "done at once");
            LAST.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }

    static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

    thread_local! {
        static ENDING: Cell<Option<Ending>> = const { Cell::new(None) };
    }

    #[test]
    fn a_thread_that_is_ending_puts_nothing_off() {
        let used = std::thread::spawn(|| {
            ENDING.set(Some(Ending));
            replies(|| after_replies(|| ()));
            crate::blocking::about_to_block();
        });
        used.join().expect("nothing panics at its end");
        assert_eq!(LAST.load(std::sync::atomic::Ordering::SeqCst), 1);
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
