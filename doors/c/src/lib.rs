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

mod args;
mod batch;
mod dir;
mod entries;
mod fail;
mod file;
mod hazard;
mod io;
mod later;
mod locks;
mod names;
mod ranges;
mod system;
mod table;
mod types;
mod xattrs;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a handle takes 64 bits");
