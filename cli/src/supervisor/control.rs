//! What others ask a supervisor: to have another program serve.
//!
//! It listens at a name that its process number is in, which the kernel gives to nobody else while it lives; who asks
//! checks who answers. It hears root and its own user.

use super::asked::{accept, hear, peer, socket};
use super::channel;
use super::program::Program;
use rustix::net::{SocketAddrUnix, bind, connect, listen};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
enum Question {
    /// The program that comes along is to serve.
    Upgrade,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done,
    Refused(String),
}

fn address(pid: u32) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("narufs-supervisor-{pid}").as_bytes())?)
}

/// Where a supervisor is asked.
#[derive(Debug)]
pub struct Control {
    listener: OwnedFd,
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// One who has asked, and waits.
#[derive(Debug)]
pub struct Asker {
    socket: OwnedFd,
}

impl Control {
    /// This process is asked from now on.
    pub fn open() -> io::Result<Control> {
        let listener = socket()?;
        bind(&listener, &address(std::process::id())?)?;
        listen(&listener, 4)?;
        Ok(Control { listener })
    }

    /// Where the program that this process has run before was asked.
    pub fn inherited(listener: OwnedFd) -> Control {
        Control { listener }
    }

    /// The next who asks for another program, and which.
    pub fn accept(&self) -> io::Result<(Asker, Program)> {
        let socket = accept(&self.listener)?;
        let (Question::Upgrade, descriptors) = hear(&socket)?;
        let program = descriptors.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
        Ok((Asker { socket }, Program::from(program)))
    }
}

impl Asker {
    /// Answers; `Err`: why not.
    pub fn answer(&self, outcome: Result<(), String>) {
        let answer = match outcome {
            Ok(()) => Answer::Done,
            Err(why) => Answer::Refused(why),
        };
        if let Err(e) = channel::send(&self.socket, &answer, &[]) {
            tracing::debug!("who asked is gone: {e}");
        }
    }
}

/// Enters the network of a process, which its names of this kind are in: a service may have one of its own.
fn enter_network(process: u32) -> io::Result<()> {
    let name = format!("/proc/{process}/ns/net");
    // Who may not look there has the same one, or will find nobody.
    let Ok(theirs) = std::fs::read_link(&name) else { return Ok(()) };
    if std::fs::read_link("/proc/self/ns/net").is_ok_and(|own| own != theirs) {
        let network = File::open(name)?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    Ok(())
}

/// A way to the supervisor of this process number.
pub fn connect_to(supervisor: u32) -> io::Result<OwnedFd> {
    enter_network(supervisor)?;
    let socket = socket()?;
    connect(&socket, &address(supervisor)?)?;
    if u32::try_from(peer(&socket)?.pid()) != Ok(supervisor) {
        return Err(io::Error::other("another process answers in its place"));
    }
    Ok(socket)
}

/// Asks the supervisor of this process number to have this program serve; the inner `Err`: why it does not.
pub fn ask_for_upgrade(supervisor: u32) -> io::Result<Result<(), String>> {
    let socket = connect_to(supervisor)?;
    let program = Program::own()?;
    channel::send(&socket, &Question::Upgrade, &[program.as_fd()])?;
    match channel::receive(&socket, true)? {
        Some((Answer::Done, _)) => Ok(Ok(())),
        Some((Answer::Refused(why), _)) => Ok(Err(why)),
        None => Err(io::Error::other("it has not answered")),
    }
}
