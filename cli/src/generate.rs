//! `narufs generate`: man pages and completions of shells, written by the program that they are of, so that they cannot
//! say anything else than it does. What installs it calls this, and knows where each of the shells looks.

use crate::args::{Cli, Generate};
use crate::called::NAMES;
use crate::failure::{Failure, Status};
use crate::help::manual;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::io;
use std::path::Path;

/// Writes them.
pub fn run(args: &Generate) -> Result<(), Failure> {
    write(&args.dir).map_err(|e| Failure::about(Status::Failed, &args.dir, e))
}

fn write(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for page in manual::pages()? {
        std::fs::write(dir.join(page.file), page.text)?;
    }
    let program = visible(Cli::command());
    let alone = |name: &str| program.find_subcommand(name).cloned().unwrap_or_else(|| Command::new("narufs"));
    let called = NAMES.map(|(name, command)| (name, alone(command)));
    for (name, mut command) in std::iter::once(("narufs", program.clone())).chain(called) {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command, name, dir)?;
        }
    }
    Ok(())
}

/// The command without what only narufs itself says to narufs.
fn visible(command: Command) -> Command {
    let arguments: Vec<_> = command.get_arguments().filter(|a| !a.is_hide_set()).cloned().collect();
    let commands: Vec<_> = command.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect();
    let about = command.get_about().cloned().unwrap_or_default();
    let bare = Command::new(command.get_name().to_string()).about(about).args(arguments);
    let version = command.get_version().map(str::to_string);
    let bare = version.into_iter().fold(bare, Command::version);
    bare.subcommands(commands.into_iter().map(visible))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_each_shell_and_name_know_the_options_and_nothing_that_is_hidden() {
        let dir = tempfile::tempdir().expect("a directory");
        write(dir.path()).expect("all is written");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
        for name in ["narufs.bash", "_narufs", "narufs.fish"] {
            let text = read(name);
            for word in ["mkfs", "mount", "fsck", "discard-journal", "spill-size"] {
                assert!(text.contains(word), "{name}: {word}");
            }
            for word in ["spill-worker", "bench-child", "supervise-on", "check-takeover", "generate"] {
                assert!(!text.contains(word), "{name}: {word}");
            }
        }
        for name in ["mkfs.narufs.bash", "_mkfs.narufs", "mkfs.narufs.fish"] {
            let text = read(name);
            assert!(text.contains("journal-size") && !text.contains("discard-journal"), "{name}: {text}");
        }
    }
}
