//! Pages that the kernel caches of what was written past its cache.
//!
//! Of a range that is written past its cache the kernel drops the pages before it sends the WRITE, and once more when a
//! call ends that waits for its answer. When an asynchronous write ends (io_submit, io_uring) it does not: what a
//! buffered read has brought in meanwhile stays, and is old. So the server recalls the pages itself, and answers then:
//! a read that begins after the completion finds the new bytes.
//!
//! # Protocol
//! 1. A READ or WRITE past the cache names an owner of locks, one for a page of the cache does not, however the file was
//!    opened. The latter *lends* pages ([`narufs_engine::vfs::Lent`]); where none are lent a write past the cache is answered
//!    as any other.
//! 2. Where some are, the write that has taken effect goes with its reply to a thread which tells the kernel to drop the
//!    pages, and replies when they are gone.
//! 3. The kernel waits for pages that are being filled, whose READs must be served meanwhile. No thread of a lane does
//!    that: a request that comes by io_uring may be delivered in a thread that waits, and be lost there.
//! 4. A write without a reply keeps a place of its queue, and one of the requests that the kernel has under way in the
//!    background. If writes kept all, the READ that they wait for would not come. So [`MOST_WAITING`] wait at a time;
//!    any more are answered first, and their pages recalled right after.
//!    If this server ends in between, its successor is to do it: before such an answer it is noted that the file is
//!    [`unrecalled`](super::unrecalled), until the kernel has dropped the pages. Writes that wait need no note: what was not
//!    answered is sent again, and recalled with its answer.
//! 5. A successor recalls what it finds noted, when it serves: the READs that the kernel waits for are its own by then. What
//!    such a write has written is not noted, so all pages of the file go.
//! 6. It is no thread with descriptors that waits: [`apart`](super::apart). In a program that goes on when its mount has
//!    ended it is, for what the program has open is not ours to close, not in another table either: a close has the file
//!    flushed, which may be one of this mount, and wait for the very write that waits here.
//!
//! What this leaves to others: which pages there may be, and everything about the write itself.

use super::apart::Apart;
use super::engine::EngineOperations;
use super::files::File;
use super::unrecalled::{Left, Unrecalled};
use crate::operations::Write;
use crate::server::Notifier;
use crate::session::WriteReply;
use crate::types::Result;
use crate::wire::notify::Notification;
use crate::wire::{READ_LOCKOWNER, ReadIn, WriteFlags};
use narufs_engine::blocking;
use narufs_engine::format::Nid;
use narufs_engine::takeover::Takeover;
use narufs_engine::vfs::{FileHandle, Recall, Vfs};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Writes that wait for the kernel to drop pages. Fewer than the places that a queue has at the least (16), and than the
/// requests that the kernel sends in the background at once (64).
const MOST_WAITING: usize = 12;
/// Threads that tell the kernel. One would do; with more, a page that is waited for holds up fewer others.
const MOST_THREADS: usize = 4;

/// To be called before a READ is served.
pub(super) fn before_read(open: &FileHandle, read: &ReadIn) {
    if read.read_flags & READ_LOCKOWNER == 0 {
        open.lent().lend();
    }
}

/// To be called before a WRITE is served.
pub(super) fn before_write(open: &FileHandle, write: &Write) {
    if !is_past_the_cache(write) {
        open.lent().lend();
    }
}

/// Whether it was written by the kernel's way past its cache.
pub(super) fn is_past_the_cache(write: &Write) -> bool {
    write.flags.contains(WriteFlags::LOCKOWNER) && !write.flags.contains(WriteFlags::CACHE)
}

impl EngineOperations {
    /// Answers a write of `len` bytes, once no page of the kernel's is older.
    pub(super) fn answer_write(
        &self,
        nid: Nid,
        write: &Write,
        len: usize,
        result: Result<usize>,
        reply: WriteReply,
    ) {
        let open = if is_past_the_cache(write) { self.file(nid, write.fh).ok() } else { None };
        let Some(open) = open else { return reply.done(result) };
        // Where such a write ends up is not the kernel's word.
        let appends = self.finds_the_end(write.open_flags);
        let range = match open.lent().recall() {
            Recall::Nothing => return reply.done(result),
            Recall::Written if !appends => Some(write.offset..write.offset.saturating_add(len as u64)),
            Recall::Written | Recall::All => None,
        };
        let job = Job { what: What::Written(open, range), reply: Some((reply, result)) };
        Recalls::add(&self.recalls, job);
    }
}

