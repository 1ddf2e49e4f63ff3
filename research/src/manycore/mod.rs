//! Machines that are not there: what the papers' core counts would make of figures measured on this one.
//!
//! [`events`] simulates threads that share lines, sections and a device; [`fit`] takes what one and two threads of this
//! machine tell; [`machine`] are the papers' machines; [`published`] is every point that they publish, to be set beside
//! what the model says; [`pair`] is what
//! a second thread brings that shares nothing, [`wake`] what waking a sleeper takes. Misses are shown, each with what would have to go one
//! after the other for the model to meet the point: of two rates follows what this machine's threads do so, and nothing of
//! what other machines, and other systems, share besides.

pub mod events;
pub mod fit;
pub mod machine;
pub mod pair;
pub mod published;
pub mod wake;
