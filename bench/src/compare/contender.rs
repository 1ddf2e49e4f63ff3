//! Who is compared. How each is made and mounted is in [`start`](super::start).

use super::call;
use super::media::InRam;
use crate::target::Survives;

/// A file system in one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// Its name in records.
    pub name: &'static str,
    /// What it is, in words.
    pub what: &'static str,
    /// What a synced file lives through.
    pub survives: Survives,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Kernel(Kernel),
    Tmpfs,
    /// tmpfs with swap on the device of all, which whoever limits its memory has turned on.
    TmpfsSwap,
    /// A mount of narufs: whether its journal is in emulated NVM, and its options.
    Mount(bool, &'static str),
    /// The engine without a mount, likewise.
    Library(bool, &'static str),
    /// Scratch space that spills to the device of all.
    Scratch(Way),
    /// Another file system in user space.
    Peer(Peer),
}

/// Where a narufs runs, and who caches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// In the process of the load.
    Library,
    /// In a server, which caches what is written.
    Mount,
    /// In a server in front of which the kernel caches what is written (`io=cached`).
    CachedMount,
}

/// A file system of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) filesystem: &'static str,
    pub(super) make: &'static [&'static str],
    pub(super) mount: &'static str,
    /// What it does with the devices in RAM.
    pub(super) ram: Ram,
}

/// A file system that a server of somebody else's serves through FUSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// Makes it, before the device.
    pub(super) make: &'static [&'static str],
    /// Serves it and stays in the foreground, before the device and the mount point.
    pub(super) serve: &'static str,
    /// The same, after them.
    pub(super) options: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ram {
    Unused,
    Ext4Journal,
    XfsLog,
    Everything,
}

const EXT4: &[&str] = &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];

const fn kernel(
    name: &'static str,
    what: &'static str,
    survives: Survives,
    filesystem: &'static str,
    make: &'static [&'static str],
    ram: Ram,
) -> Contender {
    Contender {
        name,
        what,
        survives,
        kind: Kind::Kernel(Kernel { filesystem, make, mount: "defaults", ram }),
    }
}

use Survives::{Nothing, Power, Process};

/// What Optane memory adds to the memory that stands for it. One module takes 2.3 GB/s of writes, and a store that
/// was written back and fenced takes less than 100 ns (Yang et al., FAST 2020; Izraelevitz et al., arXiv
/// 1903.05714). The memory's own time comes on top, so this is rather too slow than too fast.
const OPTANE: &str = "nvm_delay=100,nvm_bandwidth=2300000000";

