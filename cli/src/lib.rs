//! The narufs command, also under the names that mount(8), umount(8), mkfs(8) and fsck(8) look for; [`main`] is all of
//! it.
//!
//! What is public besides is for the programs beside it, `narufs-bench` that `narufs bench` and `narufs compare` start,
//! and `narufs-reproduce` that `narufs reproduce` starts: they understand the same command line and the same mount
//! options, and tell failures in the same way.

pub mod args;
mod beside;
mod broker;
mod called;
mod doctor;
pub mod failure;
mod fsck;
mod generate;
mod harden;
mod heap;
mod help;
mod holder;
mod info;
mod log;
mod metrics;
mod mkfs;
mod mount;
pub mod options;
pub mod output;
mod pause;
mod readiness;
mod remount;
mod resize;
pub mod server;
pub mod size;
mod snapshot;
mod stats;
mod supervised;
mod supervisor;
mod sync;
mod top;
mod trim;
mod umount;
mod upgrade;
mod utab;

use args::{Cli, Command};
use clap::FromArgMatches;
use failure::Failure;
use signal_hook::consts::SIGXFSZ;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The exit status of wrong usage, by convention of the command: fsck(8), mount(8) and umount(8) have their own.
fn usage_status(arguments: &[OsString]) -> u8 {
    match arguments.get(1).and_then(|command| command.to_str()) {
        Some("fsck") => 16,
        Some("mount" | "umount") => failure::Status::MountUsage.code(),
        _ => 2,
    }
}

/// Has writes beyond a limit of the length of files (`ulimit -f`) fail, where the signal that comes with them would end the
/// process. Programs that this one starts are not spared it.
fn outlive_limits() {
    let unused = Arc::new(AtomicBool::new(false));
    if let Err(e) = signal_hook::flag::register(SIGXFSZ, unused) {
        tracing::debug!("a write beyond the limit of files' lengths will end this process: {e}");
    }
}

/// The command line of this process.
///
/// # Errors
/// The status to end with, once help or what is wrong was printed.
pub fn start() -> Result<Cli, ExitCode> {
    log::start();
    outlive_limits();
    let arguments = called::arguments(std::env::args_os().collect(), rustix::process::geteuid().is_root());
    let parsed = help::command()
        .bin_name("narufs")
        .try_get_matches_from(&arguments)
        .and_then(|found| Cli::from_arg_matches(&found));
    parsed.map_err(|e| {
        let status = if e.use_stderr() { usage_status(&arguments) } else { 0 };
        // Where nobody listens there is nobody to tell.
        let _ = e.print();
        ExitCode::from(status)
    })
}

/// Says on standard error how the command `name` failed, if it did.
#[must_use]
pub fn end(name: &str, outcome: Result<(), Failure>) -> ExitCode {
    let mut code = 0;
    if let Err(failure) = outcome {
        if !failure.message.is_empty() {
            eprintln!("narufs {name}: {failure}");
        }
        code = failure.status.code();
    }
    if let Some(why) = output::lost() {
        eprintln!("narufs {name}: standard output: {why}");
        // Of fsck(8) each status is a bit.
        let failed = if name == "fsck" { failure::Status::CheckFailed } else { failure::Status::Failed };
        code = if name == "fsck" || code == 0 { code | failed.code() } else { code };
    }
    ExitCode::from(code)
}

/// Runs the command that this process was started with, and gives its exit status.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match start() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let outcome = match &cli.command {
        Command::Mkfs(args) => mkfs::run(args),
        Command::Mount(args) if remount::is_wanted(args) => remount::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Sync(args) => sync::run(args),
        Command::Resize(args) => resize::run(args),
        Command::Trim(args) => trim::run(args),
        Command::Fsck(args) => fsck::run(args),
        Command::Info(args) => info::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Top(args) => top::run(args),
        Command::Metrics(args) => metrics::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Upgrade(args) => upgrade::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Bench(_) | Command::Compare(_) | Command::SpillWorker | Command::BenchChild => {
            beside::BENCH.run()
        }
        Command::Reproduce(_) => beside::REPRODUCE.run(),
    };
    end(cli.command.name(), outcome)
}
