//! What else may befall a server.

use crate::support::{Mounted, Process, stop};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A control group that bounds memory, of either version; it goes with this.
struct MemoryGroup {
    dir: PathBuf,
    events: &'static str,
}

impl MemoryGroup {
    fn new(bytes: u64) -> MemoryGroup {
        let name = format!("narufs-outlive-{}", std::process::id());
        let v1 = PathBuf::from("/sys/fs/cgroup/memory");
        let (above, limit, events) = match v1.join("memory.limit_in_bytes").exists() {
            true => (v1, "memory.limit_in_bytes", "memory.oom_control"),
            false => (PathBuf::from("/sys/fs/cgroup"), "memory.max", "memory.events"),
        };
        let dir = above.join(name);
        let needs = "missing: a control group whose memory can be bounded (root, and a cgroup hierarchy that can be written)";
        fs::create_dir(&dir).unwrap_or_else(|e| panic!("{needs}: {}: {e}", dir.display()));
        let group = MemoryGroup { dir, events };
        if !group.dir.join(limit).exists() {
            let turned_on = fs::write(above.join("cgroup.subtree_control"), "+memory");
            turned_on.unwrap_or_else(|e| panic!("{needs}: cgroup.subtree_control: {e}"));
        }
        let bounded = fs::write(group.dir.join(limit), bytes.to_string());
        bounded.unwrap_or_else(|e| panic!("{needs}: {limit}: {e}"));
        group
    }

    fn add(&self, process: Pid) {
        fs::write(self.dir.join("cgroup.procs"), process.as_raw_nonzero().to_string())
            .expect("it may be moved");
    }

    /// Processes that the kernel has ended because there was no more.
    fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.dir.join(self.events)).expect("the kernel counts them");
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.expect("the kernel counts them").parse().expect("a number")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A server that was killed may take a moment to leave it.
        while let Err(e) = fs::remove_dir(&self.dir) {
            let members = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
            if e.raw_os_error() != Some(libc::EBUSY) || !members.is_empty() {
                eprintln!("{} stays: {e}", self.dir.display());
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_that_memory_runs_out_under_is_followed() {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 96;
    let group = MemoryGroup::new(24 << 20);
    let mounted = Mounted::new("noatime,commit=3600,memory=128M");
    let server = Process::of(mounted.server());
    group.add(server.pid);
    let file = File::options().create_new(true).read(true).write(true).open(mounted.at("file"));
    let file = file.expect("made");
    let piece = |number: usize| vec![number as u8 + 1; PIECE];
    for number in 0..PIECES {
        file.write_all_at(&piece(number), (number * PIECE) as u64).expect("room");
    }
    assert!(server.has_ended() && group.kills() > 0, "the kernel has ended it");
    assert!(mounted.incarnation() > 0);
    let mut bytes = vec![0; PIECE];
    for number in 0..PIECES {
        file.read_exact_at(&mut bytes, (number * PIECE) as u64).expect("readable");
        assert!(bytes == piece(number), "piece {number}");
    }
    drop(file);
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn a_server_that_ends_by_its_own_fault_is_followed() {
    let mounted = Mounted::new("noatime");
    let file = File::options().create_new(true).write(true).open(mounted.at("file")).expect("made");
    // As a panic that nothing catches ends it, a stray pointer, a file that is shorter than its map, a bad instruction.
    let faults = [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL];
    for (number, fault) in faults.into_iter().enumerate() {
        file.write_all_at(b"x", number as u64).expect("room");
        mounted.follow(fault);
    }
    assert_eq!(fs::read(mounted.at("file")).expect("readable"), b"xxxx");
    drop(file);
    mounted.end();
}

#[test]
#[ignore = "needs root and /dev/fuse"]
fn who_waits_for_a_stopped_server_goes_on_when_it_does_or_when_it_is_killed() {
    let mounted = Mounted::new("noatime");
    for (name, signal) in [("first", Signal::CONT), ("second", Signal::KILL)] {
        let (before, server) = (mounted.incarnation(), mounted.server());
        stop(server);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| fs::create_dir(mounted.at(name)));
            kill_process(server, signal).expect("it is there");
            waits.join().expect("no panic").expect("it is made once");
        });
        assert_eq!(mounted.incarnation(), before + u64::from(signal == Signal::KILL));
    }
    // Its supervisor hears nothing while it is stopped, and what it then hears it does.
    stop(mounted.supervisor);
    kill_process(mounted.server(), Signal::KILL).expect("it lives");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| fs::create_dir(mounted.at("third")));
        kill_process(mounted.supervisor, Signal::CONT).expect("it lives");
        waits.join().expect("no panic").expect("it is made once");
    });
    mounted.end();
}
