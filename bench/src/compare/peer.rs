//! File systems in user space by others: each is made by its mkfs and served by a process of its own, a child of this
//! one, so that its end can be waited for: umount(2) returns before a server has written everything down.

use super::call;
use super::contender::Peer;
use crate::target::is_mount_point;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How often a server that mounts nothing is looked after.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A mount and its server. Dropping it unmounts and waits for the server's end.
#[derive(Debug)]
pub(super) struct Served {
    point: PathBuf,
    server: Option<Child>,
}

/// Makes the file system anew.
pub(super) fn format(peer: Peer, device: &Path) -> Result<()> {
    let shown = device.display().to_string();
    let (program, arguments) = (peer.make[0], [&peer.make[1..], &[&shown]].concat());
    call(program, &arguments).map(drop)
}

impl Served {
    /// Starts the server and waits until it has mounted.
    ///
    /// # Errors
    /// With the last that it said, if it ends before.
    pub fn start(peer: Peer, device: &Path, point: &Path) -> Result<Served> {
        let at = |e: std::io::Error| Error::io("start", peer.serve, e);
        let log = point.with_extension("log");
        let said = File::create(&log).map_err(at)?;
        let mut command = Command::new(peer.serve);
        command.arg(device).arg(point).args(peer.options).stdin(Stdio::null());
        command.stdout(said.try_clone().map_err(at)?).stderr(said);
        // A group of its own: an interruption is for this process, which unmounts.
        let server = command.process_group(0).spawn().map_err(at)?;
        let mut served = Served { point: point.to_owned(), server: Some(server) };
        let table = File::open("/proc/self/mountinfo").map_err(at)?;
        while !is_mount_point(point) {
            if let Some(server) = &mut served.server
                && let Some(status) = server.try_wait().map_err(at)?
            {
                served.server = None;
                let said = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
                let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
                return Err(Error::Refused(format!("{} ended ({status}): {last}", peer.serve)));
            }
            // The table of mounts tells when it changes.
            let mut changes = [PollFd::new(&table, PollFlags::PRI)];
            poll(&mut changes, Some(&TICK)).map_err(|e| at(e.into()))?;
        }
        Ok(served)
    }

    /// Unmounts, and waits for the server's end.
    pub fn end(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let point = self.point.display().to_string();
        let unmounted = call("umount", &[&point]).map(drop);
        if unmounted.is_err() {
            // Somebody is in it, or it has died: it is to be gone, whatever becomes of them.
            let _ = call("umount", &["--lazy", &point]);
            let _ = server.kill();
        }
        server.wait().map_err(|e| Error::io("wait", &point, e))?;
        unmounted
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Err(e) = self.stop() {
            tracing::warn!("{e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_before_it_mounts_is_told_in_its_words() {
        let at = tempfile::tempdir().expect("room");
        let point = at.path().join("mount");
        std::fs::create_dir(&point).expect("room");
        let broken = Peer { make: &["false"], serve: "ls", options: &["--no-such-option"] };
        let said = Served::start(broken, Path::new("/dev/null"), &point).expect_err("it ends").to_string();
        assert!(said.starts_with("ls ended (exit status: 2)"), "{said}");
        assert!(format(broken, Path::new("/dev/null")).is_err());
        let missing = Peer { serve: "no-such-server", ..broken };
        assert!(Served::start(missing, Path::new("/dev/null"), &point).is_err());
    }
}
