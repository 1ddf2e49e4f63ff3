//! Linearisability of the calls on names: many threads make them on few names of few directories, and whatever
//! each was answered must be what it would have been had the calls come one after the other, in an order that
//! respects which of them returned before another began.
//!
//! Calls name a directory by its identity, as a kernel does that holds it open, so that each is one step: a path
//! of several names is several lookups, between which anything may happen. The reference model judges what a
//! step answers ([`state`]), a search looks for the order ([`search`]). Work comes in rounds with a pause between
//! them, in which the whole tree is read: so histories stay short, and each round ends in a known state.
//!
//! What this leaves to others: what a crash keeps of the calls ([`crate::oracle`]).

pub mod rounds;
pub mod search;
pub mod state;
mod watchdog;

use std::fmt::{self, Display, Formatter};

/// An inode, for as long as somebody holds it: generation and nid; the root is 0, as it is in the model.
pub type Id = usize;

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The directory.
    pub dir: Id,
    /// The name.
    pub name: &'static str,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Makes a regular file, or opens it if there is one and that is allowed.
    Create(At, Exclusive),
    /// Makes a directory.
    Mkdir(At),
    /// Makes a symbolic link.
    Symlink(At),
    /// Gives another name to what has this type.
    Link(Id, u32, At),
    /// Removes the name of what is no directory.
    Unlink(At),
    /// Removes an empty directory.
    Rmdir(At),
    /// Renames with these flags.
    Rename(At, At, u32),
    /// Looks a name up.
    Lookup(At),
    /// Opens what a walk along a path of this name finds.
    Open(At),
    /// Asks for the attributes of what it finds.
    Find(At),
    /// Asks for type and number of names.
    Stat(Id),
}

/// Whether a file must be new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusive {
    /// It must.
    Yes,
    /// It need not.
    No,
}

/// What a call answers when it succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Done,
    /// What the name leads to now, and its type.
    Is(Id, u32),
    /// Number of names, and type.
    Has(u32, u32),
}

/// A call that has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Who made it.
    pub thread: usize,
    /// What was asked.
    pub call: Call,
    /// What was answered.
    pub answer: Result<Answer, i32>,
    /// When it began, on a clock that all threads share and that never shows a time twice.
    pub begun: u64,
    /// When it had returned.
    pub returned: u64,
}

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:5}..{:<5} thread {}: {:x?} answered ",
            self.begun, self.returned, self.thread, self.call
        )?;
        match self.answer {
            Ok(answer) => write!(f, "{answer:x?}"),
            Err(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(errno)),
        }
    }
}
