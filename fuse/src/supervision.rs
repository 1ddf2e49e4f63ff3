//! A mount that outlives its server: what goes from one to the next.
//!
//! The connection with the kernel lives as long as any descriptor of it, and the end of any descriptor ends the requests
//! that were read from it. So each of them is given to a [`Keeper`], another process, before anything is read from it.
//! What is in service, and what was agreed on with the kernel, lies in memory that is kept likewise
//! ([`narufs_engine::takeover`]). A successor gets all of it as [`Inherited`].
//!
//! What this leaves to others: who keeps, and who starts the successor (the command); how the successor goes on
//! ([`server`](crate::server)); requests that are in flight ([`session`](crate::session)).
//!
//! Invariant: a request is read only from a descriptor that is kept.

use crate::session::Features;
use crate::wire::InitFlags;
use narufs_engine::takeover::{SESSION_BYTES, Takeover};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first descriptor, by which it was mounted.
pub const DEVICE: &str = "fuse";
/// The file that cuts the connection.
pub const ABORT: &str = "abort";
/// The memory that servers share.
pub const MEMORY: &str = "memory";

/// The name of the descriptor that this lane reads from.
pub fn clone_name(lane: usize) -> String {
    format!("clone-{lane}")
}

/// Keeps descriptors beyond the end of this process.
pub trait Keeper: Send + Sync {
    /// Keeps a duplicate under this name.
    ///
    /// # Errors
    /// Nobody keeps it.
    fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()>;
}

/// How a server comes to know of its predecessors and successors.
pub struct Supervision {
    memory: Arc<Takeover>,
    keeper: Box<dyn Keeper>,
    /// 0: it is gone.
    supervisor: AtomicU32,
    /// What an attempt counts for, with the end of the predecessor.
    weight: u32,
}

impl std::fmt::Debug for Supervision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervision").field("supervisor", &self.supervisor).finish_non_exhaustive()
    }
}

/// How the predecessor of a server has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// By its own fault: a request that is in service each time may be the reason.
    OfItself,
    /// By somebody else's: it was killed.
    Killed,
}

/// A request that was in service at two deaths of servers by themselves is refused, or at so many kills: a server that
/// memory has run out under looks killed.
pub const MOST_ATTEMPTS: u32 = 8;

impl Supervision {
    /// Of a server that a process of this number has started, with the memory that it shares. `death`: of its
    /// predecessor, if it has one.
    pub fn new(
        memory: Arc<Takeover>,
        keeper: Box<dyn Keeper>,
        supervisor: u32,
        death: Option<Death>,
    ) -> Arc<Supervision> {
        let weight = if death == Some(Death::OfItself) { MOST_ATTEMPTS / 2 } else { 1 };
        Arc::new(Supervision { memory, keeper, supervisor: AtomicU32::new(supervisor), weight })
    }

    /// What servers share.
    pub fn memory(&self) -> &Arc<Takeover> {
        &self.memory
    }

    /// Who starts the next server; 0: nobody.
    pub fn supervisor(&self) -> u32 {
        // Relaxed: a number that nothing else hangs on.
        self.supervisor.load(Ordering::Relaxed)
    }

    /// Another process has taken the supervisor's place.
    pub fn is_supervised_by(&self, supervisor: u32) {
        self.supervisor.store(supervisor, Ordering::Relaxed);
    }

    /// The supervisor is gone: this server is the last.
    pub fn is_left_alone(&self) {
        self.supervisor.store(0, Ordering::Relaxed);
    }

    /// What the end of the predecessor adds to the attempts of a request that was in service.
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    /// Has a descriptor kept. A failure is said once: the mount then ends with this process.
    pub(crate) fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) {
        if let Err(e) = self.keeper.keep(name, descriptor)
            && self.supervisor.swap(0, Ordering::Relaxed) != 0
        {
            tracing::warn!("the mount ends with its server: nobody keeps its descriptors: {e}");
        }
    }
}

