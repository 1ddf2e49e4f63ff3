//! What narufs needs of the machine, whatever it is to mount.

use super::{Finding, System};
use crate::pause;
use crate::size::Size;
use narufs_engine::cache::available_memory;
use rustix::fs::statvfs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

/// The kernel that is the least to speak the protocol, and the least that all is tested with.
const LEAST: (u32, u32) = (5, 4);
const LEAST_TESTED: (u32, u32) = (6, 1);
/// What later kernels have: docs/POSIX.md has the table.
const LATER: [((u32, u32), &str); 5] = [
    ((6, 2), "direct writes of one file beside each other"),
    ((6, 6), "birth times and maps with strictatime"),
    ((6, 9), "mounts that outlive their server"),
    ((6, 13), "bounds for waiting requests"),
    ((6, 14), "requests through io_uring"),
];
/// The kernel that sends again what a killed server has not answered.
const RESENDS: (u32, u32) = (6, 9);
/// Shared memory that the ring of an image of a usual size takes.
const USUAL_RING: u64 = 256 << 20;
/// Less memory is not worth a mount with the usual sizes.
const LITTLE_MEMORY: u64 = 512 << 20;

/// What is no file of the kernel's.
pub(super) struct Seen {
    /// Whether the caller is root.
    pub by_root: bool,
    /// Bytes of memory that this process may use.
    pub memory: u64,
    /// Size and free bytes of `/dev/shm`, if it is there.
    pub shared: Option<(u64, u64)>,
    /// Whether `/dev/fuse` is a device that can be opened; if not, why.
    pub fuse: Result<(), String>,
    /// Where `fusermount3` was found, and whether it is set-user-id.
    pub helper: Option<bool>,
}

impl Seen {
    pub(super) fn of_this_machine() -> Seen {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let helper = std::env::split_paths(&path).find_map(|dir| dir.join("fusermount3").metadata().ok());
        let shared = statvfs("/dev/shm").ok();
        Seen {
            by_root: rustix::process::geteuid().is_root(),
            memory: available_memory(),
            shared: shared.map(|of| (of.f_blocks * of.f_frsize, of.f_bavail * of.f_frsize)),
            fuse: fuse(),
            helper: helper.map(|file| file.permissions().mode() & 0o4000 != 0),
        }
    }
}

fn fuse() -> Result<(), String> {
    let path = "/dev/fuse";
    let kind = std::fs::metadata(path).map_err(|e| e.to_string())?.file_type();
    if !kind.is_char_device() {
        return Err("is no device".into());
    }
    let opened = std::fs::File::options().read(true).write(true).open(path);
    opened.map(drop).map_err(|e| e.to_string())
}

pub(super) fn findings(system: &System, seen: &Seen) -> Vec<Finding> {
    let version = version(system);
    let mut findings = vec![kernel(version), device(seen), helper(seen)];
    findings.extend(uring(system, version));
    findings.extend(own_uring(system));
    findings.extend(timeouts(system));
    findings.extend([shared_memory(seen), memory(system, seen), supervision(system, version)]);
    findings
}

