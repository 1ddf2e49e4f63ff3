//! Programs on mounts whose servers are killed: `narufs-outlive kills|leaks|pause NARUFS [NAME=VALUE...]`, see
//! `narufs_testing::outlive`. It mounts, which takes root.

use narufs_testing::outlive::settings::Settings;
use narufs_testing::outlive::{Outcome, campaign, leaks, pause, sit};
use narufs_testing::place::cannot_mount;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "narufs-outlive kills|leaks|pause NARUFS [NAME=VALUE...]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("narufs-outlive: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Outcome {
    let (command, narufs, words) = match words {
        // What sits on a mount says so.
        [command, locked] if command == "sit" => return sit::sit(Path::new(locked)),
        [command, narufs, words @ ..] => (command, Path::new(narufs), words),
        _ => return Err(USAGE.into()),
    };
    if let Some(why) = cannot_mount() {
        return Err(why.into());
    }
    let settings = |known: &[&str]| Settings::new(narufs.canonicalize()?, words, known);
    match command.as_str() {
        "kills" => campaign::run(&settings(&campaign::KNOWN)?),
        "leaks" => leaks::run(&settings(&leaks::KNOWN)?),
        "pause" => pause::run(&settings(&pause::KNOWN)?),
        _ => Err(USAGE.into()),
    }
}
