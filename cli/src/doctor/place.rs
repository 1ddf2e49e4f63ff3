//! What lies below an image, or below a directory for one: a file system, and a device with its cache.

use super::latency::{self, Times};
use super::{Finding, System, staging};
use crate::info;
use crate::size::Size;
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::format::{JournalKind, SLOT_SIZE, STATE_CLEAN, STATE_DAMAGED, STATE_MOUNTED};
use narufs_engine::mkfs::{Held, held};
use narufs_engine::volume::{Staged, staging_of};
use rustix::fs::{major, minor, statfs};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// A flush that takes longer is worth an option that does not wait for it.
const SLOW_FLUSH: Duration = Duration::from_millis(5);
/// No medium that keeps anything answers a flush as quickly.
const QUICK_FLUSH: Duration = Duration::from_micros(5);

/// File systems by the numbers that statfs(2) gives, with what is to be said of an image on them.
const FILE_SYSTEMS: [(u64, &str, Option<&str>); 14] = [
    (0xef53, "ext4", None),
    (0x5846_5342, "xfs", None),
    (0xf2f5_2010, "f2fs", None),
    (
        0x9123_683e,
        "btrfs",
        Some(
            "copies each block that is written anew: `chattr +C` its directory before mkfs, or use a device",
        ),
    ),
    (0xca45_1a4e, "bcachefs", Some("copies each block that is written anew: use a device")),
    (0x2fc1_2fc1, "zfs", Some("copies each block that is written anew: use a volume (zvol)")),
    (
        0x0102_1994,
        "tmpfs",
        Some("is lost with the machine, whatever fsync says: use a disk, or narufs mount --scratch"),
    ),
    (
        0x8584_58f6,
        "ramfs",
        Some("is lost with the machine, whatever fsync says: use a disk, or narufs mount --scratch"),
    ),
    (0x6969, "nfs", Some("waits for a network, and two machines may open one image: use a local disk")),
    (0xff53_4d42, "cifs", Some("waits for a network, and two machines may open one image: use a local disk")),
    (0xfe53_4d42, "smb2", Some("waits for a network, and two machines may open one image: use a local disk")),
    (0x0102_1997, "9p", Some("goes through another file system on the host: use a disk of this machine")),
    (
        0x6573_5546,
        "fuse",
        Some(
            "is a file system in user space itself, and each write goes through two: use a disk of this machine",
        ),
    ),
    (
        0x794c_7630,
        "overlayfs",
        Some(
            "is a layer over others: put the image where a file system is mounted itself (a volume of the container)",
        ),
    ),
];

/// What is to be said of a place, which is an image, a block device, or a directory.
pub(super) fn findings(system: &System, place: &Path, writes: bool) -> io::Result<Vec<Finding>> {
    let of = place.metadata()?;
    let is_device = of.file_type().is_block_device();
    let mut findings = Vec::new();
    if !of.is_dir() {
        findings.extend(image(place));
    }
    if of.is_file() {
        findings.push(space(&of));
    }
    if !is_device {
        findings.push(file_system(u64::from_ne_bytes(statfs(place)?.f_type.to_ne_bytes())));
    }
    findings.extend(device(system, if is_device { of.rdev() } else { of.dev() }));
    let beside = if of.is_dir() {
        place
    } else {
        place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
    };
    let times = match (is_device, writes) {
        (false, _) => latency::of_directory(beside),
        (true, false) => latency::of_reads(place),
        (true, true) => latency::of_device(place),
    };
    findings.extend(match times {
        Ok(times) => latencies(&times),
        Err(e) => vec![Finding::better("latency", format!("was not measured: {e}"), remedy(&e, is_device))],
    });
    Ok(findings)
}

fn remedy(e: &io::Error, is_device: bool) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EBUSY) => "unmount what uses it, or leave --write away",
        Some(libc::EACCES | libc::EPERM) => "run this as root",
        _ if is_device => "see whether the device can be read",
        _ => "put the image on a local file system that can be written",
    }
}

