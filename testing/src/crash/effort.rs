//! How thoroughly sequences are crashed, and what came of it.

/// How thoroughly a sequence is crashed.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Crash points at the most.
    pub points: usize,
    /// States of each at the most; `usize::MAX` is all that [`narufs_engine::sim::CrashPoint::states`] enumerates.
    pub states: usize,
    /// One content in so many is crashed again during its recovery.
    pub nested: u32,
    /// One content in so many goes on: a few operations, and another crash.
    pub onward: u32,
    /// One content in so many is checked, mounted again and compared.
    pub again: u32,
    /// One content in so many is filled and emptied.
    pub filled: u32,
    /// Whether somebody has all files of the tree open for writing throughout: no close is the last, so nothing is done
    /// because of one.
    pub open: bool,
    /// Whether crash points begin with the last operation: those before belong to a shorter sequence.
    pub last: bool,
    /// Whether crash points go on through a checkpoint and an unmount after the operations.
    pub closing: bool,
    /// Whether the last operation runs inside a checkpoint round: where so many writes were issued in it.
    pub in_round: Option<usize>,
}

impl Effort {
    /// Every point, every enumerated state.
    pub const FULL: Effort = Effort {
        points: usize::MAX,
        states: usize::MAX,
        nested: 97,
        onward: 97,
        again: 11,
        filled: 997,
        open: false,
        last: true,
        closing: true,
        in_round: None,
    };
    /// A few states of a few points.
    pub const SAMPLE: Effort = Effort {
        points: 3,
        states: 2,
        nested: 61,
        onward: 61,
        again: 9,
        filled: 1499,
        closing: false,
        ..Self::FULL
    };
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Sequences of operations.
    pub sequences: u64,
    /// Crash points.
    pub points: u64,
    /// States of them, all judged.
    pub states: u64,
    /// Different contents among them, each of which was recovered; those of crashes inside a recovery, and of what came after
    /// one, are all recovered, and not counted here.
    pub contents: u64,
    /// Of these: crashes inside a recovery.
    pub nested: u64,
    /// Of these: crashes of what came after a recovery.
    pub onward: u64,
    /// Images filled and emptied.
    pub filled: u64,
    /// Different sights that had lost at least one unsynced operation.
    pub shorter: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.sequences += other.sequences;
        self.points += other.points;
        self.states += other.states;
        self.contents += other.contents;
        self.nested += other.nested;
        self.onward += other.onward;
        self.filled += other.filled;
        self.shorter += other.shorter;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { sequences, points, states, contents, nested, onward, filled, shorter } = self;
        write!(
            f,
            "{sequences} sequences, {points} crash points, {states} states of {contents} contents ({nested} after a crash in \
             recovery, {onward} after one that followed, {shorter} had lost unsynced operations), {filled} filled \
             and emptied"
        )
    }
}
