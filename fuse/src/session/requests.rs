//! How many requests of each kind the server was sent, and for how many of them a caller waited.
//!
//! Requests, not microseconds, decide everyday work: each costs two switches of context. Those that nobody waits for are
//! told apart: by what they are (the kernel asks to forget, to close, to interrupt), or because no process asked, as
//! when the kernel writes its cache back. Callers of another pid name space look like no process, too.
//!
//! Counted on the core that serves: its counters lie in cache lines of their own, and nothing else waits for them.

use crate::wire::{InHeader, Opcode};
use narufs_engine::sync::{CachePadded, Counter};

/// More than any operation's number.
const NUMBERS: usize = 64;

/// The counters of a core, by the operation's number.
struct Share {
    all: [Counter; NUMBERS],
    /// Those of them that nobody waited for.
    unawaited: [Counter; NUMBERS],
}

/// The counters of a conversation.
pub struct Requests {
    shares: Box<[CachePadded<Share>]>,
}

/// How many requests of a kind there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The kind.
    pub opcode: Opcode,
    /// All of them.
    pub sent: u64,
    /// Those that a caller waited for.
    pub awaited: u64,
}

impl Requests {
    /// None yet; requests are served on so many cores, by number.
    pub fn new(cores: usize) -> Self {
        let zeros = || [const { Counter::new() }; NUMBERS];
        let share = |_| CachePadded::new(Share { all: zeros(), unawaited: zeros() });
        Requests { shares: (0..cores.max(1)).map(share).collect() }
    }

    /// Counts one.
    pub fn count(&self, header: &InHeader) {
        let share = &self.shares[rustix::thread::sched_getcpu() % self.shares.len()];
        let number = header.opcode as usize;
        if let Some(counter) = share.all.get(number) {
            counter.add(1);
            if header.pid == 0 || Opcode::from_number(header.opcode).is_none_or(|opcode| !is_awaited(opcode))
            {
                share.unawaited[number].add(1);
            }
        }
    }

    /// Of each kind, those since the mount; kinds that there were none of are left out.
    pub fn counts(&self) -> Vec<Count> {
        let count = |opcode: &Opcode| {
            let number = *opcode as usize;
            let sum = |of: fn(&Share) -> &[Counter; NUMBERS]| -> u64 {
                self.shares.iter().map(|share| of(share)[number].get()).sum()
            };
            // In this order: one that is being counted is not counted as one that nobody waits for alone.
            let unawaited = sum(|share| &share.unawaited);
            let sent = sum(|share| &share.all);
            (sent > 0).then(|| Count { opcode: *opcode, sent, awaited: sent.saturating_sub(unawaited) })
        };
        Opcode::ALL.iter().filter_map(count).collect()
    }
}

/// Whether somebody waits for the answer to a request of this kind.
fn is_awaited(opcode: Opcode) -> bool {
    !matches!(
        opcode,
        Opcode::Forget
            | Opcode::BatchForget
            | Opcode::Interrupt
            | Opcode::NotifyReply
            | Opcode::Release
            | Opcode::Releasedir
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(opcode: Opcode, pid: u32) -> InHeader {
        let (opcode, len) = (opcode as u32, size_of::<InHeader>() as u32);
        let (unique, nodeid, uid, gid, total_extlen, padding) = (2, 1, 0, 0, 0, 0);
        InHeader { len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding }
    }

    #[test]
    fn every_kind_has_a_counter_and_those_that_nobody_waits_for_are_told_apart() {
        // Fewer shares than cores do as well.
        for cores in [1, 2, 1024] {
            let requests = Requests::new(cores);
            assert_eq!(requests.counts(), []);
            for (times, &opcode) in (1u64..).zip(Opcode::ALL) {
                (0..times).for_each(|_| requests.count(&header(opcode, 7)));
            }
            (0..3).for_each(|_| requests.count(&header(Opcode::Write, 0)));
            // Kinds that nobody knows are refused, and counted nowhere.
            requests.count(&InHeader { opcode: u32::MAX, ..header(Opcode::Write, 7) });
            let counts = requests.counts();
            assert_eq!(counts.len(), Opcode::ALL.len());
            for (times, count) in (1u64..).zip(counts) {
                let background = if count.opcode == Opcode::Write { 3 } else { 0 };
                let awaited = if is_awaited(count.opcode) { times } else { 0 };
                assert_eq!((count.sent, count.awaited), (times + background, awaited), "{count:?}");
            }
        }
    }

    #[test]
    fn threads_count_beside_each_other_and_nothing_is_lost() {
        let requests = Requests::new(2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| requests.count(&header(Opcode::Getattr, 7))));
            }
        });
        let all = Count { opcode: Opcode::Getattr, sent: 4000, awaited: 4000 };
        assert_eq!(requests.counts(), [all]);
    }
}