/// What is to be done with what cannot be taken for an image: one that is damaged or cut short is still somebody's.
fn no_image(place: &Path, held: Held, why: String) -> Finding {
    let (about, name) = ("image", place.display());
    match held {
        Held::Image => {
            let remedy =
                format!("`narufs fsck {name}` says more; what is missing at its end may still be had");
            Finding::stops(about, why, remedy)
        }
        Held::Nothing => Finding::better(about, why, format!("`narufs mkfs {name}` makes one")),
        Held::Other => Finding::better(
            about,
            why,
            format!("`narufs mkfs --force {name}` makes one, and takes all from it"),
        ),
    }
}

/// What the image is, and whether its journal has room in shared memory.
fn image(place: &Path) -> Vec<Finding> {
    let about = "image";
    let sb = match info::read(place) {
        Ok(sb) => sb,
        Err(why) => {
            return vec![match held(place) {
                Ok(held) => no_image(place, held, why),
                Err(e) => Finding::better(about, format!("cannot be read: {e}"), remedy(&e, true)),
            }];
        }
    };
    let size = Size(sb.blocks.get() * BLOCK_SIZE as u64);
    let mut findings = vec![match sb.state.get() {
        STATE_CLEAN => Finding::good(about, format!("{size}, unmounted cleanly")),
        STATE_DAMAGED => Finding::stops(
            about,
            "is damaged: it is served read-only",
            format!("`narufs fsck --repair {}`", place.display()),
        ),
        _ => Finding::good(about, format!("{size}, mounted, or to be recovered by the next mount")),
    }];
    let shared = rustix::fs::statvfs("/dev/shm").ok();
    let shared = shared.map(|of| (of.f_blocks * of.f_frsize, of.f_bavail * of.f_frsize));
    if matches!(JournalKind::from_u32(sb.journal_kind.get()), Some(JournalKind::Ssd)) {
        let staged = staging_of(place, sb.uuid).unwrap_or(Staged::Nothing);
        findings.extend(room(&staged, sb.ring_slots.get() * SLOT_SIZE as u64, shared));
        if sb.state.get() == STATE_MOUNTED {
            findings.extend(staging::of_unclean(&staged));
        }
    }
    findings
}

/// Whether the image's ring has room where it is staged, which has such a size and so much free.
fn room(staged: &Staged, ring: u64, shared: Option<(u64, u64)>) -> Option<Finding> {
    let about = "journal";
    // What it had at its last mount is there still.
    if matches!(staged, Staged::Own(_)) {
        return None;
    }
    let (size, free) = shared?;
    let found = format!("takes {} of /dev/shm while mounted", Size(ring));
    if free >= ring {
        return Some(Finding::good(about, found));
    }
    let enough = (size - free.min(size) + ring).next_multiple_of(64 << 20) >> 20;
    let found = format!("{found}, which has {} free", Size(free));
    Some(Finding::stops(about, found, format!("`mount -o remount,size={enough}M /dev/shm`")))
}

/// Whether the file has its blocks.
fn space(of: &Metadata) -> Finding {
    let (size, has) = (of.size(), of.blocks() * 512);
    if has >= size {
        return Finding::good("space", format!("all {} of the file are allocated", Size(size)));
    }
    Finding::better(
        "space",
        format!("{} of {} are allocated: a full file system below fails writes", Size(has), Size(size)),
        format!("`fallocate -l {size} IMAGE`, while it is not mounted"),
    )
}

fn file_system(number: u64) -> Finding {
    let about = "below";
    match FILE_SYSTEMS.iter().find(|(known, ..)| *known == number) {
        Some((_, name, None)) => Finding::good(about, format!("{name}, which suits an image")),
        Some((_, name, Some(said))) => {
            let (found, remedy) = said.split_once(": ").unwrap_or((said, ""));
            Finding::better(about, format!("{name} {found}"), remedy)
        }
        None => Finding::good(about, format!("a file system that is not known here (type {number:#x})")),
    }
}

