//! The word a thread gives before it sleeps.
//!
//! A server that has one thread per core would stall every client of the core if that thread slept in an
//! fsync or on a lock. Therefore whatever in the engine is about to sleep for longer than a short spin (a
//! commit, a flush, a device read, a contended lock, credits) calls [`about_to_block`] first, and the server
//! installs a hook that hands the core's queue to another thread. Without a hook, as in the library, the call
//! costs one look at a thread-local.
//!
//! Some sleeps no signal ends: most of those in which the kernel waits for a device. Where a thread must be reached while
//! it sleeps, as one must through which io_uring delivers requests, a second hook has such a call made by another thread:
//! what may sleep so calls [`deeply`].
//!
//! What this leaves to others: which thread takes over, and when the thread may serve again; and who makes the calls.
//!
//! Invariants: the hooks belong to their thread alone; the first runs on the thread that is about to sleep, before
//! it sleeps; neither ever runs inside itself. A call is made once, and has ended when [`deeply`] returns.

use crate::deferred;
use std::cell::Cell;

/// What a thread does before it sleeps.
pub type Hook = Box<dyn Fn()>;

/// Makes a call, here or in another thread, once, and returns when it has ended.
pub type Deep = Box<dyn Fn(&mut (dyn FnMut() + Send))>;

thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
    static DEEP: Cell<Option<Deep>> = const { Cell::new(None) };
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

/// Sets (or with `None` removes) what makes the calls of this thread that sleep where no signal reaches them, and gives
/// back what did.
pub fn set_deep(deep: Option<Deep>) -> Option<Deep> {
    DEEP.replace(deep)
}

/// Makes a call of the kernel in which it may wait for a device. Another thread may make it, to which nothing of this one
/// belongs: it is to be the call alone, behind [`about_to_block`].
pub fn deeply<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    // As in `about_to_block`.
    let Ok(Some(deep)) = DEEP.try_with(Cell::take) else { return call() };
    let (mut call, mut made) = (Some(call), None);
    deep(&mut || made = call.take().map(|call| call()));
    let _ = DEEP.try_with(|place| place.set(Some(deep)));
    made.expect("the hook has made the call")
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
    fn a_call_is_made_once_by_the_hook_of_its_thread_and_what_it_makes_comes_back() {
        assert_eq!(deeply(|| 1), 1);
        let calls = Rc::new(Cell::new(0));
        let seen = Rc::clone(&calls);
        let by_another = move |call: &mut (dyn FnMut() + Send)| {
            seen.set(seen.get() + 1);
            assert_eq!(deeply(|| 4), 4, "nothing is there within it");
            std::thread::scope(|scope| {
                scope.spawn(call);
            });
        };
        assert!(set_deep(Some(Box::new(by_another))).is_none());
        let here = std::thread::current().id();
        assert_ne!(deeply(|| std::thread::current().id()), here);
        assert_eq!(deeply(|| 3), 3);
        assert_eq!(calls.get(), 2);
        assert!(set_deep(None).is_some());
        assert_eq!(deeply(|| std::thread::current().id()), here);
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
