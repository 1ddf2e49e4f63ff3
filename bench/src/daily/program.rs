//! A program of the user's: started, listened to, waited for, and the time that took.

use crate::stop::Stop;
use crate::{Error, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often the user is heard.
const TICK: Duration = Duration::from_millis(100);

/// What becomes of what a program says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// It is read and dropped.
    Dropped,
    /// Its lines are counted.
    Counted,
    /// It is kept.
    Kept,
}

/// What a program has done.
#[derive(Debug)]
pub(super) struct Ran {
    /// From before its start to its end.
    pub time: Duration,
    /// How it ended.
    pub status: ExitStatus,
    /// Bytes that it said.
    pub bytes: u64,
    /// Lines of them, where they were counted.
    pub lines: u64,
    /// What it said, where that was kept.
    pub said: Vec<u8>,
}

/// Whether the shell would find a program.
pub(super) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// What a program says of its version; nothing of one that is not there.
pub(super) fn version(program: &str) -> Option<String> {
    let out = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    said.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Where programs run, and what is around them: nothing of the user's configuration, and temporary files and home
/// outside of the target.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// The directory they are in.
    pub dir: PathBuf,
    /// A directory outside of the target.
    pub outside: PathBuf,
}

impl Surroundings {
    /// A program with its arguments.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.dir).stdin(Stdio::null());
        command.env("LC_ALL", "C").env("TZ", "UTC").env("HOME", &self.outside).env("TMPDIR", &self.outside);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        // Whoever owns the target, and the repository.
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory");
        command.env("GIT_CONFIG_VALUE_0", "*").env_remove("MAKEFLAGS").env_remove("TAR_OPTIONS");
        command
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// If it cannot be started, or the user wants the end: it is killed then, with what it has started.
    pub fn run(&self, mut command: Command, output: Output, stop: &Stop) -> Result<Ran> {
        let name = command.get_program().to_string_lossy().into_owned();
        let at = |e: std::io::Error| Error::io("run", &name, e);
        let errors = self.errors();
        // A group of its own, so that what it starts ends with it.
        command.stdout(Stdio::piped()).stderr(File::create(&errors).map_err(at)?).process_group(0);
        let begin = Instant::now();
        let mut child = command.spawn().map_err(at)?;
        let (group, pipe) = (Pid::from_child(&child), child.stdout.take());
        let (send, ended) = channel();
        let waiter = std::thread::spawn(move || {
            let heard = pipe.map_or(Ok(Heard::default()), |pipe| listen(pipe, output));
            let status = child.wait();
            // Whoever waits for it takes it.
            let _ = send.send((heard, status, Instant::now()));
        });
        let (heard, status, end) = loop {
            match ended.recv_timeout(TICK) {
                Ok(all) => break all,
                Err(RecvTimeoutError::Disconnected) => return Err(crate::load::died()),
                Err(RecvTimeoutError::Timeout) if stop.is_set() => {
                    // It may have ended just now.
                    let _ = kill_process_group(group, Signal::KILL);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let _ = waiter.join();
        stop.check()?;
        let (Heard { bytes, lines, said }, status) = (heard.map_err(at)?, status.map_err(at)?);
        Ok(Ran { time: end - begin, status, bytes, lines, said })
    }

    /// Runs it to its end, which is a good one.
    ///
    /// # Errors
    /// Also if it says that it failed, with the last that it said.
    pub fn succeed(&self, command: Command, output: Output, stop: &Stop) -> Result<Ran> {
        let name = command.get_program().to_string_lossy().into_owned();
        let ran = self.run(command, output, stop)?;
        if ran.status.success() { Ok(ran) } else { Err(self.failed(&name, &ran)) }
    }

    /// What is said of a program that failed.
    pub fn failed(&self, name: &str, ran: &Ran) -> Error {
        let said = std::fs::read(self.errors()).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Error::Refused(format!("{name} failed ({}): {last}", ran.status))
    }

    fn errors(&self) -> PathBuf {
        Path::new(&self.outside).join("stderr")
    }
}

#[derive(Debug, Default)]
struct Heard {
    bytes: u64,
    lines: u64,
    said: Vec<u8>,
}

fn listen(mut pipe: ChildStdout, output: Output) -> std::io::Result<Heard> {
    let mut heard = Heard::default();
    if output == Output::Kept {
        heard.bytes = pipe.read_to_end(&mut heard.said)? as u64;
        return Ok(heard);
    }
    let mut part = vec![0; 64 << 10];
    loop {
        match pipe.read(&mut part)? {
            0 => return Ok(heard),
            n => {
                heard.bytes += n as u64;
                if output == Output::Counted {
                    heard.lines += part[..n].iter().filter(|byte| **byte == b'\n').count() as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(at: &Path) -> Surroundings {
        Surroundings { dir: at.to_owned(), outside: at.to_owned() }
    }

    #[test]
    fn what_a_program_says_is_heard_and_its_failure_told() {
        let at = tempfile::tempdir().expect("room");
        let (here, stop) = (here(at.path()), Stop::default());
        let script = |script: &str| here.command("sh", &["-c", script]);
        let ran = here.succeed(script("echo one; echo two"), Output::Counted, &stop).expect("it ran");
        assert_eq!((ran.bytes, ran.lines, ran.said.len()), (8, 2, 0));
        let ran = here.succeed(script("echo one"), Output::Kept, &stop).expect("it ran");
        assert_eq!(ran.said, b"one\n");
        let failed = here.succeed(script("echo broken >&2; exit 3"), Output::Dropped, &stop);
        let said = failed.expect_err("it failed").to_string();
        assert!(said.starts_with("sh failed") && said.ends_with(": broken"), "{said}");
        assert!(here.run(here.command("no-such-program", &[]), Output::Dropped, &stop).is_err());
        assert!(is_there("sh") && !is_there("no-such-program") && version("no-such-program").is_none());
    }

    #[test]
    fn the_users_end_ends_a_program_and_what_it_has_started() {
        let at = tempfile::tempdir().expect("room");
        let (here, stop) = (here(at.path()), Stop::default());
        stop.set();
        // The pipe stays open until both are gone.
        let endless = here.command("sh", &["-c", "sleep 1000000 & wait"]);
        let ended = here.run(endless, Output::Dropped, &stop);
        assert!(matches!(ended, Err(Error::Interrupted)));
    }
}
