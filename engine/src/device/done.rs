//! Batches that were carried out when they were submitted and wait to be fetched.

use std::collections::HashMap;

use super::{Completion, Ticket};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Finished batches by ticket.
#[derive(Debug)]
pub(crate) struct DoneBatches<B = Vec<Completion>> {
    next: AtomicU64,
    done: Mutex<HashMap<u64, B>>,
}

impl<B> Default for DoneBatches<B> {
    fn default() -> Self {
        Self { next: AtomicU64::new(0), done: Mutex::new(HashMap::new()) }
    }
}

impl<B> DoneBatches<B> {
    /// Keeps a batch until it is taken.
    pub fn put(&self, batch: B) -> Ticket {
        // Relaxed: only uniqueness matters; the mutex publishes the batch.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.done.lock().insert(id, batch);
        Ticket(id)
    }

    /// Takes a batch out; each ticket is used once.
    pub fn take(&self, ticket: Ticket) -> B {
        self.done.lock().remove(&ticket.0).expect("a ticket comes from this device and is waited for once")
    }
}
