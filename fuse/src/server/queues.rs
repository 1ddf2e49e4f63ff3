//! Requests through io_uring: whether they come so, and from which queues.

use crate::mount::Transport;
use crate::session::Config;
use crate::transport::uring::{self, UringPort};
use std::io;
use std::os::fd::BorrowedFd;

/// What serves the kernel's queues, each with its core: none if io_uring is not wanted or cannot be.
pub(super) fn queues(
    device: BorrowedFd<'_>,
    cores: &[usize],
    transport: Transport,
    session: &Config,
) -> io::Result<Vec<(usize, UringPort)>> {
    match make_queues(device, cores, session) {
        Err(e) if transport == Transport::Auto => {
            tracing::debug!("requests come by /dev/fuse: {e}");
            Ok(Vec::new())
        }
        made => made.map_err(uring_failed),
    }
}

fn uring_failed(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("transport=uring: {e}"))
}

/// Whether requests are to come through io_uring; has the kernel offer it where that is asked for.
pub(super) fn offered(transport: Transport, session: &Config) -> io::Result<bool> {
    // A lock that is waited for keeps a place of its queue: as many as there are places, and the unlocking finds none.
    match transport {
        Transport::Device => Ok(false),
        Transport::Auto => Ok(!session.locks && uring::is_enabled().unwrap_or(false)),
        Transport::Uring if session.locks => {
            Err(uring_failed(io::Error::new(io::ErrorKind::InvalidInput, "it serves no locks")))
        }
        Transport::Uring => match uring::is_enabled() {
            Ok(true) => Ok(true),
            Ok(false) => uring::enable().map(|()| true).map_err(uring_failed),
            Err(_) => {
                let why = "it takes Linux 6.14 or later";
                Err(uring_failed(io::Error::new(io::ErrorKind::Unsupported, why)))
            }
        },
    }
}

/// A port for each core; the queues of cores that serve nobody are shared out among them.
fn make_queues(
    device: BorrowedFd<'_>,
    cores: &[usize],
    session: &Config,
) -> io::Result<Vec<(usize, UringPort)>> {
    let all = 0..uring::queues()?;
    let others: Vec<u16> = all.clone().filter(|queue| !cores.contains(&usize::from(*queue))).collect();
    let own: Vec<u16> = all.filter(|queue| cores.contains(&usize::from(*queue))).collect();
    let port = |(nth, queue): (usize, &u16)| {
        let share: Vec<u16> = others.iter().copied().skip(nth).step_by(own.len()).collect();
        let device = device.try_clone_to_owned()?;
        let port = UringPort::new(device, session.max_write as usize, *queue, &share)?;
        Ok((usize::from(*queue), port))
    };
    own.iter().enumerate().map(port).collect()
}