/// All contenders, in the order of a round.
pub const ALL: &[Contender] = &[
    kernel("ext4", "ext4, journal on the device, data=ordered", Power, "ext4", EXT4, Ram::Unused),
    kernel(
        "ext4-fast-commit",
        "ext4 with fast commits",
        Power,
        "ext4",
        &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-O", "fast_commit"],
        Ram::Unused,
    ),
    kernel(
        "ext4-journal-ram",
        "ext4, journal on a device in RAM, whose writes are counted by themselves",
        Process,
        "ext4",
        EXT4,
        Ram::Ext4Journal,
    ),
    kernel("ext4-ram", "ext4 wholly on a device in RAM", Process, "ext4", EXT4, Ram::Everything),
    kernel(
        "ext4-no-journal",
        "ext4 without a journal: a loss of power may damage it",
        Process,
        "ext4",
        &["-q", "-F", "-E", "lazy_itable_init=0", "-O", "^has_journal"],
        Ram::Unused,
    ),
    kernel("xfs", "xfs, log on the device", Power, "xfs", &["-q", "-f"], Ram::Unused),
    kernel(
        "xfs-log-ram",
        "xfs, log on a device in RAM, whose writes are counted by themselves",
        Process,
        "xfs",
        &["-q", "-f"],
        Ram::XfsLog,
    ),
    kernel("btrfs", "btrfs", Power, "btrfs", &["-q", "-f"], Ram::Unused),
    kernel("f2fs", "f2fs", Power, "f2fs", &["-q", "-f"], Ram::Unused),
    Contender {
        name: "ntfs-3g",
        what: "NTFS by ntfs-3g, a FUSE server; it has no journal: a loss of power may damage it",
        survives: Process,
        kind: Kind::Peer(Peer {
            make: &["mkfs.ntfs", "--quiet", "--fast", "--force"],
            serve: "ntfs-3g",
            options: &["-o", "no_detach,permissions"],
        }),
    },
    Contender {
        name: "fuse2fs",
        what: "ext4 by fuse2fs, a FUSE server; it writes no journal: a loss of power may damage it",
        survives: Process,
        kind: Kind::Peer(Peer {
            make: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            serve: "fuse2fs",
            options: &["-f"],
        }),
    },
    Contender { name: "tmpfs", what: "tmpfs", survives: Nothing, kind: Kind::Tmpfs },
    Contender {
        name: "narufs-nvm",
        what: "narufs mounted, journal in emulated NVM",
        survives: Process,
        kind: Kind::Mount(true, "rw"),
    },
    Contender {
        name: "narufs-nvm-delayed",
        what: "narufs mounted, journal in emulated NVM as slow as a module of Optane (fences 100 ns longer, 2.3 GB/s)",
        survives: Process,
        kind: Kind::Mount(true, OPTANE),
    },
    Contender {
        name: "narufs-ssd",
        what: "narufs mounted, journal on the device, durability=power",
        survives: Power,
        kind: Kind::Mount(false, "durability=power"),
    },
    Contender {
        name: "narufs-ssd-window",
        what: "narufs mounted, journal on the device, durability=window=100ms",
        survives: Process,
        kind: Kind::Mount(false, "durability=window=100ms"),
    },
    Contender {
        name: "narufs-ssd-process",
        what: "narufs mounted, journal on the device, durability=process",
        survives: Process,
        kind: Kind::Mount(false, "durability=process"),
    },
    Contender {
        name: "narufs-lib-nvm",
        what: "narufs as a library, journal in emulated NVM: no system calls",
        survives: Process,
        kind: Kind::Library(true, "rw"),
    },
    Contender {
        name: "narufs-lib-nvm-delayed",
        what: "narufs as a library, journal in emulated NVM as slow as a module of Optane: no system calls",
        survives: Process,
        kind: Kind::Library(true, OPTANE),
    },
    Contender {
        name: "narufs-lib-ssd",
        what: "narufs as a library, journal on the device, durability=power: no system calls",
        survives: Power,
        kind: Kind::Library(false, "durability=power"),
    },
    Contender {
        name: "narufs-lib-ssd-window",
        what: "narufs as a library, journal on the device, durability=window=100ms: no system calls",
        survives: Process,
        kind: Kind::Library(false, "durability=window=100ms"),
    },
    Contender {
        name: "narufs-lib-ssd-process",
        what: "narufs as a library, journal on the device, durability=process: no system calls",
        survives: Process,
        kind: Kind::Library(false, "durability=process"),
    },
];

/// Other ways to mount the same image, which are compared where they are named.
const VARIANTS: &[Contender] = &[
    Contender {
        name: "narufs-ssd-alone",
        what: "narufs mounted, journal on the device, supervise=no: the mount ends with its server",
        survives: Power,
        kind: Kind::Mount(false, "supervise=no"),
    },
    Contender {
        name: "narufs-ssd-cached",
        what: "narufs mounted, journal on the device, io=cached: the kernel keeps what is written for a while",
        survives: Power,
        kind: Kind::Mount(false, "io=cached"),
    },
    Contender {
        name: "narufs-ssd-alone-cached",
        what: "narufs mounted, journal on the device, supervise=no,io=cached",
        survives: Power,
        kind: Kind::Mount(false, "supervise=no,io=cached"),
    },
];

/// Those that can be named where memory is not limited.
pub(super) fn named() -> impl Iterator<Item = &'static Contender> {
    ALL.iter().chain(VARIANTS)
}

/// tmpfs that the kernel swaps out to the device of all; nothing without a memory limit.
const TMPFS_SWAP: Contender = Contender {
    name: "tmpfs-swap",
    what: "tmpfs with swap on the device of all",
    survives: Nothing,
    kind: Kind::TmpfsSwap,
};

/// Scratch space that overflows to the device of all; compared where memory is limited.
const SCRATCH: &[Contender] = &[
    Contender {
        name: "narufs-scratch",
        what: "narufs mounted, scratch space that spills to the device of all",
        survives: Nothing,
        kind: Kind::Scratch(Way::Mount),
    },
    Contender {
        name: "narufs-scratch-cached",
        what: "the same with io=cached",
        survives: Nothing,
        kind: Kind::Scratch(Way::CachedMount),
    },
    Contender {
        name: "narufs-lib-scratch",
        what: "narufs as a library, scratch space that spills to the device of all: no system calls",
        survives: Nothing,
        kind: Kind::Scratch(Way::Library),
    },
];