/// The device that has this number, by what the kernel shows of its queue.
fn device(system: &System, number: u64) -> Vec<Finding> {
    let (about, cache) = ("device", "cache");
    let number = format!("{}:{}", major(number), minor(number));
    let dir = format!("/sys/dev/block/{number}");
    if !system.at(&dir).exists() {
        return vec![Finding::good(
            about,
            format!("{number} is no block device: the kernel shows no queue of it"),
        )];
    }
    // A partition has the queue of its disk, which its link leads through.
    let queue =
        [format!("{dir}/queue"), format!("{dir}/../queue")].into_iter().find(|dir| system.at(dir).is_dir());
    let Some(queue) = queue else { return vec![Finding::good(about, format!("{number} shows no queue"))] };
    let file = |name: &str| system.read(&format!("{queue}/{name}"));
    let name = system.at(&dir).canonicalize().ok();
    let name = name
        .as_deref()
        .and_then(Path::file_name)
        .map_or(number.clone(), |name| name.to_string_lossy().into_owned());
    let mut findings = Vec::new();
    if system.read(&format!("{dir}/ro")).as_deref() == Some("1") {
        findings.push(Finding::stops(
            about,
            format!("{name} is read-only"),
            "`blockdev --setrw`, or mount with -o ro",
        ));
    } else {
        // Virtual disks often say so too: how long a flush takes decides.
        let turns = file("rotational").as_deref() == Some("1");
        findings.push(Finding::good(about, name + if turns { ", turning by its own words" } else { "" }));
    }
    let fua = file("fua").as_deref() == Some("1");
    findings.extend(file("write_cache").map(|mode| match (mode.as_str(), fua) {
        ("write through", _) => Finding::good(
            cache,
            "no volatile write cache: what is written is durable, and a flush costs nothing",
        ),
        (_, true) => Finding::good(
            cache,
            format!("{mode}, with forced unit access: a commit needs no flush of everything"),
        ),
        _ => {
            Finding::good(cache, format!("{mode}, without forced unit access: each commit flushes the cache"))
        }
    }));
    findings
}

