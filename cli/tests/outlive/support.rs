//! A mount, and who kills its servers.

use narufs_fuse::control;
use narufs_testing::lab::Ring;
use narufs_testing::place::Place;
use narufs_testing::supervised::{self, signal_children};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const IMAGE_BYTES: u64 = 256 << 20;
const SLOTS: u64 = 8192;

/// The command.
pub fn narufs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
    command.stdin(Stdio::null());
    command
}

/// A mount in the background; what is left of it goes with this, its supervisor too.
pub struct Mounted {
    pub place: Place,
    /// The supervisor's process.
    pub supervisor: Pid,
    /// Readable when it has ended.
    ended: OwnedFd,
}

impl Mounted {
    /// With these options besides, on the command under test.
    pub fn new(options: &str) -> Mounted {
        Mounted::of(Path::new(env!("CARGO_BIN_EXE_narufs")), options)
    }

    /// The same, served by this program.
    pub fn of(program: &Path, options: &str) -> Mounted {
        let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let place = Place::make(under, Ring::Ssd, IMAGE_BYTES, SLOTS).expect("room");
        Mounted::of_place_by(program, place, options)
    }

    /// Of an image that is there.
    pub fn of_place(place: Place, options: &str) -> Mounted {
        Mounted::of_place_by(Path::new(env!("CARGO_BIN_EXE_narufs")), place, options)
    }

    /// The same, served by this program.
    pub fn of_place_by(program: &Path, place: Place, options: &str) -> Mounted {
        let out = mount_by(Command::new(program), &place, options);
        assert!(out.status.success(), "{}", said(&out));
        let supervisor = control::supervisor_pid(&place.point()).expect("it answers");
        let supervisor = supervisor.and_then(|pid| Pid::from_raw(pid as i32)).expect("the kernel can resend");
        Mounted::at_place(place, supervisor)
    }

    /// What this process keeps mounted there.
    pub fn at_place(place: Place, supervisor: Pid) -> Mounted {
        let ended = pidfd_open(supervisor, PidfdFlags::empty()).expect("it lives");
        Mounted { place, supervisor, ended }
    }

    /// Has the kernel learn that it need not tell of closes. Else a child of this process would, between its beginning and
    /// its program, wait for a server with the files that it has inherited, and this process for the child.
    pub fn settle(&self) {
        let probe = self.at("probe");
        // By opening one that is there, and by nothing else.
        std::fs::write(&probe, b"").and_then(|()| File::open(&probe)).expect("room");
        std::fs::remove_file(&probe).expect("it is there");
    }

    /// It is kept by this process now.
    pub fn is_of(&mut self, supervisor: Pid) {
        self.supervisor = supervisor;
        self.ended = pidfd_open(supervisor, PidfdFlags::empty()).expect("it lives");
    }

    /// The same in the foreground of nobody: what its processes say goes to this file.
    pub fn heard(options: &str, log: &Path) -> Mounted {
        let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let place = Place::make(under, Ring::Ssd, IMAGE_BYTES, SLOTS).expect("room");
        Mounted::heard_at(place, options, log)
    }

