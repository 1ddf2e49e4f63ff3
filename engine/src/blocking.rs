//! The word a thread gives before it sleeps.
//!
//! A server that has one thread per core would stall every client of the core if that thread slept in an
//! fsync or on a lock. Therefore whatever in the engine is about to sleep for longer than a short spin (a
//! commit, a flush, a device read, a contended lock, credits) calls [`about_to_block`] first, and the server
//! installs a hook that hands the core's queue to another thread. Without a hook, as in the library, the call
//! costs one look at a thread-local.
//!
//! What this leaves to others: which thread takes over, and when the thread may serve again.
//!
//! Invariants: the hook belongs to its thread alone; it runs on the thread that is about to sleep, before
//! it sleeps; it never runs inside itself.

use crate::deferred;
use std::cell::Cell;

/// What a thread does before it sleeps.
pub type Hook = Box<dyn Fn()>;

thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// Sets (or with `None` removes) the hook of this thread and gives back the former one.
pub fn set_hook(hook: Option<Hook>) -> Option<Hook> {
    HOOK.replace(hook)
}

/// Says that this thread is about to sleep. To be called with as little held as possible, before every sleep;
/// calling it once too often is harmless.
pub fn about_to_block() {
    deferred::run_now();
    // Taken out while it runs, so that a hook that sleeps itself does not recurse. A thread that is ending has none.
    if let Ok(Some(hook)) = HOOK.try_with(Cell::take) {
        hook();
        // As above.
        let _ = HOOK.try_with(|place| place.set(Some(hook)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn the_hook_runs_before_each_sleep_and_never_inside_itself() {
        about_to_block();
        let calls = Rc::new(Cell::new(0));
        let seen = Rc::clone(&calls);
        assert!(
            set_hook(Some(Box::new(move || {
                seen.set(seen.get() + 1);
                about_to_block();
            })))
            .is_none()
        );
        about_to_block();
        about_to_block();
        assert_eq!(calls.get(), 2);
        assert!(set_hook(None).is_some());
        about_to_block();
        assert_eq!(calls.get(), 2);
    }

    #[test]
    fn the_hook_is_of_one_thread_alone() {
        set_hook(Some(Box::new(|| panic!("another thread's hook"))));
        std::thread::spawn(about_to_block).join().expect("no hook there");
        set_hook(None);
    }

    #[test]
    fn what_is_put_off_is_done_before_a_sleep() {
        let count = Rc::new(Cell::new(0));
        let note = || {
            let more = Rc::clone(&count);
            deferred::after_replies(move || more.set(more.get() + 1));
        };
        deferred::replies(|| {
            note();
            about_to_block();
            assert_eq!(count.get(), 1);
            note();
        });
        assert_eq!(count.get(), 2);
    }
}
