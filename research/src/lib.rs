//! What the design of narufs was measured against; nothing of it is part of the file system.
//!
//! [`locks`] are range locks of the literature, for `cargo bench -p narufs-research --features baselines --bench
//! range_locks`; [`journal`] is what `--bench journal` measures, with the lanes that a journal could have in place of one
//! tail and the model that extrapolates both; [`checkpoint`] is what `--bench checkpoint` does. [`reproduce`] is what the
//! program `narufs-reproduce` does, [`manycore`] what two threads of a machine tell of many.
//!
//! The examples make what is rarely seen elsewhere: a server that answers at once, a directory of millions of names,
//! a table of inodes that is full.
//!
//! A build for loom has the lanes of [`journal`] alone, whose models it is for.

#[cfg(not(loom))]
pub mod checkpoint;
pub mod journal;
#[cfg(not(loom))]
pub mod locks;
#[cfg(not(loom))]
pub mod manycore;
#[cfg(not(loom))]
pub mod reproduce;
