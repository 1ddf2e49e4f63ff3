//! What a live mount has: what was agreed on with the kernel, who follows its server, what it promises.

use super::{Finding, System};
use crate::size::Size;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};

/// What the kernel can grant, by its names, and what a mount without it lacks.
const GRANTED: [(&str, &str); 6] = [
    ("NO_OPEN_SUPPORT", "opens and closes without a request"),
    ("CACHE_SYMLINKS", "links that the kernel keeps"),
    ("HANDLE_KILLPRIV_V2", "set-user-id bits that the server takes away"),
    ("CREATE_SUPP_GROUP", "groups of the caller with what is made (Linux 6.3)"),
    ("HAS_EXPIRE_ONLY", "names that expire by themselves (Linux 6.2)"),
    ("HAS_RESEND", "requests that a next server is sent again (Linux 6.9)"),
];

/// What is to be said of what is mounted at or above `dir`, and the image below it; `None`: it is not narufs.
pub(super) fn findings(system: &System, dir: &Path) -> io::Result<Option<(Vec<Finding>, Option<PathBuf>)>> {
    if narufs_fuse::mount::is_dead(dir) {
        let remedy = format!("`narufs umount {}`, or mount it again", dir.display());
        return Ok(Some((
            vec![Finding::stops("mount", "its server has ended, and nobody follows it", remedy)],
            None,
        )));
    }
    if !dir.metadata()?.is_dir() {
        return Ok(None);
    }
    // Any other file system does not know the question.
    let Ok(json) = narufs_fuse::control::stats(dir) else { return Ok(None) };
    let stats: Value = serde_json::from_str(&json).map_err(io::Error::other)?;
    let source =
        system.read("/proc/self/mountinfo").and_then(|mounts| source(&mounts, &dir.canonicalize().ok()?));
    Ok(Some((of(system, &stats, dir), source.filter(|image| image.exists()))))
}

fn of(system: &System, stats: &Value, dir: &Path) -> Vec<Finding> {
    let text = |path: &str| stats.pointer(path).and_then(Value::as_str).unwrap_or("");
    let number = |path: &str| stats.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let is_scratch = stats["scratch"] == true;
    let mut findings = vec![agreed(stats)];
    if let Some(why) = stats["read_only"].as_str() {
        findings.push(Finding::stops(
            "state",
            format!("read-only: {why}"),
            format!("`narufs umount {}`, then `narufs fsck --repair IMAGE`", dir.display()),
        ));
    }
    findings.push(match number("/supervisor_pid") {
        _ if is_scratch => {
            Finding::good("server", "scratch space: it ends with its server, and its files with it")
        }
        0 => Finding::better(
            "server",
            "the mount ends with its server",
            "mount without supervise=no and transport=uring, on Linux 6.9 or later",
        ),
        pid if in_unit(system, pid) => Finding::good(
            "server",
            "is followed by another, and systemd keeps the mount beyond all of its processes",
        ),
        pid => {
            let found = format!(
                "is followed by another, which process {pid} starts; both killed at once end the mount"
            );
            Finding::better("server", found, "have systemd keep it: narufs@.service")
        }
    });
    findings.extend(hardening(&stats["hardening"]));
    if !is_scratch {
        findings.push(match (text("/durability"), text("/journal_kind")) {
            (_, "emulated") => Finding::better(
                "durability",
                "the journal is emulated: fsync survives the server's end, not the machine's",
                "for anything but experiments make the image without --journal-emulated",
            ),
            ("process", _) => Finding::better(
                "durability",
                "process: fsync survives the server's end, not the machine's",
                "mount with -o durability=power, or window=100ms",
            ),
            ("", _) => Finding::good("durability", "as its server has it"),
            (durability, _) => Finding::good("durability", durability),
        });
    }
    let (block, blocks, free) =
        (number("/room/block_size"), number("/room/blocks"), number("/room/blocks_free"));
    let room = format!("{} free of {}", Size(free * block), Size(blocks * block));
    findings.push(if free < blocks / 20 {
        Finding::better("room", room, "`narufs resize DIR +SIZE`, or remove something")
    } else {
        Finding::good("room", room)
    });
    findings
}

