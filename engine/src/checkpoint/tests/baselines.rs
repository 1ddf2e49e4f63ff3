//! One thread, with one request under way, or with batches of 64 buffers.

use super::*;
use crate::device::{Completion, Ticket, forwarded};
use std::sync::Mutex as StdMutex;

/// Notes what is under way of home writes.
struct Watched {
    below: MemoryDevice,
    seen: StdMutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Buffers of each submission of home writes.
    submitted: Vec<usize>,
    under_way: usize,
    most: usize,
    threads: Vec<std::thread::ThreadId>,
}

impl Watched {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic")
    }
}

impl BlockDevice for Watched {
    forwarded!(below);
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let home: Vec<_> = batch.iter().filter(|request| request.cause == Cause::Checkpoint).collect();
        let buffers = home.iter().map(|request| request.buf.len() / BLOCK_SIZE).sum();
        if !home.is_empty() {
            let mut seen = self.seen();
            seen.submitted.push(buffers);
            seen.under_way += home.len();
            seen.most = seen.most.max(seen.under_way);
            let this = std::thread::current().id();
            if !seen.threads.contains(&this) {
                seen.threads.push(this);
            }
        }
        self.below.submit(batch)
    }
    fn wait(&self, ticket: Ticket) -> Vec<Completion> {
        let done = self.below.wait(ticket);
        let mut seen = self.seen();
        seen.under_way = seen.under_way.saturating_sub(done.len());
        done
    }
    fn submitters(&self) -> usize {
        8
    }
}

fn store(name: &str) -> StoreOptions {
    StoreOptions { baselines: name.parse().expect("known"), ..StoreOptions::default() }
}

#[test]
fn one_thread_has_one_request_under_way_or_batches_of_64() {
    for (name, requests) in [("checkpoint-one", 1), ("checkpoint-64", 300)] {
        let device =
            Arc::new(Watched { below: MemoryDevice::new(BLOCKS), seen: StdMutex::new(Seen::default()) });
        let rounds = rounds_with(Arc::clone(&device) as Arc<dyn BlockDevice>, 600, store(name));
        let pages = dirtied(&rounds.store, 300, 2);
        rounds.write_all(ROUND).expect("memory");
        assert_home(&rounds.store, &pages);
        let seen = device.seen();
        assert_eq!((seen.threads.len(), seen.most, seen.under_way), (1, requests, 0), "{name}");
        let batch = if requests == 1 { 1 } else { 64 };
        assert!(seen.submitted.iter().all(|buffers| *buffers <= batch), "{name}: {:?}", seen.submitted);
        assert_eq!(seen.submitted.iter().sum::<usize>(), 300);
        assert_eq!(rounds.stats().batches, 1, "{name}: the whole area is one thread's");
    }
}

#[test]
fn what_fails_is_tried_again_one_by_one_and_in_batches_too() {
    for name in ["checkpoint-one", "checkpoint-64"] {
        for cause in [Cause::DoubleWrite, Cause::Checkpoint] {
            let sim = SimMedia::new(BLOCKS, &[]);
            let rounds = rounds_with(sim.device(), 34, store(name));
            let pages = dirtied(&rounds.store, 200, 2);
            faults(&sim, cause, |nth, _| nth == 1);
            rounds.write_all(ROUND).expect("it is tried again");
            assert_home(&rounds.store, &pages);
            let pages = dirtied(&rounds.store, 200, 2);
            let bad = pages[100].block();
            let area = rounds.store.superblock().dw_start.get();
            faults(&sim, cause, move |_, block| {
                block == if cause == Cause::DoubleWrite { area } else { bad }
            });
            assert!(rounds.write_all(ROUND).is_err() && pages[100].is_dirty(), "{name}");
            sim.set_fault(None);
            rounds.write_all(ROUND).expect("the device has healed");
            assert_home(&rounds.store, &pages);
        }
    }
}
