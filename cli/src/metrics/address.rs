//! Where metrics are served.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The value of `-o metrics=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// By TCP.
    Tcp(SocketAddr),
    /// By a socket of this name.
    Unix(PathBuf),
}

impl Address {
    /// What was said, or a line that says what can be.
    pub fn parse(said: &str) -> Result<Address, String> {
        let could = |why: &str| {
            Err(format!(
                "metrics={said}: {why}: say metrics=9101 (of this machine alone), metrics=ADDRESS:PORT or \
                 metrics=unix:PATH"
            ))
        };
        if let Some(path) = said.strip_prefix("unix:") {
            return match Path::new(path) {
                // The server is at home elsewhere.
                path if path.is_absolute() => Ok(Address::Unix(path.to_owned())),
                _ => could("a path from the root is needed"),
            };
        }
        let address = match said.parse::<u16>() {
            Ok(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            Err(_) => match said.parse() {
                Ok(address) => address,
                Err(_) => return could("no address"),
            },
        };
        if address.port() == 0 { could("port 0 is none") } else { Ok(Address::Tcp(address)) }
    }

    /// Listens there; the error is one line.
    pub fn listen(&self) -> Result<OwnedFd, String> {
        let listening = match self {
            Address::Tcp(address) => TcpListener::bind(address).map(OwnedFd::from),
            Address::Unix(path) => listen_at(path).map(OwnedFd::from),
        };
        listening.map_err(|e| {
            let why = match e.kind() {
                io::ErrorKind::AddrInUse => {
                    "another process listens there: choose another address".to_owned()
                }
                io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
                io::ErrorKind::PermissionDenied => {
                    "not allowed: choose a port from 1024 on, or mount as root".to_owned()
                }
                _ => e.to_string(),
            };
            format!("metrics={self}: {why}")
        })
    }

    /// Nobody listens there any more.
    pub fn remove(&self) {
        if let Address::Unix(path) = self
            && let Err(e) = std::fs::remove_file(path)
        {
            tracing::debug!("{}: {e}", path.display());
        }
    }
}

/// What a killed server has left there is no hindrance.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => match UnixStream::connect(path) {
            // A file is refused as well.
            Err(refused)
                if refused.kind() == io::ErrorKind::ConnectionRefused
                    && std::fs::symlink_metadata(path)?.file_type().is_socket() =>
            {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            _ => Err(e),
        },
        bound => bound,
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_this_machine_s_and_nonsense_is_named() {
        let parsed = |said: &str| Address::parse(said).map(|address| address.to_string());
        for (said, meant) in [
            ("9101", "127.0.0.1:9101"),
            ("0.0.0.0:9101", "0.0.0.0:9101"),
            ("[::1]:80", "[::1]:80"),
            ("unix:/run/naru.sock", "unix:/run/naru.sock"),
        ] {
            assert_eq!(parsed(said).as_deref(), Ok(meant));
        }
        for bad in
            ["", "0", "99999", "localhost:9101", "127.0.0.1", "127.0.0.1:0", "unix:", "unix:run/naru.sock"]
        {
            let why = parsed(bad).expect_err(bad);
            assert!(
                why.starts_with(&format!("metrics={bad}: ")) && why.contains("say metrics=9101"),
                "{why}"
            );
        }
    }

    #[test]
    fn who_listens_already_is_left_alone_and_what_a_dead_one_left_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let unix = Address::Unix(dir.path().join("socket"));
        let listening = unix.listen().expect("nobody is there");
        assert!(unix.listen().expect_err("somebody is there").contains("another process listens there"));
        drop(listening);
        drop(unix.listen().expect("nobody is there any more"));
        unix.remove();
        assert!(!dir.path().join("socket").exists());

        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let tcp = Address::Tcp(taken.local_addr().expect("its address"));
        assert!(tcp.listen().expect_err("it is taken").contains("another process listens there"));
        let foreign = Address::Tcp("192.0.2.1:9101".parse().expect("an address for documents"));
        assert!(foreign.listen().expect_err("it is nobody's").contains("no such address"));
        let file = dir.path().join("file");
        std::fs::write(&file, "kept").expect("a file");
        assert!(Address::Unix(file.clone()).listen().is_err());
        assert_eq!(std::fs::read(&file).expect("it is there"), b"kept");
    }
}
