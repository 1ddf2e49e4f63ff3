//! A thread that tells the kernel something for another one, and may wait there for what this process is to do.
//!
//! Whoever waits in the kernel for a page that is being filled takes no signal, not even one that kills, and the page's READ
//! may be this process's to answer: killed, it would wait for itself, and all that the process has open would stay open.
//! So the thread that waits has a table of descriptors of its own ([`Notifier::alone`]) with nothing but the device in it.
//! When all others have ended, the image and its lock are free, and whoever listens hears that nobody speaks any more: a
//! supervisor then starts the next server, which answers the READ, and the thread is gone. Where nobody follows, it waits,
//! and whoever uses the mount with it, until the connection is cut (`umount -f`).
//!
//! What this leaves to others: what is said, and everything that takes another descriptor, replies too.

use crate::server::Notifier;
use crate::wire::notify::Notification;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// The way to the thread, which ends with this.
pub(super) struct Apart {
    /// `None` only while this is dropped.
    ask: Option<Sender<Notification<'static>>>,
    answered: Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Apart {
    /// Starts it.
    ///
    /// # Errors
    /// Those of starting a thread, and of giving it a table of its own.
    pub fn begin(notifier: &Notifier) -> io::Result<Apart> {
        let ((ask, asked), (answer, answered)) = (channel(), channel());
        let notifier = notifier.clone();
        let stand = move || stand(&notifier, &asked, &answer);
        let thread = Builder::new().name("naru-apart".into()).stack_size(128 << 10).spawn(stand)?;
        let apart = Apart { ask: Some(ask), answered, thread: Some(thread) };
        apart.heard()?;
        Ok(apart)
    }

    /// As [`Notifier::send`].
    pub fn send(&self, message: Notification<'static>) -> io::Result<()> {
        // Who is gone answers nothing either.
        let _ = self.ask.as_ref().map(|ask| ask.send(message));
        self.heard()
    }

    fn heard(&self) -> io::Result<()> {
        self.answered.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has ended")))
    }
}

impl Drop for Apart {
    /// What the thread has of the notifier must not be the last: it would be closed in no table but the thread's.
    fn drop(&mut self) {
        drop(self.ask.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread that recalls pages has panicked");
        }
    }
}

/// The life of the thread. It logs nothing: the log's file is not in its table.
fn stand(notifier: &Notifier, asked: &Receiver<Notification<'static>>, answer: &Sender<io::Result<()>>) {
    // What the notifier sends over has the same number here.
    let (alone, begun) = match notifier.alone() {
        Ok(alone) => (Some(alone), Ok(())),
        Err(e) => (None, Err(e)),
    };
    let mut is_heard = answer.send(begun).is_ok() && alone.is_some();
    while is_heard && let Ok(message) = asked.recv() {
        is_heard = answer.send(notifier.send(&message)).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::device::DevicePort;
    use std::path::Path;
    use std::sync::Arc;

    /// How many descriptors each thread has that has this name.
    fn open(name: &str) -> Vec<usize> {
        let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
        let tasks = tasks.map(|task| task.expect("a thread").path());
        let is_named =
            |task: &Path| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name);
        let named = tasks.filter(|task| is_named(task));
        named.map(|task| std::fs::read_dir(task.join("fd")).expect("root, or its own").count()).collect()
    }

    #[test]
    fn who_waits_apart_has_nothing_open_but_the_device() {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let notifier = Notifier::new(&Arc::new(DevicePort::new(writer, 0)));
        let apart = Apart::begin(&notifier).expect("Linux 5.9");
        assert_eq!(open("naru-apart"), [4], "and the three standard ones, which lead nowhere");
        let message = Notification::InvalInode { nodeid: 7, offset: 0, len: 0 };
        apart.send(message).expect("room in the pipe");
        let mut got = [0; 64];
        assert_eq!(rustix::io::read(&reader, &mut got), Ok(40), "a header and three numbers");
        assert_eq!(&got[16..24], &7u64.to_ne_bytes());
        // The thread's end closes nothing for others.
        drop(apart);
        notifier.send(&message).expect("room in the pipe");
        drop(notifier);
        assert_eq!(rustix::io::read(&reader, &mut got), Ok(40));
        assert_eq!(rustix::io::read(&reader, &mut got), Ok(0), "it was the last");
    }
}
