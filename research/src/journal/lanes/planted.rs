//! Rules that tests break on purpose, one at a time, to show that they would notice. There are none outside of tests.

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    /// A record's lines are not written back.
    NoWriteBack,
    /// A record is sealed without a fence after its write-backs.
    NoFence,
    /// The word says idle while a record is under way.
    NeverBusy,
    /// A stamp is the clock's, whatever the last stamps of the objects are.
    StampIgnoresObjects,
    /// A visit leaves an idle lane as it is.
    NotRaised,
    /// A visit raises an idle lane by a store, without a look at what became of it.
    RaisedBlindly,
    /// A visit does not wait for a record under way.
    BusyPassed,
    /// A visit reads the end before the word.
    EndBeforeWord,
    /// A seal publishes the word before the end.
    WordBeforeEnd,
    /// A commit counts before it is fenced.
    CommitNotFenced,
    /// A commit is written over the one before.
    OnePlace,
    /// The owner learns of room before the head is durable.
    HeadNotFenced,
    /// The head passes records above the committed stamp.
    HeadPassesCommit,
    /// Recovery passes over a slot that does not verify.
    GapIgnored,
    /// Recovery takes slots as they are.
    TornAccepted,
    /// Recovery sorts by lane before stamp.
    MergedByLane,
    /// Recovery takes what is above the commit of a lane that was visited late.
    LateTaken,
}

/// The rule that is broken, if any.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Planted(#[cfg(test)] pub(super) Option<Bug>);

impl Planted {
    /// Whether this one is.
    pub(super) fn is(self, _bug: Bug) -> bool {
        #[cfg(test)]
        return self.0 == Some(_bug);
        #[cfg(not(test))]
        false
    }
}
