//! Stores of an image that is being mounted: as it is, over memory, or recovered.
//!
//! What this leaves to others: whether the image is to be recovered, and the new epoch ([`super::mount`]); what recovery
//! does ([`recovery`]).

use super::{ImageOptions, RingMedia};
use crate::Result;
use crate::checkpoint::{Checkpointer, RoundId};
use crate::device::{BLOCK_SIZE, BlockDevice, Overlay};
use crate::format::{JournalKind, Superblock};
use crate::journal::Scan;
use crate::recovery::{self, Onto, Outcome};
use crate::store::{Log, Store};
use crate::sync::Arc;
use crate::takeover::NewerHome;
use crate::takeover::homes::homes_left;

/// Makes stores of an image that is being mounted.
pub(super) struct Fresh<'m> {
    pub sb: &'m Superblock,
    pub options: &'m ImageOptions,
}

impl Fresh<'_> {
    /// A store over the device, without a journal.
    pub fn store(&self, device: Arc<dyn BlockDevice>) -> Arc<Checkpointer> {
        let store = Store::new(device, *self.sb, Log::durable(), &self.options.store);
        Arc::new(Checkpointer::new(Arc::new(store)))
    }

    /// A store whose writes stay in memory.
    pub fn over(&self, device: Arc<dyn BlockDevice>) -> Arc<Checkpointer> {
        self.store(Arc::new(Overlay::new(device, self.options.store.budget / BLOCK_SIZE)))
    }

    /// Recovers the image; for a reader, and where something is damaged, in memory alone.
    pub fn recover(
        &self,
        ring: &RingMedia,
        device: Arc<dyn BlockDevice>,
        scan: &Scan,
        round: RoundId,
        read_only: bool,
    ) -> Result<(Arc<Checkpointer>, Outcome)> {
        // What a predecessor has left in place, and redo is to leave alone.
        let homes = homes_left(self.options.takeover.as_deref(), round.epoch);
        let mut damage = scan.damage.clone();
        if !read_only && damage.is_none() {
            ring.carry(self.sb, &device, scan)?;
            let pages = self.store(Arc::clone(&device));
            let mut outcome = recovery::recover(&pages, scan, round, &homes, Onto::Image)?;
            if !outcome.unreadable.is_empty() {
                outcome = self.recover_without(&pages, scan, round, &homes, outcome.unreadable)?;
            }
            if outcome.damage.is_none() {
                return Ok((pages, outcome));
            }
            damage = outcome.damage;
        }
        let pages = self.over(device);
        let mut outcome = recovery::recover(&pages, scan, round, &homes, Onto::Memory)?;
        outcome.damage = damage.or(outcome.damage);
        if outcome.damage.is_none() && !outcome.unreadable.is_empty() {
            tracing::warn!("{}", recovery::unreadable(&outcome.unreadable));
        }
        Ok((pages, outcome))
    }

    /// Recovers an image of whose double-write area these blocks cannot be read, if it does not need them; it is
    /// damaged otherwise, and nothing is written. Why that can be known: [`recovery`]'s `restore`.
    fn recover_without(
        &self,
        pages: &Checkpointer,
        scan: &Scan,
        round: RoundId,
        homes: &[NewerHome],
        blocks: Vec<u64>,
    ) -> Result<Outcome> {
        let what = recovery::unreadable(&blocks);
        let damaged = |why: String| Outcome { damage: Some(why), ..Outcome::default() };
        if !self.has_ring_inside() && !self.options.trust_journal {
            return Ok(damaged(format!(
                "{what}, so that nothing would tell if the journal were older than the image; if it is not, \
                 narufs fsck IMAGE --repair goes on with it"
            )));
        }
        let tried = recovery::recover(
            &self.over(Arc::clone(pages.store().device())),
            scan,
            round,
            homes,
            Onto::Memory,
        )?;
        if let Some(why) = tried.damage {
            return Ok(damaged(format!(
                "{what}, and recovery meets damage without it ({why}); nothing is written: the device may read \
                 it when it is mounted again"
            )));
        }
        if tried.unreadable != blocks {
            return Ok(damaged(format!("{what} at times; nothing is written: mount it again")));
        }
        if let Some(why) = write_anew(pages.store(), &blocks) {
            return Ok(damaged(why));
        }
        let outcome = recovery::recover(pages, scan, round, homes, Onto::Image)?;
        if !outcome.unreadable.is_empty() {
            return Ok(damaged(recovery::unreadable(&outcome.unreadable)));
        }
        Ok(Outcome { unreadable: blocks, ..outcome })
    }

    /// Whether the journal lies in the image, and cannot be older.
    pub fn has_ring_inside(&self) -> bool {
        self.sb.journal_kind.get() == JournalKind::Ssd as u32
    }
}

/// Writes blocks of the double-write area anew that cannot be read and are not needed; what is wrong if it does not
/// help.
pub(super) fn write_anew(store: &Store, blocks: &[u64]) -> Option<String> {
    if blocks.is_empty() {
        return None;
    }
    let what = recovery::unreadable(blocks);
    match recovery::make_blank(store.device().as_ref(), blocks) {
        Ok(()) => {
            tracing::warn!("{what}; it was not needed, and is written anew");
            None
        }
        Err(e) => Some(format!("{what}, nor written anew: {e}")),
    }
}
