//! How each contender is made, mounted, brought back for the check, and unmounted.

use super::call;
use super::media::Places;
use crate::killed::{self, Engine};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::target::{Directory, Library, Reopened, Survives};
use crate::{Error, Plan, Record, Result};
use narufs::device::BLOCK_SIZE;
use narufs::file::DataOptions;
use narufs::scratch::{ScratchOptions, SpillOptions};
use narufs_fuse::control::ServerProcess;
use rustix::process::{Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A file system in one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// Its name in records.
    pub name: &'static str,
    /// What it is, in words.
    pub what: &'static str,
    /// What a synced file lives through.
    pub survives: Survives,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kernel(Kernel),
    Tmpfs,
    /// tmpfs with swap on the device of all, which whoever limits its memory has turned on.
    TmpfsSwap,
    /// A mount of narufs: whether its journal is in emulated NVM, and its options.
    Mount(bool, &'static str),
    /// The engine without a mount, likewise.
    Library(bool, &'static str),
    /// A mount of scratch space that spills to the device of all.
    Scratch,
    /// The same without a mount, in this process.
    ScratchLibrary,
}

/// A file system of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kernel {
    filesystem: &'static str,
    make: &'static [&'static str],
    mount: &'static str,
    /// What it does with the devices in RAM.
    ram: Ram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ram {
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
        kind: Kind::Scratch,
    },
    Contender {
        name: "narufs-lib-scratch",
        what: "narufs as a library, scratch space that spills to the device of all: no system calls",
        survives: Nothing,
        kind: Kind::ScratchLibrary,
    },
];

/// Those that are compared where memory is limited and data go beyond it, in the order of a round.
pub const SPILLING: &[&str] = &[
    "tmpfs-swap",
    "ext4-no-journal",
    "narufs-ssd",
    "narufs-scratch",
    "narufs-lib-ssd",
    "narufs-lib-scratch",
];

/// Memory that narufs is told to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Bytes of its page cache.
    pub pages: u64,
    /// Bytes for metadata pages and inodes.
    pub metadata: u64,
    /// Bytes of its journal, which it keeps in memory too.
    pub journal: u64,
}

impl Budget {
    /// Bytes of scratch space, which has no journal.
    fn scratch(&self) -> u64 {
        self.pages + self.metadata + self.journal
    }
}

/// A target that is ready, and how to end it.
pub enum Ready {
    /// A mounted directory.
    Directory(Box<Directory>, Mounted),
    /// An image for the engine without a mount.
    Library(Engine),
    /// Scratch space without a mount.
    Scratch(Box<Library>),
}

impl Ready {
    /// Runs the plan on it, and ends it.
    ///
    /// # Errors
    /// The first failure; it is ended then too.
    pub fn run(self, plan: &Plan, stop: &Stop, progress: &Progress, each: impl FnMut(Record)) -> Result<()> {
        match self {
            Ready::Directory(mut directory, mounted) => {
                let done = crate::run(&mut *directory, plan, stop, progress, each);
                drop(directory);
                let ended = mounted.unmount();
                done.and(ended)
            }
            Ready::Library(engine) => killed::run(&engine, plan, stop, progress, each),
            Ready::Scratch(mut library) => {
                let done = crate::run(&mut *library, plan, stop, progress, each);
                let ended = library.unmount();
                done.and(ended)
            }
        }
    }
}

/// Unmounts when dropped.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    narufs: Option<PathBuf>,
}

impl Mounted {
    /// Unmounts.
    pub fn unmount(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let at = std::mem::take(&mut self.at);
        if at.as_os_str().is_empty() {
            return Ok(());
        }
        let shown = at.display().to_string();
        match &self.narufs {
            Some(narufs) => call(&narufs.display().to_string(), &["umount", &shown]).map(drop),
            None => call("umount", &[&shown]).map(drop),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            tracing::warn!("{e}");
        }
    }
}

/// Whether the kernel has a file system, or has a module for it.
fn kernel_has(filesystem: &str) -> bool {
    let known = || std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = |table: String| table.lines().any(|line| line.split_whitespace().last() == Some(filesystem));
    // Without modprobe there are no modules to load either.
    has(known()) || (call("modprobe", &[filesystem]).is_ok() && has(known()))
}

