//! The command line: what can be said, and the help that teaches it.

mod measure;
mod watch;

pub use measure::{Bench, Compare, Reproduce};
pub use watch::{Metrics, Top};

use crate::size::{NewSize, Size};
use clap::{ArgAction, Args, Parser, Subcommand};
use std::path::{Path, PathBuf};

/// A crash-consistent, multi-core-scalable file system in user space.
#[derive(Debug, Parser)]
#[command(name = "narufs", version)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a file system in a file or on a block device
    Mkfs(Mkfs),
    /// Mount an image, or scratch space, at a directory
    #[command(
        override_usage = "narufs mount [OPTIONS] IMAGE DIR\n       narufs mount [OPTIONS] --scratch DIR"
    )]
    Mount(Mount),
    /// Unmount, and wait until everything is on the device
    Umount(Umount),
    /// Write everything that a mount holds in memory to durable media
    Sync(SyncArgs),
    /// Make a file system larger, mounted or not
    Resize(Resize),
    /// Tell the device below a mount which space is free
    Trim(Trim),
    /// Check an image, and mend it
    Fsck(Fsck),
    /// Show what an image is
    Info(Info),
    /// Show the counters of a live mount
    Stats(Stats),
    /// Watch live mounts at work
    Top(Top),
    /// Show the counters of live mounts as Prometheus reads them
    Metrics(Metrics),
    /// Say whether this machine, a place, an image or a mount suits narufs, and what would suit it better
    Doctor(Doctor),
    /// Have this program serve a live mount in the place of another version
    Upgrade(Upgrade),
    /// Measure any file system with the workloads of the literature
    Bench(Bench),
    /// Compare file systems on the same device, and write a report (root)
    Compare(Compare),
    /// Run the experiments of the papers that narufs joins, their baselines beside their techniques
    Reproduce(Reproduce),
    /// Take part in a comparison beyond a memory limit: what `compare` starts
    #[command(hide = true)]
    SpillWorker,
    /// What `bench` starts to run an engine in a process of its own
    #[command(hide = true)]
    BenchChild,
    /// Write the man pages and the completions of shells into a directory: what installs this calls it
    #[command(hide = true)]
    Generate(Generate),
}

impl Command {
    /// Its name, as failures are told under.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Command::Mkfs(_) => "mkfs",
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Sync(_) => "sync",
            Command::Resize(_) => "resize",
            Command::Trim(_) => "trim",
            Command::Fsck(_) => "fsck",
            Command::Info(_) => "info",
            Command::Stats(_) => "stats",
            Command::Top(_) => "top",
            Command::Metrics(_) => "metrics",
            Command::Doctor(_) => "doctor",
            Command::Upgrade(_) => "upgrade",
            Command::Bench(_) | Command::BenchChild => "bench",
            Command::Compare(_) => "compare",
            Command::Reproduce(_) => "reproduce",
            Command::SpillWorker => "spill-worker",
            Command::Generate(_) => "generate",
        }
    }
}

/// Arguments of `narufs mkfs`.
#[derive(Debug, Args)]
pub struct Mkfs {
    /// File or block device; a file is made if it is not there
    pub image: PathBuf,
    /// Size of the image [default: the size of the file or device, or 8G for a new file]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Size of the journal [default: a sixteenth of the image, 256M at the most]
    #[arg(long, value_name = "SIZE")]
    pub journal_size: Option<Size>,
    /// Keep the journal in persistent memory: a DAX file or a devdax device
    #[arg(long, value_name = "PMEM", conflicts_with = "journal_emulated")]
    pub journal: Option<PathBuf>,
    /// Keep the journal in a shared-memory file that stands for persistent memory: for experiments, it does
    /// not survive the machine
    #[arg(long, value_name = "PATH")]
    pub journal_emulated: Option<PathBuf>,
    /// Name of the file system, at most 32 bytes
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
    /// Do not reserve the image's space
    #[arg(long)]
    pub sparse: bool,
    /// Overwrite what is there
    #[arg(long, short = 'F')]
    pub force: bool,
}

