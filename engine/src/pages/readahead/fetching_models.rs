//! Models of who brings a page, and of what is held for what is read ahead, on the production types.
//!
//! Each rule was broken by hand in turn; what then failed (among others):
//!
//! | broken | fails |
//! | --- | --- |
//! | `leave`: what is ahead is counted before it is | `what_is_ahead_is_taken_over_or_cancelled` |
//! | `cancel`, or `announce` of what is ahead: the count stored when the spans are unlocked | `what_is_ahead_is_known_whatever_others_do` |
//! | `cancel` does nothing, or is called before the range is taken | `what_is_ahead_is_taken_over_or_cancelled` |
//! | `announce`: what is taken over is in no span | `what_is_given_up_is_brought` |
//! | `announce` does not look for what is claimed | `readers_have_a_page_brought_once` |
//! | drop of `Underway`: no wake-up, or before the span is gone | `a_failed_fetch_leaves_nobody_waiting` |
//! | `leave`: no wake-up | `what_is_ahead_is_taken_over_or_cancelled` |
//! | who takes a request over caches all of it | `a_request_is_taken_over_in_part` |
//! | a ticket can be taken twice | `what_is_held_is_counted_once` |
//! | `land` does not give back, `admit` gives back what another has, `settle` ends with something left | `what_is_held_is_counted_once` |
//! | a dropped request does not wake `settle`, or `settle` sleeps without looking | `what_is_cancelled_is_given_back_as_it_ends` |
//!
//! Not needed: that `leave` stores the count with the spans locked, for it has the range; that `announce` counts, for
//! too large a count costs a look; and that `cancel` leaves what is claimed, for a page brought twice is the same
//! page.

use super::budget::ReadaheadRequest;
use crate::device::Ticket;
#[cfg(loom)]
use crate::device::{BlockDevice, MemoryDevice};
use crate::pages::readahead::{Announced, Fetching};
use crate::pages::readahead::{ReadaheadBudget, Size};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread;
#[cfg(shuttle)]
use std::ops::Range;

/// A request whose ticket is the version of the file when it was submitted.
fn request(version: u64) -> Arc<ReadaheadRequest> {
    Arc::new(ReadaheadBudget::default()).request(Ticket(version), Size::of(1))
}

#[cfg(loom)]
mod loom_models {
    use super::*;
    use crate::sync::RwLock;

    /// Two pages, for each the version of the file, and of the cache: 0 if it is absent, else one more than the
    /// version. All accesses are Relaxed: ranges and [`Fetching`] alone must order them.
    struct File {
        ranges: [RwLock<()>; 2],
        fetching: Fetching,
        versions: [AtomicU64; 2],
        cached: [AtomicU64; 2],
        brought: AtomicU64,
    }

    /// What a reader does that has to bring the page.
    #[derive(Clone, Copy, PartialEq)]
    enum Way {
        Bring,
        Fail,
        LeaveAhead,
    }

    const LIMIT: usize = 64;

    fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    fn model(preemptions: usize, model: impl Fn(&Arc<File>) + Sync + Send + 'static) {
        bounded(preemptions, move || {
            let file = Arc::new(File {
                ranges: [RwLock::new(()), RwLock::new(())],
                fetching: Fetching::new(),
                versions: [AtomicU64::new(0), AtomicU64::new(0)],
                cached: [AtomicU64::new(0), AtomicU64::new(0)],
                brought: AtomicU64::new(0),
            });
            model(&file);
        });
    }

    fn start(file: &Arc<File>, act: impl FnOnce(&File) + 'static) -> thread::JoinHandle<()> {
        let file = Arc::clone(file);
        thread::spawn(move || act(&file))
    }

    /// Ends with the page read, unless it fails or leaves it.
    fn read(file: &File, page: usize, way: Way) {
        let _guard = file.ranges[page].read();
        let version = file.versions[page].load(Ordering::Relaxed);
        let wanted = page as u64..page as u64 + 1;
        let cached = &file.cached[page];
        loop {
            let found = cached.load(Ordering::Relaxed);
            if found != 0 {
                assert_eq!(found, version + 1, "stale bytes");
                return;
            }
            match file.fetching.announce(&wanted) {
                Announced::Again => {}
                Announced::HandOff(hand_off) => {
                    if let Some(ticket) = hand_off.request.take() {
                        // Of the pages it takes its own, whose range it has.
                        assert_eq!(ticket.0, version, "stale bytes");
                        cached.store(version + 1, Ordering::Relaxed);
                    }
                }
                Announced::Mine(underway) => {
                    if cached.load(Ordering::Relaxed) != 0 {
                        continue;
                    }
                    match way {
                        Way::Fail => return,
                        Way::LeaveAhead => return underway.leave(request(version)),
                        Way::Bring => {
                            file.brought.fetch_add(1, Ordering::Relaxed);
                            cached.store(version + 1, Ordering::Relaxed);
                        }
                    }
                }
            }
        }
    }

