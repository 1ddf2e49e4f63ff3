//! The narufs command.

use std::process::ExitCode;

fn main() -> ExitCode {
    narufs_cli::main()
}
