//! Locks between processes.

use crate::support::{Served, served};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;

/// Says what it is told by a line: a lock to take. Runs in a process of its own.
const LOCKER: &str = "
import fcntl, os, signal, struct, sys
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, True)
f = open(sys.argv[1], 'r+')
print('ready', flush=True)
for line in sys.stdin:
    what, *args = line.split()
    try:
        if what == 'flock':
            fcntl.flock(f, {'ex': fcntl.LOCK_EX, 'sh': fcntl.LOCK_SH, 'un': fcntl.LOCK_UN}[args[0]] | (fcntl.LOCK_NB if 'nb' in args else 0))
        elif what == 'lock':
            kind = {'ex': fcntl.LOCK_EX, 'sh': fcntl.LOCK_SH, 'un': fcntl.LOCK_UN}[args[0]]
            if args[3] == 'wait': print('waiting', flush=True)
            fcntl.lockf(f, kind | (fcntl.LOCK_NB if args[3] == 'nb' and args[0] != 'un' else 0), int(args[2]), int(args[1]))
        elif what == 'who':
            asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, int(args[0]), int(args[1]), 0)
            kind, _, start, length, pid = struct.unpack('hhqqi4x', fcntl.fcntl(f, fcntl.F_GETLK, asked))
            print('free' if kind == fcntl.F_UNLCK else f'{start} {length} {pid}', flush=True)
            continue
        print('ok', flush=True)
    except OSError as e:
        print('errno', e.errno, flush=True)
    except InterruptedError:
        print('errno 4', flush=True)
";

struct Locker {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Locker {
    fn new(path: &Path) -> Locker {
        let child = Command::new("python3")
            .args(["-c", LOCKER])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("missing: python3");
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut locker = Locker { child, to, from };
        assert_eq!(locker.answer(), "ready");
        locker
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// Returns once it waits for a lock: it says so before it does.
    fn waits(&self) {
        let waiter = format!(" {} ", self.child.id());
        let listed = |locks: String| locks.lines().any(|line| line.contains("->") && line.contains(&waiter));
        while !listed(fs::read_to_string("/proc/locks").unwrap()) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn locks_between_processes(m: &Served) {
    let path = m.at("locked");
    fs::write(&path, [0; 100]).unwrap();
    let (mut one, mut two) = (Locker::new(&path), Locker::new(&path));
    let busy = format!("errno {}", libc::EAGAIN);
    assert_eq!(one.ask("flock ex"), "ok");
    assert_eq!(two.ask("flock sh nb"), busy);
    assert_eq!(one.ask("flock sh"), "ok");
    assert_eq!(two.ask("flock sh nb"), "ok");
    assert_eq!(one.ask("flock un"), "ok");
    assert_eq!(two.ask("flock ex nb"), "ok");
    let file = File::open(&path).unwrap();
    assert_eq!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));

    assert_eq!(one.ask("lock ex 0 10 nb"), "ok");
    assert_eq!(two.ask("lock ex 5 10 nb"), busy);
    assert_eq!(two.ask("lock sh 10 10 nb"), "ok");
    assert_eq!(two.ask("who 0 5"), format!("0 10 {}", one.child.id()));
    assert_eq!(two.ask("who 50 5"), "free");
    assert_eq!(one.ask("lock un 0 4 nb"), "ok");
    assert_eq!(two.ask("lock ex 0 4 nb"), "ok");
    assert_eq!(two.ask("lock ex 4 1 wait"), "waiting");
    two.waits();
    assert_eq!(one.ask("lock ex 0 4 wait"), "waiting");
    // Both are on their way; whose request arrives last closes the circle.
    let (said, heard) = mpsc::channel();
    for mut locker in [one, two] {
        let said = said.clone();
        std::thread::spawn(move || {
            let answer = locker.answer();
            let _ = said.send((locker, answer));
        });
    }
    let (refused, answer) = heard.recv().unwrap();
    assert_eq!(answer, format!("errno {}", libc::EDEADLK), "a circle is refused");
    // The close of the last descriptor by the end of the process gives its locks back.
    drop(refused);
    let (mut two, answer) = heard.recv().unwrap();
    assert_eq!(answer, "ok");

    // A wait is ended by a signal.
    let mut three = Locker::new(&path);
    assert_eq!(three.ask("lock ex 0 4 wait"), "waiting");
    three.waits();
    drop(three);
    assert_eq!(two.ask("lock un 0 0 nb"), "ok");
    let mut four = Locker::new(&path);
    assert_eq!(four.ask("lock ex 0 0 nb"), "ok", "who was killed while it waited holds nothing");
    drop(two);
    assert_eq!(four.ask("flock ex"), "ok");
}

fn locks_hold_between_processes_of_an_exclusive_mount() {
    let m = served();
    locks_between_processes(&m);
}

on_each_transport!(locks_hold_between_processes_of_an_exclusive_mount,);
