//! `narufs sync`: everything that a mount holds goes to durable media.

use crate::args::SyncArgs;
use crate::failure::Failure;

/// Returns when it is down.
pub fn run(args: &SyncArgs) -> Result<(), Failure> {
    narufs_fuse::control::sync(&args.dir).map_err(|e| Failure::of_call(&args.dir, &e))
}
