//! What programs hold while servers come and go: open files, maps, working directories, running programs, locks, watches.
//! All of it is held from the beginning to the end, and looked at after each kill.

use super::sit::{Sitter, own_program};
use super::sys::{Map, lock_open_file};
use super::{Outcome, Work};
use crate::demand;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Advice, CWD, FlockOperation, Mode, OFlags, fadvise, fcntl_lock, flock, openat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

/// So many kills are to pass over all of it, if there are as many.
pub const WANTED: u64 = 50;

const MAP: usize = 64 * 4096;

/// Holds it until the kills are over. Over how many kills that was.
///
/// # Errors
/// What was not as it must be.
pub fn hold(work: &mut Work<'_>) -> Outcome<u64> {
    let first = work.kills.count();
    let mut held = Held::new(work)?;
    let mut seen = first;
    loop {
        seen = work.kills.wait_beyond(seen);
        held.check(seen).map_err(|e| format!("after {} kills: {e}", seen - first))?;
        if work.kills.is_over() {
            held.end()?;
            return Ok(seen - first);
        }
    }
}

struct Held {
    dir: PathBuf,
    unlinked: File,
    nameless: File,
    path_only: OwnedFd,
    map: Map,
    mapped: File,
    map_model: Vec<u8>,
    locks: Locks,
    watch: OwnedFd,
    on_mount: Sitter,
    in_removed: Sitter,
}

fn made(path: &Path) -> std::io::Result<File> {
    File::options().create_new(true).read(true).write(true).open(path)
}

impl Held {
    fn new(work: &Work<'_>) -> Outcome<Held> {
        let dir = work.dir.clone();
        let unlinked = made(&dir.join("unlinked"))?;
        fs::remove_file(dir.join("unlinked"))?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let nameless = File::from(openat(CWD, &dir, flags, Mode::RUSR | Mode::WUSR)?);
        fs::write(dir.join("kept"), "kept")?;
        let path_only = openat(CWD, dir.join("kept"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let mapped = made(&dir.join("mapped"))?;
        mapped.set_len(MAP as u64)?;
        let map = Map::of(&mapped, MAP)?;
        for name in ["here", "removed", "watched"] {
            fs::create_dir(dir.join(name))?;
        }
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&watch, dir.join("watched"), WatchFlags::CREATE | WatchFlags::DELETE)?;
        let locks = Locks::new(&dir)?;
        let on_mount = Sitter::start(&own_program(work)?, &dir.join("here"), &dir.join("by-process"))?;
        let own = std::env::current_exe()?;
        let in_removed = Sitter::start(&own, &dir.join("removed"), &dir.join("by-process"))?;
        fs::remove_dir(dir.join("removed"))?;
        let map_model = vec![0; MAP];
        Ok(Held {
            dir,
            unlinked,
            nameless,
            path_only,
            map,
            mapped,
            map_model,
            locks,
            watch,
            on_mount,
            in_removed,
        })
    }

    fn check(&mut self, kill: u64) -> Outcome {
        for (what, file) in [("unlinked", &self.unlinked), ("nameless", &self.nameless)] {
            let seen = file.metadata()?;
            demand!(seen.nlink() == 0, "the {what} file has {} names", seen.nlink());
            let len = seen.len() as usize;
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, 0)?;
            demand!(
                bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8),
                "the {what} file has other bytes"
            );
            let more: Vec<u8> = (len..len + 300).map(|at| at as u8).collect();
            file.write_all_at(&more, len as u64)?;
            if kill.is_multiple_of(3) {
                file.sync_data()?;
            }
            fadvise(file, 0, None, Advice::DontNeed)?;
        }
        let reopened = File::open(format!("/proc/self/fd/{}", self.path_only.as_raw_fd()))?;
        let mut bytes = [0; 4];
        reopened.read_exact_at(&mut bytes, 0)?;
        demand!(&bytes == b"kept", "a file known by its path only has other bytes");
        self.check_map(kill).map_err(|e| format!("the shared map: {e}"))?;
        self.check_watch().map_err(|e| format!("the watch: {e}"))?;
        self.on_mount.demand("look", "good")?;
        self.in_removed.demand("look-gone", "good")?;
        self.locks.check(kill, &mut self.in_removed).map_err(|e| format!("locks: {e}"))?;
        Ok(())
    }

    fn check_map(&mut self, kill: u64) -> Outcome {
        demand!((0..MAP).all(|at| self.map.get(at) == self.map_model[at]), "other bytes");
        for page in (0..MAP / 4096).filter(|page| (*page as u64 + kill).is_multiple_of(5)) {
            let (at, byte) = (page * 4096 + kill as usize * 509 % 4096, kill as u8 | 1);
            self.map.put(at, byte);
            self.map_model[at] = byte;
        }
        if kill.is_multiple_of(2) {
            self.map.sync()?;
        }
        let mut found = vec![0; MAP];
        self.mapped.read_exact_at(&mut found, 0)?;
        demand!(found == self.map_model, "the file has other bytes than the map");
        Ok(())
    }

    /// A name comes and goes: the watch says so, and nothing else.
    fn check_watch(&self) -> Outcome {
        let name = self.dir.join("watched/name");
        made(&name)?;
        fs::remove_file(&name)?;
        let mut space = [MaybeUninit::uninit(); 1024];
        let mut reader = inotify::Reader::new(&self.watch, &mut space);
        let mut said = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => said.push(event.events()),
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        demand!(said == [ReadFlags::CREATE, ReadFlags::DELETE], "it has said {said:?}");
        Ok(())
    }

    fn end(self) -> Outcome {
        let Held { dir, map, mapped, map_model, locks, on_mount, in_removed, .. } = self;
        locks.end()?;
        on_mount.end()?;
        in_removed.end()?;
        // What was written by the map alone, as the server has it.
        drop((map, mapped));
        let mapped = File::open(dir.join("mapped"))?;
        mapped.sync_all()?;
        fadvise(&mapped, 0, None, Advice::DontNeed)?;
        let mut found = vec![0; MAP];
        mapped.read_exact_at(&mut found, 0)?;
        demand!(found == map_model, "a file that was mapped has other bytes in the end");
        Ok(())
    }
}

