//! What a supervisor and its server say to each other: messages over a socket, with descriptors.
//!
//! What this leaves to others: what they mean.

use super::deaths::Deaths;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of a message at most.
const MOST_BYTES: usize = 64 << 10;
/// Descriptors of a message at most: fewer than the kernel passes.
pub const MOST_DESCRIPTORS: usize = 128;

/// How the last server of a mount has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Death {
    /// By a fault of its own.
    OfItself,
    /// It was killed.
    Killed,
    /// It was asked to make room.
    Replaced,
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// The descriptor that comes along is to be kept under this name.
    Keep(String),
    /// It serves. Whether the mount survives it, and what the user should know.
    Ready { survives: bool, warnings: Vec<String> },
    /// It cannot serve: the exit status, and why.
    Failed { status: u8, why: String },
    /// The mount is gone, and everything is written down or was said.
    Ended,
}

/// What a server is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    /// Descriptors that come along were kept under these names.
    Left(Vec<String>),
    /// All was said: it begins. `death`, of the last server, and when, in nanoseconds of the monotonic clock; `deaths`, of
    /// all of them, for the next supervisor.
    Go {
        supervisor: u32,
        death: Option<(Death, u64)>,
        #[serde(default)]
        deaths: Deaths,
    },
    /// This process keeps the mount from now on, in the place of a supervisor that is gone.
    Kept { supervisor: u32 },
    /// It is to unmount; asked a second time, whoever uses the mount.
    Unmount,
    /// It is to end, and to leave the mount to the next.
    Stop,
}

/// The two ends of a new conversation.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Says one thing.
pub fn send(socket: impl AsFd, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG.into());
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// What was said next, with its descriptors. `None`: nobody says anything any more.
///
/// # Errors
/// `WouldBlock`: nothing yet, if it is not to `wait`.
pub fn receive<M: DeserializeOwned>(socket: impl AsFd, wait: bool) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MOST_BYTES];
    let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            // The other end has closed with something unread.
            Err(Errno::CONNRESET) => return Ok(None),
            Err(Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            descriptors.extend(more);
        }
    }
    if received == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes[..received])?, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_arrives_with_its_descriptors_also_when_who_said_it_is_gone() {
        let (ours, theirs) = pair().expect("sockets");
        let blocked = receive::<ToSupervisor>(&ours, false).expect_err("nothing was said");
        assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        send(&theirs, &ToSupervisor::Keep("fuse".into()), &[writer.as_fd()]).expect("room");
        send(&theirs, &ToSupervisor::Ended, &[]).expect("room");
        drop((theirs, writer));
        let (said, mut kept) = receive::<ToSupervisor>(&ours, true).expect("a message").expect("one");
        assert_eq!((said, kept.len()), (ToSupervisor::Keep("fuse".into()), 1));
        rustix::io::write(kept.remove(0), b"x").expect("it is the pipe");
        assert_eq!(rustix::io::read(&reader, &mut [0u8; 2]), Ok(1));
        let (said, _) = receive::<ToSupervisor>(&ours, true).expect("a message").expect("one");
        assert_eq!(said, ToSupervisor::Ended);
        assert!(receive::<ToSupervisor>(&ours, true).expect("the end").is_none());
    }

    #[test]
    fn many_descriptors_go_at_once() {
        let (ours, theirs) = pair().expect("sockets");
        let file = std::fs::File::open("/dev/null").expect("it is there");
        let names: Vec<String> = (0..MOST_DESCRIPTORS).map(|number| format!("clone-{number}")).collect();
        let all = vec![file.as_fd(); MOST_DESCRIPTORS];
        send(&ours, &ToServer::Left(names.clone()), &all).expect("room");
        let (said, kept) = receive::<ToServer>(&theirs, true).expect("a message").expect("one");
        assert_eq!((said, kept.len()), (ToServer::Left(names), MOST_DESCRIPTORS));
    }
}
