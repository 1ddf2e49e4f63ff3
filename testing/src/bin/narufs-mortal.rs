//! The command `narufs`, with what is planted in it: servers that tests kill at named steps.

use std::process::ExitCode;

fn main() -> ExitCode {
    narufs_cli::main()
}
