//! Memory for tests: every write becomes visible to other threads only through the journal's own ordering.
//!
//! Each 256-byte cell is an atomic version number, accessed Relaxed, and the bytes of each version. Under a
//! model checker a reader that the protocol does not order after the writer may get an old version, whose
//! bytes do not verify: so a missing Acquire or Release shows. Under loom each cell is tracked as well, so
//! that a write which is not ordered after the reads and writes of the lap before shows too.

use std::sync::Mutex;

use crate::format::{RING_HEADER_SPACE, SLOT_SIZE};
use crate::pmem::{DurabilityLevel, PersistentMemory};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Tells loom which thread touches a cell.
#[cfg(loom)]
struct Tracked(loom::cell::UnsafeCell<()>);

// SAFETY: there is nothing in the cell, and its pointer is never used; loom checks which threads access it. Guarded
// by the models themselves.
#[cfg(loom)]
#[allow(unsafe_code, reason = "memory that is watched, shared by threads")]
unsafe impl Sync for Tracked {}

/// The memory.
pub(in crate::journal) struct TestMemory {
    header: Mutex<Vec<u8>>,
    versions: Vec<AtomicU64>,
    #[cfg(loom)]
    tracked: Vec<Tracked>,
    /// Contents by version; version 0 is zeros.
    contents: Mutex<Vec<[u8; SLOT_SIZE]>>,
}

impl TestMemory {
    pub(super) fn new(slots: u64) -> Self {
        TestMemory {
            header: Mutex::new(vec![0; RING_HEADER_SPACE]),
            versions: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            #[cfg(loom)]
            tracked: (0..slots).map(|_| Tracked(loom::cell::UnsafeCell::new(()))).collect(),
            contents: Mutex::new(vec![[0; SLOT_SIZE]]),
        }
    }

    /// The memory as a scan after a kill would find it, while others go on.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn copy(&self) -> Self {
        let copy = TestMemory::new(self.versions.len() as u64);
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes);
        copy.write(0, &bytes);
        copy
    }
}

impl PersistentMemory for TestMemory {
    fn len(&self) -> usize {
        RING_HEADER_SPACE + self.versions.len() * SLOT_SIZE
    }

    fn write(&self, offset: usize, data: &[u8]) {
        if offset < RING_HEADER_SPACE {
            let n = data.len().min(RING_HEADER_SPACE - offset);
            self.header.lock().expect("test")[offset..offset + n].copy_from_slice(&data[..n]);
            if n < data.len() {
                self.write(RING_HEADER_SPACE, &data[n..]);
            }
            return;
        }
        let mut offset = offset - RING_HEADER_SPACE;
        let mut data = data;
        while !data.is_empty() {
            let (cell, at) = (offset / SLOT_SIZE, offset % SLOT_SIZE);
            let n = data.len().min(SLOT_SIZE - at);
            #[cfg(loom)]
            self.tracked[cell].0.with_mut(|_| ());
            // Relaxed: see the module. Not under the lock: a model checker may switch threads here.
            let before = self.versions[cell].load(Ordering::Relaxed);
            let version = {
                let mut contents = self.contents.lock().expect("test");
                let mut bytes = contents[before as usize];
                bytes[at..at + n].copy_from_slice(&data[..n]);
                contents.push(bytes);
                contents.len() as u64 - 1
            };
            // Relaxed: see the module.
            self.versions[cell].store(version, Ordering::Relaxed);
            offset += n;
            data = &data[n..];
        }
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        if offset < RING_HEADER_SPACE {
            let n = into.len().min(RING_HEADER_SPACE - offset);
            into[..n].copy_from_slice(&self.header.lock().expect("test")[offset..offset + n]);
            if n < into.len() {
                self.read(RING_HEADER_SPACE, &mut into[n..]);
            }
            return;
        }
        let mut offset = offset - RING_HEADER_SPACE;
        let mut into = into;
        while !into.is_empty() {
            let (cell, at) = (offset / SLOT_SIZE, offset % SLOT_SIZE);
            let n = into.len().min(SLOT_SIZE - at);
            #[cfg(loom)]
            self.tracked[cell].0.with(|_| ());
            // Relaxed: see the module.
            let version = self.versions[cell].load(Ordering::Relaxed);
            into[..n].copy_from_slice(&self.contents.lock().expect("test")[version as usize][at..at + n]);
            offset += n;
            into = &mut into[n..];
        }
    }

    fn write_back(&self, _offset: usize, _len: usize) {}

    fn fence(&self) {}

    fn durability(&self) -> DurabilityLevel {
        DurabilityLevel::Power
    }

    fn counts(&self) -> (u64, u64) {
        (0, 0)
    }
}
