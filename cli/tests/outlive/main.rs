//! A mount outlives its server: killed, it is followed by another one, and programs notice a pause. Needs root and
//! /dev/fuse.

mod ends;
mod held;
mod names;
mod replace;
mod support;
