//! A file system at work: everything is loaded and tied together, what a crash has left unfinished is finished, and the
//! threads are started; and all of it back again.

use super::{Media, RingMedia};
use crate::alloc::Alloc;
use crate::cache::most_memory;
use crate::checkpoint::{Background, Checkpointer};
use crate::dir::dentry_cache::LINE_BYTES;
use crate::error::OnDamage;
use crate::file::DataOptions;
use crate::journal::Durability;
use crate::meta::{InodeSpace, Meta};
use crate::planted::{self, Bug};
use crate::sync::{Arc, Mutex, Weak};
use crate::takeover::{Phase, Takeover};
use crate::vfs::{STEP, Vfs, VfsOptions};
use crate::{Error, Result};
use scopeguard::ScopeGuard;
use std::thread::JoinHandle;

/// How a file system behaves and what it may use.
#[derive(Debug, Clone)]
pub struct AssembleOptions {
    /// Behaviour.
    pub fs: VfsOptions,
    /// The page cache.
    pub data: DataOptions,
    /// How far a record travels before fsync returns.
    pub durability: Durability,
    /// Inodes not in use that may stay in memory, and names that walks remember.
    pub inodes: usize,
    /// Extents that one record of a long operation (truncate, punch, collapse, insert) touches at most.
    pub step: u32,
    /// Whether threads write dirty data home, and give back what was read ahead in vain, by themselves.
    pub background: bool,
    /// What this server shares with its predecessor and its successor.
    pub takeover: Option<Arc<Takeover>>,
}

/// Bytes that a regular file in memory takes, its data's index, its place in the table and a known name included.
const INODE_BYTES: u64 = 1536 + LINE_BYTES;

impl AssembleOptions {
    /// How many inodes fit so much memory, or that of the machine if it has less.
    pub fn inodes_within(bytes: u64) -> usize {
        let bytes = bytes.min(most_memory());
        usize::try_from(bytes / INODE_BYTES).unwrap_or(usize::MAX).max(256)
    }
}

impl Default for AssembleOptions {
    fn default() -> Self {
        AssembleOptions {
            fs: VfsOptions::default(),
            data: DataOptions::default(),
            durability: Durability::Power,
            inodes: 1 << 17,
            step: STEP,
            background: true,
            takeover: None,
        }
    }
}

/// A file system at work: its threads run until it is stopped or dropped.
#[derive(Debug)]
pub struct Running {
    fs: Arc<Vfs>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _streamer: Option<Background>,
}

