//! A thread is stopped after it has reserved slots of the ring and before it fills them: others go on, their fsyncs
//! too where sealed records are durable, nothing is committed beyond, and a kill at that moment loses nothing that
//! was promised.

use narufs_engine::format::Position;
use narufs_engine::journal::{Durability, stop_next_record};
use narufs_engine::pmem::DurabilityLevel;
use narufs_testing::lab::Ring;
use narufs_testing::lib_target::LibTarget;
use narufs_testing::model::Tree;
use narufs_testing::op::{Durable, Op};
use narufs_testing::place::Place;
use narufs_testing::served::{Memory, assemble};
use narufs_testing::target::{Target, compare};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

fn place(ring: Ring) -> Place {
    Place::make(Path::new(env!("CARGO_TARGET_TMPDIR")), ring, 64 << 20, 4096).expect("a place")
}

/// Whether an fsync waits for a commit. Where sealed records are durable it does not.
fn needs_commit(ring: Ring) -> bool {
    ring == Ring::Ssd
}

fn create(path: String) -> Op {
    Op::Create { path, exclusive: true }
}

fn write(path: &str, durable: Durable) -> Op {
    Op::Write { path: path.into(), offset: 0, len: 5000, fill: 7, durable }
}

#[test]
fn others_go_on_beside_a_stopped_thread_and_no_commit_passes_it() {
    for ring in Ring::ALL {
        let place = place(ring);
        let (mounted, running) = assemble(&place.image(), ring, Memory::default()).expect("a new image");
        let (fs, store) = (running.fs(), mounted.store());
        let journal = store.journal().expect("it is writable");
        let apply = |op: Op| drop(LibTarget::new(fs).apply(&op).expect("there is room"));
        for dir in ["/a", "/b", "/c"] {
            apply(Op::Mkdir { path: dir.into() });
        }
        apply(create("/c/file".into()));
        apply(write("/c/file", Durable::Fsync));
        let promised = journal.committed(DurabilityLevel::Power);
        let passed = |hole: Position| {
            journal.committed(DurabilityLevel::Process) > hole
                || journal.committed(DurabilityLevel::Power) > hole
        };

        let (stopped, stands) = channel();
        let (resume, resumed) = channel::<()>();
        let (sleeps, asleep) = channel();
        let synced = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let standing = scope.spawn(move || {
                stop_next_record(move |first| {
                    stopped.send(first).expect("the test waits");
                    // An error is the end of a test that has failed: then it goes on too.
                    let _ = resumed.recv();
                });
                apply(create("/a/hole".into()));
            });
            let hole = stands.recv().expect("the thread comes there");
            for n in 0..100 {
                apply(create(format!("/b/{n}")));
                apply(Op::Rename { from: format!("/b/{n}"), to: format!("/c/{n}"), flags: 0 });
            }
            apply(write("/c/file", Durable::No));
            apply(Op::Read { path: "/c/file".into(), offset: 0, len: 5000 });
            assert!(journal.tail() >= hole + 200, "{ring:?}: operations are logged beyond the hole");
            assert!(!passed(hole), "{ring:?}: committed beyond a record that is not there");
            // What lies below the hole is not held up by it.
            store.commit_upto(promised, Durability::Power).expect("it is committed");
            if ring != Ring::Nvm {
                store.commit_upto(hole, Durability::Process).expect("it is sealed");
            }

            let syncing = scope.spawn(|| {
                narufs_engine::blocking::set_hook(Some(Box::new(move || {
                    let _ = sleeps.send(());
                })));
                apply(Op::Fsync { path: "/c/file".into() });
                synced.store(true, Ordering::SeqCst);
                narufs_engine::blocking::set_hook(None);
            });
            // The other end of the channel goes with the hook, when the fsync has returned.
            let waits = needs_commit(ring);
            while asleep.recv().is_ok() && !waits {}
            for n in 100..200 {
                apply(create(format!("/b/{n}")));
            }
            assert_eq!(synced.load(Ordering::SeqCst), !waits, "{ring:?}: whether the fsync returned");
            assert!(!passed(hole), "{ring:?}: committed beyond a record that is not there");

            drop(resume);
            standing.join().expect("the create ends well");
            syncing.join().expect("the fsync ends well");
            assert!(passed(hole) || !waits, "{ring:?}: the fsync did not commit");
            apply(Op::Fsync { path: "/c/file".into() });
            assert!(passed(hole), "{ring:?}: a commit goes where nothing is in its way");
        });
        let before = LibTarget::new(fs).tree().expect("all is there");
        assert!(before.contains_key("/a/hole") && before.contains_key("/b/199"));
        running.stop().and_then(|()| mounted.unmount()).expect("a clean unmount");
        place.check().expect("nothing is wrong");
        let (_mounted, running) = assemble(&place.image(), ring, Memory::default()).expect("a good image");
        compare(&before, &LibTarget::new(running.fs()).tree().expect("all is there")).expect("the same");
    }
}

