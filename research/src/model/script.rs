//! What a thread does, step by step, again and again.

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Beside other readers.
    Read,
    /// Alone.
    Write,
}

/// One of several things of a kind: always the same, or any of a number of them, as names fall into buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// The first of them.
    pub first: usize,
    /// How many there are.
    pub of: usize,
}

impl Pick {
    /// This one.
    pub fn the(first: usize) -> Pick {
        Pick { first, of: 1 }
    }
}

/// A step of an operation; times are in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Work on the core's own lines, always as long.
    Work(f64),
    /// Work whose length is exponentially distributed about this mean.
    Varied(f64),
    /// A write to a shared line, which serves one core at a time and has to come from whoever wrote it last.
    Line(Pick),
    /// Waits for a lock. A thread has one lock of a [`Pick`] of several at a time.
    Lock(usize, Access),
    /// Gives it back.
    Unlock(usize),
    /// Waits for a request of this length in ns, on one of the device's channels.
    Request(f64),
    /// Waits until who serves this batch has served the thread.
    Await(usize),
    /// Who serves a batch: waits for somebody, and takes all who wait.
    Gather(usize),
    /// Work for each that was taken.
    WorkForEach(f64),
    /// Lets all go that were taken.
    Release(usize),
}

/// A thread's steps, which are one operation.
pub type Script = Vec<Step>;

/// A line held for work: a spin lock.
pub fn spun(lock: usize, held: f64) -> [Step; 3] {
    [Step::Lock(lock, Access::Write), Step::Work(held), Step::Unlock(lock)]
}