/// What its server has given up; a server from before it could has no word of it.
fn hardening(given_up: &Value) -> Option<Finding> {
    if !given_up["asked"].as_bool()? {
        return Some(Finding::better(
            "hardening",
            "off: what gets hold of the server has all that who mounted may do",
            "mount without harden=no",
        ));
    }
    let is = |name: &str| given_up[name] == true;
    let parts = [
        (is("no_capabilities") && is("no_new_privileges"), "capabilities"),
        (given_up["landlock"].as_u64() > Some(0), "other files"),
        (is("seccomp"), "other system calls"),
    ];
    let listed = |done: bool| {
        let names = parts.iter().filter(|(is_done, _)| *is_done == done).map(|(_, name)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (done, kept) = (listed(true), listed(false));
    Some(match (done.as_str(), kept.as_str()) {
        (done, "") => Finding::good("hardening", format!("the server has given up {done}")),
        ("", _) => Finding::stops(
            "hardening",
            "was asked for, and nothing of it is in force",
            "its log says why; mount it anew, or with harden=no if that is what you want",
        ),
        (done, kept) => Finding::better(
            "hardening",
            format!("the server has given up {done}; it keeps {kept}"),
            "a kernel with Landlock (Linux 5.13, with landlock in /sys/kernel/security/lsm) and seccomp",
        ),
    })
}

fn agreed(stats: &Value) -> Finding {
    let minor = stats["protocol_minor"].as_u64().unwrap_or(0);
    let transport = if stats["transport"] == "uring" { "io_uring" } else { "/dev/fuse" };
    if minor == 0 {
        return Finding::better(
            "mount",
            "its server is older than this program",
            "`narufs upgrade DIR` has this one serve it",
        );
    }
    let has = |name: &str| {
        stats["protocol_features"].as_array().is_some_and(|names| names.iter().any(|n| n == name))
    };
    let lacks: Vec<&str> = GRANTED.iter().filter(|(name, _)| !has(name)).map(|(_, what)| *what).collect();
    let found = format!("FUSE 7.{minor} through {transport}");
    if lacks.is_empty() {
        return Finding::good("mount", format!("{found}, with all that narufs asks for"));
    }
    Finding::better("mount", format!("{found}, without {}", lacks.join(", ")), "a later kernel has that")
}

/// Whether a process belongs to a mount's unit.
fn in_unit(system: &System, process: u64) -> bool {
    let groups = system.read(&format!("/proc/{process}/cgroup")).unwrap_or_default();
    groups.lines().any(|line| line.contains("/narufs@"))
}

/// What is mounted at the place that this path is in, by the kernel's table.
fn source(mounts: &str, path: &Path) -> Option<PathBuf> {
    let mounts = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = PathBuf::from(plain(before.split(' ').nth(4)?));
        let mut after = after.split(' ');
        (path.starts_with(&point)).then_some((point, after.next()?, after.next()?))
    });
    // Of those at one place the last covers the others.
    let (_, kind, source) = mounts.max_by_key(|(point, ..)| point.components().count())?;
    (kind == "fuse.narufs").then(|| PathBuf::from(plain(source)))
}

/// The kernel writes blanks, tabs, line ends and backslashes as numbers.
fn plain(word: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(word.to_owned(), |word, (from, to)| word.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Better, Good, Stops};
    use super::super::fake::{about, system};
    use super::*;

    fn stats() -> Value {
        serde_json::json!({
            "transport": "dev", "protocol_minor": 45, "supervisor_pid": 7, "durability": "power", "journal_kind": "ssd",
            "protocol_features": GRANTED.map(|(name, _)| name),
            "room": {"block_size": 4096, "blocks": 1000, "blocks_free": 900},
            "hardening": given_up(true, 7),
        })
    }

    fn given_up(is_asked: bool, landlock: u32) -> Value {
        serde_json::json!({
            "asked": is_asked, "no_capabilities": is_asked, "no_new_privileges": is_asked, "seccomp": is_asked,
            "landlock": landlock, "broker_pid": 8,
        })
    }

    fn looked_at(change: (&str, Value), group: &str) -> Vec<Finding> {
        let (system, _dir) = system(&[("proc/7/cgroup", group)]);
        let mut stats = stats();
        stats[change.0] = change.1;
        of(&system, &stats, Path::new("/mnt"))
    }

    #[test]
    fn a_mount_is_told_of_by_what_it_lacks() {
        let unit = "0::/system.slice/narufs@mnt-naru.service\n";
        let fine = looked_at(("x", 0.into()), unit);
        assert!(fine.iter().all(|finding| finding.verdict == Good), "{fine:?}");
        for (change, word, verdict, words) in [
            (("supervisor_pid", 0.into()), "server", Better, "without supervise=no"),
            (("scratch", true.into()), "server", Good, "scratch"),
            (("protocol_features", serde_json::json!(["HAS_RESEND"])), "mount", Better, "opens and closes"),
            (("protocol_minor", Value::Null), "mount", Better, "narufs upgrade"),
            (("transport", "uring".into()), "mount", Good, "io_uring"),
            (("durability", "process".into()), "durability", Better, "durability=power"),
            (("journal_kind", "emulated".into()), "durability", Better, "experiments"),
            (("read_only", "damage".into()), "state", Stops, "fsck --repair"),
            (("x", 0.into()), "hardening", Good, "given up capabilities, other files, other system calls"),
            (("hardening", given_up(true, 0)), "hardening", Better, "it keeps other files"),
            (("hardening", given_up(false, 0)), "hardening", Better, "without harden=no"),
            (("hardening", serde_json::json!({"asked": true})), "hardening", Stops, "its log"),
            (
                ("room", serde_json::json!({"block_size": 4096, "blocks": 1000, "blocks_free": 9})),
                "room",
                Better,
                "resize",
            ),
        ] {
            let found = about(&looked_at(change, unit), word);
            assert!(found.0 == verdict && found.1.contains(words), "{words}: {found:?}");
        }
        let earlier = looked_at(("hardening", Value::Null), unit);
        assert!(earlier.iter().all(|finding| finding.about != "hardening"), "{earlier:?}");
        let alone = about(&looked_at(("x", 0.into()), "0::/user.slice\n"), "server");
        assert!(alone.0 == Better && alone.1.contains("narufs@.service"), "{alone:?}");
    }

    #[test]
    fn the_image_of_a_mount_is_found_in_the_kernel_s_table() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            90 22 0:50 / /mnt/a\\040b rw,nosuid shared:4 - fuse.narufs /var/an\\040image rw\n\
            91 22 0:51 / /mnt/c rw - tmpfs none rw\n a line of something else\n";
        assert_eq!(source(mounts, Path::new("/mnt/a b/deep")), Some("/var/an image".into()));
        assert_eq!(source(mounts, Path::new("/mnt/c")), None);
        assert_eq!(source("", Path::new("/mnt/c")), None);
    }
}
