//! How long requests take, from their receipt to the moment before their answer, by what they ask for.
//!
//! Log-linear buckets: four to each power of two, so that what is read out is off by an eighth at the most. Each port has
//! its own, and a reply leaves through the port that delivered its request: no two lanes write the same line, but for
//! replies that another lane's thread gives. A request costs two looks at the clock and two additions; a READ or WRITE
//! one addition more, of its bytes.
//!
//! What the kernel takes to hand a request over, and to wake its caller, is not in here. Requests without an answer are
//! not measured: nobody waits for them.

use crate::wire::{InHeader, Opcode, WriteIn};
use narufs_engine::sync::Counter;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

/// More than any operation's number.
const NUMBERS: usize = 64;
/// Two to this many buckets divide each power of two.
const FINE: u32 = 2;
/// The first bucket ends at two to this many nanoseconds; no request is that quick.
const LEAST: u32 = 10;
/// The last but one ends at two to this many, 17 s.
const MOST: u32 = 34;
/// All of them.
pub const BUCKETS: usize = ((MOST - LEAST) << FINE) as usize + 2;

/// The bucket of a time.
fn bucket(ns: u64) -> usize {
    let Some(power) = ns.checked_ilog2().filter(|power| *power >= LEAST) else { return 0 };
    if power >= MOST {
        return BUCKETS - 1;
    }
    // The bits behind the first.
    let fine = (ns >> (power - FINE)) as usize & ((1 << FINE) - 1);
    (((power - LEAST) << FINE) as usize | fine) + 1
}

/// Nanoseconds that the times of a bucket stay below; `None`: the last has no bound.
pub fn bound(bucket: usize) -> Option<u64> {
    let Some(above) = bucket.checked_sub(1) else { return Some(1 << LEAST) };
    let (power, fine) = (LEAST + (above >> FINE) as u32, (above & ((1 << FINE) - 1)) as u64);
    (power < MOST).then(|| (((1 << FINE) + fine + 1) << power) >> FINE)
}

struct Kind {
    sum: Counter,
    /// Of file data.
    bytes: Counter,
    buckets: [Counter; BUCKETS],
}

/// What one port has answered.
pub struct Latencies {
    kinds: Box<[Kind]>,
}

impl Default for Latencies {
    fn default() -> Self {
        let kind = |_| Kind {
            sum: Counter::new(),
            bytes: Counter::new(),
            buckets: [const { Counter::new() }; BUCKETS],
        };
        Latencies { kinds: (0..NUMBERS).map(kind).collect() }
    }
}

impl Latencies {
    /// A request is about to be answered, with so many bytes.
    pub(super) fn answered(&self, began: Began, sent: usize) {
        let ns = began.at.elapsed().as_nanos() as u64;
        if let Some(kind) = self.kinds.get(began.opcode as usize) {
            kind.buckets[bucket(ns)].add(1);
            kind.sum.add(ns);
            if began.opcode == Opcode::Read as u32 {
                kind.bytes.add(sent as u64);
            } else if began.opcode == Opcode::Write as u32 {
                kind.bytes.add(began.data.into());
            }
        }
    }
}

/// When a request was received, and what it asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Began {
    opcode: u32,
    /// Bytes behind the head of a WRITE.
    data: u32,
    at: Instant,
}

impl Began {
    /// Now.
    pub(super) fn now(header: &InHeader) -> Began {
        const HEAD: u32 = (size_of::<InHeader>() + size_of::<WriteIn>()) as u32;
        Began { opcode: header.opcode, data: header.len.saturating_sub(HEAD), at: Instant::now() }
    }
}

/// How long requests of a kind took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// The kind.
    pub opcode: Opcode,
    /// Nanoseconds of all of them.
    pub sum_ns: u64,
    /// Bytes of files that were read or written.
    pub bytes: u64,
    /// How many there were in each bucket, by its number; [`bound`] says what that means.
    pub buckets: Vec<(usize, u64)>,
}

/// All ports of a conversation.
#[derive(Default)]
pub struct AllLatencies {
    ports: Mutex<Vec<Arc<Latencies>>>,
}

impl AllLatencies {
    /// One more.
    pub fn include(&self, port: Arc<Latencies>) {
        let mut ports = self.ports.lock();
        // Lanes may share a port.
        if !ports.iter().any(|other| Arc::ptr_eq(other, &port)) {
            ports.push(port);
        }
    }

    /// The sums of all ports, without the kinds that there were none of.
    pub fn sums(&self) -> Vec<Latency> {
        let ports = self.ports.lock();
        let sum = |opcode: &Opcode| {
            let kinds = || ports.iter().map(|port| &port.kinds[*opcode as usize]);
            let count = |bucket: usize| (bucket, kinds().map(|kind| kind.buckets[bucket].get()).sum());
            let buckets: Vec<(usize, u64)> =
                (0..BUCKETS).map(count).filter(|(_, count)| *count > 0).collect();
            let sum_ns = kinds().map(|kind| kind.sum.get()).sum();
            let bytes = kinds().map(|kind| kind.bytes.get()).sum();
            (!buckets.is_empty()).then_some(Latency { opcode: *opcode, sum_ns, bytes, buckets })
        };
        Opcode::ALL.iter().filter_map(sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_below_the_bound_of_its_bucket_and_not_below_that_of_the_one_before() {
        let near = |power: u32| [-1i64, 0, 1].map(|by| (1u64 << power).saturating_add_signed(by));
        let between = (0..64).flat_map(|power| [(1u64 << power) / 4 * 5, (1u64 << power) / 8 * 15]);
        for ns in (0..64).flat_map(near).chain(between).chain([0, u64::MAX]) {
            let at = bucket(ns);
            assert!(bound(at).is_none_or(|bound| ns < bound), "{ns}");
            assert!(at == 0 || bound(at - 1).is_some_and(|bound| ns >= bound), "{ns}");
        }
        let bounds: Vec<Option<u64>> = (0..BUCKETS).map(bound).collect();
        assert!(bounds[..BUCKETS - 1].is_sorted() && bounds[BUCKETS - 1].is_none());
        assert_eq!(bounds[..4], [Some(1024), Some(1280), Some(1536), Some(1792)]);
        assert_eq!(bounds[BUCKETS - 2], Some(1 << 34));
    }

    #[test]
    fn ports_are_summed_each_once_and_what_nobody_knows_is_left_out() {
        let all = AllLatencies::default();
        let ports: [Arc<Latencies>; 2] = Default::default();
        for port in ports.iter().chain(&ports) {
            all.include(Arc::clone(port));
        }
        assert_eq!(all.sums(), []);
        for port in &ports {
            for opcode in [Opcode::Getattr as u32, Opcode::Read as u32, Opcode::Write as u32, u32::MAX] {
                let (unique, nodeid, uid, gid, pid, total_extlen, padding) = (2, 1, 0, 0, 7, 0, 0);
                let header =
                    InHeader { len: 580, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding };
                (0..3).for_each(|_| port.answered(Began::now(&header), 100));
            }
        }
        let sums = all.sums();
        let seen: Vec<(Opcode, u64)> = sums.iter().map(|sum| (sum.opcode, sum.bytes)).collect();
        assert_eq!(seen, [(Opcode::Getattr, 0), (Opcode::Read, 600), (Opcode::Write, 3000)]);
        for sum in sums {
            assert_eq!(sum.buckets.iter().map(|(_, count)| count).sum::<u64>(), 6);
        }
    }
}
