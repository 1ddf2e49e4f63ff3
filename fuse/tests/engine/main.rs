//! The mount end to end, over an image: every operation and flag through system calls. Needs root and /dev/fuse.

mod attributes;
mod data;
mod durability;
mod names;
mod sharing;
mod support;