/// The version of the kernel that runs.
fn version(system: &System) -> Option<(u32, u32)> {
    let text = system.read("/proc/sys/kernel/osrelease")?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn kernel(version: Option<(u32, u32)>) -> Finding {
    let Some(version @ (major, minor)) = version else {
        return Finding::better("kernel", "its version is not told", "mount /proc: mount -t proc proc /proc");
    };
    let found = format!("Linux {major}.{minor}");
    let lacks: Vec<String> = LATER
        .iter()
        .filter(|(since, _)| version < *since)
        .map(|((major, minor), what)| format!("{what} ({major}.{minor})"))
        .collect();
    if version < LEAST {
        let remedy = format!("run Linux {}.{} or later", LEAST.0, LEAST.1);
        return Finding::stops("kernel", format!("{found} speaks too old a FUSE"), remedy);
    }
    if lacks.is_empty() {
        return Finding::good("kernel", format!("{found} has all that narufs uses"));
    }
    let age = if version < LEAST_TESTED { " is older than any that narufs is tested with, and" } else { "" };
    Finding::better("kernel", format!("{found}{age} lacks {}", lacks.join(", ")), "a later one has that")
}

fn device(seen: &Seen) -> Finding {
    match &seen.fuse {
        Ok(()) => Finding::good("/dev/fuse", "can be opened"),
        Err(why) => Finding::stops(
            "/dev/fuse",
            why,
            "`modprobe fuse` loads the module; in a container, let it have the device",
        ),
    }
}

fn helper(seen: &Seen) -> Finding {
    let about = "fusermount3";
    let remedy = "`apt-get install fuse3`";
    match seen.helper {
        Some(true) => Finding::good(about, "is there: users mount and unmount with it"),
        Some(false) if seen.by_root => {
            Finding::better(about, "is not set-user-id: only root mounts", "`chmod u+s` it, if others are to")
        }
        Some(false) => {
            Finding::stops(about, "is not set-user-id: only root mounts", "as root, `chmod u+s` it")
        }
        None if seen.by_root => Finding::better(about, "is missing: only root mounts", remedy),
        None => Finding::stops(about, "is missing: only root mounts", format!("as root, {remedy}")),
    }
}

/// Whether requests may come through io_uring.
fn uring(system: &System, version: Option<(u32, u32)>) -> Option<Finding> {
    let about = "fuse io_uring";
    match system.read("/sys/module/fuse/parameters/enable_uring").as_deref() {
        Some("Y" | "1") => Some(Finding::good(
            about,
            "requests may come through io_uring; those of mounts that outlive their server come through /dev/fuse",
        )),
        Some(_) => Some(Finding::better(
            about,
            "off: requests come through /dev/fuse",
            "`echo Y >/sys/module/fuse/parameters/enable_uring`, and `options fuse enable_uring=1` in \
             /etc/modprobe.d/narufs.conf for good; not for mounts that outlive their server",
        )),
        // Older kernels are told of elsewhere.
        None if version.is_some_and(|version| version < (6, 14)) => None,
        None => Some(Finding::better(
            about,
            "this kernel offers none to FUSE",
            "`modprobe fuse` if it is not loaded; else a kernel with CONFIG_FUSE_IO_URING",
        )),
    }
}

/// Whether the server's own I/O may go through io_uring.
fn own_uring(system: &System) -> Option<Finding> {
    let about = "io_uring";
    match system.number("/proc/sys/kernel/io_uring_disabled")? {
        0 => Some(Finding::good(about, "the server may use it for the image")),
        how => Some(Finding::better(
            about,
            format!("kernel.io_uring_disabled is {how}: image I/O may have to go by pread and pwrite"),
            "`sysctl kernel.io_uring_disabled=0`",
        )),
    }
}

fn timeouts(system: &System) -> Option<Finding> {
    let dir = "/proc/sys/fs/fuse";
    let about = "time-outs";
    if let Some(warning) = pause::warning_of(&system.at(dir)) {
        let (found, remedy) = warning.split_once("; ").unwrap_or((&warning, ""));
        return Some(Finding::better(about, found, remedy));
    }
    let told = ["max_request_timeout", "default_request_timeout"]
        .map(|name| Some((name, system.number(&format!("{dir}/{name}"))?)));
    let told: Vec<String> =
        told.into_iter().flatten().map(|(name, seconds)| format!("fs.fuse.{name} is {seconds}")).collect();
    (!told.is_empty())
        .then(|| Finding::good(about, format!("none below what a restart takes: {}", told.join(", "))))
}

fn shared_memory(seen: &Seen) -> Finding {
    let about = "/dev/shm";
    let grow = "`mount -o remount,size=1G /dev/shm`, or images with a smaller journal (mkfs --journal-size)";
    match seen.shared {
        None | Some((0, _)) => Finding::stops(
            about,
            "is not there: the journal is staged in it",
            "mount it: `mount -t tmpfs shm /dev/shm`",
        ),
        Some((size, free)) => {
            let found = format!("{} free of {}", Size(free), Size(size));
            if free < USUAL_RING {
                let found = format!("{found}; the journal of a usual image takes {} of it", Size(USUAL_RING));
                return Finding::better(about, found, grow);
            }
            Finding::good(about, found)
        }
    }
}

fn memory(system: &System, seen: &Seen) -> Finding {
    let about = "memory";
    let line = |name: &str| {
        let text = system.read("/proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?.to_owned();
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    let (machine, free) = (line("MemTotal:"), line("MemAvailable:"));
    let files = (seen.memory / 4).min(4 << 30);
    let metadata = (seen.memory / 16).clamp(64 << 20, 1 << 30);
    let limit = match machine {
        Some(machine) if seen.memory < machine => {
            format!("control groups leave {} of {}", Size(seen.memory), Size(machine))
        }
        _ => format!("{}, limited by no control group", Size(seen.memory)),
    };
    let takes =
        format!("{limit}; a mount takes up to {} for files and {} for metadata", Size(files), Size(metadata));
    if seen.memory < LITTLE_MEMORY {
        return Finding::better(
            about,
            takes,
            "raise the limit (memory.max), or mount with -o memory=SIZE,metadata_memory=SIZE",
        );
    }
    match free {
        Some(free) if free < files + metadata => {
            let found = format!("{takes}, and {} are available now", Size(free));
            Finding::better(about, found, "mount with -o memory=SIZE, or end something else")
        }
        _ => Finding::good(about, takes),
    }
}

/// Whether mounts may outlive their server, and all their processes.
fn supervision(system: &System, version: Option<(u32, u32)>) -> Finding {
    let about = "supervision";
    if version.is_some_and(|version| version < RESENDS) {
        let found = "this kernel does not send requests again: a mount ends with its server";
        return Finding::better(about, found, "Linux 6.9 or later has another follow it");
    }
    if !system.at("/run/systemd/system").is_dir() {
        let found = "a mount outlives its server; systemd, which would keep it beyond all of its processes, does not run";
        return Finding::good(about, found);
    }
    let units = [
        "/etc/systemd/system",
        "/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/usr/local/lib/systemd/system",
    ];
    if units.iter().any(|dir| system.at(&format!("{dir}/narufs@.service")).exists()) {
        return Finding::good(about, "systemd keeps mounts of narufs@.service beyond all of their processes");
    }
    Finding::better(
        about,
        "the unit narufs@.service is not installed",
        "`make install` lays it, and so does the package",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{self, Better, Good, Stops};
    use super::super::fake::{about, system};
    use super::*;

    fn seen() -> Seen {
        Seen {
            by_root: true,
            memory: 8 << 30,
            shared: Some((4 << 30, 4 << 30)),
            fuse: Ok(()),
            helper: Some(true),
        }
    }

    fn looked_at(files: &[(&str, &str)], seen: &Seen) -> Vec<Finding> {
        let (system, _dir) = system(files);
        findings(&system, seen)
    }

    fn says(found: (Verdict, String), verdict: Verdict, words: &[&str]) {
        assert_eq!(found.0, verdict, "{found:?}");
        assert!(words.iter().all(|word| found.1.contains(word)), "{words:?}: {found:?}");
    }

    #[test]
    fn a_kernel_is_told_by_what_it_lacks() {
        for (release, verdict, words) in [
            ("6.18.2-amd64\n", Good, &["Linux 6.18"][..]),
            ("6.9.0", Better, &["bounds for waiting", "io_uring (6.14)"]),
            ("6.1.0-31-amd64", Better, &["direct writes", "outlive", "(6.9)"]),
            ("5.10.0", Better, &["older than any"]),
            ("4.19.0", Stops, &["5.4"]),
            ("some words", Better, &["not told"]),
        ] {
            let found = looked_at(&[("proc/sys/kernel/osrelease", release)], &seen());
            says(about(&found, "kernel"), verdict, words);
        }
        let found = looked_at(&[("proc/sys/kernel/osrelease", "6.1.0")], &seen());
        says(about(&found, "supervision"), Better, &["6.9"]);
        assert!(found.iter().all(|finding| finding.about != "fuse io_uring"), "{found:?}");
    }

    #[test]
    fn switches_of_the_kernel_are_told_with_what_turns_them() {
        let switch = "sys/module/fuse/parameters/enable_uring";
        let release = ("proc/sys/kernel/osrelease", "6.18.0");
        for (text, verdict) in [("Y\n", Good), ("N\n", Better)] {
            let found = looked_at(&[release, (switch, text)], &seen());
            says(about(&found, "fuse io_uring"), verdict, &["/dev/fuse"]);
        }
        says(about(&looked_at(&[release], &seen()), "fuse io_uring"), Better, &["CONFIG_FUSE_IO_URING"]);
        for (text, verdict) in [("0", Good), ("2", Better)] {
            let found = looked_at(&[("proc/sys/kernel/io_uring_disabled", text)], &seen());
            says(about(&found, "io_uring"), verdict, &[]);
        }
        let bound = "proc/sys/fs/fuse/max_request_timeout";
        says(about(&looked_at(&[(bound, "5")], &seen()), "time-outs"), Better, &["is 5 s", "set it to 0"]);
        says(about(&looked_at(&[(bound, "0")], &seen()), "time-outs"), Good, &["max_request_timeout is 0"]);
    }

    #[test]
    fn what_is_missing_stops_whom_it_stops() {
        let root = Seen { helper: None, fuse: Err("No such file".into()), shared: None, ..seen() };
        let found = looked_at(&[], &root);
        says(about(&found, "/dev/fuse"), Stops, &["modprobe fuse"]);
        says(about(&found, "fusermount3"), Better, &["apt-get install fuse3"]);
        says(about(&found, "/dev/shm"), Stops, &["mount -t tmpfs"]);
        let user = Seen { by_root: false, helper: None, ..seen() };
        says(about(&looked_at(&[], &user), "fusermount3"), Stops, &["as root"]);
        let user = Seen { by_root: false, helper: Some(false), ..seen() };
        says(about(&looked_at(&[], &user), "fusermount3"), Stops, &["set-user-id"]);
    }

    #[test]
    fn memory_and_its_limits_are_told_beside_what_a_mount_takes() {
        let meminfo = |total: u64, free: u64| {
            format!("MemTotal: {} kB\nMemAvailable: {} kB\n", total >> 10, free >> 10)
        };
        for (memory, total, free, verdict, words) in [
            (8 << 30, 8 << 30, 8 << 30, Good, "limited by no control group"),
            (1 << 30, 8 << 30, 8 << 30, Good, "control groups leave 1.0 GiB of 8.0 GiB"),
            (256 << 20, 8 << 30, 8 << 30, Better, "memory.max"),
            (8 << 30, 8 << 30, 1 << 30, Better, "1.0 GiB are available"),
        ] {
            let found = looked_at(&[("proc/meminfo", &meminfo(total, free))], &Seen { memory, ..seen() });
            says(about(&found, "memory"), verdict, &[words]);
        }
        let shared = Some((64 << 20, 60 << 20));
        let found = looked_at(&[], &Seen { shared, ..seen() });
        says(about(&found, "/dev/shm"), Better, &["60.0 MiB free of 64.0 MiB", "remount"]);
    }

    #[test]
    fn a_unit_is_looked_for_where_systemd_runs() {
        let (release, runs) = (("proc/sys/kernel/osrelease", "6.18.0"), ("run/systemd/system/x", ""));
        says(about(&looked_at(&[release], &seen()), "supervision"), Good, &["does not run"]);
        says(about(&looked_at(&[release, runs], &seen()), "supervision"), Better, &["not installed"]);
        let unit = ("lib/systemd/system/narufs@.service", "");
        says(about(&looked_at(&[release, runs, unit], &seen()), "supervision"), Good, &["keeps mounts"]);
    }
}
