//! `narufs upgrade`: has this program serve a live mount in the place of another version. Programs that use it notice a
//! pause.

use crate::args::Upgrade;
use crate::failure::{Failure, Status};
use crate::supervisor::control::ask_for_upgrade;
use narufs_fuse::control;
use std::io;

/// Asks the mount's supervisor.
pub fn run(args: &Upgrade) -> Result<(), Failure> {
    let dir = &args.dir;
    let failed = |e: io::Error| Failure::of_call(dir, &e);
    let supervisor = control::supervisor_pid(dir).map_err(failed)?.ok_or_else(|| {
        let why = "it ends with its server, so that no other can take over: unmount it, and mount it with this version";
        Failure::about(Status::Failed, dir, why)
    })?;
    match ask_for_upgrade(supervisor) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(Failure::about(Status::Failed, dir, why)),
        Err(e) => {
            Err(Failure::about(Status::Failed, dir, format!("its supervisor, process {supervisor}: {e}")))
        }
    }
}
