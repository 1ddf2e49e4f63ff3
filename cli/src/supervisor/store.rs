//! What a service manager keeps for a supervisor that it has started: a mount then outlives all of its processes.
//!
//! systemd keeps descriptors that a service pushes to it (sd_notify(3), `FDSTORE=1`) for as long as the service is not
//! stopped, and hands them to the next process that it starts for it (sd_listen_fds(3)). That one goes on with the mount
//! in place of making a new one.
//!
//! What this leaves to others: when to push, and what to do with what was handed over ([`run`](super::run)).
//!
//! # Invariants
//! Nothing is pushed before the mount has served: a descriptor that is handed over is one of a mount that can be gone on
//! with. What it was mounted with lies beside it: what the service is told later is for the next mount.

use super::ends::take_away;
use narufs_fuse::supervision::{DEVICE, MEMORY};
use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name of what says what the mount was made with.
const ARGUMENTS: &str = "arguments";

/// The service manager.
#[derive(Debug)]
pub struct Store {
    /// Names under which it keeps something.
    names: Vec<String>,
}

impl Store {
    /// That of this process, if it has one.
    pub fn own() -> Option<Store> {
        // Which it is told of from systemd 254 on.
        let has_none = std::env::var_os("FDSTORE").is_some_and(|most| most == "0");
        (std::env::var_os("NOTIFY_SOCKET").is_some() && !has_none).then(|| Store { names: Vec::new() })
    }

    /// It keeps this too.
    pub fn keep(&mut self, name: &str, descriptor: BorrowedFd<'_>) {
        // Not to be polled: a connection that has ended must stay for the next process to see.
        let words = [NotifyState::FdStore, NotifyState::FdName(name), NotifyState::Custom("FDPOLL=0")];
        match sd_notify::notify_with_fds(&words, &[descriptor]) {
            Ok(()) => self.names.push(name.to_owned()),
            Err(e) => tracing::warn!("the service manager does not keep {name}: {e}"),
        }
    }

    /// What was kept, and what the mount at `dir` was made with; the mount works.
    pub fn keep_all(&mut self, kept: &BTreeMap<String, OwnedFd>, dir: &Path, arguments: &[OsString]) {
        // This may be the successor of a supervisor that has said it before; the rest is known to be the same.
        forget(ARGUMENTS);
        match written(dir, arguments) {
            Ok(file) => self.keep(ARGUMENTS, file.as_fd()),
            Err(e) => tracing::warn!("the service manager does not keep the mount: {e}"),
        }
        kept.iter().for_each(|(name, descriptor)| self.keep(name, descriptor.as_fd()));
    }

    /// Tells it that the service works.
    pub fn ready(&self, dir: &Path) {
        let status = format!("{} is mounted", dir.display());
        if let Err(e) = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)]) {
            tracing::debug!("the service manager does not hear: {e}");
        }
    }

    /// It keeps nothing any more.
    pub fn forget(&mut self) {
        self.names.drain(..).for_each(|name| forget(&name));
    }
}

fn forget(name: &str) {
    if let Err(e) = sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)]) {
        tracing::warn!("the service manager keeps {name}: {e}");
    }
}

fn written(dir: &Path, arguments: &[OsString]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("narufs-arguments", MemfdFlags::CLOEXEC)?);
    for word in std::iter::once(dir.as_os_str()).chain(arguments.iter().map(OsString::as_os_str)) {
        file.write_all(word.as_bytes())?;
        file.write_all(b"\0")?;
    }
    Ok(file)
}

fn read(file: OwnedFd) -> io::Result<(PathBuf, Vec<OsString>)> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let mut words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    let dir = words.next().map(OsStr::from_bytes).unwrap_or_default().into();
    Ok((dir, words.map(|word| OsStr::from_bytes(word).to_owned()).collect()))
}

/// A mount that the service manager has kept.
#[derive(Debug)]
pub struct Stored {
    /// Where it is.
    pub dir: PathBuf,
    /// What its servers are told.
    pub arguments: Vec<OsString>,
    /// Its descriptors.
    pub kept: BTreeMap<String, OwnedFd>,
}

/// What was handed to this process, which is asked once. What does not make a mount is ended and given up: `dir` is where
/// it would be.
pub fn handed_over(dir: &Path) -> Option<Stored> {
    let handed =
        sd_listen_fds::get().inspect_err(|e| tracing::warn!("what the service manager has kept: {e}"));
    let mut kept = BTreeMap::new();
    for (name, descriptor) in handed.unwrap_or_default() {
        let descriptor = descriptor.into_std();
        // Servers get what they are told of alone.
        if let Err(e) = rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC) {
            tracing::warn!("what the service manager has kept: {e}");
            continue;
        }
        kept.extend(name.map(|name| (name, descriptor)));
    }
    if kept.is_empty() {
        return None;
    }
    let arguments = kept.remove(ARGUMENTS).and_then(|file| read(file).ok());
    match arguments.filter(|_| kept.contains_key(DEVICE) && kept.contains_key(MEMORY)) {
        Some((dir, arguments)) => Some(Stored { dir, arguments, kept }),
        None => {
            give_up(kept, dir);
            None
        }
    }
}

fn give_up(kept: BTreeMap<String, OwnedFd>, dir: &Path) {
    let names: Vec<String> = kept.keys().cloned().collect();
    if kept.contains_key(DEVICE) {
        tracing::warn!("the service manager has not kept all of a mount, which is given up");
        // Who waits for an answer is to have one, and the place is to be free.
        take_away(kept, dir, None);
    }
    names.iter().map(String::as_str).chain(std::iter::once(ARGUMENTS)).for_each(forget);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mount_was_made_with_is_read_back_word_for_word() {
        let words: Vec<OsString> = ["/an image", "", "-o", "a,b=\"c\n\""].map(OsString::from).to_vec();
        let strange = OsStr::from_bytes(b"/mnt/\xff\xfe").to_owned();
        let file = written(Path::new(&strange), &words).expect("memory");
        assert_eq!(read(file.into()).expect("it is there"), (PathBuf::from(strange), words));
        let file = written(Path::new("/mnt"), &[]).expect("memory");
        assert_eq!(read(file.into()).expect("it is there"), (PathBuf::from("/mnt"), Vec::new()));
    }
}
