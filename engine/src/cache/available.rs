//! How much memory this process may use: that of the machine, or what its control groups leave it.
//!
//! A limit of any group on the way from the process's own up to the root holds for the process, so the least one
//! counts. Both versions of the interface are looked at, for a machine may have one, the other, or the memory
//! controller in either while both are mounted. What lies above the mounted part of a hierarchy, as in a
//! container, cannot be looked at; version 1 tells the least limit of those too.
//!
//! `/proc` and the control groups are read, never believed to be well-formed: what is not understood is no limit.
//!
//! What this leaves to others: what part of it is taken.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// If the machine does not tell.
const UNKNOWN: u64 = 1 << 30;
/// More than a machine has that does not tell.
const IMPLAUSIBLE: u64 = 1 << 40;
/// Groups on the way up that are looked at: more than anybody nests.
const MOST_LEVELS: usize = 64;

/// The interface of the memory controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Where a hierarchy shows this process's group.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// The directory of the topmost group that is mounted.
    top: PathBuf,
    /// The directory of the process's own group, `top` or below.
    own: PathBuf,
}

/// Bytes of memory that this process may use.
pub fn available_memory() -> u64 {
    least_memory(&|path| std::fs::read(path).ok())
}

/// More bytes than memory can hold on this machine, whoever may have it: its memory and all that it can swap out, when the
/// process asked for the first time.
pub fn most_memory() -> u64 {
    static MOST: OnceLock<u64> = OnceLock::new();
    *MOST.get_or_init(|| {
        let file = std::fs::read("/proc/meminfo").unwrap_or_default();
        let swap = stated_kib(&file, b"SwapTotal:").unwrap_or(0);
        machine_memory(&file).map_or(IMPLAUSIBLE, |memory| memory.saturating_add(swap))
    })
}

/// The same, of a system whose files are read so.
fn least_memory(read: &dyn Fn(&Path) -> Option<Vec<u8>>) -> u64 {
    let file = |path: &str| read(Path::new(path)).unwrap_or_default();
    let machine = machine_memory(&file("/proc/meminfo")).unwrap_or(UNKNOWN);
    let groups = hierarchies(&file("/proc/self/cgroup"), &file("/proc/self/mountinfo"));
    groups.iter().filter_map(|group| group.limit(read)).fold(machine, u64::min)
}

impl Hierarchy {
    /// The least limit from the own group up.
    fn limit(&self, read: &dyn Fn(&Path) -> Option<Vec<u8>>) -> Option<u64> {
        let of = |dir: &Path, name: &str| read(&dir.join(name));
        let up = self.own.ancestors().take_while(|dir| dir.starts_with(&self.top)).take(MOST_LEVELS);
        let each = up.flat_map(|dir| match self.version {
            Version::V1 => [of(dir, "memory.limit_in_bytes").and_then(|text| number(&text)), None],
            // Above `high` a group is slowed down until it has given memory back.
            Version::V2 => ["memory.max", "memory.high"].map(|name| of(dir, name).and_then(|t| number(&t))),
        });
        let above = match self.version {
            Version::V1 => of(&self.own, "memory.stat").and_then(|text| stated(&text)),
            Version::V2 => None,
        };
        each.flatten().chain(above).min()
    }
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn machine_memory(meminfo: &[u8]) -> Option<u64> {
    stated_kib(meminfo, b"MemTotal:").filter(|bytes| *bytes > 0)
}

/// What a line of `/proc/meminfo` says, in bytes.
fn stated_kib(meminfo: &[u8], name: &[u8]) -> Option<u64> {
    let line = meminfo.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim_ascii().split(u8::is_ascii_whitespace).next()?;
    number(kib)?.checked_mul(1 << 10)
}

/// A number of bytes, alone; `max` is none.
fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// The least limit of a group of version 1 and all above it, as `memory.stat` says.
fn stated(stat: &[u8]) -> Option<u64> {
    let name = b"hierarchical_memory_limit ";
    stat.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name)).and_then(number)
}