    /// Overwrites a page, or cuts it off.
    fn change(file: &File, page: usize, stays: bool) {
        let _guard = file.ranges[page].write();
        file.fetching.cancel(&(page as u64..page as u64 + 1));
        let version = file.versions[page].load(Ordering::Relaxed) + 1;
        file.versions[page].store(version, Ordering::Relaxed);
        file.cached[page].store(if stays { version + 1 } else { 0 }, Ordering::Relaxed);
    }

    #[test]
    fn loom_readers_have_a_page_brought_once() {
        model(3, |file| {
            let others: Vec<_> = (0..2).map(|_| start(file, |file| read(file, 0, Way::Bring))).collect();
            read(file, 0, Way::Bring);
            others.into_iter().for_each(|other| other.join().expect("no panic"));
            assert_eq!(file.brought.load(Ordering::Relaxed), 1);
            assert!(!file.fetching.has(0));
        });
    }

    #[test]
    fn loom_a_failed_fetch_leaves_nobody_waiting() {
        model(3, |file| {
            let failing = start(file, |file| read(file, 0, Way::Fail));
            let other = start(file, |file| read(file, 0, Way::Bring));
            read(file, 0, Way::Bring);
            failing.join().expect("no panic");
            other.join().expect("no panic");
            assert!(!file.fetching.has(0) && file.cached[0].load(Ordering::Relaxed) == 1);
        });
    }

    #[test]
    fn loom_what_is_ahead_is_taken_over_or_cancelled() {
        for stays in [true, false] {
            model(3, move |file| {
                let ahead = start(file, |file| read(file, 0, Way::LeaveAhead));
                let writer = start(file, move |file| change(file, 0, stays));
                read(file, 0, Way::Bring);
                ahead.join().expect("no panic");
                writer.join().expect("no panic");
                read(file, 0, Way::Bring);
                assert!(!file.fetching.has(0));
            });
        }
    }

    /// What becomes of one page does not hide that another is ahead.
    #[test]
    fn loom_what_is_ahead_is_known_whatever_others_do() {
        for cancels in [true, false] {
            model(3, move |file| {
                file.fetching.claim(&(1..2)).expect("free").leave(request(0));
                let other = start(file, move |file| match cancels {
                    true => change(file, 1, true),
                    false => read(file, 1, Way::Bring),
                });
                read(file, 0, Way::LeaveAhead);
                change(file, 0, false);
                read(file, 0, Way::Bring);
                other.join().expect("no panic");
                assert!(!file.fetching.has(0) && !file.fetching.has(1));
            });
        }
    }

    /// Who comes for some of a request takes no more of it than its range covers, while others change the rest.
    #[test]
    fn loom_a_request_is_taken_over_in_part() {
        model(3, |file| {
            file.fetching.claim(&(0..2)).expect("free").leave(request(0));
            let writer = start(file, |file| change(file, 1, false));
            let other = start(file, |file| read(file, 1, Way::Bring));
            read(file, 0, Way::Bring);
            writer.join().expect("no panic");
            other.join().expect("no panic");
            read(file, 1, Way::Bring);
            assert!(!file.fetching.has(0) && !file.fetching.has(1));
        });
    }

    #[test]
    fn loom_an_evicted_page_is_brought_again() {
        model(3, |file| {
            let other = start(file, |file| read(file, 0, Way::Bring));
            let evicting = start(file, |file| file.cached[0].store(0, Ordering::Relaxed));
            read(file, 0, Way::Bring);
            other.join().expect("no panic");
            evicting.join().expect("no panic");
            assert!((1..=2).contains(&file.brought.load(Ordering::Relaxed)));
        });
    }

    /// A budget with a limit of [`LIMIT`] pages, all of them held by the request.
    fn full() -> (Arc<ReadaheadBudget>, Arc<MemoryDevice>, Arc<ReadaheadRequest>) {
        let (budget, device) = (Arc::new(ReadaheadBudget::default()), Arc::new(MemoryDevice::new(1)));
        assert!(budget.admit(&*device, Size::of(LIMIT), LIMIT));
        let request = budget.request(device.submit(Vec::new()), Size::of(LIMIT));
        (budget, device, request)
    }

