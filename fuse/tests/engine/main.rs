//! The mount end to end, over an image: every operation and flag through system calls. Needs root and /dev/fuse.

#[macro_use]
#[path = "../common/transports.rs"]
mod transports;

mod asked;
mod attributes;
mod coherent;
mod data;
mod doors;
mod durability;
mod elsewhere;
mod kept;
mod mapped;
mod names;
mod places;
mod recall;
mod requests;
mod sharing;
mod support;
