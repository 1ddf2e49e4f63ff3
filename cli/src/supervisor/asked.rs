//! Who is asked at a socket that has a name: who may ask, and how long he may take.

use super::channel;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, socket_with};
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// How long one who has connected may take to ask.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A socket to ask by.
pub fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The next who has connected.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    loop {
        match accept_with(&listener, SocketFlags::CLOEXEC) {
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            accepted => return Ok(accepted?),
        }
    }
}

/// Who is at the other end. Its process is 0 where this name space has no number for it.
pub fn peer(socket: &OwnedFd) -> io::Result<UnixCredentials> {
    Ok(getsockopt(socket, PeerCredentials)?)
}

/// What one who has connected asks, with its descriptors. Root is heard, and this process's own user.
pub fn hear<Q: DeserializeOwned>(asker: &OwnedFd) -> io::Result<(Q, Vec<OwnedFd>)> {
    let by = peer(asker)?.uid();
    if by != 0 && by != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("user {by} may not ask")));
    }
    poll(&mut [PollFd::new(asker, PollFlags::IN)], Some(&PATIENCE))?;
    Ok(channel::receive(asker, false)?.ok_or(io::ErrorKind::UnexpectedEof)?)
}
