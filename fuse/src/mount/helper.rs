//! Mounting by `fusermount3`, the set-uid helper of the fuse3 package, for those who are not root.

use super::options::FuseOptions;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

const HELPER: &str = "fusermount3";

fn helper(command: &mut Command) -> io::Result<()> {
    let output = command.stderr(Stdio::piped()).output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            e.kind(),
            "fusermount3 is missing, which mounts for those who are not root: install the package fuse3",
        ),
        _ => e,
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(said(String::from_utf8_lossy(&output.stderr).trim()))
}

/// What the helper said, as the kernel says it where it is known.
fn said(words: &str) -> io::Error {
    match () {
        () if words.ends_with("Device or resource busy") => Errno::BUSY.into(),
        // Or somebody else has mounted it.
        () if words.contains("not found in /etc/mtab") => Errno::PERM.into(),
        () => io::Error::other(words.to_owned()),
    }
}

/// Mounts at `point`; gives the descriptor that the kernel speaks over.
pub fn mount(point: &Path, options: &FuseOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The helper's end is its standard input: no descriptor has to be left open for whoever else is started.
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(options.helper_options()).arg("--").arg(point);
    helper(command.env("_FUSE_COMMFD", "0").stdin(theirs))?;
    drop(command);
    receive_descriptor(&ours)
}

/// Ends the mount at `point`; `lazy`: even if it is in use.
pub fn unmount(point: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    helper(command.arg("--").arg(point).stdin(Stdio::null()))
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.ok_or_else(|| io::Error::other("fusermount3 passed no descriptor"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    #[test]
    fn what_the_helper_refuses_is_told_as_the_kernel_does() {
        let number = |words| said(words).raw_os_error();
        let busy = "fusermount3: failed to unmount /mnt: Device or resource busy";
        assert_eq!(number(busy), Some(libc::EBUSY));
        assert_eq!(number("fusermount3: entry for /mnt not found in /etc/mtab"), Some(libc::EPERM));
        assert_eq!(said("fusermount3: something else").to_string(), "fusermount3: something else");
    }

    #[test]
    fn a_descriptor_comes_over_the_socket() {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("a pair of sockets");
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let passed = [writer.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
        sendmsg(&theirs, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).expect("room");
        let got = receive_descriptor(&ours).expect("the descriptor");
        rustix::io::write(&got, b"x").expect("it is the pipe");
        assert_eq!(rustix::io::read(&reader, &mut [0u8; 2]), Ok(1));
        drop(theirs);
        assert!(receive_descriptor(&ours).is_err());
    }
}
