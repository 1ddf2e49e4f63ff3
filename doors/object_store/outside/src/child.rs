//! The process that is killed, from the outside.

use crate::database::Counts;
use crate::run::Said;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdout, Command, ExitStatus, Stdio};

const SIGKILL: i32 = 9;

/// The process; it does not outlive this.
pub struct Child {
    child: std::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
    heard: Heard,
}

/// What it has said so far.
#[derive(Clone, Copy, Default)]
pub struct Heard {
    /// The last batch that is acknowledged.
    pub acknowledged: u64,
    /// How many are.
    pub batches: u64,
    /// What was done.
    pub counts: Counts,
}

impl Child {
    /// Starts it; its errors are told, or not, where they are to be expected.
    ///
    /// # Errors
    /// Those of the process.
    pub fn start(image: &Path, round: u64, errors: Stdio) -> Result<Child> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("run")
            .arg(image)
            .args(["--round", &round.to_string()])
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("start a process")?;
        let lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Child { child, lines, heard: Heard::default() })
    }

    /// The next that it says; none when it has ended.
    fn hear(&mut self) -> Option<Said> {
        let said = Said::of(&self.lines.next()?.ok()?)?;
        if let Said::Done(batch, counts) = said {
            self.heard = Heard { acknowledged: batch, batches: self.heard.batches + 1, counts };
        }
        Some(said)
    }

    /// Waits until it has said that it opens the database, and for so many batches.
    ///
    /// # Errors
    /// If it ends before.
    pub fn wait_for(&mut self, batches: u64) -> Result<()> {
        let mut opens = false;
        while !opens || self.heard.batches < batches {
            match self.hear() {
                Some(said) => opens |= matches!(said, Said::Opens),
                None => {
                    // What says something else than it should goes on.
                    self.child.kill()?;
                    bail!("the process has ended by itself: {}", self.child.wait()?)
                }
            }
        }
        Ok(())
    }

    /// Kills it; all that it has said.
    ///
    /// # Errors
    /// If it had ended before.
    pub fn kill(self) -> Result<Heard> {
        let (heard, status) = self.end()?;
        ensure!(status.signal() == Some(SIGKILL), "the process has ended by itself: {status}");
        Ok(heard)
    }

    /// Kills it if it has not ended yet; all that it has said, and how it ended.
    ///
    /// # Errors
    /// Those of the process.
    pub fn end(mut self) -> Result<(Heard, ExitStatus)> {
        self.child.kill()?;
        while self.hear().is_some() {}
        Ok((self.heard, self.child.wait()?))
    }

    /// Holds that it has not ended.
    ///
    /// # Errors
    /// If it has.
    pub fn is_at_work(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the process has ended by itself: {status}"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Ended already, if nothing has gone wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