/// Locks of three kinds that stay, and one that is waited for.
struct Locks {
    flocked: [File; 2],
    of_open_file: [File; 2],
    by_process: File,
    passed_on: PathBuf,
    /// Who has the lock that is waited for, and who waits.
    turn: Option<(File, JoinHandle<std::io::Result<File>>, Receiver<()>)>,
}

impl Locks {
    fn new(dir: &Path) -> Outcome<Locks> {
        let two = |name: &str| -> std::io::Result<[File; 2]> {
            Ok([made(&dir.join(name))?, File::options().read(true).write(true).open(dir.join(name))?])
        };
        let (flocked, of_open_file) = (two("flocked")?, two("of-open-file")?);
        flock(&flocked[0], FlockOperation::LockExclusive)?;
        demand!(lock_open_file(&of_open_file[0], true)?, "somebody has a lock");
        let by_process = made(&dir.join("by-process"))?;
        fcntl_lock(&by_process, FlockOperation::NonBlockingLockExclusive)?;
        let passed_on = dir.join("passed-on");
        let holder = made(&passed_on)?;
        flock(&holder, FlockOperation::LockExclusive)?;
        let mut locks = Locks { flocked, of_open_file, by_process, passed_on, turn: None };
        locks.wait_behind(holder)?;
        Ok(locks)
    }

    fn wait_behind(&mut self, holder: File) -> Outcome {
        let waits = File::open(&self.passed_on)?;
        let (got, has) = channel();
        let thread = std::thread::spawn(move || {
            flock(&waits, FlockOperation::LockExclusive)?;
            // Nobody listens where something has failed.
            let _ = got.send(());
            Ok(waits)
        });
        self.turn = Some((holder, thread, has));
        Ok(())
    }

    fn check(&mut self, kill: u64, other: &mut Sitter) -> Outcome {
        let second = flock(&self.flocked[1], FlockOperation::NonBlockingLockExclusive);
        demand!(second == Err(Errno::WOULDBLOCK), "flock: {second:?}");
        demand!(!lock_open_file(&self.of_open_file[1], true)?, "a lock of an open file was given twice");
        other.demand("try", "held")?;
        let (holder, thread, has) = self.turn.take().ok_or("nobody waits")?;
        demand!(has.try_recv().is_err(), "who waits for a lock has it before its time");
        if !kill.is_multiple_of(4) {
            self.turn = Some((holder, thread, has));
            return Ok(());
        }
        flock(&holder, FlockOperation::Unlock)?;
        let next = thread.join().map_err(|_| "a panic")??;
        // The same with another process, which waits for a lock of processes.
        other.say("wait")?;
        fcntl_lock(&self.by_process, FlockOperation::Unlock)?;
        let heard = other.hear()?;
        demand!(heard == "done", "who waits was told {heard}");
        let refused = fcntl_lock(&self.by_process, FlockOperation::NonBlockingLockExclusive);
        demand!(matches!(refused, Err(Errno::AGAIN | Errno::ACCESS)), "a lock of a process: {refused:?}");
        other.demand("unlock", "done")?;
        fcntl_lock(&self.by_process, FlockOperation::LockExclusive)?;
        self.wait_behind(next)
    }

    fn end(mut self) -> Outcome {
        if let Some((holder, thread, _)) = self.turn.take() {
            flock(&holder, FlockOperation::Unlock)?;
            thread.join().map_err(|_| "a panic")??;
        }
        Ok(())
    }
}
