//! Batches that were carried out when they were submitted and wait to be fetched.
#![deny(unsafe_code)]

use std::collections::HashMap;

use super::{Completion, Ticket};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Completions by ticket.
#[derive(Debug, Default)]
pub(super) struct DoneBatches {
    next: AtomicU64,
    done: Mutex<HashMap<u64, Vec<Completion>>>,
}

impl DoneBatches {
    pub fn put(&self, batch: Vec<Completion>) -> Ticket {
        // Relaxed: only uniqueness matters; the mutex publishes the batch.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.done.lock().insert(id, batch);
        Ticket(id)
    }

    pub fn take(&self, ticket: Ticket) -> Vec<Completion> {
        self.done.lock().remove(&ticket.0).expect("a ticket comes from this device and is waited for once")
    }
}
