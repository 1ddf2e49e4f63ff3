//! A mount outlives its server: killed, it is followed by another one, and programs notice a pause. Needs root and
//! /dev/fuse.

mod damage;
mod ends;
mod faults;
mod hardened;
mod held;
mod measured;
mod mounter;
mod moved;
mod names;
mod replace;
mod stored;
mod supervisor;
mod support;
