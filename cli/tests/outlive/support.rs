//! A mount, and who kills its servers.

use narufs_fuse::control;
use narufs_testing::lab::Ring;
use narufs_testing::place::Place;
use narufs_testing::supervised::signal_children;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
        let out = mount_by(Command::new(program), &place, options);
        assert!(out.status.success(), "{}", said(&out));
        let supervisor = control::supervisor_pid(&place.point()).expect("it answers");
        let supervisor = supervisor.and_then(|pid| Pid::from_raw(pid as i32)).expect("the kernel can resend");
        let ended = pidfd_open(supervisor, PidfdFlags::empty()).expect("it lives");
        Mounted { place, supervisor, ended }
    }

    /// A path in the mount.
    pub fn at(&self, name: &str) -> PathBuf {
        self.place.point().join(name)
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

    /// Kills the server, and waits for the next.
    pub fn restart(&self) {
        let before = self.incarnation();
        assert!(self.kill(Signal::KILL), "there is a server");
        assert!(self.incarnation() > before);
    }

    /// Unmounts as users do.
    pub fn unmount(&self) {
        let out = narufs().arg("umount").arg(self.place.point()).output().expect("it starts");
        assert!(out.status.success(), "{}", said(&out));
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
        // Whoever waits for an answer gets an error.
        let _ = self.place.detach();
        self.kill(Signal::KILL);
        let _ = kill_process(self.supervisor, Signal::KILL);
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

/// What a command complained of.
pub fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}
