//! SIGKILL of the server while programs work on its mount. Needs root and /dev/fuse.
//!
//! Each round kills `narufs mount --foreground` when a certain number of operations has returned, mounts again and
//! lets each program judge what it finds. In a round of four nobody syncs. A round in five loses the memory that a
//! killed process leaves as well: then only the image is there, as after a loss of power, and what was not synced may
//! be taken back.
//!
//! `NARUFS_SEED=n` replays one round (the threads run as they will); `NARUFS_TEST_SCALE=n` runs n times as many.

use narufs_engine::device::ImageFile;
use narufs_fuse::mount::mountinfo;
use narufs_testing::clients::{Client, is_of_a_dead_mount, with_syncs, without_syncs};
use narufs_testing::lab::Ring;
use narufs_testing::oracle::Kept;
use narufs_testing::place::{Place, require_mounts};
use narufs_testing::settings;
use rand::{Rng, SeedableRng};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const IMAGE_BYTES: u64 = 256 << 20;
const SLOTS: u64 = 8192;

/// The server's process; it does not outlive the test.
struct Server(Child);

impl Server {
    fn start(place: &Place, options: &str) -> Result<Server, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
        command.arg("mount").args([place.image(), place.point()]).args([
            "--foreground",
            "-o",
            "supervise=no",
            "-o",
            options,
        ]);
        let mut server = Server(command.spawn().map_err(|e| format!("narufs mount: {e}"))?);
        server.wait_for_mount(&place.point()).map(|()| server)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn wait_for_mount(&mut self, point: &Path) -> Result<(), String> {
        let said = |e: std::io::Error| format!("waiting for the mount: {e}");
        let mounts = File::open("/proc/self/mountinfo").map_err(said)?;
        let process = pidfd_open(self.pid(), PidfdFlags::empty()).map_err(|e| said(e.into()))?;
        while mountinfo::find(point).map_err(said)?.is_none() {
            if let Some(status) = self.0.try_wait().map_err(said)? {
                return Err(format!("narufs mount ended: {status}"));
            }
            let mut events =
                [PollFd::new(&mounts, PollFlags::PRI | PollFlags::ERR), PollFd::new(&process, PollFlags::IN)];
            poll(&mut events, None).map_err(|e| said(e.into()))?;
        }
        Ok(())
    }

    /// Unmounts as users do.
    fn stop(mut self, place: &Place) -> Result<(), String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_narufs"));
        let status = command.arg("umount").arg(place.point()).status().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("narufs umount: {status}"));
        }
        let ended = self.0.wait().map_err(|e| e.to_string())?;
        if ended.success() { Ok(()) } else { Err(format!("narufs mount ended: {ended}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All clients work until the server is dead; whose operation is the `wanted`th to return kills it.
fn work_and_kill(clients: &mut [Box<dyn Client>], server: Server, wanted: u64) -> Result<u64, String> {
    let (returned, killed) = (AtomicU64::new(0), AtomicBool::new(false));
    let pid = server.pid();
    let kill = || {
        killed.store(true, Ordering::SeqCst);
        kill_process(pid, Signal::KILL).map_err(|e| format!("kill: {e}"))
    };
    let work = |client: &mut dyn Client| loop {
        match client.step() {
            Ok(()) if returned.fetch_add(1, Ordering::SeqCst) + 1 == wanted => kill()?,
            Ok(()) => {}
            Err(e) if killed.load(Ordering::SeqCst) && is_of_a_dead_mount(&e) => return Ok(()),
            Err(e) => {
                kill()?;
                return Err(format!("before the kill: {e}"));
            }
        }
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter_mut().map(|c| scope.spawn(move || work(c.as_mut()))).collect();
        let ends: Vec<_> = threads.into_iter().map(|t| t.join().expect("a client does not panic")).collect();
        ends.into_iter().collect::<Result<(), String>>()
    })?;
    drop(server);
    Ok(returned.into_inner())
}

fn round(seed: u64) -> Result<u64, String> {
    let (ring, options, kept) = match seed % 5 {
        0 => (Ring::Ssd, "noatime,commit=3600", Kept::All),
        1 => (Ring::Ssd, "noatime,commit=3600", Kept::Prefix),
        2 => (Ring::SsdProcess, "noatime,commit=3600,durability=process", Kept::All),
        3 => (Ring::SsdWindow, "noatime,commit=3600,durability=window=1ms", Kept::All),
        _ => (Ring::Nvm, "noatime,commit=3600", Kept::All),
    };
    let under = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = Place::make(under, ring, IMAGE_BYTES, SLOTS).map_err(|e| format!("mkfs: {e}"))?;
    let server = Server::start(&place, options)?;
    let mut clients = match seed % 4 {
        3 => without_syncs(&place.point(), kept),
        _ => with_syncs(&place.point(), seed, kept),
    }
    .map_err(|e| format!("the clients: {e}"))?;
    // A number of operations, so that the moment does not depend on the machine's speed.
    let wanted = rand::rngs::StdRng::seed_from_u64(seed).random_range(30..1500);
    let returned = work_and_kill(&mut clients, server, wanted)?;

    place.detach().map_err(|e| format!("umount: {e}"))?;
    // The kernel lets go of the image once the killed process's last requests are over.
    while matches!(ImageFile::open(&place.image()), Err(narufs_engine::Error::InUse(_))) {
        std::thread::yield_now();
    }
    if kept == Kept::Prefix {
        place.lose_memory().map_err(|e| format!("staging: {e}"))?;
    }
    let server = Server::start(&place, options)?;
    let complaints: Vec<String> = clients.iter().filter_map(|client| client.judge().err()).collect();
    drop(clients);
    server.stop(&place)?;
    if !complaints.is_empty() {
        return Err(format!("{ring:?}, {kept:?}, {returned} returned: {}", complaints.join("\n")));
    }
    place.check().map(|()| returned)
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn nothing_that_returned_is_lost_with_the_server() {
    require_mounts();
    let seeds = settings::seeds(20);
    let mut total = 0;
    for seed in seeds.clone() {
        total += round(seed).unwrap_or_else(|e| panic!("NARUFS_SEED={seed}: {e}"));
    }
    println!("rounds {seeds:?}: {total} operations had returned");
}
