//! Answers who asks for metrics by HTTP: one thread, one question at a time, so that whoever asks costs a bounded share of
//! one core and of memory. Who is slow is cut off; others wait in the kernel's queue meanwhile.
//!
//! `httparse` reads the question. A server of a library would start a thread for each connection, and wait as long as
//! the other side likes.
//!
//! The server of the mount does this, not its supervisor, which must live and so reads nothing that others send. The
//! listening socket is kept like the mount's descriptors: who asks while one server follows another waits for that.
//!
//! Promised: nothing of the mount depends on this thread; it ends when it is told to.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A question and its answer may take so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a question.
const MOST_BYTES: usize = 8 << 10;
/// Its headers.
const MOST_HEADERS: usize = 64;
/// What the text of Prometheus is called.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers until the other side of `stop` is dropped; `metrics` gives the text.
pub fn serve(listener: &OwnedFd, stop: &UnixStream, metrics: impl Fn() -> Result<String, String>) {
    loop {
        let mut events = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return tracing::error!("metrics are not served any more, mount anew for them: {e}"),
        }
        let [asked, stopped] = events.map(|event| !event.revents().is_empty());
        if stopped {
            return;
        }
        if !asked {
            continue;
        }
        // Another may have taken the connection, or who asked is gone.
        if let Ok(connection) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            && let Err(e) = converse(&connection, &metrics)
        {
            tracing::debug!("metrics: {e}");
        }
    }
}

/// Makes who asks wait for nobody: a listening socket that others share.
pub fn shared(listener: OwnedFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&listener, true)?;
    Ok(listener)
}

fn converse(connection: &OwnedFd, metrics: impl Fn() -> Result<String, String>) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut question = Vec::new();
    let (status, kind, body, with_body) = loop {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&question) {
            Ok(httparse::Status::Complete(_)) => break answer(&request, metrics),
            Ok(httparse::Status::Partial) if question.len() < MOST_BYTES => {}
            Ok(httparse::Status::Partial) => break short("431 Request Header Fields Too Large"),
            Err(_) => break short("400 Bad Request"),
        }
        let mut bytes = [0; 1024];
        match rustix::io::read(connection, &mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => question.extend_from_slice(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => wait(connection, PollFlags::IN, end)?,
            Err(e) => return Err(e.into()),
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let bytes = [head.as_bytes(), if with_body { body.as_bytes() } else { b"" }].concat();
    let mut left = bytes.as_slice();
    while !left.is_empty() {
        match rustix::io::write(connection, left) {
            Ok(count) => left = &left[count..],
            Err(Errno::AGAIN | Errno::INTR) => wait(connection, PollFlags::OUT, end)?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(shutdown(connection, Shutdown::Write)?)
}

/// Status, type, body, and whether that is sent.
type Answer = (&'static str, &'static str, String, bool);

fn answer(request: &httparse::Request<'_, '_>, metrics: impl Fn() -> Result<String, String>) -> Answer {
    let is_get = request.method == Some("GET");
    if !is_get && request.method != Some("HEAD") {
        return short("405 Method Not Allowed");
    }
    let path = request.path.unwrap_or("").split('?').next().unwrap_or("");
    match path {
        "/metrics" => match metrics() {
            Ok(text) => ("200 OK", TEXT, text, is_get),
            Err(why) => ("500 Internal Server Error", "text/plain; charset=utf-8", why + "\n", is_get),
        },
        "/" => {
            ("200 OK", "text/plain; charset=utf-8", "narufs: metrics are at /metrics\n".to_owned(), is_get)
        }
        _ => short("404 Not Found"),
    }
}

fn short(status: &'static str) -> Answer {
    (status, "text/plain; charset=utf-8", format!("{status}\n"), true)
}

fn wait(connection: impl AsFd, what: PollFlags, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&connection, what)], Some(&left)) {
        Ok(0) => Err(ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// What `asked` is answered, piece by piece, by a server that is told to stop then.
    fn answered(asked: &[&str]) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
        let listener = shared(listener.into()).expect("it listens");
        let (stop, stopped) = UnixStream::pair().expect("a pair");
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &stopped, || Ok("narufs_up 1\n".to_owned())));
            let mut connection = UnixStream::connect(dir.path().join("socket")).expect("it listens");
            for piece in asked {
                // It may have answered already.
                let _ = connection.write_all(piece.as_bytes());
            }
            let _ = connection.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = connection.read_to_end(&mut answer);
            drop(stop);
            String::from_utf8(answer).expect("text")
        })
    }

    #[test]
    fn who_asks_for_metrics_gets_them_however_the_question_comes() {
        for asked in [
            &["GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"][..],
            &["GET /met", "rics?x=1 HTTP/1.1\r\n", "Accept: text/plain\r\n", "\r\n"],
        ] {
            let answer = answered(asked);
            assert!(
                answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
                "{answer}"
            );
            assert!(answer.contains("Content-Length: 12\r\n") && answer.ends_with("\r\n\r\nnarufs_up 1\n"));
        }
        let head = answered(&["HEAD /metrics HTTP/1.1\r\n\r\n"]);
        assert!(head.contains("Content-Length: 12\r\n") && head.ends_with("\r\n\r\n"));
    }

    #[test]
    fn what_is_no_question_for_metrics_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(2 * MOST_BYTES));
        for (asked, status) in [
            ("GET /other HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\u{1}\u{2}\u{3}\r\n\r\n", "400"),
            (long.as_str(), "431"),
            ("GET / HTTP/1.1\r\n\r\n", "200"),
        ] {
            let answer = answered(&[asked]);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
        assert_eq!(answered(&["GET /metrics"]), "", "who leaves is let go");
    }
}
