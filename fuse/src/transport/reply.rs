//! The right, and the duty, to answer one request.
//!
//! Invariant: a request is answered once; a reply that is dropped unanswered (a panic) sends EIO, so that no
//! client waits for ever.

use super::Channel;
use super::latency::Began;
use crate::wire::{InHeader, UNIQUE_RESEND};
use narufs_engine::deferred;
use narufs_engine::planted::kill::{self, Kind, Serving, Step};
use narufs_engine::planted::{self, Bug};
use narufs_engine::takeover::Taken;
use std::io;
use std::sync::Arc;

/// The reply to the request that this thread serves.
pub struct Reply<'a> {
    handle: Option<ReplyHandle>,
    buffer: &'a mut [u8],
}

impl<'a> Reply<'a> {
    /// The reply to `unique`, which leaves through `channel`; `buffer` is where its data may be built.
    pub fn new(unique: u64, channel: Arc<dyn Channel>, buffer: &'a mut [u8]) -> Self {
        let handle =
            ReplyHandle { unique, channel: Some(channel), taken: None, kind: Kind::served(), began: None };
        Reply { handle: Some(handle), buffer }
    }

    /// The same to a request that was received now: how long the answer takes is noted.
    pub fn timed(mut self, header: &InHeader) -> Self {
        if let Some(handle) = &mut self.handle {
            handle.began = Some(Began::now(header));
        }
        self
    }

    /// Has a request's slot last until it is answered.
    pub fn keep(&mut self, taken: Taken) {
        if let Some(handle) = &mut self.handle {
            handle.taken = Some(taken);
            handle.kind = Kind::served();
        }
    }

    fn take(&mut self) -> ReplyHandle {
        self.handle.take().expect("only methods that consume the reply take its handle")
    }

    /// Answers with an errno.
    pub fn error(mut self, errno: i32) {
        self.take().error(errno);
    }

    /// Answers with bytes. An error means that the kernel did not take them.
    pub fn bytes(mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.take().bytes(parts)
    }

    /// `len` bytes in which the reply's data can be built without being copied again; `None` if so much is never
    /// asked for. What they hold is left from earlier replies.
    pub fn buffer(&mut self, len: usize) -> Option<&mut [u8]> {
        self.buffer.get_mut(..len)
    }

    /// Answers with the first `len` bytes of the buffer. In the error case these bytes come back, so that what
    /// they told the kernel can be undone.
    pub fn buffered(mut self, len: usize) -> Result<(), &'a [u8]> {
        let handle = self.take();
        let buffer: &'a mut [u8] = std::mem::take(&mut self.buffer);
        let data: &'a [u8] = &buffer[..len.min(buffer.len())];
        handle.bytes(&[data]).map_err(|_| data)
    }

    /// Answers nothing: for requests that have no reply.
    pub fn none(mut self) {
        self.take().channel = None;
    }

    /// Takes the reply along, to be sent later from any thread.
    pub fn defer(mut self) -> ReplyHandle {
        self.take()
    }
}

/// A reply that can be sent later, from any thread.
pub struct ReplyHandle {
    unique: u64,
    /// `None` once answered.
    channel: Option<Arc<dyn Channel>>,
    /// What a successor would learn of the request. Dropped behind the answer.
    taken: Option<Taken>,
    /// Of the request, for the thread that answers.
    kind: Kind,
    /// Where its time is noted.
    began: Option<Began>,
}

impl ReplyHandle {
    /// The request's id.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// Answers with an errno.
    pub fn error(mut self, errno: i32) {
        self.send(-errno, &[])
            .unwrap_or_else(|e| tracing::debug!(unique = self.unique, "reply not taken: {e}"));
    }

    /// Answers with bytes. An error means that the kernel did not take them.
    pub fn bytes(mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.send(0, parts)
    }

    fn send(&mut self, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        let _taken = self.taken.take();
        let _serving = Serving::of(self.kind);
        match self.channel.take() {
            Some(channel) => {
                let is_cut = planted::is(Bug::ResentBitDropped);
                let unique = if is_cut { self.unique & !UNIQUE_RESEND } else { self.unique };
                if let (Some(began), Some(latencies)) = (self.began, channel.latencies()) {
                    latencies.answered(began, parts.iter().map(|part| part.len()).sum());
                }
                kill::step(Step::Answering);
                let wakes = channel.post(unique, error, parts)?;
                kill::step(Step::Answered);
                if wakes {
                    // A thread that has several replies to give wakes behind the last.
                    deferred::after_replies(move || channel.wake());
                }
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Drop for ReplyHandle {
    fn drop(&mut self) {
        if self.channel.is_some() {
            // The client may be gone already; there is nobody else to tell.
            let _ = self.send(-libc::EIO, &[]);
        }
    }
}

impl std::fmt::Debug for ReplyHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyHandle").field("unique", &self.unique).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[derive(Default)]
    struct Sleeper {
        posted: AtomicUsize,
        /// Of them, those that it was woken for.
        seen: AtomicUsize,
        woken: AtomicUsize,
    }

    impl Channel for Sleeper {
        fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
            self.post(unique, error, parts).map(|_| self.wake())
        }

        fn post(&self, _: u64, _: i32, _: &[&[u8]]) -> io::Result<bool> {
            self.posted.fetch_add(1, SeqCst);
            Ok(true)
        }

        fn wake(&self) {
            let posted = self.posted.load(SeqCst);
            self.woken.fetch_add(usize::from(self.seen.swap(posted, SeqCst) != posted), SeqCst);
        }
    }

    #[test]
    fn who_gives_several_replies_wakes_each_reader_once() {
        let channels: [Arc<Sleeper>; 2] = Default::default();
        let reply = |number: usize| {
            let channel: Arc<dyn Channel> = channels[number % 2].clone();
            Reply::new(1, channel, &mut []).error(libc::EIO);
        };
        let woken = || channels.each_ref().map(|channel| channel.woken.load(SeqCst));
        reply(0);
        assert_eq!(woken(), [1, 0]);
        deferred::replies(|| {
            (0..6).for_each(reply);
            assert_eq!(woken(), [1, 0]);
        });
        assert_eq!(woken(), [2, 1]);
        assert!(channels.iter().all(|channel| channel.seen.load(SeqCst) == channel.posted.load(SeqCst)));
    }
}
