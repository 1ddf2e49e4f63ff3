//! Steps 3 to 6 of a round: what is dirty goes home, by several threads.
//!
//! The lists are taken and put in the order of blocks. Each thread claims pages from its lane ([`Claims`]), as many as
//! fit into its part of the double-write area, and brings that batch home before it claims the next ([`Part`]): while
//! one thread copies or waits for a flush, another keeps the device busy.
//!
//! Threads are started for a round that is worth it, and end with it. Where the system has none to give fewer do the
//! work, at the least the caller. When a write fails for good no thread begins another batch; what did not go home is
//! dirty as before, and the round fails with the first error.

use super::area::{self, Part, parts};
use super::claims::Claims;
use super::images::Images;
use super::stats::{Counters, Phase};
use super::{CheckpointStats, Checkpointer, RoundId};
#[cfg(feature = "baselines")]
use crate::baseline::CheckpointBaseline;
use crate::journal::Durability;
use crate::planted::{self, Bug, Spot};
use crate::scoped;
use crate::store::{PageRef, Store, WriteHome};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::{Error, Result};

/// Pages that make another thread worth its start.
const PAGES_PER_THREAD: usize = 64;
/// Pages of a batch that goes to spill space.
const SPILLED: usize = 512;

/// What the threads of a round share.
struct Work<'s> {
    store: &'s Store,
    stats: &'s Counters,
    pages: Vec<PageRef>,
    claims: Claims,
    /// The parts that no thread has yet, with the lane of who takes one; none in the scratch profile.
    parts: Mutex<Vec<(usize, Option<Part<'s>>)>>,
    batches: AtomicUsize,
    failure: Mutex<Option<Error>>,
    planted: Option<Bug>,
}

impl Checkpointer {
    /// Writes home every page that was dirty when the call began.
    pub(crate) fn write_all(&self, round: RoundId) -> Result<()> {
        let pages = self.stats.time(Phase::Collect, || {
            let mut pages = self.store.dirty.drain();
            pages.sort_unstable_by_key(|page| page.block());
            pages
        });
        let work = Work::new(self, round, pages);
        scoped::share(work.lanes(), || work.run());
        if planted::is(Bug::AreaReusedEarly) {
            self.store.device().flush()?;
        }
        work.end()
    }

    /// What rounds have done since the mount.
    pub fn stats(&self) -> CheckpointStats {
        self.stats.snapshot(home_writers(&self.store))
    }
}

/// Threads that write home, at the most.
fn home_writers(store: &Store) -> usize {
    #[cfg(feature = "baselines")]
    if store.baselines().checkpoint != CheckpointBaseline::Ours {
        return 1;
    }
    store.write_home().threads.unwrap_or_else(|| store.device().submitters()).max(1)
}

/// Images of a batch when so many threads write home.
fn batch_of(store: &Store, threads: usize) -> usize {
    match store.profile().keeps() {
        true => area::capacity(store.superblock().dw_blocks.get() / threads as u64).max(1),
        false => SPILLED,
    }
}

impl<'s> Work<'s> {
    fn new(checkpointer: &'s Checkpointer, round: RoundId, pages: Vec<PageRef>) -> Work<'s> {
        let (store, stats) = (&*checkpointer.store, &checkpointer.stats);
        let most = home_writers(store);
        let worth = batch_of(store, most).min(PAGES_PER_THREAD);
        let threads = (pages.len() / worth).clamp(1, most);
        let parts: Vec<_> = if store.profile().keeps() {
            parts(store, stats, round, threads).into_iter().map(Some).collect()
        } else {
            (0..threads).map(|_| None).collect()
        };
        Work {
            store,
            stats,
            claims: Claims::new(pages.len(), parts.len()),
            pages,
            parts: Mutex::new(parts.into_iter().enumerate().rev().collect()),
            batches: AtomicUsize::new(0),
            failure: Mutex::new(None),
            planted: planted::chosen(),
        }
    }

    fn lanes(&self) -> usize {
        self.parts.lock().len()
    }

    /// What each thread does: batch after batch, until nothing is left or something has failed.
    fn run(&self) {
        planted::plant(self.planted);
        let Some((own, mut part)) = self.parts.lock().pop() else { return };
        let most = part.as_ref().map_or(SPILLED, Part::capacity);
        while self.failure.lock().is_none()
            && let Some(range) = self.claims.take(own, most)
        {
            if let Err(e) = self.batch(part.as_mut(), &self.pages[range]) {
                self.failure.lock().get_or_insert(e);
            }
        }
    }

    /// Claims pages, and brings them home.
    fn batch(&self, part: Option<&mut Part<'s>>, pages: &[PageRef]) -> Result<()> {
        let dirty = &self.store.dirty;
        let copy = || {
            let claimed: Vec<_> = pages.iter().filter(|page| dirty.claim(page)).collect();
            (Images::copy(self.store, &claimed), claimed)
        };
        let (images, claimed) = self.stats.time(Phase::Copy, copy);
        if claimed.is_empty() {
            return Ok(());
        }
        self.stats.moved(Phase::Copy, images.bytes());
        planted::panic_at(Spot::Claimed);
        let outcome = self.bring_home(part, images);
        self.stats.time(Phase::Retire, || {
            claimed.iter().for_each(|page| dirty.note(page, page.finish(outcome.is_err())));
        });
        outcome
    }

    fn bring_home(&self, part: Option<&mut Part<'s>>, images: Images) -> Result<()> {
        let WriteHome { neighbours, .. } = self.store.write_home();
        self.stats.batches.add(1);
        let Some(part) = part else {
            return area::write_home(self.store, self.stats, images, neighbours);
        };
        if !planted::is(Bug::HomeBeforeLog) {
            let far = if planted::is(Bug::RoundInWindow) { Durability::Process } else { Durability::Power };
            self.stats.time(Phase::Log, || self.store.commit_upto(images.highest, far))?;
        }
        // Relaxed: it only gives out numbers.
        let sequence = self.batches.fetch_add(1, Ordering::Relaxed) as u64;
        part.double(sequence, images)?.home(neighbours)
    }

    /// The outcome, when all threads are done.
    fn end(self) -> Result<()> {
        // What was not reached stays dirty.
        let dirty = &self.store.dirty;
        while let Some(range) = self.claims.take(0, usize::MAX) {
            for page in self.pages[range].iter().filter(|page| dirty.claim(page)) {
                dirty.note(page, page.finish(true));
            }
        }
        self.failure.into_inner().map_or(Ok(()), Err)
    }
}
