//! SlateDB on narufs's store of objects, in one image, in processes that are killed or lose the power of their drive: what was
//! acknowledged is there after it, whole and in order, at most the batch that was under way besides, and fsck finds nothing.
//! docs/doors/OBJECTS.md has what was seen.

mod child;
mod database;
mod drive;
mod place;
mod rule;
mod run;
mod trial;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// SlateDB on narufs, killed and cut off from power
#[derive(Debug, Parser)]
#[command(name = "narufs-slatedb", version)]
struct Cli {
    /// What to do
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kill processes that work with a database in an image, and look at it after each
    Kills {
        /// How many
        #[arg(long, default_value_t = 100)]
        kills: u64,
        #[command(flatten)]
        trial: Trial,
    },
    /// The same with a drive that loses power (root)
    Losses {
        /// The program narufs-drive
        #[arg(long, value_name = "PROGRAM")]
        drive: PathBuf,
        /// How many
        #[arg(long, default_value_t = 20)]
        losses: u64,
        #[command(flatten)]
        trial: Trial,
    },
    /// Work with a database in an image that is there, and say which batches are durable: the process that is killed
    Run {
        /// The image
        image: PathBuf,
        /// What makes its batches differ from those of others
        #[arg(long, default_value_t = 1)]
        round: u64,
    },
}

#[derive(Debug, Args)]
struct Trial {
    /// What the moments follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the image is made, of 1 GiB [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

impl Trial {
    fn work(&self) -> PathBuf {
        self.work.clone().unwrap_or_else(std::env::temp_dir)
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Kills { kills, trial } => trial::kills(&trial.work(), trial.seed, kills),
        Command::Losses { drive, losses, trial } => trial::losses(&trial.work(), trial.seed, losses, &drive),
        Command::Run { image, round } => run::run(&image, round),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // One line, with what has led to it.
            eprintln!("narufs-slatedb: {e:#}");
            ExitCode::FAILURE
        }
    }
}
