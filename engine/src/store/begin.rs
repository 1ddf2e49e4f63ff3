//! The beginning of an operation: what it may have to wait for.

use super::{Handle, Store};
use crate::Result;
use crate::journal::{CreditClass, Look};
use crate::sync::thread;

impl Store {
    /// Starts an operation that logs at most `max_slots` slots. To be called before any lock is taken
    /// that somebody with credits may wait for: it sleeps while the journal is full or too much metadata is dirty.
    ///
    /// # Errors
    /// The file system is read-only. In the scratch profile: there is too much dirty metadata, and the spill space has
    /// just refused it; the next operation has it tried again.
    pub fn begin(&self, max_slots: u32) -> Result<Handle<'_>> {
        self.check_writable()?;
        if !self.makes_room_inline() {
            self.throttle()?;
            return self.handle(max_slots, CreditClass::Ordinary);
        }
        let is_too_large = self.journal().is_some_and(|journal| max_slots > journal.max_record_slots());
        loop {
            self.make_room_inline(max_slots, CreditClass::Ordinary)?;
            if is_too_large {
                // No round makes room for it: it is refused.
                return self.handle(max_slots, CreditClass::Ordinary);
            }
            if let Some(allowance) = self.log.allow_now(max_slots, Look::Everywhere)? {
                return Ok(Handle::new(self, allowance));
            }
            // Another has taken the room that was made, or makes some now. To sleep for it would be for ever, if
            // that other sleeps too.
            thread::yield_now();
        }
    }

    /// As [`Store::begin`], for work that makes room or that a checkpoint waits for: it draws on the reserve
    /// and does not wait for dirty metadata.
    pub fn begin_reserve(&self, max_slots: u32) -> Result<Handle<'_>> {
        self.check_writable()?;
        if self.makes_room_inline() {
            match self.make_room_inline(max_slots, CreditClass::Reserve) {
                Err(_) if !self.profile.keeps() => {}
                done => done?,
            }
        }
        self.handle(max_slots, CreditClass::Reserve)
    }

    /// As [`Store::begin`], for what frees, or is the rest of what others see begun: where no journal would finish it
    /// after the mount it does not fail, nor wait, because metadata could not be spilled.
    pub fn begin_rest(&self, max_slots: u32) -> Result<Handle<'_>> {
        if self.profile.keeps() { self.begin(max_slots) } else { self.begin_reserve(max_slots) }
    }

    /// As [`Store::begin_reserve`], for who has begun another operation already, and so must not wait: `None` if
    /// there is no room now.
    pub fn try_begin(&self, max_slots: u32) -> Result<Option<Handle<'_>>> {
        self.check_writable()?;
        Ok(self.log.allow_now(max_slots, Look::Nearby)?.map(|allowance| Handle::new(self, allowance)))
    }

    /// As [`Store::try_begin`], for what may as well be left out of the journal: `None` also where room there is to be
    /// left to others.
    pub fn try_begin_amply(&self, max_slots: u32) -> Result<Option<Handle<'_>>> {
        self.check_writable()?;
        Ok(self.log.allow_now(max_slots, Look::Ample)?.map(|allowance| Handle::new(self, allowance)))
    }

    fn handle(&self, max_slots: u32, class: CreditClass) -> Result<Handle<'_>> {
        Ok(Handle::new(self, self.log.allow(max_slots, class)?))
    }
}
