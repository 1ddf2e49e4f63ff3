//! Who is told that a service works (`NOTIFY_SOCKET`, sd_notify(3)) by a server that has no supervisor: it makes no socket
//! any more by then, so this one is made, and connected, before it gives that up.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager, if there is one that hears.
#[derive(Debug)]
pub struct Readiness(Option<UnixDatagram>);

impl Readiness {
    /// Of this process.
    pub fn own() -> Readiness {
        let address = std::env::var_os("NOTIFY_SOCKET");
        Readiness(address.and_then(|address| connect(&address).map_err(unheard).ok()))
    }

    /// The service works.
    pub fn tell(self) {
        if let Some(Err(e)) = self.0.map(|manager| manager.send(b"READY=1")) {
            unheard(e);
        }
    }
}

/// Nothing is lost by it but the word.
fn unheard(e: io::Error) {
    tracing::warn!("the service manager does not hear: {e}");
}

fn connect(address: &OsString) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let manager = UnixDatagram::unbound()?;
    manager.connect_addr(&address)?;
    Ok(manager)
}
