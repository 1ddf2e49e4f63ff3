//! A drive with a cache that a loss of power takes: narufs-drive, which shows a file as one.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tempfile::TempDir;

/// The drive.
pub struct Drive {
    child: Child,
    dir: TempDir,
}

impl Drive {
    /// Mounts it over the file of what was flushed. With a seed some of what was not is there after a loss of power.
    ///
    /// # Errors
    /// Those of the program.
    pub fn mount(program: &Path, flushed: &Path, seed: Option<u64>) -> Result<Drive> {
        let dir = tempfile::tempdir()?;
        let mut command = Command::new(program);
        command.arg(flushed).arg(dir.path()).args(seed.map(|seed| seed.to_string()));
        let child = command.spawn().with_context(|| program.display().to_string())?;
        let mut drive = Drive { child, dir };
        while !drive.disk().exists() {
            if let Some(status) = drive.child.try_wait()? {
                bail!("{} has ended: {status}; it mounts, which takes root", program.display());
            }
            std::thread::yield_now();
        }
        Ok(drive)
    }

    /// The file that is the drive.
    pub fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Takes the power away when the next flush is asked for, and returns when it is gone.
    ///
    /// # Errors
    /// Those of the program.
    pub fn lose_power(&mut self) -> Result<()> {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status().context("kill")?;
        ensure!(asked.success(), "the drive could not be told: {asked}");
        let ended = self.child.wait()?;
        ensure!(ended.success(), "the drive has failed: {ended}");
        Ok(())
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // Where something has gone wrong it still runs; the mount outlives it in any case.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}
