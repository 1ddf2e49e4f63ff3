//! The command line: what can be said, and the help that teaches it.

mod measure;

pub use measure::{Bench, Compare};

use crate::size::{NewSize, Size};
use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};

/// A crash-consistent, multi-core-scalable file system in user space.
#[derive(Debug, Parser)]
#[command(
    name = "narufs",
    version,
    after_help = "First steps:\n  \
        narufs mkfs disk.img --size 8G      make a file system in a file\n  \
        narufs mount disk.img /mnt/naru     mount it\n  \
        narufs stats /mnt/naru              see what it does\n  \
        narufs umount /mnt/naru             unmount it and wait until everything is down\n  \
        narufs mount --scratch --memory 4G --spill /var/tmp /mnt/fast\n  \
                                            files in memory that overflow to disk; kept until the unmount\n  \
        narufs bench varmail --target DIR   measure a file system, this or another\n\n\
        `narufs COMMAND --help` explains a command, its options and its exit status."
)]
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
    /// Measure any file system with the workloads of the literature
    Bench(Bench),
    /// Compare file systems on the same device, and write a report (root)
    Compare(Compare),
    /// Take part in a comparison beyond a memory limit: what `compare` starts
    #[command(hide = true)]
    SpillWorker,
    /// What `bench` starts to run an engine in a process of its own
    #[command(hide = true)]
    BenchChild,
}

/// Arguments of `narufs mkfs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    narufs mkfs disk.img --size 8G\n  \
    narufs mkfs /dev/nvme0n1p3 --label scratch --force\n  \
    narufs mkfs disk.img --size 8G --journal-emulated /dev/shm/naru.ring\n\n\
    The image's space is reserved at once unless --sparse is given, so that a full host file system\n\
    cannot fail a write later. Sizes take K, M, G, T (powers of 1024).\n\n\
    Exit status: 0 made, 1 failed, 2 wrong usage.")]
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
    #[arg(long, default_value = "")]
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
#[command(after_help = crate::options::OPTIONS_HELP)]
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
    /// Ignored: given by mount(8) for options of its own
    #[arg(short = 'n', short_alias = 's', hide = true)]
    pub ignored: bool,
}

/// Arguments of `narufs umount`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command returns when the server has written everything and ended: the image can be\n\
    copied or mounted anew at once. Exit status: 0 unmounted, 1 failed."
)]
pub struct Umount {
    /// Directory of the mount
    pub dir: PathBuf,
    /// Detach now even if files are in use; the server ends when the last one is closed
    #[arg(long, short = 'l')]
    pub lazy: bool,
}

/// Arguments of `narufs sync`.
#[derive(Debug, Args)]
#[command(
    after_help = "sync(1) and syncfs(2) do not reach a file system in user space; this command does.\n\
    Exit status: 0 everything is down, 1 it is not."
)]
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
#[command(after_help = "Examples:\n  \
    narufs resize /mnt/naru 16G       while it is used; the image file grows, too\n  \
    narufs resize disk.img +4G        one that is not mounted\n  \
    narufs resize /mnt/naru           as large as its device, after lvextend(8) for instance\n\n\
    A file system can grow, not shrink. A crash meanwhile leaves it with the old size or the new one. The\n\
    space of a longer image file is reserved unless --sparse is given. The journal keeps its size, and the\n\
    number of files stays bounded by 16 for each 4 KiB of the size that it was made with.\n\n\
    Exit status: 0 it has the size, 1 it has not, 2 wrong usage.")]
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
#[command(
    after_help = "fstrim(8) does the same. An SSD writes faster when it knows what is free; of an image file the host\n\
    file system gets the space back (and no longer reserves it for the image: mkfs and resize do that).\n\
    Only root and the user who mounted may trim. Exit status: 0 done, 1 failed, 2 wrong usage."
)]
pub struct Trim {
    /// A directory in the mount
    pub dir: PathBuf,
    /// Leave shorter free runs alone
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub least: Size,
}

/// Arguments of `narufs fsck`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --repair nothing is written. An image that was not unmounted cleanly is checked as\n\
    recovery would leave it.\n\n\
    Exit status, as fsck(8): 0 clean, 1 problems mended, 4 problems left, 8 the check failed, 16 wrong usage."
)]
pub struct Fsck {
    /// Image file or block device
    pub image: PathBuf,
    /// Mend what can be mended; orphans go to lost+found
    #[arg(long, short = 'y')]
    pub repair: bool,
    /// Give up a journal that is missing or damaged: what only it held is lost
    #[arg(long, requires = "repair")]
    pub discard_journal: bool,
    /// Threads that look at the image [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Repair automatically what is safe, as fsck -a and -p of other file systems
    #[arg(short = 'a', short_alias = 'p', hide = true)]
    pub automatic: bool,
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
#[command(
    after_help = "Counters start at the mount. Reads and writes of the device are shown under their cause,\n\
    waits under the class of lock that was waited for."
)]
pub struct Stats {
    /// A directory in the mount
    pub dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

impl Mount {
    /// Directory to mount at.
    pub fn dir(&self) -> &Path {
        self.places.last().map_or(Path::new("."), PathBuf::as_path)
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
