//! Bytes and requests by cause.

use crossbeam_utils::CachePadded;

use super::{Cause, CauseCount, Op, Request};
use crate::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Row {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    discard_bytes: AtomicU64,
}

/// What each cause has asked of a device since it was opened. Requests count when they are submitted,
/// whatever becomes of them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    rows: [CachePadded<Row>; Cause::ALL.len()],
}

impl Counters {
    /// A read of so many bytes.
    pub fn count_read(&self, cause: Cause, bytes: u64) {
        let row = &self.rows[cause as usize];
        // Relaxed: as below.
        row.reads.fetch_add(1, Ordering::Relaxed);
        row.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A write of so many bytes.
    pub fn count_write(&self, cause: Cause, bytes: u64) {
        let row = &self.rows[cause as usize];
        // Relaxed: as below.
        row.writes.fetch_add(1, Ordering::Relaxed);
        row.write_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A request, by what it asks for.
    pub fn count(&self, request: &Request) {
        let bytes = request.bytes();
        match request.op {
            Op::Read => self.count_read(request.cause, bytes),
            Op::Write => self.count_write(request.cause, bytes),
            Op::Discard { .. } => {
                // Relaxed, here and above: statistics, which order nothing.
                self.rows[request.cause as usize].discard_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    /// The counts so far.
    pub fn snapshot(&self) -> Vec<CauseCount> {
        let rows = Cause::ALL.iter().zip(&self.rows);
        // Relaxed: statistics; the columns need not agree with each other.
        rows.map(|(&cause, row)| CauseCount {
            cause,
            reads: row.reads.load(Ordering::Relaxed),
            read_bytes: row.read_bytes.load(Ordering::Relaxed),
            writes: row.writes.load(Ordering::Relaxed),
            write_bytes: row.write_bytes.load(Ordering::Relaxed),
            discard_bytes: row.discard_bytes.load(Ordering::Relaxed),
        })
        .collect()
    }
}
