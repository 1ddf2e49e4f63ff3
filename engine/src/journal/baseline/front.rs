//! The seam, for what holds every journal to its promises.

use super::{MountCredits, MountJournal, MountRecord};
use crate::Result;
use crate::journal::{CreditClass, Durability, JournalFront, JournalStats, Position};
use crate::pmem::DurabilityLevel;

impl JournalFront for MountJournal {
    type Credits<'j> = MountCredits<'j>;

    fn credits(&self, max_slots: u32, class: CreditClass) -> Result<MountCredits<'_>> {
        self.credits(max_slots, class)
    }

    /// A record that stands for itself.
    fn log(
        &self,
        credits: MountCredits<'_>,
        payload: &[u8],
        apply: impl FnOnce(Position, Position),
    ) -> Result<Position> {
        self.log(credits, MountRecord { payload, touches: None }, apply)
    }

    fn tail(&self) -> Position {
        self.tail()
    }

    fn commit_upto(&self, upto: Position, durability: Durability) -> Result<()> {
        self.commit_upto(upto, durability)
    }

    fn committed(&self, durability: DurabilityLevel) -> Position {
        self.committed(durability)
    }

    fn head(&self) -> Position {
        self.head()
    }

    fn advance_head(&self, to: Position, round: u64) -> Result<()> {
        self.advance_head(to, round)
    }

    fn fail(&self, why: String) {
        self.fail(why);
    }

    fn failed(&self) -> Option<String> {
        self.failed()
    }

    fn stats(&self) -> JournalStats {
        self.stats()
    }
}
