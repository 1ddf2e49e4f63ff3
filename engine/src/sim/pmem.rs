//! The simulated persistent memory.

use super::media::{Event, Shared};
use crate::pmem::{DurabilityLevel, HeapMemory, LINE, PersistentMemory};
use crate::sync::Arc;

/// A persistent memory of [`super::SimMedia`]. A write is logged as one event a cache line.
pub struct SimPmem {
    shared: Arc<Shared>,
    number: usize,
    live: HeapMemory,
}

impl SimPmem {
    pub(super) fn new(shared: Arc<Shared>, number: usize, live: HeapMemory) -> Self {
        assert_eq!(live.len() % LINE, 0, "persistent memory comes in whole cache lines");
        Self { shared, number, live }
    }

    fn thread() -> std::thread::ThreadId {
        std::thread::current().id()
    }
}

impl PersistentMemory for SimPmem {
    fn len(&self) -> usize {
        self.live.len()
    }

    fn write(&self, offset: usize, data: &[u8]) {
        let mut at = 0;
        while at < data.len() {
            let offset = offset + at;
            let piece = &data[at..data.len().min(at + LINE - offset % LINE)];
            let (pmem, thread) = (self.number, Self::thread());
            let event = Event::Store { pmem, offset, data: piece.to_vec(), thread };
            self.shared.record(event, |_| self.live.write(offset, piece));
            at += piece.len();
        }
    }

    fn write_u64(&self, offset: usize, value: u64) {
        let (pmem, thread) = (self.number, Self::thread());
        let data = value.to_le_bytes().to_vec();
        self.shared
            .record(Event::Store { pmem, offset, data, thread }, |_| self.live.write_u64(offset, value));
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.live.read(offset, into);
    }

    fn write_back(&self, offset: usize, len: usize) {
        self.live.write_back(offset, len);
        if len > 0 {
            let first_line = offset / LINE;
            let lines = (offset + len - 1) / LINE - first_line + 1;
            let (pmem, thread) = (self.number, Self::thread());
            self.shared.record(Event::WriteBack { pmem, first_line, lines, thread }, |_| ());
        }
    }

    fn fence(&self) {
        self.live.fence();
        self.shared.record(Event::Fence { thread: Self::thread() }, |_| ());
    }

    fn durability(&self) -> DurabilityLevel {
        self.live.durability()
    }

    fn counts(&self) -> (u64, u64) {
        self.live.counts()
    }
}
