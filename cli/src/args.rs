//! The command line: what can be said, and the help that teaches it.

use crate::size::Size;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A crash-consistent, multi-core-scalable file system in user space.
#[derive(Debug, Parser)]
#[command(
    name = "narufs",
    version,
    after_help = "First steps:\n  \
        narufs mkfs disk.img --size 8G      make a file system in a file\n  \
        narufs mount disk.img /mnt/naru     mount it\n  \
        narufs stats /mnt/naru              see what it does\n  \
        narufs umount /mnt/naru             unmount it and wait until everything is down\n\n\
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
    /// Mount an image at a directory
    Mount(Mount),
    /// Unmount, and wait until everything is on the device
    Umount(Umount),
    /// Write everything that a mount holds in memory to durable media
    Sync(SyncArgs),
    /// Check an image, and mend it
    Fsck(Fsck),
    /// Show what an image is
    Info(Info),
    /// Show the counters of a live mount
    Stats(Stats),
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
    /// Image file or block device
    pub image: PathBuf,
    /// Directory to mount at
    pub dir: PathBuf,
    /// Options, separated by commas; may be given more than once
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
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
