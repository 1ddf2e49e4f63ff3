//! The load: rounds of calls by many threads, each round judged by the search.

use super::search::{Verdict, search};
use super::state::{Names, State};
use super::watchdog::Watchdog;
use super::{Answer, At, Call, Event, Exclusive, Id};
use crate::lib_target::LibTarget;
use narufs_engine::error::{Error, Result};
use narufs_engine::format::{Nid, ROOT_NID};
use narufs_engine::vfs::{Arrive, Context, Entry, FileType, OpenFlags, RenameFlags, Vfs, Walked};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::fmt::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads: several for each core, so that some are set aside in the midst of a call.
const THREADS: usize = 8;
/// Calls of a thread in a round.
const CALLS: usize = 6;
/// Names of a directory.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Names in all beyond which the tree is emptied.
const MOST_NAMES: usize = 14;
/// States that are looked at for one round.
const STATES: usize = 200_000;

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Calls in them.
    pub calls: u64,
    /// Those of them that succeeded.
    pub succeeded: u64,
    /// Those of them that began before another that was under way returned.
    pub overlapping: u64,
    /// Rounds whose search was given up.
    pub undecided: u64,
}

/// What a round has to do with, and what is there between rounds.
#[derive(Default)]
struct Tree {
    names: Names,
    /// Directories, the root first.
    dirs: Vec<Id>,
    /// Everything else, with its type.
    files: Vec<(Id, u32)>,
    /// One for each lookup count.
    held: Vec<Nid>,
}

impl Tree {
    fn take(&mut self, entry: &Entry) -> (Id, u32) {
        let (id, file_type) = (id_of(entry), type_of(entry));
        self.held.push(entry.nid);
        match file_type {
            libc::S_IFDIR if !self.dirs.contains(&id) => self.dirs.push(id),
            libc::S_IFDIR => {}
            _ if !self.files.contains(&(id, file_type)) => self.files.push((id, file_type)),
            _ => {}
        }
        (id, file_type)
    }
}

fn id_of(entry: &Entry) -> Id {
    if entry.nid == ROOT_NID { 0 } else { (entry.generation as usize) << 32 | entry.nid as usize }
}

fn nid_of(id: Id) -> Nid {
    if id == 0 { ROOT_NID } else { id as u64 & 0xffff_ffff }
}

fn type_of(entry: &Entry) -> u32 {
    match entry.attr.file_type {
        FileType::Directory => libc::S_IFDIR,
        FileType::Symlink => libc::S_IFLNK,
        _ => libc::S_IFREG,
    }
}

/// Runs rounds on an empty file system that nobody else uses, and leaves it empty.
///
/// # Errors
/// A history that has no order, or what could not be read between rounds.
pub fn run(fs: &Vfs, seed: u64, rounds: u64) -> std::result::Result<Tally, String> {
    let said = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let target = LibTarget::new(fs);
    let watchdog = Watchdog::new(THREADS, seed);
    let (mut tally, mut state, mut tree) = (Tally::default(), State::default(), Tree::default());
    tree.dirs.push(0);
    for round in 0..rounds {
        let (history, held) = work(fs, &watchdog, &tree, seed.wrapping_mul(1 << 32) + round);
        let begin = std::mem::replace(&mut tree, read(fs, &target).map_err(said("reading the tree"))?);
        tally.count(&history);
        match search(&state, &history, &tree.names, STATES) {
            Verdict::Linear(end) => {
                attributes(fs, &end, &tree).map_err(|e| format!("round {round}: {e}"))?;
                state = end;
            }
            Verdict::Broken(longest) => {
                return Err(format!("round {round}:\n{}", show(&begin, &history, &longest, &tree)));
            }
            Verdict::Undecided => tally.undecided += 1,
        }
        for nid in held.into_iter().chain(begin.held) {
            fs.forget(nid, 1);
        }
        let is_full = tree.names.len() > MOST_NAMES;
        if is_full || tally.undecided > 0 || round + 1 == rounds {
            tree.held.drain(..).for_each(|nid| fs.forget(nid, 1));
            target.remove_all().map_err(said("emptying the tree"))?;
            (state, tree) = (State::default(), Tree::default());
            tree.dirs.push(0);
        }
        watchdog.round();
    }
    Ok(tally)
}

