//! Stores of an image that is being mounted: as it is, over memory, or recovered.
//!
//! What this leaves to others: whether the image is to be recovered, and the new epoch ([`super::mount`]); what recovery
//! does ([`recovery`]).

use super::{ImageOptions, RingMedia, judge};
use crate::checkpoint::{Checkpointer, RoundId};
use crate::device::{BLOCK_SIZE, BlockDevice, Overlay};
use crate::format::{JournalKind, Position, RingHeader, STATE_MOUNTED, Superblock};
use crate::journal::Scan;
use crate::recovery::{self, Onto, Outcome};
use crate::store::{Log, Store};
use crate::sync::Arc;
use crate::takeover::NewerHome;
use crate::takeover::homes::homes_left;
use crate::{Error, Result};

/// Makes stores of an image that is being mounted.
pub(super) struct Fresh<'m> {
    pub sb: &'m Superblock,
    pub options: &'m ImageOptions,
}

/// What a mount begins with.
pub(super) struct Begun {
    pub checkpointer: Arc<Checkpointer>,
    pub outcome: Outcome,
    /// The checkpoint round that was the last, or under way.
    pub round: u64,
    /// Where the journal may go on, at the least.
    pub next: u64,
    /// Not all that the journal had is there, and that is how it stays.
    pub given_up: bool,
}

/// Positions that no mount gets through: a pebibyte of journal.
const MOUNT_REACH: Position = 1 << 42;

/// A position behind all that a mount has used which began at this one and whose ring is lost: what it has written home says
/// which record it has last, and is to be older than every record that comes.
fn beyond(first: Position) -> Position {
    first.next_multiple_of(MOUNT_REACH).max(first + MOUNT_REACH)
}

impl Fresh<'_> {
    /// The image as its journal, if it is needed and there, makes it; without what is given up.
    pub fn begin(
        &self,
        ring: &RingMedia,
        device: Arc<dyn BlockDevice>,
        header: Option<RingHeader>,
        read_only: bool,
    ) -> Result<Begun> {
        let unclean = self.sb.state.get() == STATE_MOUNTED;
        if let Some(header) = header.filter(|_| unclean && !(read_only && self.options.discard_journal)) {
            match self.of_journal(ring, &device, &header, read_only) {
                // It is older than the image: nothing of it may count.
                Err(Error::Refused(_)) if self.options.discard_journal => {}
                begun => return begun,
            }
        }
        // It was unmounted: all that was reserved has been sealed, and is in place.
        judge(self.options, |_, _| Ok(!unclean))?;
        // A reader sees what the last round had on its way home, and changes nothing.
        let checkpointer = if unclean && read_only { self.over(device) } else { self.store(device) };
        let store = checkpointer.store();
        let area = recovery::Area::read(store)?;
        let round = header.map_or(0, |h| h.round.get()).max(area.last_round());
        let current = header.as_ref().filter(|_| self.has_ring_inside());
        let unfinished = current.map(|h| RoundId { epoch: h.epoch.get(), number: h.round.get() + 1 });
        let restored = if unclean { area.restore_last(store, unfinished)? } else { 0 };
        let damage = if read_only { None } else { write_anew(store, &area.unreadable) };
        let next = match header {
            Some(header) => header.head.get() + header.slots.get(),
            None if unclean => beyond(self.sb.next_position.get()),
            None => 0,
        };
        let outcome = Outcome { restored, unreadable: area.unreadable, damage, ..Outcome::default() };
        Ok(Begun { checkpointer, outcome, round, next, given_up: unclean })
    }

    /// The image that was not unmounted, with what its own journal holds.
    fn of_journal(
        &self,
        ring: &RingMedia,
        device: &Arc<dyn BlockDevice>,
        header: &RingHeader,
        read_only: bool,
    ) -> Result<Begun> {
        let scan = ring.scan(self.sb, device, header)?;
        let round = header.round.get() + 1;
        let id = RoundId { epoch: header.epoch.get(), number: round };
        judge(self.options, |epoch, position| scan.counts(epoch, position))?;
        let (mut checkpointer, mut outcome) = self.recover(ring, Arc::clone(device), &scan, id, read_only)?;
        let given_up = outcome.damage.is_some() && self.options.discard_journal;
        if given_up {
            (checkpointer, outcome) = self.recover_in_part(device, &scan, id)?;
        }
        Ok(Begun { checkpointer, outcome, round, next: scan.next_position, given_up })
    }

    /// Recovers what can be of a journal whose rest is given up.
    fn recover_in_part(
        &self,
        device: &Arc<dyn BlockDevice>,
        scan: &Scan,
        round: RoundId,
    ) -> Result<(Arc<Checkpointer>, Outcome)> {
        let pages = self.store(Arc::clone(device));
        let area = recovery::Area::read(pages.store())?;
        let restored = area.restore_round(pages.store(), round)?;
        let mut outcome = Outcome { restored, unreadable: area.unreadable, ..Outcome::default() };
        // What goes home goes by way of the area.
        outcome.damage = write_anew(pages.store(), &outcome.unreadable);
        if outcome.damage.is_none() {
            let homes = homes_left(self.options.takeover.as_deref(), round.epoch);
            recovery::redo_in_part(&pages, scan, round, &homes, &mut outcome)?;
        }
        Ok((pages, outcome))
    }

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
