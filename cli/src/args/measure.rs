//! The arguments of what measures: `narufs bench`, `narufs compare` and `narufs reproduce`.

use crate::size::Size;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `narufs bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// What to run: names, or data, metadata, macro, fxmark, all of these; daily is real programs
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// A directory of any file system, lib:IMAGE for a narufs image without a mount, or lib:scratch for scratch
    /// space in this process
    #[arg(long, required_unless_present = "list")]
    pub target: Option<String>,
    /// List the workloads, and say of each what one operation is
    #[arg(long)]
    pub list: bool,
    /// Numbers of threads, one after the other
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1")]
    pub threads: Vec<usize>,
    /// Seconds of each run
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// How often each is run
    #[arg(long, value_name = "TIMES", default_value_t = 3, visible_alias = "rounds")]
    pub repeat: u32,
    /// Write the records as a JSON list; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Options of lib:IMAGE and lib:scratch as of `narufs mount` (durability=, memory=, spill=, noatime, ...)
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Everything random and every byte written follows from it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Files to work on [default: see --list]
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// Size of the file to work on [default: see --list]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Random pages of a large file (--size), where DWO*, DWSL and DRB* use one fixed page
    #[arg(long)]
    pub spread: bool,
    /// The papers' sizes: 100,000 files for varmail, 3,000,000 for tokubench
    #[arg(long)]
    pub paper: bool,
    /// iozone: the memory limit that the file's size is a multiple of
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub memory: Size,
    /// iozone: that multiple
    #[arg(long, default_value_t = 0.25)]
    pub ratio: f64,
    /// iozone: bytes of a record
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub record: Size,
    /// Each thread ends after so many operations, whatever the time
    #[arg(long, value_name = "N")]
    pub ops: Option<u64>,
    /// daily: how much there is to do; 1 is a tree of 20,600 entries and 310 MB
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// daily: only these steps
    #[arg(long, value_name = "STEP,STEP", value_delimiter = ',')]
    pub steps: Vec<String>,
    /// Do not compare what was written afterwards
    #[arg(long)]
    pub no_check: bool,
    /// Count reads and writes of this block device, not of the one below the target (for swap, say)
    #[arg(long, value_name = "DEVICE")]
    pub count_device: Option<PathBuf>,
    /// lib:IMAGE with an emulated journal: nanoseconds that each fence takes longer
    #[arg(long, value_name = "NS")]
    pub nvm_delay: Option<u64>,
    /// lib:IMAGE with an emulated journal: bytes per second that write-backs may reach
    #[arg(long, value_name = "SIZE")]
    pub nvm_bandwidth: Option<Size>,
}

/// Arguments of `narufs compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// A choice of workloads at small sizes
    #[arg(long)]
    pub quick: bool,
    /// Measure nothing: write the report from the results.json of an earlier comparison (no root)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "device", "rounds", "contenders",
        "workloads", "threads", "seconds", "files", "scale", "steps", "spill_memory", "spill_ratio", "size", "work"])]
    pub from: Option<PathBuf>,
    /// Write results.json in few bytes: figures with four digits, without causes and checks
    #[arg(long)]
    pub compact: bool,
    /// Directory for report.html and results.json; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "narufs-report")]
    pub report: PathBuf,
    /// Write one table, losses first, and its picture into this directory too: README.md and overview.svg
    #[arg(long, value_name = "DIR")]
    pub table: Option<PathBuf>,
    /// The commit that is measured, to be told with the results
    #[arg(long, conflicts_with = "from")]
    pub commit: Option<String>,
    /// Use this block device instead of a loop device: everything on it is lost
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<PathBuf>,
    /// How often each contender runs each workload [default: 3; with --quick 2]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Only these contenders, by name
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub contenders: Vec<String>,
    /// Only these workloads, by name; "spill" are data beyond a memory limit
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// Numbers of threads, in place of the suite's
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Seconds of each run, in place of the suite's
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Files to work on, in place of the suite's
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// daily: how much there is to do; 1 is a tree of 20,600 entries and 310 MB
    #[arg(long)]
    pub scale: Option<f64>,
    /// daily: only these steps
    #[arg(long, value_name = "STEP,STEP", value_delimiter = ',')]
    pub steps: Vec<String>,
    /// The memory limit for data that go beyond it [default: 512M; with --quick 256M]
    #[arg(long, value_name = "SIZE")]
    pub spill_memory: Option<Size>,
    /// Sizes of their file, as multiples of that limit [default: 0.25,1.25,2.5; with --quick 1.25]
    #[arg(long, value_name = "X,X", value_delimiter = ',')]
    pub spill_ratio: Vec<f64>,
    /// Size of the device
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    pub size: Size,
    /// Directory on a disk, for the file behind the loop device
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub work: PathBuf,
}

/// Arguments of `narufs reproduce`.
#[derive(Debug, Args)]
pub struct Reproduce {
    /// Which papers: journaling, checkpoint, range-lock, nat, spill [default: all]
    #[arg(value_name = "PAPER")]
    pub papers: Vec<String>,
    /// Small sizes and one round: shows that all of it works, and no more
    #[arg(long)]
    pub quick: bool,
    /// Print the results as JSON on standard output, in place of tables
    #[arg(long)]
    pub json: bool,
    /// Write a page for each paper, and results.json, into this directory; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// How often each is run, in turn with the others [default: 5; with --quick 1]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Directory on the device that is measured, for images
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub work: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("say a number above 0, a day at the most".into()),
    }
}