impl Running {
    /// Makes a file system of a mounted store, and finishes what was begun before a crash.
    ///
    /// # Errors
    /// [`Error::Refused`] for a window that is out of bounds, or where the journal is in memory; those of the
    /// device; damage.
    pub fn start(checkpointer: &Arc<Checkpointer>, options: &AssembleOptions) -> Result<Running> {
        let store = checkpointer.store();
        let durability = options.durability;
        check_window(durability, store.journal().is_none_or(|journal| journal.may_lag(durability)))?;
        let mut on_damage = match options.fs.read_only {
            true => OnDamage::Note(None),
            false => OnDamage::Fail,
        };
        let alloc = Alloc::load_as(store, &mut on_damage)?;
        let space = Arc::new(InodeSpace::load_as(store, &alloc, &mut on_damage)?);
        if let OnDamage::Note(Some(what)) = on_damage {
            tracing::error!(reason = %what, "what can be read is served, nothing is written: unmount, run narufs fsck");
        }
        let room: Weak<Checkpointer> = Arc::downgrade(checkpointer);
        alloc.set_make_room(Box::new(move || match room.upgrade() {
            Some(checkpointer) => {
                let store = checkpointer.store();
                store.commit_upto(store.tail(), Durability::Power)?;
                checkpointer.checkpoint()
            }
            None => Ok(()),
        }));
        let (inodes, step) = (options.inodes, options.step);
        let meta = Meta::new(Arc::clone(store), alloc, space, options.fs.read_only, durability, inodes, step);
        let takeover = options.takeover.clone();
        if let Some(memory) = &takeover {
            memory.enter(Phase::Adopting);
            if memory.incarnation() > 0 {
                meta.table.may_be_cached();
            }
        }
        let vfs =
            Vfs::new(Arc::clone(checkpointer), Arc::new(meta), options.fs, options.data, takeover.clone())?;
        let running = Running { fs: Arc::new(vfs), threads: Mutex::new(Vec::new()), _streamer: None };
        // Should it fail from here on, or panic, what was taken over stays for the next that tries: dropped, it would be
        // given up.
        let mut running = scopeguard::guard(running, |running| {
            if let Some(memory) = takeover.filter(|memory| memory.incarnation() > 0) {
                running.fs.data().leave();
                memory.leave();
            }
        });
        let fs = &running.fs;
        store.observe(fs);
        if !options.fs.read_only && !planted::is(Bug::IntentsForgotten) {
            fs.finish_intents()?;
        }
        if options.fs.read_only
            && let Err(e) = fs.bar_unfinished()
        {
            tracing::error!("a batch is unfinished, its files cannot be told: {e}");
        }
        fs.data().inherit()?;
        if options.background {
            running.start_thread("narufs-settler", |fs| fs.data().run_settling())?;
        }
        if options.background && !options.fs.read_only {
            running.start_thread("narufs-writer", |fs| fs.data().run_background())?;
        }
        if let Durability::Window(window) = options.durability
            && options.background
            && !options.fs.read_only
        {
            running._streamer = Some(Background::streaming(Arc::clone(store), window)?);
        }
        // A reader has put nothing back.
        if let Some(memory) = options.takeover.as_ref().filter(|_| !options.fs.read_only) {
            memory.heed_lost_flushes();
        }
        Ok(ScopeGuard::into_inner(running))
    }

    /// Starts a thread that [`DataPath::stop`](crate::file::DataPath::stop) ends.
    fn start_thread(&self, name: &str, run: fn(&Vfs)) -> Result<()> {
        let fs = Arc::clone(&self.fs);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(&fs));
        self.threads.lock().push(thread.map_err(|e| Error::Errno(e.raw_os_error().unwrap_or(libc::EAGAIN)))?);
        Ok(())
    }

    /// The file system.
    pub fn fs(&self) -> &Arc<Vfs> {
        &self.fs
    }

    /// Writes everything home that is in memory alone, and stops the threads. The store can be unmounted
    /// afterwards.
    pub fn stop(self) -> Result<()> {
        self.end_threads();
        let store = Arc::clone(self.fs.meta().store());
        if self.fs.options().read_only || !store.profile().keeps() {
            store.release_observers();
            return Ok(());
        }
        self.fs.forget_all();
        self.fs.syncfs()?;
        // A ring may be too small for them; nothing depends on hints.
        if let Err(e) = self.fs.save_hints() {
            tracing::debug!("no hints for the next mount: {e}");
        }
        self.fs.meta().forget_batches();
        store.release_observers();
        Ok(())
    }

    fn end_threads(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if !threads.is_empty() {
            self.fs.data().stop();
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the data path has panicked");
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_threads();
    }
}

impl Media {
    /// Refuses a durability that cannot be had with this journal: for whoever will mount to write, before anything
    /// changes. [`Running::start`] refuses it too, when the image is mounted already.
    ///
    /// # Errors
    /// [`Error::Refused`], saying what to do.
    pub fn check_durability(&self, durability: Durability) -> Result<()> {
        check_window(durability, matches!(self.ring, RingMedia::Ssd(_) | RingMedia::Unstaged(_)))
    }
}

/// Refuses a window that cannot be had; of a journal in the image, one out of bounds.
fn check_window(durability: Durability, in_image: bool) -> Result<()> {
    let Durability::Window(window) = durability else { return Ok(()) };
    if !Durability::WINDOWS.contains(&window) {
        return Err(Error::Refused(format!("durability=window={window:?}: say 1ms to 60s")));
    }
    if !in_image {
        let why = "durability=window is for a journal in the image: with this one, in memory, fsync waits for no \
                   device; say durability=power";
        return Err(Error::Refused(why.into()));
    }
    Ok(())
}
