//! `narufs sync`: everything that a mount holds goes to durable media.

use crate::args::SyncArgs;
use crate::failure::{Failure, Status};

/// Returns when it is down.
pub fn run(args: &SyncArgs) -> Result<(), Failure> {
    narufs_fuse::control::sync(&args.dir).map_err(|e| {
        let dir = args.dir.display();
        let why = match e.raw_os_error() {
            Some(libc::ENOTTY) => "no narufs is mounted here".to_owned(),
            _ => e.to_string(),
        };
        Failure::new(Status::Failed, format!("{dir}: {why}"))
    })
}