fn latencies(times: &Times) -> Vec<Finding> {
    let of = |name: &str, times: &[Duration]| latency::summary(times).map(|text| format!("{name} {text}"));
    let mut findings: Vec<Finding> = [("read", &times.reads), ("write", &times.writes)]
        .into_iter()
        .filter_map(|(name, times)| of("4 KiB take", times).map(|found| Finding::good(name, found)))
        .collect();
    let Some(found) = of("takes", &times.flushes) else { return findings };
    let about = "flush";
    findings.push(match latency::median(&times.flushes) {
        Some(slow) if slow > SLOW_FLUSH => Finding::better(
            about,
            format!("{found}; each fsync waits for one"),
            "-o durability=window=100ms, where the last moments may be lost; a device whose cache survives a loss of power",
        ),
        Some(quick) if quick < QUICK_FLUSH => Finding::better(
            about,
            format!("{found}: nothing that survives a loss of power is as quick"),
            "see whether the host, or a layer below, ignores flushes (cache=unsafe)",
        ),
        _ => Finding::good(about, found),
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Better, Good, Stops};
    use super::super::fake::{about, system};
    use super::*;

    #[test]
    fn a_device_is_told_of_by_its_queue() {
        let number = rustix::fs::makedev(259, 3);
        let at = |name: &str| format!("sys/dev/block/259:3/{name}");
        for (rotational, ro, cache, fua, expected, words) in [
            ("0", "0", "write back", "1", Good, "with forced unit access"),
            ("0", "0", "write back", "0", Good, "without forced unit access"),
            ("0", "0", "write through", "0", Good, "no volatile write cache"),
            ("1", "0", "write back", "0", Good, "without forced unit access"),
            ("0", "1", "write back", "0", Stops, "without forced unit access"),
        ] {
            let files = [
                (at("ro"), ro),
                (at("queue/rotational"), rotational),
                (at("queue/write_cache"), cache),
                (at("queue/fua"), fua),
            ];
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let (system, _dir) = system(&files);
            let found = device(&system, number);
            assert_eq!(about(&found, "device").0, expected, "{found:?}");
            let (verdict, said) = about(&found, "cache");
            assert!(verdict == Good && said.contains(words), "{said}");
        }
        let (system, _dir) = system(&[]);
        let found = device(&system, number);
        assert!(about(&found, "device").1.contains("259:3 is no block device"), "{found:?}");
    }

    #[test]
    fn a_partition_has_the_queue_of_its_disk() {
        let (system, dir) = system(&[
            ("sys/block/nvme0n1/queue/write_cache", "write back"),
            ("sys/block/nvme0n1/queue/rotational", "0"),
            ("sys/block/nvme0n1/nvme0n1p3/ro", "0"),
        ]);
        let links = dir.path().join("sys/dev/block");
        std::fs::create_dir_all(&links).expect("room");
        let disk = dir.path().join("sys/block/nvme0n1/nvme0n1p3");
        std::os::unix::fs::symlink(disk, links.join("259:3")).expect("a link");
        let found = device(&system, rustix::fs::makedev(259, 3));
        assert_eq!(about(&found, "device"), (Good, "nvme0n1p3 ".to_owned()));
        assert!(about(&found, "cache").1.contains("write back"), "{found:?}");
    }

    #[test]
    fn file_systems_below_are_told_apart() {
        let found = |number| about(&[file_system(number)], "below");
        assert_eq!(found(0xef53), (Good, "ext4, which suits an image ".to_owned()));
        let btrfs = found(0x9123_683e);
        assert!(btrfs.0 == Better && btrfs.1.contains("chattr +C"), "{btrfs:?}");
        assert!(found(1).1.contains("0x1"));
        for (number, name, said) in FILE_SYSTEMS {
            assert!(said.is_none_or(|said| said.contains(": ")), "{name} has no remedy ({number})");
        }
    }

    #[test]
    fn a_file_with_holes_may_run_out_of_room() {
        let file = tempfile::tempfile().expect("room");
        file.set_len(1 << 20).expect("room");
        let (verdict, said) = about(&[space(&file.metadata().expect("it is open"))], "space");
        assert!(verdict == Better && said.contains("fallocate -l 1048576"), "{said}");
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; 1 << 20], 0).expect("room");
        file.sync_all().expect("room");
        assert_eq!(about(&[space(&file.metadata().expect("it is open"))], "space").0, Good);
    }

    #[test]
    fn a_journal_needs_room_in_shared_memory() {
        let room = |staged, free| room(staged, 256 << 20, Some((320 << 20, free)));
        let found = |free| about(&[room(&Staged::Nothing, free).expect("it has a ring")], "journal");
        let own = Staged::Own("/dev/shm/narufs".into());
        assert!(room(&own, 0).is_none(), "it has its room");
        assert_eq!(found(256 << 20).0, Good);
        let (verdict, said) = found(128 << 20);
        assert!(verdict == Stops && said.contains("size=448M"), "{said}");
    }

    #[test]
    fn flushes_that_are_slow_or_too_quick_are_told_of() {
        for (flush, verdict, words) in [
            (Duration::from_micros(800), Good, "takes 0.80 ms"),
            (Duration::from_millis(12), Better, "durability=window"),
            (Duration::from_micros(1), Better, "cache=unsafe"),
        ] {
            let times = Times { writes: vec![flush; 9], flushes: vec![flush; 9], ..Times::default() };
            let found = latencies(&times);
            let flush = about(&found, "flush");
            assert!(flush.0 == verdict && flush.1.contains(words), "{flush:?}");
            assert_eq!(about(&found, "write").0, Good);
        }
        assert!(latencies(&Times::default()).is_empty());
    }
}
