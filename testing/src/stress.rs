//! Load on an image by several threads, for a process that is killed: each thread works in a directory of its
//! own, on operations that follow from its seed, and notes in a file which it began and which returned. The
//! notes are in the page cache and so survive the process.

use crate::lib_target::LibTarget;
use crate::model::Model;
use crate::op::{Generator, Op};
use crate::oracle::{Kept, Oracle};
use crate::target::Target;
use narufs_engine::error::Result;
use narufs_engine::pmem::EmulationCosts;
use narufs_engine::vfs::{AtimePolicy, Vfs, VfsOptions};
use narufs_engine::volume::{AssembleOptions, Running};
use narufs_engine::volume::{ImageOptions, Mounted, mount, open};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An image at work in this process.
pub struct Server {
    running: Running,
    mounted: Mounted,
}

impl Server {
    /// Mounts an image.
    ///
    /// # Errors
    /// What the mount says.
    pub fn start(image: &Path) -> Result<Server> {
        Server::start_with(image, &ImageOptions::default())
    }

    /// The same with other options.
    ///
    /// # Errors
    /// What the mount says.
    pub fn start_with(image: &Path, options: &ImageOptions) -> Result<Server> {
        let mounted = mount(open(image, None, EmulationCosts::default(), options)?, options)?;
        let fs = VfsOptions { atime: AtimePolicy::Never, ..VfsOptions::default() };
        let running =
            Running::start(mounted.checkpointer(), &AssembleOptions { fs, ..AssembleOptions::default() })?;
        Ok(Server { running, mounted })
    }

    /// The file system.
    pub fn fs(&self) -> &Vfs {
        self.running.fs()
    }

    /// Makes the directories of the threads.
    ///
    /// # Errors
    /// The errno of the first that failed.
    pub fn prepare(&self, threads: u64) -> Result<(), i32> {
        let mut target = LibTarget::new(self.running.fs());
        for thread in 0..threads {
            target.apply(&Op::Mkdir { path: format!("/t{thread}") })?;
        }
        Ok(())
    }

    /// Works until the process is killed; `notes` takes what was begun and what returned.
    pub fn work(&self, notes: &File, seed: u64, threads: u64) {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || self.work_in(notes, seed, thread));
            }
        });
    }

    fn work_in(&self, notes: &File, seed: u64, thread: u64) {
        let mut target = LibTarget::below(self.running.fs(), &format!("t{thread}")).expect("prepared");
        let mut generator = Generator::new(seed * 100 + thread);
        for number in 1_u64.. {
            let op = generator.next_op();
            let note = |at, value: u64| notes.write_all_at(&value.to_le_bytes(), thread * 16 + at);
            note(0, number).expect("the notes have room");
            // What it answers is for the model's tests; here it only counts that it returned.
            let _ = target.apply(&op);
            note(8, number).expect("the notes have room");
        }
    }

    /// Unmounts cleanly.
    ///
    /// # Errors
    /// What could not be written.
    pub fn stop(self) -> Result<()> {
        self.running.stop()?;
        self.mounted.unmount()
    }

    /// Judges what a thread's directory shows against its notes; the number of operations that returned, and that are
    /// all `kept`, or those before a sync.
    ///
    /// # Errors
    /// What contradicts the contract.
    pub fn judge(&self, notes: &File, seed: u64, thread: u64, kept: Kept) -> Result<u64, String> {
        let said = |e: narufs_engine::Error| format!("thread {thread}: {e}");
        let [begun, returned] = read_notes(notes, thread).map_err(|e| e.to_string())?;
        let mut generator = Generator::new(seed * 100 + thread);
        let mut oracle = Oracle::new(Model::default(), kept).among_others();
        for _ in 0..returned {
            let _ = oracle.returned(&generator.next_op());
        }
        let mut last = None;
        if begun > returned {
            let op = generator.next_op();
            let _ = oracle.begun(&op);
            last = Some(op);
        }
        let name = format!("t{thread}");
        let shown = LibTarget::below(self.running.fs(), &name).map_err(said)?.tree()?;
        oracle.check(&shown).map_err(|e| format!("thread {thread}, {returned} returned, {last:?}: {e}"))?;
        Ok(returned)
    }
}

/// Numbers of operations begun and returned.
///
/// # Errors
/// Those of reading.
pub fn read_notes(notes: &File, thread: u64) -> std::io::Result<[u64; 2]> {
    let mut bytes = [0; 16];
    notes.read_exact_at(&mut bytes, thread * 16)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    Ok([word(0), word(8)])
}
