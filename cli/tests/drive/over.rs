//! A mount over a drive that may fail.

use narufs_fuse::control;
use narufs_fuse::mount::mountinfo;
use narufs_testing::drive::faults::Faults;
use narufs_testing::drive::shown::ShownHere;
use narufs_testing::lab::Ring;
use narufs_testing::place::{Place, require_mounts};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const IMAGE_BYTES: u64 = 64 << 20;
const SLOTS: u64 = 4096;
/// Bytes of memory for files.
pub const MEMORY: usize = 4 << 20;

/// What is mounted, on what; nothing is left of it when this goes.
pub struct Over {
    // Before the place, in whose directory it is shown.
    drive: Option<ShownHere>,
    pub place: Place,
    server: Option<Child>,
    log: PathBuf,
}

fn narufs(word: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
    command.arg(word).stdin(Stdio::null());
    command
}

impl Over {
    /// A new image on a drive that works.
    pub fn made() -> Over {
        require_mounts();
        let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let place = Place::make(under, Ring::Ssd, IMAGE_BYTES, SLOTS).expect("room");
        let log = place.image().with_file_name("log");
        let mut over = Over { place, drive: None, server: None, log };
        over.plug_in();
        over
    }

    fn under(&self) -> PathBuf {
        self.place.image().parent().expect("a directory").to_owned()
    }

    /// The drive has power, and works. It is another one to who remembers it.
    fn plug_in(&mut self) {
        self.drive = None;
        self.drive = Some(ShownHere::new(&self.under(), &self.place.image()).expect("root, and /dev/fuse"));
    }

    fn drive(&self) -> &ShownHere {
        self.drive.as_ref().expect("it is plugged in")
    }

    /// What goes wrong with the drive.
    pub fn faults(&self) -> &Faults {
        &self.drive().faults
    }

    /// A path in the mount.
    pub fn at(&self, name: &str) -> PathBuf {
        self.place.point().join(name)
    }

    /// `narufs mount` in the foreground of nobody.
    ///
    /// # Errors
    /// What it says where it does not come to serve.
    pub fn mount(&mut self) -> Result<(), String> {
        self.mount_by("dev")
    }

    /// The same for this way of requests, as `-o transport=` has it.
    ///
    /// # Errors
    /// As there.
    pub fn mount_by(&mut self, transport: &str) -> Result<(), String> {
        let log = File::create(&self.log).expect("room");
        let options = format!("io=direct,noatime,supervise=no,transport={transport},memory={MEMORY}");
        let mut command = narufs("mount");
        command.arg("--foreground").args([self.drive().disk(), self.place.point()]).args(["-o", &options]);
        let mut server = command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
        while mountinfo::find(&self.place.point()).expect("readable").is_none() {
            if server.try_wait().expect("it is ours").is_some() {
                return Err(self.said());
            }
            std::thread::yield_now();
        }
        self.server = Some(server);
        Ok(())
    }

    /// What the server has said.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).expect("it is there")
    }

    /// Its counters.
    pub fn stats(&self) -> Value {
        let json = control::stats(&self.place.point()).expect("a server answers");
        serde_json::from_str(&json).expect("JSON")
    }

    /// `narufs stats`
    pub fn stats_by_command(&self) -> Output {
        narufs("stats").arg(self.place.point()).output().expect("it starts")
    }

    /// Unmounts as users do, and waits for the server's end: everything is written down.
    pub fn unmount(&mut self) {
        let out = self.unmounted();
        assert!(out.status.success(), "{out:?}");
    }

    /// The same where the server writes nothing any more: who unmounts is told that the image is unclean.
    pub fn unmount_unclean(&mut self) {
        let out = self.unmounted();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(32) && said.contains("not everything could be written down"),
            "{out:?}"
        );
    }

    fn unmounted(&mut self) -> Output {
        let out = narufs("umount").arg(self.place.point()).output().expect("it starts");
        if let Some(mut server) = self.server.take() {
            server.wait().expect("it is ours");
        }
        out
    }

    /// The power goes, and with it what lies in memory and some of what the drive has not flushed; and comes back.
    pub fn lose_power(&mut self, seed: u64) {
        self.drive().drive.lock().cut(Some(seed)).expect("a file");
        self.kill();
        self.place.detach().expect("it may be taken away");
        self.place.lose_memory().expect("it may be removed");
        self.plug_in();
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        // Whoever waits for the drive goes on; else the server could not end.
        if let Some(drive) = &self.drive {
            drive.faults.mend();
        }
        let _ = self.place.detach();
        self.kill();
    }
}