/// The hierarchies that may limit memory, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn hierarchies(groups: &[u8], mounts: &[u8]) -> Vec<Hierarchy> {
    let own = |version| groups.split(|byte| *byte == b'\n').find_map(|line| group_path(line, version));
    let (v1, v2) = (own(Version::V1), own(Version::V2));
    let mounts = mounts.split(|byte| *byte == b'\n').filter_map(mounted_hierarchy);
    mounts
        .filter_map(|(version, root, top)| {
            let own = match version {
                Version::V1 => v1.as_ref()?,
                Version::V2 => v2.as_ref()?,
            };
            // A group outside of what is mounted (or of the own namespace) cannot be looked at; the topmost that
            // is mounted may be the own one nevertheless, seen from elsewhere.
            let below = own.strip_prefix(&root).unwrap_or(Path::new(""));
            let own = if is_plain(below) { top.join(below) } else { top.clone() };
            Some(Hierarchy { version, top, own })
        })
        .collect()
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// The path of a line of `/proc/self/cgroup`, `number:controllers:path`, if it is of the memory controller.
fn group_path(line: &[u8], version: Version) -> Option<PathBuf> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let fits = match version {
        Version::V1 => controllers.split(|byte| *byte == b',').any(|name| name == b"memory"),
        Version::V2 => id == b"0" && controllers.is_empty(),
    };
    (fits && path.starts_with(b"/")).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// Of a line of `/proc/self/mountinfo` that mounts control groups which may limit memory: the group that is on top,
/// and where.
fn mounted_hierarchy(line: &[u8]) -> Option<(Version, PathBuf, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (root, point) = (unescaped(fields.nth(3)?), unescaped(fields.next()?));
    // Optional fields end with a lone hyphen.
    fields.find(|field| *field == b"-")?;
    let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
    let version = match kind {
        b"cgroup2" => Version::V2,
        b"cgroup" if options.split(|byte| *byte == b',').any(|option| option == b"memory") => Version::V1,
        _ => return None,
    };
    Some((version, root, point))
}

/// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) = (byte, tail) {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = after;
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const MEMINFO: &str = "MemTotal:       24684084 kB\nMemFree:        21079524 kB\n";
    const MACHINE: u64 = 24_684_084 << 10;
    const V1_MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:1 - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const V2_MOUNTS: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const NO_LIMIT: &str = "9223372036854771712\n";

    /// What a system with these files, beside those in `/proc`, lets the process use.
    fn memory(groups: &str, mounts: &str, files: &[(&str, &str)]) -> u64 {
        let proc =
            [("/proc/meminfo", MEMINFO), ("/proc/self/cgroup", groups), ("/proc/self/mountinfo", mounts)];
        let files: BTreeMap<_, _> =
            proc.iter().chain(files).map(|(path, text)| (Path::new(path), text)).collect();
        least_memory(&|path| files.get(path).map(|text| text.as_bytes().to_vec()))
    }

    #[test]
    fn without_groups_it_is_the_machines() {
        assert_eq!(memory("", "", &[]), MACHINE);
        assert_eq!(memory("0::/\n", V2_MOUNTS, &[]), MACHINE, "the root has no limit");
        assert_eq!(least_memory(&|_| None), UNKNOWN);
        assert!(available_memory() > 0 && available_memory() <= most_memory());
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let groups = "0::/user.slice/app.scope\n";
        let own = "/sys/fs/cgroup/user.slice/app.scope/memory.max";
        let above = "/sys/fs/cgroup/user.slice/memory.max";
        let high = "/sys/fs/cgroup/user.slice/memory.high";
        assert_eq!(memory(groups, V2_MOUNTS, &[(own, "max\n"), (above, "max\n")]), MACHINE);
        assert_eq!(memory(groups, V2_MOUNTS, &[(own, "1073741824\n"), (above, "max\n")]), 1 << 30);
        assert_eq!(memory(groups, V2_MOUNTS, &[(own, "max\n"), (above, "536870912\n")]), 512 << 20);
        assert_eq!(memory(groups, V2_MOUNTS, &[(own, "4096\n"), (above, "536870912\n")]), 4096);
        assert_eq!(memory(groups, V2_MOUNTS, &[(own, "1073741824\n"), (high, "65536\n")]), 65536);
        let others = "/sys/fs/cgroup/system.slice/memory.max";
        assert_eq!(memory(groups, V2_MOUNTS, &[(others, "4096\n")]), MACHINE, "another's group");
    }

    #[test]
    fn version_one_is_found_beside_an_empty_version_two() {
        let groups = "9:name=systemd:/\n5:cpu,memory:/a/b:c\n0::/\n";
        let own = "/sys/fs/cgroup/memory/a/b:c/memory.limit_in_bytes";
        let above = "/sys/fs/cgroup/memory/a/memory.limit_in_bytes";
        let stat = "/sys/fs/cgroup/memory/a/b:c/memory.stat";
        assert_eq!(memory(groups, V1_MOUNTS, &[(own, NO_LIMIT), (above, NO_LIMIT)]), MACHINE);
        assert_eq!(memory(groups, V1_MOUNTS, &[(own, "268435456\n"), (above, NO_LIMIT)]), 256 << 20);
        assert_eq!(memory(groups, V1_MOUNTS, &[(own, NO_LIMIT), (above, "268435456\n")]), 256 << 20);
        let stated = "cache 0\nhierarchical_memory_limit 134217728\nhierarchical_memsw_limit 1\n";
        assert_eq!(memory(groups, V1_MOUNTS, &[(own, "268435456\n"), (stat, stated)]), 128 << 20);
    }

    #[test]
    fn a_container_sees_its_part_of_the_hierarchy() {
        let v1 = "4:memory:/docker/0123\n";
        let mounts = "35 31 0:32 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(memory(v1, mounts, &[(limit, "1048576\n")]), 1 << 20);
        let below = "/sys/fs/cgroup/memory/job/memory.limit_in_bytes";
        assert_eq!(memory("4:memory:/docker/0123/job\n", mounts, &[(below, "8192\n")]), 8192);
        // From outside of the own namespace, or moved away meanwhile.
        let limit = "/sys/fs/cgroup/memory.max";
        for path in ["0::/../../elsewhere\n", "0::/gone (deleted)\n", "0::/a/../../b\n"] {
            assert_eq!(memory(path, V2_MOUNTS, &[(limit, "1048576\n")]), 1 << 20, "{path}");
        }
    }

    #[test]
    fn escaped_mount_points_are_read() {
        let mounts = "30 23 0:26 / /mnt/a\\040b\\134c rw - cgroup2 none rw\n";
        assert_eq!(memory("0::/\n", mounts, &[("/mnt/a b\\c/memory.max", "4096")]), 4096);
        assert_eq!(unescaped(b"\\04\\999\\"), Path::new("\\04\\999\\"));
    }

    #[test]
    fn nonsense_is_no_limit() {
        let own = "/sys/fs/cgroup/memory.max";
        for text in ["", "\n", "-1", "1e9", "0x10", "99999999999999999999999", "max max", "\u{fffd}"] {
            assert_eq!(memory("0::/\n", V2_MOUNTS, &[(own, text)]), MACHINE, "{text}");
        }
        for groups in ["", "0", "0:", "0::", "::", "0::relative", "x\ny:z\n", ":::/"] {
            for mounts in
                ["", " ", "a b c", "1 2 3 / /m rw - cgroup2", "1 2 3 / /m rw cgroup2 x y", "-\n- - -"]
            {
                assert_eq!(memory(groups, mounts, &[("/m/memory.max", "4096")]), MACHINE);
            }
        }
        for text in
            ["", "MemTotal:", "MemTotal: many kB", "MemTotal: 0 kB", "MemTotal: 18446744073709551615 kB"]
        {
            assert_eq!(machine_memory(text.as_bytes()), None, "{text}");
        }
    }
}
