//! The narufs command, also under the names that mount(8), umount(8), mkfs(8) and fsck(8) look for.

mod args;
mod bench;
mod called;
mod compare;
mod failure;
mod fsck;
mod heap;
mod help;
mod holder;
mod info;
mod mkfs;
mod mount;
mod options;
mod output;
mod remount;
mod resize;
mod server;
mod size;
mod stats;
mod sync;
mod trim;
mod umount;
mod utab;

use args::{Cli, Command};
use clap::FromArgMatches;
use std::ffi::OsString;
use std::process::ExitCode;

/// The exit status of wrong usage, by convention of the command: fsck(8), mount(8) and umount(8) have their own.
fn usage_status(arguments: &[OsString]) -> u8 {
    match arguments.get(1).and_then(|command| command.to_str()) {
        Some("fsck") => 16,
        Some("mount" | "umount") => failure::Status::MountUsage.code(),
        _ => 2,
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("NARUFS_LOG").unwrap_or_else(|_| "warn".into()),
        )
        .with_target(false)
        .without_time()
        .init();
    let arguments = called::arguments(std::env::args_os().collect(), rustix::process::geteuid().is_root());
    let parsed =
        help::command().try_get_matches_from(&arguments).and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) => {
            let status = if e.use_stderr() { usage_status(&arguments) } else { 0 };
            // Where nobody listens there is nobody to tell.
            let _ = e.print();
            return ExitCode::from(status);
        }
    };
    let (name, outcome) = match &cli.command {
        Command::Mkfs(args) => ("mkfs", mkfs::run(args)),
        Command::Mount(args) if remount::is_wanted(args) => ("mount", remount::run(args)),
        Command::Mount(args) => ("mount", mount::run(args)),
        Command::Umount(args) => ("umount", umount::run(args)),
        Command::Sync(args) => ("sync", sync::run(args)),
        Command::Resize(args) => ("resize", resize::run(args)),
        Command::Trim(args) => ("trim", trim::run(args)),
        Command::Fsck(args) => ("fsck", fsck::run(args)),
        Command::Info(args) => ("info", info::run(args)),
        Command::Stats(args) => ("stats", stats::run(args)),
        Command::Bench(args) => ("bench", bench::run(args)),
        Command::Compare(args) => ("compare", compare::run(args)),
        Command::SpillWorker => ("spill-worker", compare::work()),
        Command::BenchChild => ("bench", bench::child()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("narufs {name}: {failure}");
            }
            ExitCode::from(failure.status.code())
        }
    }
}
