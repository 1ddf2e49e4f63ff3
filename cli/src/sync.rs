//! `narufs sync`: everything that a mount holds goes to durable media, or what it was asked to keep.

use crate::args::SyncArgs;
use crate::failure::Failure;
use narufs_fuse::control;

/// Returns when it is down.
pub fn run(args: &SyncArgs) -> Result<(), Failure> {
    let synced = if args.power { control::sync_power(&args.dir) } else { control::sync(&args.dir) };
    synced.map_err(|e| Failure::of_call(&args.dir, &e))
}
