//! Those who must know how far records have travelled: the data path, the allocator, the node ids.

use super::Store;
use crate::format::Position;
use crate::pmem::DurabilityLevel;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded, RwLock, Weak};
use crate::{Error, Result};

/// Somebody who is told about the journal's progress. All calls come without any lock held.
pub trait Observer: Send + Sync {
    /// A checkpoint round will move the head to `upto`: what only data records below hold must be written home on
    /// return; the round sees to the flush. It may log ([`Store::begin_reserve`]); an error ends the round.
    fn pre_checkpoint(&self, _upto: Position) -> Result<()> {
        Ok(())
    }
    /// Every record below is durable against a loss of power (as far as the journal's media reach).
    fn durable(&self, _upto: Position) {}
    /// The durable head has passed every record below.
    fn head_passed(&self, _upto: Position) {}
    /// How many nids of this NAT block are in use, if it is known: written into the NAT index as a hint.
    fn used_nids(&self, _nat_block: u64) -> Option<u16> {
        None
    }
}

/// Lines of their own: an fsync writes them, and what lies beside them in the store is read by everybody.
#[derive(Default)]
pub(super) struct Observers {
    list: CachePadded<RwLock<Vec<Weak<dyn Observer>>>>,
    /// The highest position that was told as durable.
    told: CachePadded<AtomicU64>,
}

impl Store {
    /// Adds an observer. It lives until it is released: no checkpoint runs after it has died before.
    pub fn observe(&self, observer: &Arc<impl Observer + 'static>) {
        let observer: Arc<dyn Observer> = Arc::clone(observer) as Arc<dyn Observer>;
        self.observers.list.write().push(Arc::downgrade(&observer));
    }

    /// Lets the observers go: nothing is in their hands alone any more.
    pub fn release_observers(&self) {
        self.observers.list.write().clear();
    }

    /// An error if an observer has died in office: what it alone could bring home, only the journal holds now,
    /// and no head may pass it.
    pub(crate) fn check_observed(&self) -> Result<()> {
        match self.observers.list.read().iter().any(|observer| observer.strong_count() == 0) {
            true => {
                Err(Error::ReadOnly("it was let go without being unmounted; recovery has the rest".into()))
            }
            false => Ok(()),
        }
    }

    /// The observers that live; none is locked while they are called.
    pub(crate) fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.observers.list.read().iter().filter_map(Weak::upgrade).collect()
    }

    /// Tells how far records are durable, if that is news.
    pub(crate) fn tell_durable(&self) {
        let upto = self.log.committed(DurabilityLevel::Power);
        let told = &self.observers.told;
        // Relaxed on both: each teller tells a position it has read itself. Looked at first: no news, no write.
        if told.load(Ordering::Relaxed) < upto && told.fetch_max(upto, Ordering::Relaxed) < upto {
            self.observers().iter().for_each(|observer| observer.durable(upto));
        }
    }
}