impl Contender {
    /// A contender by name.
    pub fn find(name: &str) -> Option<&'static Contender> {
        ALL.iter().chain([&TMPFS_SWAP]).chain(SCRATCH).find(|contender| contender.name == name)
    }

    /// Whether it is tmpfs with swap.
    pub fn swaps(&self) -> bool {
        self.kind == Kind::TmpfsSwap
    }

    /// Why it cannot run here, if so.
    pub fn missing(&self) -> Option<String> {
        let Kind::Kernel(kernel) = self.kind else { return None };
        if !kernel_has(kernel.filesystem) {
            return Some(format!("this kernel has no {}", kernel.filesystem));
        }
        let make = format!("mkfs.{}", kernel.filesystem);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|dir| dir.join(&make).is_file());
        (!found).then(|| format!("{make} is not installed"))
    }

    /// Makes the file system anew and mounts it. narufs gets a journal of `ring` bytes. With a budget it uses no more
    /// than that, and the device of all is what is counted of every directory.
    pub fn start(&self, places: &Places, narufs: &Path, ring: u64, budget: Option<Budget>) -> Result<Ready> {
        let at = places.mount.as_path();
        let counted = budget.map(|_| places.device.as_path());
        match self.kind {
            Kind::Tmpfs | Kind::TmpfsSwap => {
                let size = if self.swaps() { places.bytes.to_string() } else { "80%".into() };
                mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], at)?;
                Ok(self.directory(at, None, counted, None, Box::new(|| Ok(Reopened::Synced)))?)
            }
            Kind::Kernel(kernel) => {
                let arguments = kernel.format(places)?;
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                mount(&arguments, at)?;
                let (again, point) =
                    (arguments.iter().map(ToString::to_string).collect::<Vec<_>>(), at.to_owned());
                let remount = move || {
                    call("umount", &[&point.display().to_string()])?;
                    mount(&again.iter().map(String::as_str).collect::<Vec<_>>(), &point)?;
                    Ok(Reopened::Remounted)
                };
                self.directory(at, None, counted, kernel.log(places), Box::new(remount))
            }
            Kind::Mount(nvm, options) => {
                format_narufs(places, narufs, nvm, ring)?;
                let (program, image) = (narufs.display().to_string(), places.device.display().to_string());
                let point = at.to_owned();
                let options = within(options, budget);
                let start = move || {
                    call(&program, &["mount", &image, &point.display().to_string(), "-o", &options]).map(drop)
                };
                start()?;
                let point = at.to_owned();
                let kill = move || {
                    let failed = |e: std::io::Error| Error::io("kill", &point.display().to_string(), e);
                    let server = ServerProcess::of(&point).map_err(failed)?;
                    kill_process(server.pid, Signal::KILL).map_err(|e| failed(e.into()))?;
                    server.wait().map_err(failed)?;
                    start()?;
                    Ok(Reopened::Killed)
                };
                self.directory(at, Some(narufs.to_owned()), counted, None, Box::new(kill))
            }
            Kind::Library(nvm, options) => {
                format_narufs(places, narufs, nvm, ring)?;
                let mount = killed::Mount {
                    image: places.device.clone(),
                    name: self.name.to_owned(),
                    options: vec![within(options, budget)],
                };
                Ok(Ready::Library(Engine { program: narufs.to_owned(), mount }))
            }
            Kind::Scratch => {
                let (program, device) = (narufs.display().to_string(), places.device.display().to_string());
                let memory = budget.map_or(String::new(), |b| format!(",memory={}", b.scratch()));
                let options = format!("scratch,force,spill={device}{memory}");
                call(&program, &["mount", "none", &at.display().to_string(), "-o", &options])?;
                let synced = Box::new(|| Ok(Reopened::Synced));
                self.directory(at, Some(narufs.to_owned()), counted, None, synced)
            }
            Kind::ScratchLibrary => {
                let usual = DataOptions::default().frames as u64 * BLOCK_SIZE as u64;
                let mut options = ScratchOptions::with_memory(budget.map_or(usual, |b| b.scratch()));
                options.spill = Some(SpillOptions { path: places.device.clone(), size: None, force: true });
                let library = Library::scratch(&places.device, self.name, &options)?;
                Ok(Ready::Scratch(Box::new(library)))
            }
        }
    }

    fn directory(
        &self,
        at: &Path,
        narufs: Option<PathBuf>,
        counted: Option<&Path>,
        log: Option<&Path>,
        remount: crate::target::Remount,
    ) -> Result<Ready> {
        let mounted = Mounted { at: at.to_owned(), narufs };
        let directory = Directory::new(at, counted)?.called(self.name, self.survives).with_log_on(log);
        let directory = directory.remounted_by(remount);
        Ok(Ready::Directory(Box::new(directory), mounted))
    }
}

/// Mount options of narufs, with its memory where that has a limit.
fn within(options: &str, budget: Option<Budget>) -> String {
    match budget {
        Some(b) => format!("{options},memory={},metadata_memory={}", b.pages, b.metadata),
        None => options.to_owned(),
    }
}

fn mount(arguments: &[&str], at: &Path) -> Result<()> {
    let shown = at.display().to_string();
    call("mount", &[arguments, &[&shown]].concat()).map(drop)
}

fn format_narufs(places: &Places, narufs: &Path, nvm: bool, ring: u64) -> Result<()> {
    let (device, memory) = (places.device.display().to_string(), &places.nvm);
    if let Err(e) = std::fs::remove_file(memory)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        return Err(Error::io("remove", &memory.display().to_string(), e));
    }
    let memory = memory.display().to_string();
    let size = ring.to_string();
    let mut arguments = vec!["mkfs", &device, "--force", "--journal-size", &size];
    if nvm {
        arguments.extend(["--journal-emulated", &memory]);
    }
    call(&narufs.display().to_string(), &arguments).map(drop)
}

impl Kernel {
    /// The device of its journal or log, where that lies elsewhere.
    fn log(self, places: &Places) -> Option<&Path> {
        matches!(self.ram, Ram::Ext4Journal | Ram::XfsLog).then_some(places.journal.as_path())
    }

    /// Makes it, and says with which arguments it is mounted.
    fn format(&self, places: &Places) -> Result<Vec<String>> {
        let device = if self.ram == Ram::Everything { &places.ram } else { &places.device };
        let (device, journal) = (device.display().to_string(), places.journal.display().to_string());
        let program = format!("mkfs.{}", self.filesystem);
        let mut options = self.mount.to_owned();
        let mut make: Vec<&str> = self.make.to_vec();
        let ext4 = format!("device={journal}");
        let xfs = format!("logdev={journal}");
        match self.ram {
            Ram::Ext4Journal => {
                call("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "journal_dev", &journal])?;
                make.extend(["-b", "4096", "-J", &ext4]);
            }
            Ram::XfsLog => {
                make.extend(["-l", &xfs]);
                options = xfs.clone();
            }
            Ram::Unused | Ram::Everything => {}
        }
        make.push(&device);
        call(&program, &make)?;
        Ok(["-t", self.filesystem, "-o", &options, &device].map(str::to_owned).into())
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
        assert!(kernel_has("tmpfs") && !kernel_has("no-such-filesystem"));
    }
}
