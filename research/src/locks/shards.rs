//! Lists of held ranges by segment, each under a mutex: what the engine's table of words grew out of.

use super::Span;
use narufs_engine::lock::{Access, FileLock};
use narufs_engine::sync::atomic::{AtomicBool, Ordering};
use narufs_engine::sync::{Arc, CachePadded, Mutex, WaitQueue, available_cores};
use std::ops::Range;

/// See the module.
#[derive(Debug)]
pub struct ShardLock {
    shards: Box<[CachePadded<Mutex<Vec<Entry>>>]>,
}

/// A held range.
#[derive(Debug)]
pub struct ShardGuard<'a> {
    lock: &'a ShardLock,
    span: Span,
}

#[derive(Debug)]
struct Entry {
    span: Span,
    ahead: usize,
    waiter: Option<Arc<(AtomicBool, WaitQueue)>>,
}

impl ShardLock {
    /// The shards of a span, in ascending order.
    fn of(&self, span: &Span) -> impl Iterator<Item = usize> + use<> {
        let count = self.shards.len();
        let (first, last) = (span.start >> 14, (span.end - 1) >> 14);
        let mut set = 0_u64;
        if last - first >= count as u64 {
            set = u64::MAX >> (64 - count);
        } else {
            for segment in first..=last {
                set |= 1 << ((segment.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (count - 1));
            }
        }
        (0..count).filter(move |shard| set & 1 << shard != 0)
    }

    fn acquire(&self, range: Range<u64>, access: Access) -> ShardGuard<'_> {
        let span = Span::new(range, access);
        for shard in self.of(&span) {
            let waiter = {
                let mut entries = self.shards[shard].lock();
                let ahead = entries.iter().filter(|entry| entry.span.excludes(&span)).count();
                let waiter = (ahead > 0).then(Arc::<(AtomicBool, WaitQueue)>::default);
                entries.push(Entry { span, ahead, waiter: waiter.clone() });
                waiter
            };
            if let Some(waiter) = waiter {
                // Acquire: pairs with the Release of who grants it.
                waiter.1.wait_until(|| waiter.0.load(Ordering::Acquire));
            }
        }
        ShardGuard { lock: self, span }
    }

    fn try_acquire(&self, range: Range<u64>, access: Access) -> Option<ShardGuard<'_>> {
        let span = Span::new(range, access);
        for shard in self.of(&span) {
            let mut entries = self.shards[shard].lock();
            if entries.iter().any(|entry| entry.span.excludes(&span)) {
                drop(entries);
                self.of(&span).take_while(|taken| *taken < shard).for_each(|taken| self.release(taken, span));
                return None;
            }
            entries.push(Entry { span, ahead: 0, waiter: None });
        }
        Some(ShardGuard { lock: self, span })
    }

    fn release(&self, shard: usize, span: Span) {
        let mut granted = Vec::new();
        {
            let mut entries = self.shards[shard].lock();
            let own = entries.iter().position(|entry| entry.ahead == 0 && entry.span == span);
            let own = own.expect("a guard has a granted entry in each of its shards");
            entries.remove(own);
            for entry in entries.iter_mut().skip(own).filter(|entry| entry.span.excludes(&span)) {
                entry.ahead -= 1;
                if entry.ahead == 0 {
                    granted.extend(entry.waiter.take());
                }
            }
        }
        for waiter in granted {
            // Release: pairs with the Acquire of the waiter.
            waiter.0.store(true, Ordering::Release);
            waiter.1.wake_all();
        }
    }
}

impl Drop for ShardGuard<'_> {
    fn drop(&mut self) {
        self.lock.of(&self.span).for_each(|shard| self.lock.release(shard, self.span));
    }
}

impl FileLock for ShardLock {
    type Guard<'a> = ShardGuard<'a>;

    fn for_file(_: u64) -> Self {
        let count = (8 * available_cores()).next_power_of_two().clamp(16, 64);
        ShardLock { shards: (0..count).map(|_| CachePadded::default()).collect() }
    }

    fn read(&self, range: Range<u64>) -> ShardGuard<'_> {
        self.acquire(range, Access::Read)
    }

    fn write(&self, range: Range<u64>) -> ShardGuard<'_> {
        self.acquire(range, Access::Write)
    }

    fn try_read(&self, range: Range<u64>) -> Option<ShardGuard<'_>> {
        self.try_acquire(range, Access::Read)
    }

    fn try_write(&self, range: Range<u64>) -> Option<ShardGuard<'_>> {
        self.try_acquire(range, Access::Write)
    }
}