/// Arguments of `narufs mount`.
#[derive(Debug, Args)]
pub struct Mount {
    /// Image file or block device (none with --scratch), and the directory to mount at
    #[arg(value_names = ["IMAGE", "DIR"], num_args = 1..=2, required = true)]
    pub places: Vec<PathBuf>,
    /// Options, separated by commas; may be given more than once
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// A file system in memory without an image: nothing is left of it after the unmount
    #[arg(long)]
    pub scratch: bool,
    /// As -o memory=SIZE; with --scratch, for files and metadata together
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Where --scratch puts what memory has no room for: a block device, a file, or a directory for a nameless
    /// file; what it holds is lost
    #[arg(long, value_name = "PATH")]
    pub spill: Option<PathBuf>,
    /// Bytes of it to use [default: all of it; of a new file eight times the memory, as far as there is room]
    #[arg(long, value_name = "SIZE")]
    pub spill_size: Option<Size>,
    /// Spill to PATH even if it holds data
    #[arg(long, short = 'F')]
    pub force: bool,
    /// Stay in the foreground; SIGINT or SIGTERM unmounts
    #[arg(long, short = 'f')]
    pub foreground: bool,
    /// Say on standard output when the mount is ready, then leave the terminal
    #[arg(long, hide = true)]
    pub announce: bool,
    /// Serve for the supervisor that is standard input
    #[arg(long, hide = true)]
    pub supervised: bool,
    /// Go on as the supervisor whose descriptors are in standard input
    #[arg(long, hide = true)]
    pub supervise_on: bool,
    /// Start such a supervisor as a process that is nobody's child
    #[arg(long, hide = true)]
    pub supervise_apart: bool,
    /// Act for the server that is standard input, which has given up the right to
    #[arg(long, hide = true)]
    pub broker: bool,
    /// Mount and unmount for who asks at the socket that systemd has handed over
    #[arg(long, hide = true)]
    pub mounter: bool,
    /// Say to the supervisor that is standard input whether this program could take over
    #[arg(long, hide = true)]
    pub check_takeover: bool,
    /// Say to the supervisor that is standard input which program is at this path, and become it to say whether it could
    #[arg(long, hide = true, value_name = "PROGRAM")]
    pub examine: Option<PathBuf>,
    /// Called by mount(8), whose conventions hold
    #[arg(long, hide = true)]
    pub helper: bool,
    /// Ignored: given by mount(8) for options of its own
    #[arg(short = 'n', short_aliases = ['s', 'v'], hide = true, action = ArgAction::Count)]
    pub ignored: u8,
    /// Ignored: the type that mount(8) knows this by
    #[arg(short = 't', value_name = "TYPE", hide = true)]
    pub kind: Option<String>,
    /// The mount name space that mount(8) is to mount in
    #[arg(short = 'N', value_name = "NAMESPACE", hide = true)]
    pub namespace: Option<PathBuf>,
}

/// Arguments of `narufs umount`.
#[derive(Debug, Args)]
pub struct Umount {
    /// Directory of the mount, or its image
    pub dir: PathBuf,
    /// Detach now even if files are in use; the server ends when the last one is closed
    #[arg(long, short = 'l')]
    pub lazy: bool,
    /// Detach now without asking the server, and fail every call that it has not answered
    #[arg(long, short = 'f')]
    pub force: bool,
    /// If files are in use, make it read-only in place of unmounting it
    #[arg(long, short = 'r')]
    pub read_only: bool,
    /// Say what was done
    #[arg(long, short = 'v')]
    pub verbose: bool,
    /// The mount name space to unmount in: a process, or a file as /proc/PID/ns/mnt
    #[arg(long, short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<PathBuf>,
    /// Ignored: given by umount(8) for itself
    #[arg(short = 'n', hide = true)]
    pub ignored: bool,
    /// Ignored: the type that umount(8) knows this by
    #[arg(short = 't', value_name = "TYPE", hide = true)]
    pub kind: Option<String>,
}

