//! Others' programs as loads: scripts below `testing/programs/outlive`, each of which does its work in a directory of the
//! mount, compares the result, and leaves nothing behind.

use super::{Outcome, Work};
use crate::demand;
use rand::Rng;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// All of them.
pub const ALL: [&str; 7] = ["fio", "git", "build", "sqlite", "postgres", "rsync", "tar"];

/// Lines of what a failed program has said that are shown.
const SHOWN: usize = 40;

/// Where the script lies.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("programs/outlive/{name}.sh"))
}

/// Runs a script once: `NAME.sh DIR ASIDE SEED`.
///
/// # Errors
/// How it has ended, with the end of what it said.
pub fn run(script: &Path, work: &mut Work<'_>) -> Outcome {
    let log = work.aside.join("log");
    let said = File::create(&log)?;
    let mut command = Command::new(script);
    command.args([&work.dir, &work.aside]).arg(work.random.random_range(1..1_000_000).to_string());
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).current_dir("/").process_group(0);
    let mut group = Group { child: command.spawn()?, is_over: false };
    let status = group.child.wait()?;
    group.is_over = true;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    demand!(status.success(), "{status}\n{}", lines[lines.len().saturating_sub(SHOWN)..].join("\n"));
    Ok(())
}

/// A script with what it has started.
struct Group {
    child: Child,
    is_over: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
