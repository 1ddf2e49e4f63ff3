//! A control group with a memory limit, version 1 or 2, whichever has the memory controller here.
//!
//! Swap is not limited: what does not fit is to go to the device. What is charged: memory of every process in it,
//! with what the kernel allocates on their behalf: page cache, pages of tmpfs, frame pools, sockets. Whoever
//! touches a page first pays for it. What is not: what kernel threads allocate for themselves (loop devices, which
//! with direct I/O keep no pages), and pages that were there before, such as the program's text.

use crate::{Error, Result};
use narufs_fuse::mount::mountinfo::{self, Entry};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::{Path, PathBuf};

/// How long a process that was killed may take to end: what it had asked of a device comes first.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// The interface of the memory controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The memory controller's hierarchy on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    root: PathBuf,
    version: Version,
}

impl Hierarchy {
    /// Finds it.
    pub fn find() -> Result<Hierarchy> {
        let mounts = mountinfo::all().unwrap_or_default();
        let offers_memory = |root: &Path| {
            let list = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            list.split_whitespace().any(|word| word == "memory")
        };
        choose(mounts, offers_memory).ok_or_else(|| {
            Error::Refused("no memory limit: no control group with the memory controller is mounted".into())
        })
    }

    /// What a reader must know of the limit.
    pub fn describe(&self) -> &'static str {
        match self.version {
            Version::V1 => "control group version 1: memory.limit_in_bytes, memory with swap not limited",
            Version::V2 => "control group version 2: memory.max, memory.swap.max=max",
        }
    }
}

/// The hierarchy in the table of mounts. With both versions mounted, only one of them has the controller.
fn choose(mounts: Vec<Entry>, offers_memory: impl Fn(&Path) -> bool) -> Option<Hierarchy> {
    let mut version_1 = None;
    for Entry { point: root, kind, options, .. } in mounts {
        match kind.as_str() {
            "cgroup2" if offers_memory(&root) => return Some(Hierarchy { root, version: Version::V2 }),
            "cgroup" if options.split(',').any(|word| word == "memory") => {
                version_1 = Some(Hierarchy { root, version: Version::V1 });
            }
            _ => {}
        }
    }
    version_1
}

/// A group of its own; its processes are ended and it is removed when dropped.
#[derive(Debug)]
pub(super) struct Group {
    dir: PathBuf,
    version: Version,
}

fn set(dir: &Path, file: &str, value: &str) -> Result<()> {
    let path = dir.join(file);
    std::fs::write(&path, value)
        .map_err(|e| Error::Refused(format!("no memory limit: {} = {value}: {e}", path.display())))
}

/// A number after a word, in a table of such lines.
fn field(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

impl Group {
    /// Makes a group whose processes together may have so many bytes of memory.
    pub fn new(hierarchy: &Hierarchy, name: &str, limit: u64) -> Result<Group> {
        let dir = hierarchy.root.join(name);
        if hierarchy.version == Version::V2 {
            let file = hierarchy.root.join("cgroup.subtree_control");
            let given = std::fs::read_to_string(&file).unwrap_or_default();
            if !given.split_whitespace().any(|word| word == "memory") {
                set(&hierarchy.root, "cgroup.subtree_control", "+memory")?;
            }
        }
        std::fs::create_dir(&dir)
            .map_err(|e| Error::Refused(format!("no memory limit: {}: {e}", dir.display())))?;
        let group = Group { dir, version: hierarchy.version };
        match group.version {
            Version::V1 => set(&group.dir, "memory.limit_in_bytes", &limit.to_string())?,
            Version::V2 => {
                set(&group.dir, "memory.max", &limit.to_string())?;
                // Kernels without swap have no such file.
                if group.dir.join("memory.swap.max").exists() {
                    set(&group.dir, "memory.swap.max", "max")?;
                }
                // What is swapped goes to the device, not to memory of another name.
                if group.dir.join("memory.zswap.max").exists() {
                    set(&group.dir, "memory.zswap.max", "0")?;
                }
            }
        }
        Ok(group)
    }

    /// The file to which a process writes its id to join.
    pub fn door(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The most memory that it had at any time, where the kernel tells.
    pub fn peak(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.max_usage_in_bytes",
            Version::V2 => "memory.peak",
        };
        std::fs::read_to_string(self.dir.join(file)).ok()?.trim().parse().ok()
    }

    /// Processes that the kernel has killed because nothing was left to reclaim.
    pub fn killed(&self) -> u64 {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let table = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        field(&table, "oom_kill").unwrap_or(0)
    }

    /// Ends every process that is still in it.
    pub fn end_processes(&self) {
        // A process may have started another just before its end; each time around there are fewer.
        for _ in 0..8 {
            let list = std::fs::read_to_string(self.door()).unwrap_or_default();
            let pids: Vec<Pid> =
                list.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect();
            if pids.is_empty() {
                return;
            }
            // One that has ended meanwhile is what is wanted.
            let open = |pid: &Pid| pidfd_open(*pid, PidfdFlags::empty()).ok();
            let ends: Vec<_> = pids.iter().filter_map(open).collect();
            for end in &ends {
                let _ = pidfd_send_signal(end, Signal::KILL);
            }
            for end in &ends {
                if let Err(e) = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&PATIENCE)) {
                    tracing::warn!("wait for a process of the memory limit: {e}");
                }
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end_processes();
        if self.version == Version::V1 {
            // Pages of the cache would keep the group in the kernel; it may leave some of them.
            let _ = std::fs::write(self.dir.join("memory.force_empty"), "0");
        }
        if let Err(e) = std::fs::remove_dir(&self.dir) {
            tracing::warn!("{}: {e}", self.dir.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        34 30 0:30 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";
    const V2: &str =
        "39 30 0:35 / /sys/fs/cgroup/unified rw,relatime shared:7 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn found(table: &str, offers: bool) -> Option<(String, Version)> {
        choose(mountinfo::parse(table.as_bytes()), |_| offers)
            .map(|h| (h.root.display().to_string(), h.version))
    }

    #[test]
    fn the_version_that_has_the_memory_controller_is_chosen() {
        let memory = Some(("/sys/fs/cgroup/memory".to_owned(), Version::V1));
        let unified = Some(("/sys/fs/cgroup/unified".to_owned(), Version::V2));
        assert_eq!(found(V1, false), memory);
        assert_eq!(found(V2, true), unified);
        assert_eq!(found(&format!("{V1}{V2}"), false), memory, "the other one is mounted without it");
        assert_eq!(found(&format!("{V1}{V2}"), true), unified);
        assert_eq!(found(V2, false), None);
        assert_eq!(found("34 30 0:30 / /m rw - cgroup cgroup rw,memory_like,cpu\nnonsense\n", false), None);
    }

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let v1 = "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n";
        let v2 = "low 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!((field(v1, "oom_kill"), field(v2, "oom_kill")), (Some(3), Some(1)));
        assert_eq!(field("oom_kill x\n", "oom_kill"), None);
    }
}
