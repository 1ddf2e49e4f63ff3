//! A process that makes and ends the mount for another, which has given up the right to.
//!
//! Whoever serves reads what the image and the kernel's callers hold, and needs none of the rights that mounting takes. It
//! asks a broker, which knows by itself where to mount and with which options: what can be asked for is little more than
//! when.
//!
//! What this leaves to others: how it is asked, and who it is (the command).

use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;

/// A mount that was made.
#[derive(Debug)]
pub struct Made {
    /// Its device number, as stat(2) shows it.
    pub device: (u32, u32),
    /// What the kernel speaks over.
    pub descriptor: OwnedFd,
    /// The file that cuts the connection, if it could be opened.
    pub abort: Option<OwnedFd>,
}

/// What the kernel heeds when it reads and writes a mount's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// How far it reads ahead, in KiB.
    ReadAhead,
    /// How much it keeps of what was written, in bytes.
    DirtyLimit,
}

impl Setting {
    /// Sets it, of the mount with this device number. Takes root.
    ///
    /// # Errors
    /// Those of writing it.
    pub fn set(self, (major, minor): (u32, u32), value: u64) -> io::Result<()> {
        let name = match self {
            Setting::ReadAhead => "read_ahead_kb",
            Setting::DirtyLimit => "max_bytes",
        };
        std::fs::write(format!("/sys/class/bdi/{major}:{minor}/{name}"), value.to_string())
    }
}

/// Acts for a process that serves one mount.
pub trait Broker: Debug + Send + Sync {
    /// Mounts, where and how it was told by whoever started it; `read_only` if that was found to be all that is possible.
    ///
    /// # Errors
    /// Those of the mount, or of asking.
    fn mount(&self, read_only: bool) -> io::Result<Made>;

    /// Ends the mount, if it is there and has this device number; false: it is not.
    ///
    /// # Errors
    /// As [`Broker::mount`].
    fn unmount(&self, device: (u32, u32), busy: super::IfBusy) -> io::Result<bool>;

    /// Sets something of the mount with this device number.
    ///
    /// # Errors
    /// As [`Broker::mount`].
    fn set(&self, device: (u32, u32), what: Setting, value: u64) -> io::Result<()>;
}
