//! The end of a server: another one, or the end of the mount.

use super::Supervisor;
use super::channel::{Death, ToServer, ToSupervisor};
use super::program::Exit;
use crate::broker::mounter::detach;
use crate::failure::{Failure, Status};
use narufs_engine::takeover::now;
use narufs_fuse::supervision::{ABORT, DEVICE};
use rustix::event::Timespec;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// How long a server that is heard no more may take to end.
const PASSING: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

impl Supervisor {
    /// Starts another server, unless that was the last: then the outcome.
    pub(super) fn server_ended(&mut self) -> Option<Result<(), Failure>> {
        let died_at = now();
        let exit = match self.exit() {
            Ok(exit) => exit,
            Err(e) => return Some(Err(Failure::about(Status::Failed, &self.dir, e))),
        };
        let words = self.last_words.take();
        self.last_exit = Some(exit);
        let was_ready = self.server.is_ready;
        match &words {
            Some(ToSupervisor::Ended) => return Some(outcome(exit)),
            Some(ToSupervisor::Failed { status, why }) if !self.has_served => {
                self.forget_mount();
                return Some(Err(Failure::new(Status::of_code(*status), why.clone())));
            }
            _ if !self.has_served => {
                self.forget_mount();
                let why = format!("the server ended before it served: {exit}");
                return Some(Err(Failure::about(Status::MountFailed, &self.dir, why)));
            }
            _ if !self.survives => {
                // A thread of it may be there still, with the device.
                cut_off(&self.kept);
                let why = format!("the server ended, and the mount with it: {exit}");
                return Some(Err(Failure::about(Status::Failed, &self.dir, why)));
            }
            _ => {}
        }
        let death = match &self.trial {
            Some(trial) if !trial.is_started => Death::Replaced,
            _ if exit.is_kill() => Death::Killed,
            _ => Death::OfItself,
        };
        match &words {
            Some(ToSupervisor::Failed { why, .. }) => {
                tracing::error!(mount = %self.dir.display(), reason = why, "no server: it is tried again");
            }
            _ if death == Death::Replaced => {}
            _ => {
                let mount = self.dir.display();
                tracing::warn!(%mount, %exit, "the server is gone, another one starts: see who killed it, if nobody report it");
            }
        }
        self.choose_program();
        if death != Death::Replaced
            && let Some(why) = self.deaths.note(was_ready, death == Death::OfItself, now())
        {
            return Some(Err(self.give_up(&why)));
        }
        loop {
            std::thread::sleep(self.deaths.pause());
            match self.program.start(&self.arguments, &self.kept, Some((death, died_at)), &self.deaths) {
                Ok(server) => {
                    self.server = server;
                    break;
                }
                Err(e) if self.trial.is_some() => {
                    self.go_back(&format!("no server of it can be started: {e}"))
                }
                // There may be no process or no memory to be had at the moment: as a server that ends at once.
                Err(e) => {
                    tracing::error!(mount = %self.dir.display(), "no server can be started, it is tried again: {e}");
                    if self.deaths.note(false, false, now()).is_some() {
                        return Some(Err(self.give_up(&format!("no server can be started: {e}"))));
                    }
                }
            }
        }
        for _ in 0..self.unmounts {
            self.say(&ToServer::Unmount);
        }
        None
    }

    /// How the server has ended. One that is heard no more and does not end is not waited for: a thread of it may wait in the
    /// kernel for what the next one does.
    fn exit(&mut self) -> io::Result<Exit> {
        // Who has said so ends by itself, and its status counts.
        let has_said_so = matches!(self.last_words, Some(ToSupervisor::Ended));
        if has_said_so || self.server.ends_within(&PASSING) {
            return self.server.wait();
        }
        if let Err(e) = self.server.kill() {
            tracing::debug!("{}: its server cannot be killed: {e}", self.dir.display());
        }
        // Else it stays in the kernel's table until this process ends.
        if let Ok(process) = self.server.pidfd.try_clone() {
            self.remains.add(process);
        }
        Ok(Exit::Unknown)
    }

    /// The mount has never worked.
    fn forget_mount(&mut self) {
        take_away(std::mem::take(&mut self.kept), &self.dir, self.below);
    }

    /// Cuts off who uses the mount.
    fn give_up(&self, why: &str) -> Failure {
        cut_off(&self.kept);
        let dir = self.dir.display();
        let why = format!(
            "{why}, and the mount with them: run narufs umount {dir}, then narufs fsck, and mount again"
        );
        tracing::error!("{dir}: {why}");
        Failure::about(Status::Failed, &self.dir, why)
    }
}

/// Ends the connection with the kernel: who waits for an answer gets an error. False: it ends with its last descriptor.
fn cut_off(kept: &BTreeMap<String, OwnedFd>) -> bool {
    match kept.get(ABORT).map(|abort| rustix::io::write(abort, b"1")) {
        Some(Ok(_)) => true,
        Some(Err(e)) => {
            tracing::debug!("the connection ends with this process: {e}");
            false
        }
        None => false,
    }
}

/// Ends a mount of which this is kept, and takes it away if it is there still: the device of what was there before, if that is
/// known, is not its own.
pub(super) fn take_away(kept: BTreeMap<String, OwnedFd>, dir: &Path, below: Option<(u32, u32)>) {
    if !kept.contains_key(DEVICE) {
        return;
    }
    let is_dead = cut_off(&kept);
    // Whose connection this is not known to have ended is not asked: it might never answer.
    drop(kept);
    if let Err(e) = detach(dir, is_dead, below) {
        tracing::debug!("{}: {e}", dir.display());
    }
}

/// How a mount has ended whose server said so; why it did not go well the server has said.
fn outcome(exit: Exit) -> Result<(), Failure> {
    match exit {
        Exit::Status(0) | Exit::Unknown => Ok(()),
        _ => Err(Failure::new(Status::Failed, "")),
    }
}
