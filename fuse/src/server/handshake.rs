//! What is said before the first request: INIT, by the first server of a mount alone.

use crate::session::{Config, Features, Negotiated, negotiate};
use crate::transport::device::DevicePort;
use crate::transport::{Channel, Port};
use crate::wire::{Op, parse};
use std::io;
use zerocopy::IntoBytes;

/// Answers INIT, which is the first request of every mount.
pub(super) fn handshake(port: &DevicePort, config: &Config) -> io::Result<Features> {
    let mut slot = port.slot();
    while port.receive(&mut slot)? {
        let (request, _) = port.open(&mut slot);
        let Some(Ok((header, op, _))) = request.map(|request| parse(request, true)) else { continue };
        let Op::Init { args, flags2 } = op else {
            port.send(header.unique, -libc::EIO, &[])?;
            continue;
        };
        match negotiate(config, &args, flags2) {
            Negotiated::Agreed(features, answer) => {
                port.send(header.unique, 0, &[answer.as_bytes()])?;
                tracing::debug!(?features, "mounted");
                return Ok(features);
            }
            Negotiated::AskAgain(answer) => port.send(header.unique, 0, &[answer.as_bytes()])?,
            Negotiated::Refused(why) => {
                port.send(header.unique, -libc::EPROTO, &[])?;
                return Err(io::Error::other(why));
            }
        }
    }
    Err(io::Error::other("the mount was ended before it was served"))
}