/// What the kernel is to drop, and who waits for it.
struct Job {
    what: What,
    reply: Option<(WriteReply, Result<usize>)>,
}

enum What {
    /// A range of a file that was written; `None` for the whole file.
    Written(File, Option<Range<u64>>),
    /// All of a file, of which a predecessor has left word.
    Left(Nid),
    /// All of every file: a predecessor has left no word of which.
    AllLeft(Arc<Vfs>),
}

impl Job {
    fn answer(self) {
        if let Some((reply, result)) = self.reply {
            reply.done(result);
        }
    }
}

/// The threads that tell the kernel. They are started when they are needed, and end with the mount.
pub(super) struct Recalls {
    notifier: OnceLock<Notifier>,
    /// Whether all that is open here is the server's.
    is_own_process: bool,
    state: Mutex<State>,
    /// There is something to do, or all is over.
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Writes not yet answered, in `jobs` or in the hands of a thread.
    waiting: usize,
    /// What was answered and not recalled.
    unrecalled: Unrecalled,
    /// What of that a predecessor has left, until this server serves.
    left: Left,
    /// Threads that wait for a job, those included that were woken for one.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    over: bool,
}

impl Recalls {
    /// None that wait; `is_own_process`: nothing but a server runs in this process. `memory`: what servers share, where the
    /// mount outlives this one.
    pub(super) fn new(is_own_process: bool, memory: Option<Arc<Takeover>>) -> Recalls {
        let (unrecalled, left) = Unrecalled::new(memory);
        let state = Mutex::new(State { unrecalled, left, ..State::default() });
        Recalls { notifier: OnceLock::new(), is_own_process, state, wake: Condvar::new() }
    }

    /// Messages go this way.
    pub(super) fn set_notifier(&self, notifier: &Notifier) {
        // There is one for each mount; the first stands.
        let _ = self.notifier.set(notifier.clone());
    }

    /// This server serves: what a predecessor has left is recalled now.
    pub(super) fn go_on(this: &Arc<Recalls>, fs: &Arc<Vfs>) {
        let Left { files, all } = std::mem::take(&mut this.state.lock().left);
        for nid in files {
            Recalls::add(this, Job { what: What::Left(nid), reply: None });
        }
        if all {
            Recalls::add(this, Job { what: What::AllLeft(Arc::clone(fs)), reply: None });
        }
    }

    fn add(this: &Arc<Recalls>, mut job: Job) {
        let mut state = this.state.lock();
        if state.over {
            drop(state);
            this.recall(&job.what, None);
            return job.answer();
        }
        let mut at_once = None;
        if let (What::Written(open, _), Some(reply)) = (&job.what, job.reply.take()) {
            if state.waiting < MOST_WAITING {
                state.waiting += 1;
                job.reply = Some(reply);
            } else {
                // Before the answer, lest a kill in between leave no word.
                state.unrecalled.answered(open.nid());
                at_once = Some(reply);
            }
        }
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle && state.threads.len() < MOST_THREADS {
            let recalls = Arc::clone(this);
            let thread = std::thread::Builder::new().name("naru-recall".into()).spawn(move || recalls.run());
            match thread {
                Ok(thread) => state.threads.push(thread),
                Err(e) => tracing::warn!("no thread to recall pages: {e}"),
            }
        }
        // Without a thread at all, this one has to do it.
        let own = if state.threads.is_empty() { state.jobs.pop_front() } else { None };
        drop(state);
        this.wake.notify_one();
        if let Some((reply, result)) = at_once {
            reply.done(result);
        }
        if let Some(job) = own {
            blocking::about_to_block();
            this.finish(job, None);
        }
    }

