//! Locks between processes, and between those and a program that uses the library.

use crate::support::{Served, refused_with, served, served_with};
use narufs_engine::lock::{Access, AdvisoryKind, LockRequest, Owner};
use narufs_fuse::Caching;
use narufs_fuse::mount::{FuseOptions, IfBusy, Transport};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;

/// Says what it is told by a line: a lock to take. Runs in a process of its own.
const LOCKER: &str = "
import fcntl, os, signal, struct, sys, threading
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
        elif what == 'ofd':
            kind = {'ex': fcntl.F_WRLCK, 'sh': fcntl.F_RDLCK, 'un': fcntl.F_UNLCK}[args[0]]
            fcntl.fcntl(f, 37, struct.pack('hhqqi4x', kind, 0, int(args[1]), int(args[2]), 0))
        elif what == 'in-a-thread':
            print('waiting', flush=True)
            def wait(fd=f.fileno()):
                try: fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
                except OSError: pass
            waiting = threading.Thread(target=wait)
            waiting.start()
            continue
        elif what == 'close-under-it':
            os.close(f.fileno())
        elif what == 'join':
            waiting.join()
        elif what == 'close-another':
            open(sys.argv[1]).close()
        elif what == 'reopen':
            f.close()
            f = open(sys.argv[1], 'r+')
        elif what == 'fork':
            child = os.fork()
            if child == 0: f.close(); os._exit(0)
            os.waitpid(child, 0)
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

    /// Returns once it waits for a lock, or is about to: it has said so, and the kernel or the server was asked.
    fn waits_for(&mut self, m: &Served, line: &str) {
        let asked = || m.stats()["requests"]["SETLKW"].as_u64().unwrap_or(0);
        let before = asked();
        self.tell(line);
        assert_eq!(self.answer(), "waiting");
        let waiter = format!(" {} ", self.child.id());
        let listed = |locks: String| locks.lines().any(|line| line.contains("->") && line.contains(&waiter));
        while asked() == before && !listed(fs::read_to_string("/proc/locks").unwrap()) {
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
    two.waits_for(m, "lock ex 4 1 wait");
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
    three.waits_for(m, "lock ex 0 4 wait");
    drop(three);
    assert_eq!(two.ask("lock un 0 0 nb"), "ok");
    let mut four = Locker::new(&path);
    assert_eq!(four.ask("lock ex 0 0 nb"), "ok", "who was killed while it waited holds nothing");
    drop(two);
    assert_eq!(four.ask("flock ex"), "ok");
}

/// An image whose locks are those of the library.
fn shared() -> Served {
    served_with(Caching::Shared, |options| options.shares_locks = true)
}

/// What the library asks for, as the owner of this number.
fn wanted(owner: u64, range: Range<u64>, access: Access) -> LockRequest {
    LockRequest { owner: Owner::Library(owner), pid: std::process::id(), range, access }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn locks_hold_between_processes_of_a_mount_that_shares_them() {
    locks_between_processes(&shared());
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn the_library_and_the_mount_are_in_each_other_s_way() {
    let m = shared();
    let path = m.at("locked");
    fs::write(&path, [0; 100]).unwrap();
    let nid = fs::metadata(&path).unwrap().ino();
    let locks = m.fs().locks();
    let busy = format!("errno {}", libc::EAGAIN);
    let is_busy = |kind, request: &LockRequest| {
        locks.try_lock(nid, kind, request).is_err_and(|e| e.errno() == libc::EAGAIN)
    };
    let mut one = Locker::new(&path);

    assert_eq!(one.ask("lock ex 0 10 nb"), "ok");
    assert!(is_busy(AdvisoryKind::Record, &wanted(1, 9..u64::MAX, Access::Read)));
    let conflict = locks.test(nid, AdvisoryKind::Record, &wanted(1, 5..6, Access::Write)).unwrap();
    assert_eq!((conflict.range, conflict.pid), (0..10, one.child.id()));
    locks.try_lock(nid, AdvisoryKind::Record, &wanted(1, 10..u64::MAX, Access::Write)).unwrap();
    assert_eq!(one.ask("lock sh 50 1 nb"), busy);
    // No end is a length of 0.
    assert_eq!(one.ask("who 10 1"), format!("10 0 {}", std::process::id()));
    assert_eq!(one.ask("who 0 10"), "free");

    // Who waits there is granted what is given back here, and the other way round when its process is killed.
    one.waits_for(&m, "lock ex 20 5 wait");
    locks.release_owner(nid, AdvisoryKind::Record, Owner::Library(1));
    assert_eq!(one.answer(), "ok");
    let (said, heard) = mpsc::channel();
    let told = Box::new(move |outcome: narufs_engine::Result<()>| said.send(outcome.is_ok()).is_ok());
    locks.lock(nid, AdvisoryKind::Record, wanted(1, 0..100, Access::Write), told);
    drop(one);
    assert!(heard.recv().unwrap());
    locks.release_owner(nid, AdvisoryKind::Record, Owner::Library(1));

    let mut two = Locker::new(&path);
    assert_eq!(two.ask("flock sh"), "ok");
    assert!(is_busy(AdvisoryKind::Flock, &wanted(2, 0..u64::MAX, Access::Write)));
    locks.try_lock(nid, AdvisoryKind::Flock, &wanted(2, 0..u64::MAX, Access::Read)).unwrap();
    assert_eq!(two.ask("flock ex nb"), busy);
    locks.release_owner(nid, AdvisoryKind::Flock, Owner::Library(2));
    assert_eq!(two.ask("flock ex nb"), "ok");
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn locks_go_with_what_is_closed_and_with_nothing_else() {
    let m = shared();
    let path = m.at("locked");
    fs::write(&path, [0; 100]).unwrap();
    let nid = fs::metadata(&path).unwrap().ino();
    let locks = m.fs().locks();
    let all = || wanted(1, 0..u64::MAX, Access::Write);
    let is_locked = |kind| locks.test(nid, kind, &all()).is_some();
    let comes_free = |kind| {
        let (said, heard) = mpsc::channel();
        let told = Box::new(move |outcome: narufs_engine::Result<()>| said.send(outcome.is_ok()).is_ok());
        locks.lock(nid, kind, all(), told);
        assert!(heard.recv().unwrap());
        locks.release_owner(nid, kind, Owner::Library(1));
    };
    let mut one = Locker::new(&path);

    assert_eq!(one.ask("lock ex 0 10 nb"), "ok");
    assert_eq!(one.ask("fork"), "ok");
    assert!(is_locked(AdvisoryKind::Record), "a child has closed the file, and had no lock");
    assert_eq!(one.ask("close-another"), "ok");
    assert!(!is_locked(AdvisoryKind::Record), "any close by its process ends a lock of fcntl");

    assert_eq!(one.ask("ofd ex 0 10"), "ok");
    for harmless in ["fork", "close-another"] {
        assert_eq!(one.ask(harmless), "ok");
        assert!(is_locked(AdvisoryKind::Record), "{harmless}: that of an open file goes with it alone");
    }
    assert_eq!(one.ask("reopen"), "ok");
    comes_free(AdvisoryKind::Record);

    assert_eq!(one.ask("flock ex"), "ok");
    for harmless in ["fork", "close-another"] {
        assert_eq!(one.ask(harmless), "ok");
        assert!(is_locked(AdvisoryKind::Flock), "{harmless}: that of an open file goes with it alone");
    }
    assert_eq!(one.ask("reopen"), "ok");
    comes_free(AdvisoryKind::Flock);

    // What a process has taken anew stays, however late the server hears that it had closed the file before.
    for _ in 0..100 {
        assert_eq!(one.ask("lock ex 0 10 nb"), "ok");
        assert_eq!(one.ask("reopen"), "ok");
        assert!(!is_locked(AdvisoryKind::Record));
        assert_eq!(one.ask("lock ex 5 10 nb"), "ok");
        assert!(is_locked(AdvisoryKind::Record));
    }

    // A file that is closed while a thread of its process waits for a lock of it: who was granted it has it no more.
    assert_eq!(one.ask("lock un 0 0 nb"), "ok");
    locks.try_lock(nid, AdvisoryKind::Record, &all()).unwrap();
    one.waits_for(&m, "in-a-thread");
    assert_eq!(one.ask("close-under-it"), "ok");
    locks.release_owner(nid, AdvisoryKind::Record, Owner::Library(1));
    assert_eq!(one.ask("join"), "ok");
    comes_free(AdvisoryKind::Record);
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_mount_that_is_cut_off_leaves_no_lock_and_nobody_waiting() {
    let mut m = shared();
    let path = m.at("locked");
    fs::write(&path, [0; 100]).unwrap();
    let nid = fs::metadata(&path).unwrap().ino();
    let (mut one, mut two) = (Locker::new(&path), Locker::new(&path));
    assert_eq!(one.ask("lock ex 0 10 nb"), "ok");
    assert_eq!(one.ask("flock ex"), "ok");
    two.waits_for(&m, "lock ex 0 10 wait");
    m.end_mount();
    assert!(two.answer().starts_with("errno"));
    for kind in [AdvisoryKind::Record, AdvisoryKind::Flock] {
        m.fs().locks().try_lock(nid, kind, &wanted(1, 0..u64::MAX, Access::Write)).unwrap();
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn who_is_cut_off_has_no_lock_any_more_though_the_server_is_still_there() {
    let m = shared();
    let path = m.at("locked");
    fs::write(&path, [0; 100]).unwrap();
    let nid = fs::metadata(&path).unwrap().ino();
    let mut one = Locker::new(&path);
    assert_eq!(one.ask("lock ex 0 10 nb"), "ok");
    assert_eq!(one.ask("flock ex"), "ok");
    // As `umount -f` does, whether or not it can take the mount away.
    narufs_fuse::mount::unmount(&m.point, IfBusy::Abort).unwrap();
    for kind in [AdvisoryKind::Record, AdvisoryKind::Flock] {
        let (said, heard) = mpsc::channel();
        let told = Box::new(move |outcome: narufs_engine::Result<()>| said.send(outcome.is_ok()).is_ok());
        m.fs().locks().lock(nid, kind, wanted(1, 0..u64::MAX, Access::Write), told);
        assert!(heard.recv().unwrap());
        m.fs().locks().release_owner(nid, kind, Owner::Library(1));
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn locks_in_common_are_for_mounts_that_are_not_the_only_way_in_and_not_for_io_uring() {
    let shares = |options: &mut FuseOptions| options.shares_locks = true;
    let why = refused_with(Caching::Exclusive, shares).to_string();
    assert!(why.contains("not the only way in"), "{why}");
    let why = refused_with(Caching::Shared, |options| {
        shares(options);
        options.transport = Transport::Uring;
    });
    assert!(why.to_string().contains("it serves no locks"), "{why}");
}

fn locks_hold_between_processes_of_an_exclusive_mount() {
    let m = served();
    locks_between_processes(&m);
}

on_each_transport!(locks_hold_between_processes_of_an_exclusive_mount,);
