//! Machines that are not there: what the papers' core counts would make of figures measured on this one.
//!
//! [`events`] simulates threads that share lines, sections and a device; [`fit`] takes what one and two threads of this
//! machine tell; [`machine`] are the papers' machines; [`published`] is every point that they publish, to be set beside
//! what the model says. Its misses are shown with it: of two rates follows what threads do one after the other, and
//! nothing of what other machines share besides.

pub mod events;
pub mod fit;
pub mod machine;
pub mod published;
