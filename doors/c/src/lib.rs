//! narufs for C: what `narufs.h` declares.
//!
//! Everything here is a translation of crate `narufs`, whose promises hold: names, numbers and structs of C go in, and
//! out come a number, errno, and words for the thread. Three things are its own:
//!
//! - handles (`table`): what C holds is a number that looks like a pointer and is never followed. One that was never
//!   given out, was closed, or is of another kind is EBADF, whatever other threads do with it meanwhile;
//! - the boundary (`fail`): no panic crosses it. One is EIO with words; the engine itself knows what it has left
//!   undone (docs/CONSISTENCY.md, sentence 7), so that nothing is poisoned here;
//! - pointers (`args`): they are the caller's word, and looked at in one place.
//!
//! A build for loom has the tables of handles alone, whose models it is for.

#[cfg(not(loom))]
mod args;
#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod dir;
#[cfg(not(loom))]
mod entries;
#[cfg(not(loom))]
mod fail;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
mod handles;
mod hazard;
#[cfg(not(loom))]
mod io;
#[cfg(not(loom))]
mod later;
#[cfg(not(loom))]
mod locks;
#[cfg(not(loom))]
mod names;
#[cfg(not(loom))]
mod ranges;
mod sync;
#[cfg(not(loom))]
mod system;
mod table;
#[cfg(not(loom))]
mod types;
#[cfg(not(loom))]
mod xattrs;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a handle takes 64 bits");