/// Arguments of `narufs sync`.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// A directory in the mount
    pub dir: PathBuf,
    /// Only what fsyncs were answered for: with durability=window or =process they may be answered before it
    /// survives a loss of power
    #[arg(long)]
    pub power: bool,
}

/// Arguments of `narufs resize`.
#[derive(Debug, Args)]
pub struct Resize {
    /// A directory in the mount, or an image that is not mounted
    pub place: PathBuf,
    /// The size, or +SIZE for so much more [default: all that the file or device has]
    #[arg(value_name = "SIZE")]
    pub size: Option<NewSize>,
    /// Do not reserve the image's space
    #[arg(long)]
    pub sparse: bool,
}

/// Arguments of `narufs trim`.
#[derive(Debug, Args)]
pub struct Trim {
    /// A directory in the mount
    pub dir: PathBuf,
    /// Leave shorter free runs alone
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub least: Size,
}

/// Arguments of `narufs fsck`.
#[derive(Debug, Args)]
pub struct Fsck {
    /// Image file or block device
    pub image: PathBuf,
    /// Mend what can be mended; orphans go to lost+found
    #[arg(long, short = 'y')]
    pub repair: bool,
    /// Give up a journal that is missing or damaged: what only it held is lost
    #[arg(long, requires = "repair")]
    pub discard_journal: bool,
    /// Where a journal outside of the image lies, if not where the image says; with --discard-journal a new one is
    /// made there, over nothing but zeros or one of this image
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// The image is a copy of another whose journal is in /dev/shm still: it is looked at by itself, as after a loss of
    /// power
    #[arg(long, conflicts_with = "moved")]
    pub copied: bool,
    /// It is that other image, at another place now
    #[arg(long)]
    pub moved: bool,
    /// Threads that look at the image [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Repair automatically what is safe, as fsck -a and -p of other file systems
    #[arg(short = 'a', short_alias = 'p', hide = true)]
    pub automatic: bool,
    /// Ignored: as fsck -n of other file systems, which mends nothing
    #[arg(short = 'n', hide = true, conflicts_with_all = ["repair", "automatic"])]
    pub check_only: bool,
    /// Ignored: as fsck -f of other file systems, which looks at clean images too
    #[arg(short = 'f', hide = true)]
    pub forced: bool,
}

/// Arguments of `narufs info`.
#[derive(Debug, Args)]
pub struct Info {
    /// Image file or block device
    pub image: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `narufs stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// A directory in the mount
    pub dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `narufs doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// A mount, an image, a block device, or a directory to make an image in [default: the machine alone]
    pub place: Option<PathBuf>,
    /// Time writes of a block device too, which nobody may be using: what is read is written back in its place
    #[arg(long)]
    pub write: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `narufs upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// A directory in the mount
    pub dir: PathBuf,
}

/// Arguments of `narufs generate`.
#[derive(Debug, Args)]
pub struct Generate {
    /// Where to; it is made if it is not there
    pub dir: PathBuf,
}

impl Mount {
    /// Directory to mount at.
    pub fn dir(&self) -> &Path {
        self.places.last().map_or(Path::new("."), PathBuf::as_path)
    }

    /// Whether mount(8) wants nothing done.
    pub fn is_dry_run(&self) -> bool {
        self.helper && self.foreground
    }

    /// Image file or block device.
    ///
    /// # Errors
    /// What is missing, or too much.
    pub fn image(&self, scratch: bool) -> Result<Option<&Path>, String> {
        match self.places.as_slice() {
            [_] if scratch => Ok(None),
            [none, _] if scratch && none == Path::new("none") => Ok(None),
            [image, _] if scratch => Err(format!("{}: scratch space has no image", image.display())),
            [image, _] => Ok(Some(image)),
            _ => Err("say IMAGE and DIR, or --scratch and DIR".into()),
        }
    }
}