/// Those that are compared where memory is limited and data go beyond it, in the order of a round.
pub const SPILLING: &[&str] = &[
    "tmpfs-swap",
    "ext4-no-journal",
    "narufs-ssd",
    "narufs-scratch",
    "narufs-scratch-cached",
    "narufs-lib-ssd",
    "narufs-lib-scratch",
];

/// Whether the kernel has a file system, or has a module for it.
fn kernel_has(filesystem: &str) -> bool {
    let known = || std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = |table: String| table.lines().any(|line| line.split_whitespace().last() == Some(filesystem));
    // Without modprobe there are no modules to load either.
    has(known()) || (call("modprobe", &[filesystem]).is_ok() && has(known()))
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

impl Contender {
    /// A contender by name.
    pub fn find(name: &str) -> Option<&'static Contender> {
        named().chain([&TMPFS_SWAP]).chain(SCRATCH).find(|contender| contender.name == name)
    }

    /// Whether it is tmpfs with swap.
    pub fn swaps(&self) -> bool {
        self.kind == Kind::TmpfsSwap
    }

    /// Where it runs, if it is narufs.
    pub(super) fn way(&self) -> Way {
        match self.kind {
            Kind::Mount(..) => Way::Mount,
            Kind::Scratch(way) => way,
            _ => Way::Library,
        }
    }

    /// The devices in RAM that one of these lies on.
    pub fn in_ram(contenders: &[&Contender]) -> InRam {
        let each = contenders.iter().filter_map(|contender| match contender.kind {
            Kind::Kernel(kernel) => Some(kernel.in_ram()),
            _ => None,
        });
        each.fold(InRam::default(), |all, one| InRam {
            everything: all.everything || one.everything,
            journal: all.journal || one.journal,
        })
    }

    /// Whether it is to run a workload where contenders were named so, or none was. A library runs no programs; other
    /// file systems in user space are set beside narufs in everyday work, elsewhere if they are named.
    pub fn takes(&self, workload: &str, named: &[String]) -> bool {
        let daily = workload == crate::daily::NAME;
        match self.kind {
            Kind::Library(..) | Kind::Scratch(Way::Library) => !daily,
            Kind::Peer(_) => daily || named.iter().any(|name| name == self.name),
            _ => true,
        }
    }

    /// Why it cannot run here, if so.
    pub fn missing(&self) -> Option<String> {
        let kernel = match self.kind {
            Kind::Kernel(kernel) => kernel,
            Kind::Peer(peer) => {
                let gone = [peer.make[0], peer.serve].into_iter().find(|program| !is_installed(program));
                return gone.map(|program| format!("{program} is not installed"));
            }
            _ => return None,
        };
        if !kernel_has(kernel.filesystem) {
            return Some(format!("this kernel has no {}", kernel.filesystem));
        }
        let make = format!("mkfs.{}", kernel.filesystem);
        (!is_installed(&make)).then(|| format!("{make} is not installed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for contender in ALL {
            assert_eq!(Contender::find(contender.name), Some(contender));
            assert!(!contender.what.is_empty());
        }
        for name in SPILLING {
            assert!(Contender::find(name).is_some_and(|contender| contender.name == *name));
        }
        assert_eq!(Contender::find("zfs"), None);
        let in_ram = |names: &[&str]| {
            let contenders: Vec<_> = names.iter().filter_map(|name| Contender::find(name)).collect();
            let InRam { everything, journal } = Contender::in_ram(&contenders);
            (everything, journal)
        };
        let takes = |name: &str, workload: &str, named: &[&str]| {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            Contender::find(name).is_some_and(|contender| contender.takes(workload, &named))
        };
        assert!(takes("ntfs-3g", "daily", &[]) && !takes("ntfs-3g", "DWOL", &[]));
        assert!(takes("ntfs-3g", "DWOL", &["xfs", "ntfs-3g"]) && takes("xfs", "daily", &[]));
        assert!(!takes("narufs-lib-ssd", "daily", &[]) && takes("narufs-lib-ssd", "DWOL", &[]));
        assert_eq!(in_ram(&["ext4", "narufs-nvm", "tmpfs"]), (false, false));
        assert_eq!(in_ram(&["ext4-ram", "ext4"]), (true, false));
        assert_eq!(in_ram(&["ext4-journal-ram"]), (false, true));
        assert!(kernel_has("tmpfs") && !kernel_has("no-such-filesystem"));
    }
}
