//! The program that measures, which `narufs bench` and `narufs compare` become: what mounts is built without it.

mod bench;
mod compare;

use narufs_cli::args::Command;
use narufs_cli::failure::{Failure, Status};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match narufs_cli::start() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let outcome = match &cli.command {
        Command::Bench(args) => bench::run(args),
        Command::Compare(args) => compare::run(args),
        Command::SpillWorker => compare::work(),
        Command::BenchChild => bench::child(),
        _ => Err(Failure::new(Status::Usage, "this program measures; the narufs command does all else")),
    };
    narufs_cli::end(cli.command.name(), outcome)
}