    fn run(&self) {
        let apart = self.notifier.get().filter(|_| self.is_own_process).map(Apart::begin).transpose();
        let apart = apart.unwrap_or_else(|e| {
            tracing::debug!("who is killed while it recalls pages may not end: {e}");
            None
        });
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.finish(job, apart.as_ref());
                state = self.state.lock();
            } else if state.over {
                return;
            } else {
                state.idle += 1;
                self.wake.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    fn finish(&self, job: Job, apart: Option<&Apart>) {
        let is_dropped = self.recall(&job.what, apart);
        if job.reply.is_some() {
            job.answer();
            self.state.lock().waiting -= 1;
        } else if is_dropped {
            let unrecalled = &mut self.state.lock().unrecalled;
            match &job.what {
                What::Written(open, _) => unrecalled.recalled(open.nid()),
                What::Left(nid) => unrecalled.recalled(*nid),
                What::AllLeft(_) => unrecalled.all_recalled(),
            }
        }
    }

    /// False: the kernel may have some of the pages still.
    fn recall(&self, what: &What, apart: Option<&Apart>) -> bool {
        match what {
            What::Written(open, range) => {
                let is_dropped = self.drop_pages(open.nid(), range.as_ref(), apart);
                if is_dropped && range.is_none() {
                    open.lent().recalled();
                }
                is_dropped
            }
            What::Left(nid) => self.drop_pages(*nid, None, apart),
            What::AllLeft(fs) => {
                let mut are_dropped = true;
                for nids in (0..).map_while(|part| fs.possible_nids(part)) {
                    if self.state.lock().over {
                        return false;
                    }
                    for nid in nids {
                        are_dropped &= self.drop_pages(nid, None, apart);
                    }
                }
                are_dropped
            }
        }
    }

    /// Has the kernel drop pages of a file: a range, or all. False: it may have some of them still.
    fn drop_pages(&self, nodeid: Nid, range: Option<&Range<u64>>, apart: Option<&Apart>) -> bool {
        let (offset, len) = match range {
            Some(range) => (range.start as i64, range.end.saturating_sub(range.start) as i64),
            None => (0, 0),
        };
        let message = Notification::InvalInode { nodeid, offset, len };
        let sent = match apart {
            Some(apart) => Some(apart.send(message)),
            None => self.notifier.get().map(|notifier| notifier.send(&message)),
        };
        match sent {
            Some(Ok(())) => true,
            // The kernel does not know the inode any more.
            Some(Err(e)) if e.raw_os_error() == Some(libc::ENOENT) => true,
            Some(Err(e)) => {
                tracing::debug!(nodeid, "no page was recalled: {e}");
                false
            }
            None => {
                tracing::error!("a write came before the mount was served");
                false
            }
        }
    }

    /// Ends the threads, when all is done: no request comes any more.
    pub(super) fn end(&self) {
        let threads = {
            let mut state = self.state.lock();
            state.over = true;
            std::mem::take(&mut state.threads)
        };
        self.wake.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that recalls pages has panicked");
            }
        }
    }
}

impl std::fmt::Debug for Recalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recalls").field("waiting", &self.state.lock().waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::device::DevicePort;
    use narufs_engine::volume::Running;
    use narufs_engine::volume::scratch::{self, ScratchOptions};
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn a_successor_recalls_what_is_left_and_all_where_there_are_others() {
        const FAR: Nid = 1 << 40;
        let memory = Takeover::create(1).expect("memory");
        assert!(memory.unrecalled().put(FAR));
        memory.unrecalled().set_others(true);
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let recalls = Arc::new(Recalls::new(false, Some(Arc::clone(&memory))));
        recalls.set_notifier(&Notifier::new(&Arc::new(DevicePort::new(writer, 0))));
        let (mounted, options) = scratch::make(&ScratchOptions::with_memory(32 << 20)).expect("memory");
        let running = Running::start(mounted.checkpointer(), &options).expect("assembled");
        let fs = running.fs();
        let mut expected: BTreeSet<Nid> = (0..).map_while(|part| fs.possible_nids(part)).flatten().collect();
        assert!(expected.contains(&narufs_engine::format::ROOT_NID) && expected.insert(FAR));
        assert_eq!(memory.unrecalled().left(), (vec![FAR], true), "before it serves");
        Recalls::go_on(&recalls, fs);
        let mut reader = File::from(reader);
        let told = expected.iter().map(|_| {
            // A header, the inode, and the range: all of it.
            let mut message = [0; 40];
            reader.read_exact(&mut message).expect("a message for each");
            assert_eq!(message[24..], [0; 16]);
            Nid::from_ne_bytes(message[16..24].try_into().expect("eight bytes"))
        });
        assert_eq!(told.collect::<BTreeSet<Nid>>(), expected);
        while memory.unrecalled().left() != (Vec::new(), false) {
            std::thread::yield_now();
        }
        recalls.end();
        running.stop().expect("stopped");
    }
}