/// What a predecessor has left.
#[derive(Debug)]
pub struct Inherited {
    /// The first descriptor.
    pub device: OwnedFd,
    /// Those of the lanes, by their numbers.
    pub clones: Vec<(usize, OwnedFd)>,
    /// The file that cuts the connection, if it could be opened.
    pub abort: Option<OwnedFd>,
}

impl Inherited {
    /// From descriptors by their names; those of other names are left out. `None`: the first one is missing.
    pub fn new(named: impl IntoIterator<Item = (String, OwnedFd)>) -> Option<Inherited> {
        let (mut device, mut abort, mut clones) = (None, None, Vec::new());
        for (name, descriptor) in named {
            match name.as_str() {
                DEVICE => device = Some(descriptor),
                ABORT => abort = Some(descriptor),
                other => {
                    let lane = other.strip_prefix("clone-").and_then(|lane| lane.parse().ok());
                    clones.extend(lane.map(|lane| (lane, descriptor)));
                }
            }
        }
        Some(Inherited { device: device?, clones, abort })
    }
}

/// The number of the device of the mount that has this memory, if that was noted.
pub fn device_in(memory: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let session = Takeover::session_in(memory)?;
    Agreed::from_bytes(&session).map(|agreed| agreed.device)
}

/// What is said once in the life of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub features: Features,
    /// The number of the mount's device.
    pub device: (u32, u32),
}

const VERSION: u32 = 1;

impl Agreed {
    /// As it lies in the memory that servers share.
    pub fn to_bytes(self) -> [u8; SESSION_BYTES] {
        let Agreed { features, device } = self;
        let (low, high) = (features.flags.bits() as u32, (features.flags.bits() >> 32) as u32);
        let words = [
            VERSION,
            features.minor,
            low,
            high,
            features.max_write,
            features.max_readahead,
            device.0,
            device.1,
        ];
        let mut bytes = [0; SESSION_BYTES];
        for (to, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// `None`: no server has written this.
    pub fn from_bytes(bytes: &[u8; SESSION_BYTES]) -> Option<Agreed> {
        let mut words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut word = || words.next();
        if word()? != VERSION {
            return None;
        }
        let minor = word()?;
        let flags = u64::from(word()?) | u64::from(word()?) << 32;
        let (max_write, max_readahead) = (word()?, word()?);
        let device = (word()?, word()?);
        let page = rustix::param::page_size() as u32;
        let features = Features { minor, flags: InitFlags::from_bits(flags)?, max_write, max_readahead };
        (page..=page * 0xffff).contains(&max_write).then_some(Agreed { features, device })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_agreed_on_is_read_back_and_what_was_not_is_refused() {
        let features = Features {
            minor: 45,
            flags: InitFlags::HAS_RESEND | InitFlags::ASYNC_READ,
            max_write: 1 << 20,
            max_readahead: 4096,
        };
        let agreed = Agreed { features, device: (0, 51) };
        assert_eq!(Agreed::from_bytes(&agreed.to_bytes()), Some(agreed));
        assert_eq!(Agreed::from_bytes(&[0; SESSION_BYTES]), None);
        assert_eq!(Agreed::from_bytes(&[0xff; SESSION_BYTES]), None);
        for (at, value) in [(0, 2), (15, 0x80), (16, 0), (19, 0x7f)] {
            let mut bytes = agreed.to_bytes();
            (bytes[at], bytes[18]) = (value, if at == 16 { 0 } else { bytes[18] });
            assert_eq!(Agreed::from_bytes(&bytes), None, "{at}");
        }
    }

    #[test]
    fn descriptors_are_known_by_their_names() {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
        let named = |names: &[&str]| Inherited::new(names.iter().map(|name| ((*name).to_owned(), file())));
        assert!(named(&["abort", "clone-0"]).is_none());
        let inherited =
            named(&["clone-7", "fuse", "clone-x", "memory", "clone-0"]).expect("the first is there");
        assert_eq!(inherited.clones.iter().map(|(lane, _)| *lane).collect::<Vec<_>>(), [7, 0]);
        assert!(inherited.abort.is_none());
    }
}