impl Tally {
    fn count(&mut self, history: &[Event]) {
        self.rounds += 1;
        self.calls += history.len() as u64;
        self.succeeded += history.iter().filter(|event| event.answer.is_ok()).count() as u64;
        let overlaps = |event: &Event| {
            let meets = |other: &Event| other.begun < event.begun && event.begun < other.returned;
            history.iter().any(meets)
        };
        self.overlapping += history.iter().filter(|event| overlaps(event)).count() as u64;
    }
}

/// One round: what was called, and the lookup counts that it left.
fn work(fs: &Vfs, watchdog: &Watchdog, tree: &Tree, seed: u64) -> (Vec<Event>, Vec<Nid>) {
    let (clock, gate) = (AtomicU64::new(0), Barrier::new(THREADS));
    let (clock, gate) = (&clock, &gate);
    std::thread::scope(|scope| {
        let begin = |thread: usize| {
            let mut worker = Worker {
                fs,
                ctx: Context::root(),
                rng: StdRng::seed_from_u64(seed ^ (thread as u64) << 56),
                known: Tree { dirs: tree.dirs.clone(), files: tree.files.clone(), ..Tree::default() },
            };
            scope.spawn(move || {
                let mut events = Vec::with_capacity(CALLS);
                gate.wait();
                for _ in 0..CALLS {
                    let call = worker.next();
                    watchdog.is_at(thread, Some(call));
                    // SeqCst: what another thread has seen returned, or that it did anything, is before this.
                    let begun = clock.fetch_add(1, Ordering::SeqCst);
                    let answer = worker.call(call).map_err(|e| e.errno());
                    let returned = clock.fetch_add(1, Ordering::SeqCst);
                    watchdog.is_at(thread, None);
                    events.push(Event { thread, call, answer, begun, returned });
                }
                (events, worker.known.held)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(begin).collect();
        let (mut history, mut held) = (Vec::new(), Vec::new());
        for thread in threads {
            let (events, counts) = thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
            history.extend(events);
            held.extend(counts);
        }
        (history, held)
    })
}

/// A thread: what it may name grows with what it comes to know.
struct Worker<'f> {
    fs: &'f Vfs,
    ctx: Context,
    rng: StdRng,
    known: Tree,
}

impl Worker<'_> {
    fn at(&mut self) -> At {
        let dir = self.known.dirs.choose(&mut self.rng).copied().unwrap_or(0);
        At { dir, name: NAMES.choose(&mut self.rng).copied().unwrap_or("a") }
    }

    fn next(&mut self) -> Call {
        let at = self.at();
        match self.rng.random_range(0..100) {
            0..12 => Call::Create(at, Exclusive::Yes),
            12..16 => Call::Create(at, Exclusive::No),
            16..28 => Call::Mkdir(at),
            28..31 => Call::Symlink(at),
            31..38 => match self.known.files.choose(&mut self.rng) {
                Some((id, file_type)) => Call::Link(*id, *file_type, at),
                None => Call::Lookup(at),
            },
            38..51 => Call::Unlink(at),
            51..60 => Call::Rmdir(at),
            60..78 => {
                let flags = [0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE];
                Call::Rename(at, self.at(), flags.choose(&mut self.rng).copied().unwrap_or(0))
            }
            78..82 => Call::Lookup(at),
            82..88 => Call::Open(at),
            88..94 => Call::Find(at),
            _ => {
                let files = self.known.files.iter().map(|(id, _)| *id);
                let known: Vec<Id> = self.known.dirs.iter().copied().chain(files).collect();
                Call::Stat(known.choose(&mut self.rng).copied().unwrap_or(0))
            }
        }
    }

    fn call(&mut self, call: Call) -> Result<Answer> {
        let (fs, ctx) = (self.fs, &self.ctx);
        let entry = match call {
            Call::Create(At { dir, name }, exclusive) => {
                let x = if exclusive == Exclusive::Yes { OpenFlags::EXCLUSIVE } else { OpenFlags::empty() };
                let flags = OpenFlags::WRITE_ONLY | x;
                let (entry, handle, _) = fs.create(ctx, nid_of(dir), name.as_bytes(), 0o644, flags)?;
                fs.release(handle, None);
                entry
            }
            Call::Mkdir(At { dir, name }) => fs.mkdir(ctx, nid_of(dir), name.as_bytes(), 0o755)?,
            Call::Symlink(At { dir, name }) => fs.symlink(ctx, nid_of(dir), name.as_bytes(), b"nowhere")?,
            Call::Link(id, _, At { dir, name }) => fs.link(ctx, nid_of(id), nid_of(dir), name.as_bytes())?,
            Call::Lookup(At { dir, name }) => fs.lookup(ctx, nid_of(dir), name.as_bytes())?,
            Call::Open(At { dir, name }) => return self.walk(dir, name, Arrive::Opening),
            Call::Find(At { dir, name }) => return self.walk(dir, name, Arrive::Looking),
            Call::Unlink(At { dir, name }) => {
                return fs.unlink(ctx, nid_of(dir), name.as_bytes()).map(|()| Answer::Done);
            }
            Call::Rmdir(At { dir, name }) => {
                return fs.rmdir(ctx, nid_of(dir), name.as_bytes()).map(|()| Answer::Done);
            }
            Call::Rename(from, to, flags) => {
                let flags = RenameFlags::from_bits_retain(flags);
                let (source, target) = (nid_of(from.dir), nid_of(to.dir));
                fs.rename(ctx, source, from.name.as_bytes(), target, to.name.as_bytes(), flags)?;
                return Ok(Answer::Done);
            }
            Call::Stat(id) => {
                let attr = fs.getattr(nid_of(id))?;
                return Ok(Answer::Has(attr.nlink, attr.mode() & libc::S_IFMT));
            }
        };
        let (id, file_type) = self.known.take(&entry);
        Ok(Answer::Is(id, file_type))
    }

    /// Walks to a name, which leaves no lookup count; opens what is there, or looks at it.
    fn walk(&self, dir: Id, name: &str, arrive: Arrive) -> Result<Answer> {
        let (fs, ctx) = (self.fs, &self.ctx);
        let start = fs.reach(nid_of(dir))?;
        let Walked::There(found) = fs.walk(ctx, &start, name.as_bytes(), false, arrive)? else {
            return Err(Error::Errno(libc::EIO));
        };
        let attr = fs.getattr_at(&found);
        match (arrive, found.file_type()) {
            (Arrive::Looking, _) | (_, FileType::Symlink) => {}
            _ => fs.release(fs.open_at(ctx, found, OpenFlags::empty())?, None),
        }
        let entry = Entry { nid: attr.nid, generation: attr.generation, attr };
        Ok(Answer::Is(id_of(&entry), type_of(&entry)))
    }
}

/// Reads the whole tree.
fn read(fs: &Vfs, target: &LibTarget<'_>) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.dirs.push(0);
    let mut at = 0;
    while let Some(dir) = tree.dirs.get(at).copied() {
        at += 1;
        for name in target.names(nid_of(dir))? {
            let entry = fs.lookup(&Context::root(), nid_of(dir), name.as_bytes())?;
            let (id, _) = tree.take(&entry);
            tree.names.push((dir, name, id));
        }
    }
    tree.names.sort();
    Ok(tree)
}

/// Compares numbers of names and types with what the state says.
fn attributes(fs: &Vfs, state: &State, tree: &Tree) -> std::result::Result<(), String> {
    for id in tree.dirs.iter().copied().chain(tree.files.iter().map(|(id, _)| *id)) {
        let attr = fs.getattr(nid_of(id)).map_err(|e| format!("{id:#x}: {e}"))?;
        let shown = (attr.nlink, attr.mode() & libc::S_IFMT);
        if state.seen(id) != Some(shown) {
            return Err(format!("{id:#x} shows {shown:?}, expected {:?}", state.seen(id)));
        }
    }
    Ok(())
}

/// A history for people: what came in the longest beginning that was found, then the rest.
fn show(begin: &Tree, history: &[Event], longest: &[usize], end: &Tree) -> String {
    let mut text = format!("no order explains these calls, begun with {:x?}\n", begin.names);
    for index in longest {
        let _ = writeln!(text, "{}", history[*index]);
    }
    text += "so far there is one; these are left:\n";
    for index in (0..history.len()).filter(|index| !longest.contains(index)) {
        let _ = writeln!(text, "{}", history[index]);
    }
    let _ = writeln!(text, "in the end there is {:x?}", end.names);
    text
}