/// The process with the stopped thread; it does not outlive the test.
struct Stopped(Child);

impl Stopped {
    /// Runs until it says `word`.
    fn until(place: &Place, ring: Ring, bug: &str, word: &str) -> Stopped {
        let mut command = Command::new(env!("CARGO_BIN_EXE_narufs-stopped"));
        command.arg(place.image()).arg(format!("{ring:?}")).arg(bug);
        let mut stopped = Stopped(command.stdout(Stdio::piped()).spawn().expect("the process starts"));
        let out = BufReader::new(stopped.0.stdout.take().expect("a pipe"));
        let said = out.lines().map_while(Result::ok).find(|line| line == word || line == "synced");
        assert_eq!(said.as_deref(), Some(word), "{ring:?}: the process with the stopped thread");
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the next mount shows after a kill, and without the memory that a killed process leaves.
fn after_kill(stopped: Stopped, place: &Place, ring: Ring, memory_is_lost: bool) -> Result<Tree, String> {
    drop(stopped);
    if memory_is_lost {
        place.lose_memory().map_err(|e| e.to_string())?;
    }
    let (mounted, running) = loop {
        match assemble(&place.image(), ring, Memory::default()) {
            // The kernel lets go of the image once the killed process's last requests are over.
            Err(e) if e.contains("in use") => std::thread::yield_now(),
            other => break other?,
        }
    };
    mounted.store().check_writable().map_err(|e| e.to_string())?;
    let tree = LibTarget::new(running.fs()).tree()?;
    running.stop().and_then(|()| mounted.unmount()).map_err(|e| e.to_string())?;
    place.check()?;
    Ok(tree)
}

fn is_whole(tree: &Tree, path: &str) -> bool {
    tree.get(path).is_some_and(|shown| shown.data == [7; 5000])
}

#[test]
fn a_kill_beside_a_stopped_thread_loses_nothing_that_was_promised() {
    for (ring, memory_is_lost) in
        [(Ring::Ssd, false), (Ring::Ssd, true), (Ring::SsdProcess, false), (Ring::Nvm, false)]
    {
        let place = place(ring);
        let word = if needs_commit(ring) { "stopped" } else { "synced" };
        let stopped = Stopped::until(&place, ring, "none", word);
        let tree = after_kill(stopped, &place, ring, memory_is_lost)
            .unwrap_or_else(|e| panic!("{ring:?}, memory lost: {memory_is_lost}: {e}"));
        assert!(is_whole(&tree, "/b/before"), "{ring:?}: what was synced is there");
        assert!(!tree.contains_key("/a/hole"), "{ring:?}: what was never written is not");
        // Memory holds what returned, beyond the hole as well; the image's ring ends before it.
        assert_eq!(tree.contains_key("/b/after"), !memory_is_lost, "{ring:?}");
        assert!(
            needs_commit(ring) || is_whole(&tree, "/b/after"),
            "{ring:?}: what was synced beside the hole is there"
        );
        assert!(memory_is_lost || tree.contains_key("/b/returned"), "{ring:?}: what returned is there");
    }
}

/// The tests above look in the right place: were commits not to wait for seals, what was synced would be lost.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_commit_that_does_not_wait_for_seals_is_noticed() {
    for (ring, memory_is_lost) in [(Ring::Ssd, true), (Ring::Nvm, false)] {
        let place = place(ring);
        let stopped = Stopped::until(&place, ring, "commit-before-seal", "synced");
        match after_kill(stopped, &place, ring, memory_is_lost) {
            Ok(tree) => assert!(!is_whole(&tree, "/b/after"), "{ring:?}: the bug does no harm"),
            Err(told) => println!("{ring:?}: {told}"),
        }
    }
}