    /// The same of an image that is there.
    pub fn heard_at(place: Place, options: &str, log: &Path) -> Mounted {
        let log = File::create(log).expect("room");
        let mut child = mounting(&place, options, log.into());
        let mounted = Mounted::at_place(place, Pid::from_child(&child));
        // Until the supervisor has heard that it is served, the mount ends with its server.
        let mut words = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut words).expect("words");
        // Its own, so that it is waited for by whoever waits for the mount.
        std::thread::spawn(move || child.wait());
        assert!(words.starts_with("ready"), "{words}");
        assert_eq!(mounted.supervisor_now(), Some(mounted.supervisor));
        mounted.settle();
        mounted
    }

    /// A path in the mount.
    pub fn at(&self, name: &str) -> PathBuf {
        self.place.point().join(name)
    }

    /// The supervisor that there is now, as soon as a server serves; `None`: the mount ends with its server.
    pub fn supervisor_now(&self) -> Option<Pid> {
        let pid = control::supervisor_pid(&self.place.point()).expect("a server answers");
        pid.and_then(|pid| Pid::from_raw(pid as i32))
    }

    /// The server, as soon as one serves.
    pub fn server(&self) -> Pid {
        let pid = control::server_pid(&self.place.point()).expect("a server answers");
        Pid::from_raw(pid as i32).expect("a process")
    }

    /// Kills the server that there is now, whatever it is doing; false: there is none.
    pub fn kill(&self, signal: Signal) -> bool {
        signal_children(self.supervisor, signal)
    }

    /// Counters, as soon as a server serves.
    pub fn stats(&self) -> Value {
        let json = control::stats(&self.place.point()).expect("a server answers");
        serde_json::from_str(&json).expect("JSON")
    }

    /// Servers that there were before the one that serves.
    pub fn incarnation(&self) -> u64 {
        self.stats()["incarnation"].as_u64().expect("a number")
    }

    /// Ends the server by a signal, and waits for the next. It need not be the supervisor's child.
    pub fn follow(&self, signal: Signal) {
        let before = self.incarnation();
        let server = Process::of(self.server());
        // The first of some signals only takes the runtime's own handler away.
        while !server.has_ended() {
            // It may end, and be waited for, in between.
            let sent = kill_process(server.pid, signal);
            assert!(matches!(sent, Ok(()) | Err(Errno::SRCH)), "{sent:?}");
            std::thread::yield_now();
        }
        assert!(self.incarnation() > before);
    }

    /// Has no server, nor gets one until the supervisor goes on ([`Mounted::go_on`]).
    pub fn stay_down(&self) {
        let server = Process::of(self.server());
        stop(self.supervisor);
        kill_process(server.pid, Signal::KILL).expect("it lives");
        server.wait_for_end();
    }

    /// Ends [`Mounted::stay_down`].
    pub fn go_on(&self) {
        kill_process(self.supervisor, Signal::CONT).expect("it lives");
    }

    /// Kills the supervisor that there is now, and waits for what becomes of the mount: another one, or `None`.
    pub fn replace_supervisor(&self) -> Option<Pid> {
        let before = self.supervisor_now().expect("there is one");
        kill_process(before, Signal::KILL).expect("it lives");
        loop {
            match self.supervisor_now() {
                Some(now) if now == before => std::thread::yield_now(),
                other => return other,
            }
        }
    }

    /// Kills the server, and waits for the next.
    pub fn restart(&self) {
        let before = self.incarnation();
        assert!(self.kill(Signal::KILL), "there is a server");
        assert!(self.incarnation() > before);
    }

    /// Has this program take over, as soon as the supervisor knows that a server serves: that answers before.
    pub fn upgrade_to(&self, program: &Path) {
        loop {
            let out =
                Command::new(program).arg("upgrade").arg(self.place.point()).output().expect("it starts");
            if out.status.success() {
                return;
            }
            assert!(said(&out).contains("try again"), "{}", said(&out));
        }
    }

    /// The same of the command under test.
    pub fn upgrade(&self) {
        self.upgrade_to(Path::new(env!("CARGO_BIN_EXE_narufs")));
    }

    /// Unmounts as users do.
    pub fn unmount(&self) {
        unmount(&self.place);
        self.wait_for_end();
    }

    /// Waits for the supervisor's end.
    pub fn wait_for_end(&self) {
        poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], None).expect("a process");
    }

    /// Unmounts, and has the image checked.
    pub fn end(self) {
        self.unmount();
        self.place.check().expect("nothing is wrong with the image");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever waits for an answer gets an error, and a supervisor in the place of the first one ends.
        let _ = self.place.detach();
        self.kill(Signal::KILL);
        let _ = kill_process(self.supervisor, Signal::KILL);
    }
}

/// A process, whatever becomes of its number.
pub struct Process {
    pub pid: Pid,
    /// Readable when it has ended.
    ended: OwnedFd,
}

impl Process {
    /// One that lives.
    pub fn of(pid: Pid) -> Process {
        Process { pid, ended: pidfd_open(pid, PidfdFlags::empty()).expect("it lives") }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(&now)).expect("a process") > 0
    }

    /// Waits for its end.
    pub fn wait_for_end(&self) {
        poll(&mut [PollFd::new(&self.ended, PollFlags::IN)], None).expect("a process");
    }

    /// What the kernel shows of it.
    pub fn status_all(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_nonzero())).expect("it lives")
    }

    /// What the kernel shows of it under this heading.
    pub fn status(&self, heading: &str) -> String {
        let all = self.status_all();
        let line = all.lines().find_map(|line| line.strip_prefix(heading)?.strip_prefix(':'));
        line.expect("the kernel shows it").trim().to_owned()
    }
}

/// Stops a process, all of its threads but the kernel's workers for its io_uring.
pub fn stop(pid: Pid) {
    kill_process(pid, Signal::STOP).expect("it lives");
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat")).unwrap_or_default();
        // What follows its name, which may have anything in it. One that has ended is not there.
        stat.rsplit_once(')')
            .is_none_or(|(name, rest)| name.contains("(iou-") || rest.trim_start().starts_with(['T', 'Z']))
    };
    while !std::fs::read_dir(&tasks).expect("it lives").all(is_stopped) {
        std::thread::yield_now();
    }
}

/// `narufs mount`
pub fn mount(place: &Place, options: &str) -> Output {
    mount_by(narufs(), place, options)
}

fn mount_by(mut command: Command, place: &Place, options: &str) -> Output {
    // What an option says last counts.
    let words = ["-o", "supervise=yes", "-o", options];
    let out =
        command.arg("mount").args([place.image(), place.point()]).args(words).stdin(Stdio::null()).output();
    out.expect("it starts")
}

/// A process that mounts, and says in a pipe that it has: as in the background, but for where it logs to.
pub fn mounting(place: &Place, options: &str, log: Stdio) -> Child {
    let mut command = narufs();
    command.args(["mount", "--announce"]).args([place.image(), place.point()]);
    command.args(["-o", "supervise=yes", "-o", options]).stdout(Stdio::piped()).stderr(log);
    command.spawn().expect("it starts")
}

/// The processes that this one, which lives, has started, or that were left to it.
pub fn children_of(process: Pid) -> Vec<Pid> {
    supervised::children_of(process).expect("it lives")
}

/// What a command complained of.
pub fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Unmounts as users do, whoever keeps the mount.
pub fn unmount(place: &Place) {
    let out = narufs().arg("umount").arg(place.point()).output().expect("it starts");
    assert!(out.status.success(), "{}", said(&out));
}