    #[test]
    fn loom_what_is_cancelled_is_given_back_as_it_ends() {
        bounded(3, || {
            let (budget, device, request) = full();
            let settler = thread::spawn({
                let budget = Arc::clone(&budget);
                move || budget.settle(&*device)
            });
            drop(request);
            while budget.held() > 0 {
                thread::yield_now();
            }
            budget.end();
            settler.join().expect("no panic");
        });
    }

    /// What a request holds is given back once: by who comes for it, or by the thread that settles, or by who needs it.
    #[test]
    fn loom_what_is_held_is_counted_once() {
        for comes in [true, false] {
            bounded(3, move || {
                let (budget, device, request) = full();
                let admit = |budget: &ReadaheadBudget, device: &MemoryDevice| {
                    budget.admit(device, Size::of(LIMIT), LIMIT)
                };
                // It is old when one more asks.
                (0..3).for_each(|_| assert!(!admit(&budget, &device)));
                let share = || (Arc::clone(&budget), Arc::clone(&device));
                let (theirs, their_device) = share();
                let settler = thread::spawn(move || theirs.settle(&*their_device));
                let (theirs, their_device) = share();
                let other = thread::spawn(move || {
                    if comes {
                        theirs.land(&*their_device, &request);
                    }
                    drop(request);
                });
                let admitted = admit(&budget, &device);
                other.join().expect("no panic");
                budget.end();
                settler.join().expect("no panic");
                assert_eq!(budget.held(), if admitted { LIMIT } else { 0 });
                assert_eq!(budget.used.get() + budget.dropped.get(), LIMIT as u64);
            });
        }
    }

    /// The budget takes a request away from whoever comes for it.
    #[test]
    fn loom_what_is_given_up_is_brought() {
        model(3, |file| {
            let request = request(0);
            file.fetching.claim(&(0..1)).expect("free").leave(Arc::clone(&request));
            let given_up = Arc::new(AtomicU64::new(0));
            let budget = start(file, {
                let given_up = Arc::clone(&given_up);
                move |_| given_up.store(request.take().is_some().into(), Ordering::Relaxed)
            });
            let other = start(file, |file| read(file, 0, Way::Bring));
            read(file, 0, Way::Bring);
            budget.join().expect("no panic");
            other.join().expect("no panic");
            assert_eq!(file.brought.load(Ordering::Relaxed), given_up.load(Ordering::Relaxed));
        });
    }
}

#[cfg(shuttle)]
mod shuttle_models {
    use super::*;
    use crate::lock::{FileLock, RangeLock};

    const PAGE: u64 = 16 << 10;

    /// Two pages, each with a version that writers raise: whoever lands a request with the range shared must find the
    /// version still that it was submitted with.
    struct File {
        range: RangeLock,
        fetching: Fetching,
        versions: [AtomicU64; 2],
    }

    fn read(file: &File, page: u64) {
        let _guard = file.range.read(page * PAGE..(page + 1) * PAGE);
        let version = file.versions[page as usize].load(Ordering::Relaxed);
        for _ in 0..3 {
            match file.fetching.announce(&(page..page + 1)) {
                Announced::Again => {}
                Announced::HandOff(hand_off) => {
                    let ticket = hand_off.request.take().map(|ticket| ticket.0);
                    assert_eq!(ticket, Some(version), "stale bytes");
                }
                Announced::Mine(underway) => underway.leave(request(version)),
            }
        }
    }

    fn write(file: &File, pages: Range<u64>) {
        let _guard = file.range.write(pages.start * PAGE..pages.end * PAGE);
        file.fetching.cancel(&pages);
        for page in pages {
            assert!(!file.fetching.has(page), "somebody reads it");
            file.versions[page as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn shuttle_what_lands_is_what_the_file_holds() {
        let model = || {
            let file = Arc::new(File {
                range: RangeLock::for_file(1),
                fetching: Fetching::new(),
                versions: Default::default(),
            });
            let spawn = |me: u64| {
                let file = Arc::clone(&file);
                thread::spawn(move || match me {
                    0 => write(&file, 0..2),
                    1 => write(&file, 1..2),
                    _ => (0..2).for_each(|page| read(&file, (me + page) % 2)),
                })
            };
            let threads: Vec<_> = (0..5).map(spawn).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("a model's threads do not panic"));
        };
        shuttle::check_random(model, 2000);
    }
}
